"""Episodes that end at random, so that the states an agent visits are distributed as its discounted occupancy."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from cautious.errors import InvalidInputError
from cautious.seeding import make_rng
from cautious.validation import as_number, parse_flag


class RandomStops(gymnasium.Wrapper[Any, Any, Any, Any]):
    """End an episode after each step with probability 1 - discount, as a truncation.

    Then the mean reward over visited states is the normalised discounted return, and no step is wasted on times that the
    discount makes negligible. An environment that never ends by itself starts again often enough.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], discount: float = 0.99) -> None:
        """Wrap `env`; `discount` is the learner's."""
        super().__init__(env)
        self.stop_probability = stop_probability(discount)
        self._stopping = True
        self._rng = np.random.default_rng()

    def set_stopping(self, stopping: bool) -> None:
        """Whether to end episodes from now on; evaluation turns it off."""
        self._stopping = parse_flag(stopping, "stopping")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; with a seed, the stops are determined by it too."""
        if seed is not None:
            self._rng = make_rng(seed, "random stops")
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step of the environment, after which the episode may be truncated."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        stopped = self._stopping and self._rng.random() < self.stop_probability
        return observation, reward, terminated, truncated or stopped, info


def stop_probability(discount: float) -> float:
    """1 - discount, the chance to stop after a step."""
    value = as_number(discount)
    if not 0 <= value < 1:
        raise InvalidInputError(
            f"discount={discount!r} must lie in [0, 1): episodes end with probability 1 - discount."
        )
    return 1 - value
