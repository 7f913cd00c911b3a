"""A driving state as a short vector, for learners that see features instead of the number of a state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cautious.errors import InvalidInputError
from cautious_paper.worlds.driving import DrivingWorld
from cautious_paper.worlds.driving_rules import MAX_SPEED, NUM_COLUMNS, NUM_ROWS, DrivingState, Obstacle

HALF = NUM_COLUMNS // 2
PARTS = (NUM_COLUMNS, MAX_SPEED + 1, 1 + NUM_ROWS * HALF, 1 + NUM_ROWS * HALF)
"""Lengths of the one-hot parts: the car's column, its speed, the left and the right obstacle (hidden, or one of six cells)."""
NUM_FEATURES = sum(PARTS)


def driving_features(states: Sequence[DrivingState]) -> np.ndarray:
    """Four one-hot parts, joined: [S, 22], float32.

    >>> driving_features([DrivingState(2, 0, None, None)])[0].astype(int).tolist()
    [0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    """
    places = np.array([_places(state) for state in states])
    features = np.zeros((len(states), NUM_FEATURES), dtype=np.float32)
    offsets = np.cumsum([0, *PARTS[:-1]])
    features[np.arange(len(states))[:, None], places + offsets] = 1
    return features


def state_numbers_of(world: DrivingWorld, features: np.ndarray) -> np.ndarray:
    """Which states of `world` these features [B, 22] show, as numbers [B]: the inverse of `driving_features`."""
    known, number = _codes(driving_features(world.states)), np.full(int(np.prod(PARTS)), -1)
    number[known] = np.arange(len(known))
    found = number[_codes(np.asarray(features))]
    if (found < 0).any():
        row = int((found < 0).argmax())
        raise InvalidInputError(f"features: row {row} shows no state of {world}.")
    return found


def _places(state: DrivingState) -> tuple[int, int, int, int]:
    return state.column, state.speed, _cell(state.left), _cell(state.right)


def _cell(obstacle: Obstacle) -> int:
    """0 hidden, else one more than the cell's number within its half of the road."""
    return 0 if obstacle is None else 1 + obstacle[0] * HALF + obstacle[1] % HALF


def _codes(features: np.ndarray) -> np.ndarray:
    if features.ndim != 2 or features.shape[1] != NUM_FEATURES:
        raise InvalidInputError(f"features: expected shape [B, {NUM_FEATURES}], got {list(features.shape)}.")
    parts = np.split(features, np.cumsum(PARTS)[:-1], axis=1)
    return np.ravel_multi_index(tuple(part.argmax(axis=1) for part in parts), PARTS)
