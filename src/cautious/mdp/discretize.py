"""`DiscretizeObservation`: continuous observations as cells of a grid, so that a world becomes a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from cautious.errors import InvalidInputError
from cautious.validation import parse_count

MOST_CELLS = 1_000_000
"""More cells than this are no table any more."""
UNBOUNDED = 1e30
"""Limits beyond this are none; some environments have the largest float32 instead of infinity."""


class DiscretizeObservation(gymnasium.ObservationWrapper[Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Shows the number of the grid cell in which an observation lies.

    Every number of a `Box` observation is divided into `bins` equal intervals between `low` and `high`; what lies outside
    belongs to the outermost ones. The parts of a `MultiDiscrete`, or of a `Tuple` of `Discrete` spaces, are cells already.
    `centres` has the observation in the middle of each cell: predict rewards there, `belief.rewards(env.centres)`.

    The cells are an approximation: within one, the world is taken to move as it did on average where it was tried
    (`TabularMDP.from_gymnasium` with `num_steps`).

    >>> car = DiscretizeObservation(gymnasium.make("MountainCar-v0"), bins=(20, 10))
    >>> car.observation_space, car.centres.shape
    (Discrete(200), (200, 2))
    >>> [round(float(x), 3) for x in car.centres[int(car.reset(seed=0)[0])]]  # position and speed, about
    [-0.435, 0.007]
    """

    def __init__(
        self,
        env: Any,
        bins: int | Sequence[int] = 10,
        low: float | Sequence[float] | None = None,
        high: float | Sequence[float] | None = None,
    ) -> None:
        """Wrap an environment.

        Args:
            env: With observations of one of these kinds.
            bins: Intervals of each number of a `Box`: one count for all, or one each.
            low: Lower ends, where the space's own are infinite or too wide: one for all, or one each.
            high: Upper ends.
        """
        gymnasium.utils.RecordConstructorArgs.__init__(self, bins=bins, low=low, high=high)
        gymnasium.ObservationWrapper.__init__(self, env)
        space = getattr(env, "observation_space", None)
        self._low, self._width, self._bins = _grid(space, bins, low, high)
        count = math.prod(int(size) for size in self._bins)
        if count > MOST_CELLS:
            raise InvalidInputError(
                f"bins: {' x '.join(str(size) for size in self._bins)} = {count:,} cells are too many for a table (at most "
                f"{MOST_CELLS:,}); take fewer, or learn from the observations as they are with cautious.KofNPPO."
            )
        self.observation_space = spaces.Discrete(count)

    def observation(self, observation: Any) -> int:
        """The number of the cell."""
        values = np.asarray(observation, dtype=np.float64).reshape(-1)
        if not np.isfinite(values).all():
            raise InvalidInputError(f"observation {observation!r} has a number that is not finite.")
        cells = np.clip(np.floor((values - self._low) / self._width), 0, self._bins - 1)
        return int(np.ravel_multi_index(tuple(cells.astype(np.int64)), tuple(self._bins)))

    @property
    def centres(self) -> np.ndarray:
        """The observation in the middle of each cell, [S, D], float32; of discrete parts, their values."""
        count = self.observation_space.n  # type: ignore[attr-defined]
        cells = np.stack(np.unravel_index(np.arange(count), tuple(self._bins)), axis=1)
        middle = np.where(self._is_box, 0.5, 0.0)
        return (self._low + (cells + middle) * self._width).astype(np.float32)

    @property
    def _is_box(self) -> bool:
        return isinstance(self.env.observation_space, spaces.Box)


def _grid(space: Any, bins: Any, low: Any, high: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower ends [D], widths [D] and numbers [D] of the intervals."""
    if isinstance(space, spaces.Tuple) and all(isinstance(part, spaces.Discrete) for part in space.spaces):
        parts = [part for part in space.spaces if isinstance(part, spaces.Discrete)]
        starts, sizes = np.array([float(part.start) for part in parts]), np.array([int(part.n) for part in parts])
        return starts, np.ones(len(parts)), sizes
    if isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.reshape(-1).astype(np.int64)
        return space.start.reshape(-1).astype(np.float64), np.ones(len(sizes)), sizes
    if not isinstance(space, spaces.Box):
        raise InvalidInputError(
            f"env: its observations are {space}; this wrapper divides a Box, a MultiDiscrete or a Tuple of Discrete spaces."
        )
    dimensions = int(np.prod(space.shape))
    ends = [
        _ends(own, given, name, dimensions)
        for own, given, name in ((space.low, low, "low"), (space.high, high, "high"))
    ]
    for place, (below, above) in enumerate(zip(*ends, strict=True)):
        if max(abs(below), abs(above)) > UNBOUNDED:
            raise InvalidInputError(
                f"env: number {place} of its observations has no limits ({below:g} to {above:g}); pass low and high, within "
                "which the cells lie."
            )
        if not below < above:
            raise InvalidInputError(
                f"low={below:g} must lie below high={above:g} (number {place} of the observations)."
            )
    given = (
        [bins] * dimensions
        if isinstance(bins, (int, np.integer))
        else list(np.atleast_1d(np.asarray(bins, dtype=object)))
    )
    if len(given) != dimensions:
        raise InvalidInputError(f"bins={bins!r}: {len(given)} counts for {dimensions} numbers; give one each.")
    sizes = np.array([parse_count(each, "bins") for each in given])
    return ends[0], (ends[1] - ends[0]) / sizes, sizes


def _ends(own: np.ndarray, given: Any, name: str, dimensions: int) -> np.ndarray:
    """Limits of each number: the space's own, or those given."""
    if given is None:
        return own.reshape(-1).astype(np.float64)
    try:
        values = np.asarray(given, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"{name}={given!r} must be a number, or one for each number of an observation."
        ) from None
    if len(values) not in (1, dimensions) or not np.isfinite(values).all():
        raise InvalidInputError(
            f"{name}={given!r} must be a finite number, or one for each of the {dimensions} numbers of an observation."
        )
    return np.broadcast_to(values, (dimensions,)).copy()
