"""Gymnasium's lake, cliff and taxi as exact worlds, with maps of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.mdp.from_gymnasium import read_model
from cautious.mdp.tabular import TabularMDP

CLIFF_ROWS, CLIFF_COLUMNS = 4, 12
TAXI_SIZE = 5
TAXI_STATES_PER_CELL = 20
"""Five places of the passenger times four destinations."""
TAXI_WALLS = ((0, 1), (1, 1), (3, 0), (3, 2), (4, 0), (4, 2))
"""Gymnasium's own walls: (row, column) of the cell to the left of each."""
EAST, WEST = 2, 3


class ToyWorld(NamedTuple):
    """A world of Gymnasium's, and what it pays."""

    mdp: TabularMDP
    rewards: Tensor
    """What Gymnasium pays for each (state, action), [S, A]; 0 in the state after the end."""


def lake_world(rows: Sequence[str], discount: float) -> ToyWorld:
    """FrozenLake with this map and without slipping; letters that Gymnasium does not know are ice.

    >>> lake_world(["SF", "FG"], 0.9).mdp
    TabularMDP(num_states=5, num_actions=4, discount=0.9, sparse)
    """
    return _read(FrozenLakeEnv(desc=list(rows), is_slippery=False), discount)


def cliff_world(discount: float) -> ToyWorld:
    """CliffWalking: 4 rows of 12 cells; a step pays -1, the cliff -100 and the way back to the start."""
    return _read(CliffWalkingEnv(), discount)


def taxi_world(walls: Sequence[tuple[int, int]] = TAXI_WALLS, discount: float = 0.95) -> ToyWorld:
    """Taxi with these walls, each to the right of the cell (row, column); Gymnasium's own by default."""
    env = TaxiEnv()
    beside = np.zeros((TAXI_SIZE, TAXI_SIZE + 1), dtype=bool)  # [row, c]: a wall to the left of column c
    beside[:, [0, TAXI_SIZE]] = True
    for row, column in walls:
        if not (0 <= row < TAXI_SIZE and 0 <= column < TAXI_SIZE - 1):
            raise InvalidInputError(f"walls: there is no place for a wall to the right of cell ({row}, {column}).")
        beside[row, column + 1] = True
    for state, actions in env.P.items():
        row, column = divmod(state // TAXI_STATES_PER_CELL, TAXI_SIZE)
        for action, shift, blocked in ((EAST, 1, beside[row, column + 1]), (WEST, -1, beside[row, column])):
            (chance, _, reward, ends), *_ = actions[action]
            actions[action] = [(chance, state if blocked else state + shift * TAXI_STATES_PER_CELL, reward, ends)]
    return _read(env, discount)


def _read(env: object, discount: float) -> ToyWorld:
    return ToyWorld(TabularMDP.from_gymnasium(env, discount), read_model(env).rewards)
