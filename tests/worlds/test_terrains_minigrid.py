"""The terrains on MiniGrid: the same steps as `cautious/Terrains-v0`, hence the same exact twin."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import stable_baselines3.common.env_checker
import torch
from gymnasium.utils.env_checker import check_env

import cautious_paper.worlds  # noqa: F401  (registers the ids)
from cautious.errors import InvalidInputError
from cautious_paper.beliefs.terrains import MINIGRID_AGENT, TerrainBelief
from cautious_paper.worlds.terrains import ACTIONS, GOAL, SIZE, cell_number, terrain_world

BLOCKED = """
import sys
sys.modules["minigrid"] = None
import gymnasium, cautious_paper.worlds
gymnasium.make("cautious/TerrainsMiniGrid-v0")
"""


def test_without_minigrid_it_says_what_to_install():
    found = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True)
    assert "MissingPackageError" in found.stderr
    assert "pip install 'cautious[minigrid]'" in found.stderr


@pytest.fixture
def wrappers():
    return pytest.importorskip("minigrid.wrappers")


def full_images(wrappers, env: gymnasium.Env) -> np.ndarray:
    """What is seen in each cell, [S, 11, 11, 3]."""
    env.reset(seed=0)
    seen = wrappers.FullyObsWrapper(env)
    images = []
    for cell in range(SIZE * SIZE):
        env.unwrapped.go_to(cell)
        images.append(seen.observation(env.unwrapped.gen_obs())["image"])
    return np.stack(images)


@pytest.mark.usefixtures("wrappers")
def test_one_seed_and_the_same_actions_give_the_same_steps_in_both():
    ours, minigrid = (gymnasium.make(f"cautious/{name}-v0", layout=2) for name in ("Terrains", "TerrainsMiniGrid"))
    actions = np.random.default_rng(0).integers(len(ACTIONS), size=99)
    ours.reset(seed=3)
    minigrid.reset(seed=3)
    cells = set()
    for action in actions.tolist():
        expected, found = ours.step(action), minigrid.step(action)
        assert found[1:] == expected[1:]
        assert minigrid.unwrapped.cell == ours.unwrapped.state[0]
        column, row = minigrid.unwrapped.agent_pos
        assert (row - 1) * SIZE + column - 1 == minigrid.unwrapped.cell
        cells.add(minigrid.unwrapped.cell)
    assert len(cells) > 5


def test_a_full_image_shows_the_map_and_where_one_is(wrappers):
    world = terrain_world(2)
    images = full_images(wrappers, gymnasium.make("cautious/TerrainsMiniGrid-v0", layout=2))
    kinds = images[0, 1:-1, 1:-1, 2].T.reshape(-1)  # MiniGrid's first index is the column
    kinds[0] = images[1, 1, 1, 2]  # the carrier hides what it stands on
    assert kinds.tolist() == world.kinds.tolist()
    assert ((images[..., 0] == MINIGRID_AGENT).sum(axis=(1, 2)) == 1).all()
    constants = pytest.importorskip("minigrid.core.constants")
    assert constants.OBJECT_TO_IDX["agent"] == MINIGRID_AGENT
    row, column = GOAL
    assert images[0, column + 1, row + 1, 0] == constants.OBJECT_TO_IDX["goal"]


def test_a_belief_says_the_same_about_images_as_about_features(wrappers):
    world = terrain_world(2)
    belief = TerrainBelief(world, torch.rand(3, world.num_kinds, generator=torch.Generator().manual_seed(0)))
    images = full_images(wrappers, gymnasium.make("cautious/TerrainsMiniGrid-v0", layout=2))
    assert torch.equal(belief.rewards(images), belief.rewards(world.observe(np.arange(world.num_states))))


def test_it_passes_both_checks_and_is_drawn(wrappers):
    env = gymnasium.make("cautious/TerrainsMiniGrid-v0", render_mode="rgb_array")
    check_env(env.unwrapped, skip_render_check=True)
    stable_baselines3.common.env_checker.check_env(
        wrappers.ImgObsWrapper(wrappers.FullyObsWrapper(env)), warn=False
    )  # it warns that the image is small
    env.reset(seed=0)
    pictures = []
    for cell in (0, cell_number(GOAL)):
        env.unwrapped.go_to(cell)
        pictures.append(env.render())
    assert pictures[0].dtype == np.uint8
    assert (pictures[0] != pictures[1]).any()


@pytest.mark.usefixtures("wrappers")
def test_it_ends_after_max_steps_and_rejects_other_actions():
    env = gymnasium.make("cautious/TerrainsMiniGrid-v0", max_steps=2).unwrapped
    env.reset(seed=0)
    assert [env.step(4)[3] for _ in range(2)] == [False, True]
    with pytest.raises(InvalidInputError, match="action=6"):
        env.step(6)
