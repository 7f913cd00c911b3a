"""The driving rules on a wide road: more lanes, a longer view and more obstacles than any table of states could hold.

The rules are those of `worlds/driving_rules.py`, with sizes as parameters and for many cars at once; at the paper's sizes the
two agree, which the tests check. There is no exact MDP here: `num_states` counts what it would have to hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cautious.errors import InvalidInputError
from cautious.seeding import check_seed, make_rng
from cautious.validation import as_number, parse_count, parse_flag
from cautious_paper.worlds.driving_rules import ACTIONS

HIDDEN = -1
"""The row of an obstacle that is not in view."""
ACCELERATE, BRAKE, LEFT, RIGHT, CRUISE = range(len(ACTIONS))


@dataclass(frozen=True)
class WideDriving:
    """A road of `num_lanes` lanes between two ditches, for B cars at once.

    A state is a row of whole numbers [2 + 2 n]: column and speed of the car, then the rows and then the columns of the n
    obstacles, the left half's first. The car is always in the last row; the rows ahead come nearer as it drives.

    Attributes:
        novel: Obstacles may appear on the lanes too, not only in the ditches.
        appearance_probability: p, for each hidden obstacle and newly seen row.
        num_lanes: Of the road, an even number; the ditches are one column each, beside it.
        num_rows: Rows in view, the car's included; also the highest speed.
        obstacles_per_half: Most obstacles in view in each half.
    """

    novel: bool = True
    appearance_probability: float = 0.1
    num_lanes: int = 6
    num_rows: int = 6
    obstacles_per_half: int = 4

    def __post_init__(self) -> None:
        """Raise `InvalidInputError` for a value that breaks its rule."""
        parse_flag(self.novel, "novel")
        for name in ("num_lanes", "num_rows", "obstacles_per_half"):
            parse_count(getattr(self, name), name)
        if self.num_lanes % 2:
            raise InvalidInputError(
                f"num_lanes={self.num_lanes} must be even: each half of the road has its own obstacles."
            )
        if not 0 < as_number(self.appearance_probability) <= 1:
            raise InvalidInputError(
                f"appearance_probability={self.appearance_probability!r} must lie in (0, 1]: at 0 none would ever appear."
            )

    @property
    def num_columns(self) -> int:
        """Lanes and ditches."""
        return self.num_lanes + 2

    @property
    def max_speed(self) -> int:
        """One more than the rows ahead: at full speed the car overdrives its headlights by one row."""
        return self.num_rows

    @property
    def num_obstacles(self) -> int:
        """Number of obstacles in both halves: n."""
        return 2 * self.obstacles_per_half

    @property
    def num_actions(self) -> int:
        """A."""
        return len(ACTIONS)

    @property
    def num_states(self) -> int:
        """How many states there are; obstacles of one half are interchangeable.

        columns · speeds · C(c + m - 1, m)², with m obstacles per half, each hidden or in one of the cells of its columns: c.
        """
        columns = self.num_columns // 2 if self.novel else 1
        places = 1 + self.num_rows * columns
        halves = math.comb(places + self.obstacles_per_half - 1, self.obstacles_per_half) ** 2
        return self.num_columns * (self.max_speed + 1) * halves

    @cached_property
    def _first_columns(self) -> np.ndarray:
        """The lowest column in which each obstacle may appear, [n]."""
        right = self.num_columns // 2 if self.novel else self.num_columns - 1
        return np.repeat([0, right], self.obstacles_per_half)

    def start(self, count: int, rng: np.random.Generator | None = None) -> np.ndarray:
        """`count` cars at a standstill, just right of the middle, with nothing in view: nothing is drawn."""
        states = np.zeros((count, 2 + 2 * self.num_obstacles), dtype=np.int64)
        states[:, 0] = self.num_columns // 2
        states[:, 2 : 2 + self.num_obstacles] = HIDDEN
        return states

    def parts(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Column [B], speed [B], and rows and columns of the obstacles [B, n]."""
        return states[:, 0], states[:, 1], states[:, 2 : 2 + self.num_obstacles], states[:, 2 + self.num_obstacles :]

    def car_moves(self, column: np.ndarray, speed: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, ...]:
        """Next column, next speed and forward distance, as `driving_rules.car_moves` has them, [B] each."""
        change = (action == ACCELERATE).astype(np.int64) - (action == BRAKE)
        aside = (action == RIGHT).astype(np.int64) - (action == LEFT)
        target = column + aside
        moves = (aside != 0) & (speed > 0) & (target >= 0) & (target < self.num_columns)
        return np.where(moves, target, column), (speed + change).clip(0, self.max_speed), speed - moves

    def step(
        self, states: np.ndarray, actions: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """One step of B cars: the next states, and reward, speed, distance, collisions, collision_speed and offroad, [B]."""
        column, speed, rows, columns = self.parts(states)
        next_column, next_speed, distance = self.car_moves(column, speed, np.asarray(actions))
        hidden, ahead = rows == HIDDEN, distance[:, None]
        # A hidden obstacle appears in the first of the newly seen rows, from the nearest on, that hits: a geometric number.
        missed = rng.geometric(self.appearance_probability, rows.shape) - 1
        appears = hidden & (missed < ahead)
        halves = self.num_columns // 2 if self.novel else 1
        spawned = self._first_columns + rng.integers(halves, size=rows.shape)
        moved = np.where(hidden, np.where(appears, ahead - 1 - missed, HIDDEN), rows + ahead)
        next_columns = np.where(appears, spawned, columns)
        last = self.num_rows - 1
        lowest, highest = (extreme(column, next_column)[:, None] for extreme in (np.minimum, np.maximum))
        crossed = (lowest <= next_columns) & (next_columns <= highest)
        under_the_car = (rows == last) & (columns == column[:, None])
        hit = crossed & np.where(hidden, moved == last, ~under_the_car & (moved >= last))
        collisions, ditch = hit.sum(axis=1), self.num_columns - 1
        offroad = (np.minimum(column, next_column) == 0) | (np.maximum(column, next_column) == ditch)
        next_rows = np.where(moved > last, HIDDEN, moved)
        next_columns = np.where(next_rows == HIDDEN, 0, next_columns)
        following = np.concatenate([np.stack([next_column, next_speed], axis=1), next_rows, next_columns], axis=1)
        happened = {
            "reward": distance - 2.0 * speed * offroad - 2.0 * speed * collisions,
            "speed": speed.astype(float),
            "distance": distance.astype(float),
            "collisions": collisions.astype(float),
            "collision_speed": (speed * collisions).astype(float),
            "offroad": offroad.astype(float),
        }
        return following, happened

    @property
    def local_size(self) -> int:
        """L: how many of an observation's numbers come first and say what lies around the car."""
        return self.max_speed + 1 + 3 * 3 * self.num_rows

    @property
    def observation_size(self) -> int:
        """F."""
        return self.local_size + self.num_columns + self.num_rows * self.num_columns

    def observe(self, states: np.ndarray) -> np.ndarray:
        """What is seen of each state, [B, F], float32.

        First the local part, L numbers: the speed one-hot, and for the three columns around the car and all rows whether there
        is free pavement, a ditch (or a wall beyond it), an obstacle. Then the car's column one-hot, and all obstacles.
        """
        column, speed, rows, columns = self.parts(states)
        cars = np.arange(len(states))
        board = np.zeros((len(states), self.num_rows, self.num_columns + 2), dtype=np.float32)  # a wall on either side
        car, obstacle = np.nonzero(rows != HIDDEN)
        board[car, rows[car, obstacle], columns[car, obstacle] + 1] = 1
        around = column[:, None] + np.arange(3)  # in columns of `board`
        near = board[cars[:, None, None], np.arange(self.num_rows)[:, None], around[:, None]]
        ditch = np.broadcast_to(((around <= 1) | (around >= self.num_columns))[:, None], near.shape).astype(np.float32)
        free = 1 - np.maximum(near, ditch)
        parts = [np.eye(self.max_speed + 1, dtype=np.float32)[speed]]
        parts += [plane.reshape(len(states), -1) for plane in (free, ditch, near)]
        parts += [np.eye(self.num_columns, dtype=np.float32)[column], board[:, :, 1:-1].reshape(len(states), -1)]
        return np.concatenate(parts, axis=1)


def logged_driving_rewards(
    world: WideDriving, num_rows: int = 6000, num_cars: int = 100, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """A log of random driving: the local part of observations [rows, L], rewards [rows, A] with NaN where not tried.

    Each car starts at a random speed in a random column, ditches included, and starts again after 50 steps on average. Without
    these starts nearly all rows would be about slow cars.
    """
    rng = make_rng(check_seed(seed), "driving log")
    states, seen, paid = world.start(num_cars), [], []
    anew = np.ones(num_cars, dtype=bool)
    for _ in range(-(-num_rows // num_cars)):
        states[anew] = world.start(int(anew.sum()))
        states[anew, 0] = rng.integers(world.num_columns, size=int(anew.sum()))
        states[anew, 1] = rng.integers(world.max_speed + 1, size=int(anew.sum()))
        actions = rng.integers(world.num_actions, size=num_cars)
        seen.append(world.observe(states)[:, : world.local_size])
        states, happened = world.step(states, actions, rng)
        rewards = np.full((num_cars, world.num_actions), np.nan, dtype=np.float32)
        rewards[np.arange(num_cars), actions] = happened["reward"]
        paid.append(rewards)
        anew = rng.random(num_cars) < 0.02
    return np.concatenate(seen)[:num_rows], np.concatenate(paid)[:num_rows]
