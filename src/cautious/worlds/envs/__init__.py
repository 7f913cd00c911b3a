"""Gymnasium environments on the same dynamics as the exact worlds; the one home of Gymnasium.

`import cautious` registers the ids where Gymnasium is installed; then ``gymnasium.make("cautious/Driving-v0")``.
"""

from __future__ import annotations

import gymnasium

gymnasium.register(id="cautious/Driving-v0", entry_point="cautious.worlds.envs.driving:DrivingEnv")
