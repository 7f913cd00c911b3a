"""Worlds small enough to know the answer."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from cautious import TabularMDP


class Bandit(gymnasium.Env[Any, Any]):
    """One state, which never ends; its own reward is misleading."""

    observation_space = spaces.Discrete(1)

    def __init__(self, num_actions: int = 2) -> None:
        self.action_space = spaces.Discrete(num_actions)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, -1000.0 * int(action), False, False, {}


class TableVectorEnv(VectorEnv[Any, Any, Any]):
    """Many copies of a tabular world; states at or above `last` end an episode."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, mdp: TabularMDP, num_envs: int = 16, last: int | None = None) -> None:
        self.num_envs, self.last = num_envs, mdp.num_states if last is None else last
        self.cumulated = mdp.transitions.to_dense().numpy().cumsum(axis=-1)
        self.start = mdp.initial_state_dist.numpy().cumsum()
        self.single_observation_space = spaces.Discrete(mdp.num_states)
        self.single_action_space = spaces.Discrete(mdp.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.states = np.zeros(num_envs, dtype=np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, dtype=bool))
        drawn = np.minimum(np.searchsorted(self.start, self.np_random.random(self.num_envs)), len(self.start) - 1)
        self.states = np.where(mask, drawn, self.states)
        return self.states, {}

    def step(self, actions):
        rows = self.cumulated[self.states, actions]
        drawn = (rows < self.np_random.random((self.num_envs, 1))).sum(axis=1)
        self.states = np.minimum(drawn, rows.shape[1] - 1)
        ended = self.states >= self.last
        return self.states, np.zeros(self.num_envs), ended, np.zeros(self.num_envs, dtype=bool), {}


class Line(gymnasium.Env[Any, Any]):
    """A point in [-1, 1] that moves by the action; ten steps."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, as_dict: bool = False) -> None:
        box = spaces.Box(-1, 1, (1,), np.float32)
        self.observation_space = spaces.Dict({"place": box}) if as_dict else box

    def _shown(self) -> Any:
        place = np.array([self.place], dtype=np.float32)
        return {"place": place} if isinstance(self.observation_space, spaces.Dict) else place

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.uniform(-1, 1)), 0
        return self._shown(), {}

    def step(self, action):
        self.place = float(np.clip(self.place + 0.2 * float(np.ravel(action)[0]), -1, 1))
        self.steps += 1
        return self._shown(), 0.0, False, self.steps >= 10, {}
