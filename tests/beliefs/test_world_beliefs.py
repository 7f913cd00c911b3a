"""Beliefs about terrains and the wide road: sure of what was logged, and of independent doubts about what was not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cautious.errors import InvalidInputError
from cautious_paper.beliefs.terrains import TerrainBelief, fit_terrain_belief
from cautious_paper.beliefs.wide_driving import WideDrivingBelief, fit_wide_driving_belief
from cautious_paper.worlds.terrains import DELIVERY, GOAL, KNOWN, cell_number, terrain_world
from cautious_paper.worlds.wide_driving import WideDriving


@pytest.fixture(scope="module")
def terrain_belief():
    return fit_terrain_belief(num_unseen=6, num_models=40)


def test_models_agree_on_known_ground_and_have_a_doubt_of_their_own_about_each_unseen_kind(terrain_belief):
    said = terrain_belief.rewards(torch.eye(11))[..., 0].numpy()
    known, unseen = said[:, : len(KNOWN)], said[:, len(KNOWN) :]
    assert np.allclose(known.mean(axis=0), list(KNOWN.values()), rtol=0, atol=0.05)
    assert known.std(axis=0).max() < 0.1
    assert unseen.std(axis=0).min() > 0.4
    correlation = np.corrcoef(unseen.T)[~np.eye(6, dtype=bool)]
    assert correlation.mean() < 0.4


def test_what_is_observed_pays_what_its_cell_pays(terrain_belief):
    world = terrain_world(layout=2)
    belief = TerrainBelief.of(world, terrain_belief)
    cells = np.array([0, cell_number(GOAL), 30, 50])
    said = terrain_belief.rewards(torch.eye(11))[..., 0].double()[:, world.kinds[cells]]
    said[:, 1] += DELIVERY
    paid = belief.rewards(world.observe(cells))
    assert paid.shape == (40, 4, 5)
    assert torch.allclose(paid, said[..., None].expand(-1, -1, 5), rtol=0, atol=1e-6)
    assert (belief.num_models, belief.num_actions) == (40, 5)
    with pytest.raises(InvalidInputError, match="kind_rewards"):
        TerrainBelief(world, np.zeros((3, 4)))


def test_models_of_the_wide_road_agree_on_free_lanes_and_not_on_obstacles_there():
    world = WideDriving()
    belief = WideDrivingBelief(fit_wide_driving_belief(num_models=8, num_epochs=8, num_rows=3000))
    free, blocked = world.start(1), world.start(1)
    free[:, 1] = blocked[:, 1] = 4
    blocked[0, 2], blocked[0, 2 + world.num_obstacles] = 3, 4  # straight ahead
    cruise = belief.rewards(world.observe(np.concatenate([free, blocked])))[..., 4]
    assert cruise.shape == (8, 2)
    assert abs(float(cruise[:, 0].mean()) - 4) < 0.8
    assert cruise[:, 1].std() > 3 * cruise[:, 0].std()
