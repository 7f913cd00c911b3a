"""The discretising wrapper: cells, centres, limits."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from cautious import DiscretizeObservation
from cautious.errors import InvalidInputError


def test_every_centre_lies_in_its_own_cell():
    car = DiscretizeObservation(gymnasium.make("MountainCar-v0"), bins=(7, 5))
    assert car.observation_space == gymnasium.spaces.Discrete(35)
    assert [car.observation(centre) for centre in car.centres] == list(range(35))


def test_cells_by_hand():
    """Positions from -1.2 to 0.6 in three cells of 0.6, speeds from -0.07 to 0.07 in two: row by row."""
    car = DiscretizeObservation(gymnasium.make("MountainCar-v0"), bins=(3, 2))
    seen = {(-1.2, -0.07): 0, (-0.61, 0.01): 1, (-0.59, -0.01): 2, (0.0, 0.0): 5, (0.6, 0.07): 5}
    assert {observation: car.observation(np.array(observation)) for observation in seen} == seen
    assert car.observation(np.array([9.0, -9.0])) == 4  # outside: the outermost cells


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")  # that is what a wrapper is
def test_gymnasium_accepts_it():
    check_env(DiscretizeObservation(gymnasium.make("MountainCar-v0").unwrapped, bins=4), skip_render_check=True)


def test_discrete_parts_are_cells_already():
    cards = DiscretizeObservation(gymnasium.make("Blackjack-v1"))
    assert cards.observation_space.n == 32 * 11 * 2
    assert [cards.observation(centre) for centre in cards.centres] == list(range(704))


def test_an_observation_without_limits_needs_them():
    pole = gymnasium.make("CartPole-v1")
    with pytest.raises(InvalidInputError, match=r"number 1 .* no limits .*pass low and high"):
        DiscretizeObservation(pole)
    wrapped = DiscretizeObservation(pole, bins=6, low=[-2.4, -3, -0.2, -3], high=[2.4, 3, 0.2, 3])
    assert wrapped.observation_space.n == 6**4
    with pytest.raises(InvalidInputError, match=r"20 x 20 x 20 x 20 x 20 x 20 = 64,000,000 cells .*KofNPPO"):
        DiscretizeObservation(gymnasium.make("Acrobot-v1"), bins=20)
