"""`StepHistory`: memory for any policy, as the last steps in the observation."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from cautious.errors import InvalidInputError
from cautious.validation import parse_count


class StepHistory(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that shows the present observation and what was seen and done in the last steps.

    A policy can then notice in which scenario it is. The observation is one row: the present observation, then for each of
    the last steps, newest first, the observation before it and the action. Numbered ones are one-hot; where no step was made
    yet, there are zeros.

    >>> env = StepHistory(gymnasium.make("FrozenLake-v1"), 3)
    >>> env.observation_space.shape                                 # 16 places, and 3 times 16 places and 4 moves
    (76,)
    """

    def __init__(self, env: gymnasium.Env[Any, Any], num_steps: int) -> None:
        """Wrap an environment.

        Args:
            env: The environment; observations and actions are numbers or boxes of numbers, or dictionaries and tuples of these.
            num_steps: How many steps are remembered.
        """
        super().__init__(env)
        self.num_steps = parse_count(num_steps, "num_steps")
        for name, space in (("observations", env.observation_space), ("actions", env.action_space)):
            if not space.is_np_flattenable:
                raise InvalidInputError(f"env: its {name}, {space}, have no fixed number of entries.")
        self._widths = spaces.flatdim(env.observation_space), spaces.flatdim(env.action_space)
        size = self._widths[0] + self.num_steps * sum(self._widths)
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self._past: deque[np.ndarray] = deque(maxlen=self.num_steps)
        self._present = np.zeros(self._widths[0], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, with nothing remembered."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._past.clear()
        return self._shown(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step, which is remembered."""
        self._past.appendleft(np.concatenate([self._present, spaces.flatten(self.env.action_space, action)]))
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._shown(observation), reward, terminated, truncated, info

    def _shown(self, observation: Any) -> np.ndarray:
        self._present = np.asarray(spaces.flatten(self.env.observation_space, observation), dtype=np.float32)
        blank = np.zeros((self.num_steps - len(self._past)) * sum(self._widths))
        return np.concatenate([self._present, *self._past, blank]).astype(np.float32)
