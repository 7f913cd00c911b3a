"""The rules of driving: what moves, what is hit, what it pays, and what of it a reward model sees.

One description of the dynamics (`car_moves`, `obstacle_moves`) and of the reward (`step_events`) serves the exact MDP
(`worlds/driving.py`), the Gymnasium environment and the pictures. See docs/driving.md for what the paper leaves open and what
was decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cautious.errors import InvalidInputError

NUM_ROWS, NUM_COLUMNS = 3, 4
CAR_ROW = NUM_ROWS - 1
DITCHES = (0, NUM_COLUMNS - 1)
MAX_SPEED = NUM_ROWS  # vision (rows ahead of the car) plus one
ACTIONS = ("accelerate", "brake", "left", "right", "cruise")

Obstacle = tuple[int, int] | None
"""Hidden, or at (row, column); row 0 is farthest ahead."""


class DrivingState(NamedTuple):
    """The car is always in the bottom row."""

    column: int
    speed: int
    left: Obstacle
    """The obstacle of the left half."""
    right: Obstacle
    """The obstacle of the right half."""


START = DrivingState(column=2, speed=0, left=None, right=None)


class StepEvents(NamedTuple):
    """What happened in a step from one state to the next."""

    distance: int
    collisions: int
    offroad: bool


def car_moves(column: int, speed: int, action: str) -> tuple[int, int, int]:
    """Next column, next speed and forward distance of an action; `speed` is the speed before it.

    A change of speed acts on the next step only. A lane change spends one unit of movement sideways; at a standstill, or
    against a wall, there is none.
    """
    if action == "accelerate":
        return column, min(speed + 1, MAX_SPEED), speed
    if action == "brake":
        return column, max(speed - 1, 0), speed
    if action == "cruise":
        return column, speed, speed
    if action not in ("left", "right"):
        raise InvalidInputError(f"action={action!r} is not known; choose one of {', '.join(ACTIONS)}.")
    target = column + (1 if action == "right" else -1)
    if speed == 0 or not 0 <= target < NUM_COLUMNS:
        return column, speed, speed
    return target, speed, speed - 1


def obstacle_moves(
    obstacle: Obstacle, distance: int, spawn_columns: tuple[int, ...], appearance_probability: float
) -> Iterator[tuple[Obstacle, float]]:
    """Where one obstacle can be after the car moved `distance` rows forward, with probabilities.

    A visible one comes nearer and leaves the view behind the car. A hidden one may appear in each newly seen row, scanned
    from the nearest to the farthest, with probability p; its column is uniform over its spawn columns.
    """
    if obstacle is not None:
        row = obstacle[0] + distance
        yield (row, obstacle[1]) if row < NUM_ROWS else None, 1.0
        return
    missed = 1.0
    for row in reversed(range(distance)):
        for column in spawn_columns:
            yield (row, column), missed * appearance_probability / len(spawn_columns)
        missed *= 1 - appearance_probability
    yield None, missed


def step_events(state: DrivingState, following: DrivingState) -> StepEvents:
    """Distance, collisions and whether a ditch was touched: functions of the two states alone.

    Each obstacle counts once at most: a visible one (other than one already under the car) if the car reaches or passes
    it in a column it is in at the start or the end of the step; a hidden one if it appears right where the car ends.
    """
    distance = state.speed - (state.column != following.column)
    lowest, highest = sorted((state.column, following.column))
    collisions = 0
    for before, after in ((state.left, following.left), (state.right, following.right)):
        if before is not None:
            under_the_car = before == (CAR_ROW, state.column)
            collisions += not under_the_car and before[0] + distance >= CAR_ROW and lowest <= before[1] <= highest
        elif after is not None:
            collisions += after[0] == CAR_ROW and lowest <= after[1] <= highest
    return StepEvents(distance, collisions, state.column in DITCHES or following.column in DITCHES)


def pair_features(state: DrivingState, following: DrivingState) -> dict[str, float]:
    """The reward and the safety statistics of one step.

    reward = distance - 2 speed [off-road] - 2 speed · collisions
    """
    events, speed = step_events(state, following), state.speed
    return {
        "reward": events.distance - 2 * speed * events.offroad - 2 * speed * events.collisions,
        "speed": speed,
        "distance": events.distance,
        "collisions": events.collisions,
        "collision_speed": speed * events.collisions,
        "offroad": float(events.offroad),
        "offroad_spaces": speed * events.offroad,
        "lane_changes": float(state.column != following.column),
    }


FEATURES = tuple(pair_features(START, START))


def network_image(state: DrivingState) -> Tensor:
    """What a reward model sees of a state: channels pavement, ditch, car, obstacle over the lanes, [4, 3, 4]."""
    image = torch.zeros(4, NUM_ROWS, NUM_COLUMNS, dtype=torch.float32)
    image[1, :, list(DITCHES)] = 1
    image[2, CAR_ROW, state.column] = 1
    for obstacle in (state.left, state.right):
        if obstacle is not None:
            image[3, obstacle[0], obstacle[1]] = 1
    image[0] = 1 - image[1:].amax(dim=0)
    return image
