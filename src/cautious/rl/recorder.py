"""What happened in a rollout, as the environment showed it: `Steps`, and the `Recorder` that keeps them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, unwrap_vec_normalize

KEPT = "cautious_last_observation"
"""In an environment's infos: the last observation of an episode, before VecNormalize."""


class Steps(NamedTuple):
    """B = T E steps of E environments, in the order of time, then environment."""

    observations: Any
    """What the environment showed before each step, [B, ...], or a dictionary of such arrays."""
    actions: np.ndarray
    """What the environment was given, [B, ...]: continuous actions are clipped or unscaled already."""
    following: Any
    """The observations after the steps; where an episode ended, its last one."""
    ages: np.ndarray
    """Steps since the beginning of the episode, [B]: 0 in its first step."""
    ended: np.ndarray
    """Whether the episode ended with the step, by itself or cut off, [B]."""
    rewards: np.ndarray
    """The environment's own rewards, which nothing is learned from unless you say so, [B]."""
    environments: np.ndarray
    """Number of the environment, from 0 to E - 1, [B]."""
    infos: list[dict[str, Any]]
    """What the environment said about each step, B dictionaries."""


class Recorder(VecEnvWrapper):
    """Passes everything on; while it records, it keeps the original observations and pays nothing.

    PPO then has in its buffer what it adds to a reward by itself (the value of the rest of a truncated episode), and nothing
    else. "Original" means before VecNormalize and before images are transposed.
    """

    def __init__(self, venv: VecEnv) -> None:
        """Wrap a vector environment."""
        super().__init__(venv)
        self._normalize = unwrap_vec_normalize(venv)
        if self._normalize is not None and not isinstance(self._normalize.venv, _KeepLast):
            self._normalize.venv = _KeepLast(self._normalize.venv)
        self._recording = False
        self._ages = np.zeros(self.num_envs)
        self._current: Any = None
        self._clear()

    def _clear(self) -> None:
        self._kept: list[tuple[Any, ...]] = []

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record in the block that follows; within another such block, before or after its steps."""
        self._clear()
        before, self._recording = self._recording, True
        try:
            yield
        finally:
            self._recording = before

    @property
    def is_recording(self) -> bool:
        """Whether steps are recorded now."""
        return self._recording

    @property
    def is_amid_steps(self) -> bool:
        """Whether a recording has begun whose steps were not taken yet."""
        return self._recording and bool(self._kept)

    def take(self) -> Steps:
        """What was recorded; begins anew."""
        seen, actions, following, ages, ended, rewards, infos = zip(*self._kept, strict=True)
        self._clear()
        return Steps(
            _joined(seen),
            np.concatenate(actions),
            _joined(following),
            np.concatenate(ages),
            np.concatenate(ended),
            np.concatenate(rewards),
            np.tile(np.arange(self.num_envs), len(seen)),
            [info for of_step in infos for info in of_step],
        )

    def reset(self) -> Any:
        """All environments from the start."""
        observations = self.venv.reset()
        self._ages = np.zeros(self.num_envs)
        self._current = self._original(observations)
        return observations

    def start(self) -> Any:
        """The original observations at the start of episodes, [E, ...]."""
        self.reset()
        return self._current

    def step_async(self, actions: np.ndarray) -> None:
        """Pass the actions on, and keep them."""
        self._actions = np.array(actions)
        super().step_async(actions)

    def step_wait(self) -> Any:
        """A step, recorded."""
        observations, rewards, dones, infos = self.venv.step_wait()
        current = self._original(observations)
        if self._recording:
            following = self._last_of_episodes(current, dones, infos)
            own = rewards if self._normalize is None else self._normalize.get_original_reward()
            self._kept.append((self._current, self._actions, following, self._ages, dones, own.copy(), infos))
            rewards = np.zeros_like(rewards)
        self._current = current
        self._ages = np.where(dones, 0, self._ages + 1)
        return observations, rewards, dones, infos

    def _original(self, observations: Any) -> Any:
        return observations if self._normalize is None else self._normalize.get_original_obs()

    def _last_of_episodes(self, current: Any, dones: np.ndarray, infos: list[dict[str, Any]]) -> Any:
        """`current`, with the last observation of an episode in place of the first of the next."""
        if not dones.any():
            return current
        following = {k: v.copy() for k, v in current.items()} if isinstance(current, dict) else current.copy()
        for place in np.flatnonzero(dones):
            # VecNormalize clips what it shows, which cannot be undone.
            last = infos[place]["terminal_observation" if self._normalize is None else KEPT]
            if isinstance(following, dict):
                for name, part in following.items():
                    part[place] = last[name]
            else:
                following[place] = last
        return following


class _KeepLast(VecEnvWrapper):
    """Keeps the last observation of an episode as it was below VecNormalize, which shows its own in that place."""

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        for place in np.flatnonzero(dones):
            infos[place][KEPT] = infos[place]["terminal_observation"]
        return observations, rewards, dones, infos


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)
