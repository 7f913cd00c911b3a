"""Worlds whose rules move many copies at once, as Gymnasium environments: one copy (`BatchEnv`) or many (`BatchVectorEnv`)."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from cautious.errors import InvalidInputError
from cautious.validation import parse_count
from cautious_paper.worlds.envs.options import option


class BatchRules(Protocol):
    """The rules of a world for B copies of it at once, without a Python loop over them."""

    @property
    def num_actions(self) -> int:
        """A."""

    @property
    def observation_size(self) -> int:
        """F."""

    def start(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """States at the beginning, [B, ...]."""

    def step(
        self, states: np.ndarray, actions: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The next states, and what happened, by name, [B] each; "reward" is one of the names."""

    def observe(self, states: np.ndarray) -> np.ndarray:
        """What is seen of each state, [B, F] between 0 and 1, float32."""


def _spaces(rules: BatchRules) -> tuple[spaces.Box, spaces.Discrete[Any]]:
    return spaces.Box(0.0, 1.0, (rules.observation_size,), np.float32), spaces.Discrete(rules.num_actions)


class BatchEnv(gymnasium.Env[Any, Any]):
    """One copy of a world; classes for each world say what it is, and how it is drawn."""

    actions: tuple[str, ...] = ()

    def __init__(self, rules: BatchRules) -> None:
        """Keep the rules; the state is drawn by `reset`."""
        self.rules = rules
        self.observation_space, self.action_space = _spaces(rules)
        self.state = rules.start(1, np.random.default_rng(0))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin anew."""
        super().reset(seed=seed)
        self.state = self.rules.start(1, self.np_random)
        return self.rules.observe(self.state)[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step by the rules; it never ends by itself."""
        if not self.action_space.contains(action):
            names = ", ".join(f"{number} {name}" for number, name in enumerate(self.actions))
            raise InvalidInputError(f"action={action!r} is not known; choose one of {names}.")
        self.state, happened = self.rules.step(self.state, np.array([action]), self.np_random)
        reward = float(happened.pop("reward")[0])
        info = {name: value[0].item() for name, value in happened.items()}
        return self.rules.observe(self.state)[0], reward, False, False, info


class BatchVectorEnv(VectorEnv[Any, Any, Any]):
    """Many copies of a world, moved together in numpy.

    A copy that reaches `max_episode_steps` is truncated, and goes on until it is reset: this is Gymnasium's
    `AutoresetMode.DISABLED`, in which the caller resets with ``reset(options={"reset_mask": mask})``.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012  (Gymnasium's convention)

    def __init__(self, rules: BatchRules, num_envs: int = 1, max_episode_steps: int | None = None) -> None:
        """Keep the rules of `num_envs` copies."""
        self.rules, self.num_envs = rules, parse_count(num_envs, "num_envs")
        self.max_episode_steps = (
            np.inf if max_episode_steps is None else parse_count(max_episode_steps, "max_episode_steps")
        )
        self.single_observation_space, self.single_action_space = _spaces(rules)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.states = rules.start(self.num_envs, np.random.default_rng(0))  # until `reset` draws others
        self._ages = np.zeros(self.num_envs, dtype=np.int64)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """All copies begin anew, or those of `options={"reset_mask": truth values [num_envs]}`."""
        super().reset(seed=seed[0] if isinstance(seed, list) else seed)
        mask = np.asarray(option(options, "reset_mask", np.ones(self.num_envs, dtype=bool)), dtype=bool)
        self.states[mask], self._ages[mask] = self.rules.start(int(mask.sum()), self.np_random), 0
        return self.rules.observe(self.states), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of every copy; what happened is in `infos`, by name, [num_envs] each."""
        self.states, happened = self.rules.step(self.states, np.asarray(actions), self.np_random)
        self._ages += 1
        rewards, never = happened.pop("reward").astype(np.float64), np.zeros(self.num_envs, dtype=bool)
        return self.rules.observe(self.states), rewards, never, self._ages >= self.max_episode_steps, happened
