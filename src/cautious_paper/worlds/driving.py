"""The driving gridworld: two lanes, two ditches, obstacles that appear at the edge of the view; familiar and novel.

`worlds/driving_rules.py` has the rules; this module enumerates them as an exact MDP. In the familiar world obstacles appear in
the ditches only; in the novel one on the road too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.mdp.tabular import TabularMDP
from cautious.validation import as_float_tensor, as_number, check_shape, parse_count, parse_flag
from cautious_paper.worlds.driving_rules import (
    ACTIONS,
    FEATURES,
    MAX_SPEED,
    NUM_COLUMNS,
    NUM_ROWS,
    START,
    DrivingState,
    Obstacle,
    car_moves,
    obstacle_moves,
    pair_features,
)

FAMILIAR_SPAWN = ((0,), (3,))
NOVEL_SPAWN = ((0, 1), (2, 3))
DISCOUNT = 0.99


@dataclass(frozen=True, eq=False, repr=False)
class DrivingWorld:
    """The exact MDP with everything that is known about it.

    Attributes:
        novel: Whether obstacles appear on the road.
        appearance_probability: p, for each hidden obstacle and newly seen row.
        mdp: Transitions, start and discount; no reward.
        states: (column, speed, left, right) in the order of the MDP's states.
        actions: Names in the order of the MDP's actions.
        features: Name -> expected value [S, A] of the reward and of each safety statistic.
        pairs: The distinct (state, next state) pairs that can happen from the start, as indices [P, 2]: in the familiar
            world, the training inputs.
        pair_rewards: Their rewards, [P].
    """

    novel: bool
    appearance_probability: float
    mdp: TabularMDP
    states: tuple[DrivingState, ...]
    actions: tuple[str, ...]
    features: Mapping[str, Tensor]
    pairs: Tensor
    pair_rewards: Tensor
    every_pair: Tensor
    """All (state, next state) pairs, [Q, 2]; also from states that are not reached because obstacles always appear."""
    pair_matrix: scipy.sparse.csr_array
    """P(s'|s,a) by pair, [S*A, Q]: turns values of `every_pair` into expectations."""

    def __repr__(self) -> str:
        """Without the tables, which are long."""
        kind = "novel" if self.novel else "familiar"
        return f"DrivingWorld({kind}, appearance_probability={self.appearance_probability:g}, {self.mdp})"

    def index(self, state: tuple[int, int, Obstacle, Obstacle]) -> int:
        """The index of a state among the MDP's states."""
        try:
            return _state_index(self.novel)[DrivingState(*state)]
        except (KeyError, TypeError):
            raise InvalidInputError(
                f"state={state!r} is not a state of the {'novel' if self.novel else 'familiar'} driving world; a state is "
                f"(column 0..3, speed 0..3, left obstacle, right obstacle), an obstacle None or (row 0..2, column), "
                f"columns {_spawn(self.novel)[0]} on the left and {_spawn(self.novel)[1]} on the right."
            ) from None

    def sample_next(self, state: int, action: int, uniform: float) -> int:
        """The next state's index that a uniform random number `uniform` in [0, 1) leads to."""
        state, action = parse_count(state, "state", 0), parse_count(action, "action", 0)
        if state >= len(self.states) or action >= len(self.actions) or not 0 <= as_number(uniform) < 1:
            raise InvalidInputError(
                f"state={state}, action={action}, uniform={uniform!r}: there are {len(self.states)} states and "
                f"{len(self.actions)} actions, counted from 0, and uniform is a number in [0, 1)."
            )
        rows = self.mdp.dynamics.matrix
        row = state * len(self.actions) + action
        entries = slice(rows.indptr[row], rows.indptr[row + 1])
        return int(rows.indices[entries][draw_index(rows.data[entries], uniform)])

    def expected(self, pair_values: Tensor) -> Tensor:
        """Expectation over the next state of values of `every_pair`: [..., Q] -> [..., S, A]."""
        values = as_float_tensor(pair_values, "pair_values")
        check_shape(values, "... Q", "pair_values", Q=len(self.every_pair))
        flat = values.reshape(-1, values.shape[-1]).double().cpu().numpy()
        rows = torch.from_numpy(np.ascontiguousarray((self.pair_matrix @ flat.T).T))
        return rows.reshape(*values.shape[:-1], len(self.states), len(self.actions))


def draw_index(probabilities: np.ndarray, uniform: float) -> int:
    """The index at which the cumulated probabilities pass `uniform`; the last one if rounding keeps them below it."""
    return min(int(np.searchsorted(probabilities.cumsum(), uniform, side="right")), len(probabilities) - 1)


def driving_world(novel: bool = True, appearance_probability: float = 0.5) -> DrivingWorld:
    """The driving world's exact MDP.

    Args:
        novel: Obstacles may appear on the road too, not only in the ditches.
        appearance_probability: p in (0, 1]. The paper does not say which it used (deviation D5).

    >>> world = driving_world(novel=False)
    >>> len(world.states), len(world.pairs), world.states[world.index((2, 0, None, None))].speed
    (256, 1714, 0)
    """
    probability = as_number(appearance_probability)
    if not 0 < probability <= 1:
        raise InvalidInputError(
            f"appearance_probability={appearance_probability!r} must lie in (0, 1]: at 0 no obstacle would ever appear."
        )
    world = _build_world(parse_flag(novel, "novel"), probability)
    # What is kept for the next caller must not change with what this one does to its tensors.
    copies = {name: getattr(world, name).clone() for name in ("pairs", "pair_rewards", "every_pair")}
    features = {name: values.clone() for name, values in world.features.items()}
    return replace(world, **copies, features=features)


def _spawn(novel: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return NOVEL_SPAWN if novel else FAMILIAR_SPAWN


@lru_cache(maxsize=2)
def _states(novel: bool) -> tuple[DrivingState, ...]:
    """All states: column outermost, then speed, left, right; hidden first, then cells by row, then by column."""
    lefts, rights = ([None, *product(range(NUM_ROWS), columns)] for columns in _spawn(novel))
    every = product(range(NUM_COLUMNS), range(MAX_SPEED + 1), lefts, rights)
    return tuple(DrivingState(column, speed, left, right) for column, speed, left, right in every)


@lru_cache(maxsize=2)
def _state_index(novel: bool) -> dict[DrivingState, int]:
    return {state: index for index, state in enumerate(_states(novel))}


def _transitions(novel: bool, probability: float) -> Iterator[tuple[int, int, float]]:
    """Every (row s*A + a, next state, probability)."""
    index, spawn = _state_index(novel), _spawn(novel)
    for number, state in enumerate(_states(novel)):
        for action_number, action in enumerate(ACTIONS):
            column, speed, distance = car_moves(state.column, state.speed, action)
            lefts = list(obstacle_moves(state.left, distance, spawn[0], probability))
            rights = list(obstacle_moves(state.right, distance, spawn[1], probability))
            for (left, left_chance), (right, right_chance) in product(lefts, rights):
                chance = left_chance * right_chance
                if chance > 0:
                    following = index[DrivingState(column, speed, left, right)]
                    yield number * len(ACTIONS) + action_number, following, chance


def _reachable(matrix: scipy.sparse.csr_array, start: int) -> np.ndarray:
    """Mask [S] of the states that can be reached from `start`."""
    entries, num_states = matrix.tocoo(), matrix.shape[1]
    links = (np.ones(len(entries.row)), (entries.row // len(ACTIONS), entries.col))
    step = scipy.sparse.csr_array(links, shape=(num_states, num_states))
    order = scipy.sparse.csgraph.breadth_first_order(step, start, return_predecessors=False)
    mask = np.zeros(num_states, dtype=bool)
    mask[order] = True
    return mask


@lru_cache(maxsize=16)
def _build_world(novel: bool, probability: float) -> DrivingWorld:
    states = _states(novel)
    start = _state_index(novel)[START]
    row, following, chance = (np.array(column) for column in zip(*_transitions(novel, probability), strict=True))
    num_states, num_rows = len(states), len(states) * len(ACTIONS)
    matrix = scipy.sparse.csr_array((chance, (row, following)), shape=(num_rows, num_states))
    state = row // len(ACTIONS)
    pair, pair_of_entry = np.unique(state * num_states + following, return_inverse=True)
    every_pair = np.stack([pair // num_states, pair % num_states], axis=1)
    pair_matrix = scipy.sparse.csr_array((chance, (row, pair_of_entry)), shape=(num_rows, len(pair)))
    values = [pair_features(states[s], states[t]) for s, t in every_pair]
    by_pair = {name: np.array([value[name] for value in values], dtype=np.float64) for name in FEATURES}
    features = {
        name: torch.from_numpy((pair_matrix @ column).reshape(num_states, len(ACTIONS)))
        for name, column in by_pair.items()
    }
    happens = _reachable(matrix, start)[every_pair[:, 0]]
    initial = np.zeros(num_states)
    initial[start] = 1
    return DrivingWorld(
        novel=novel,
        appearance_probability=probability,
        mdp=TabularMDP(matrix, initial, DISCOUNT),
        states=states,
        actions=ACTIONS,
        features=features,
        pairs=torch.from_numpy(every_pair[happens]),
        pair_rewards=torch.from_numpy(by_pair["reward"][happens]),
        every_pair=torch.from_numpy(every_pair),
        pair_matrix=pair_matrix,
    )
