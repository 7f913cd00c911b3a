"""Gymnasium environments on the same dynamics as the exact worlds; the one home of Gymnasium.

`import cautious_paper.worlds` registers the ids; then ``gymnasium.make("cautious/Driving-v0")``. In one step, without an
import: ``gymnasium.make("cautious_paper.worlds:cautious/Driving-v0")``.
"""

from __future__ import annotations

import gymnasium

gymnasium.register(
    id="cautious/Driving-v0",
    entry_point="cautious_paper.worlds.envs.driving_env:DrivingEnv",
    vector_entry_point="cautious_paper.worlds.envs.driving_vector:DrivingVectorEnv",
)
for name, task in {
    "AskForHelp": "ask-for-help",
    "NonObvious": "non-obvious",
    "HelpIfAvailable": "help-if-available",
}.items():
    gymnasium.register(
        id=f"cautious/{name}-v0",
        entry_point="cautious_paper.worlds.envs.image_env:ImageEnv",
        max_episode_steps=100,
        kwargs={"task": task},
    )

gymnasium.register(
    id="cautious/Terrains-v0",
    entry_point="cautious_paper.worlds.envs.terrains_env:TerrainsEnv",
    vector_entry_point="cautious_paper.worlds.envs.terrains_env:TerrainsVectorEnv",
    max_episode_steps=100,
)
gymnasium.register(  # its module needs the package minigrid, which is imported when one is made
    id="cautious/TerrainsMiniGrid-v0",
    entry_point="cautious_paper.worlds.envs.terrains_minigrid:TerrainsMiniGridEnv",
)
gymnasium.register(
    id="cautious/WideDriving-v0",
    entry_point="cautious_paper.worlds.envs.wide_driving_env:WideDrivingEnv",
    vector_entry_point="cautious_paper.worlds.envs.wide_driving_env:WideDrivingVectorEnv",
    max_episode_steps=500,
)
