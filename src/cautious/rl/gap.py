"""Room for improvement, found by learning: a copy of an agent goes on against one mixture of the models."""

from __future__ import annotations

from typing import Any

import numpy as np

from cautious.rl.acting import frozen_statistics
from cautious.rl.files import PPO_SETTINGS, SCHEDULES
from cautious.rl.judged import JudgedPPO
from cautious.rl.kofn_ppo import KofNPPO
from cautious.rl.recorder import Steps
from cautious.rl.value import GapFound


class Responder(KofNPPO):
    """A copy of an agent that learns against one mixture of its models."""

    def __init__(self, agent: JudgedPPO, weights: np.ndarray) -> None:
        """Copy the policy, in the same environment.

        Args:
            agent: What is copied.
            weights: Of the models, [M].
        """
        self._agent, self._weights = agent, weights
        settings: dict[str, Any] = {name: getattr(agent, name) for name in (*PPO_SETTINGS, *SCHEDULES)}
        super().__init__(
            agent.policy_class,
            agent.vec_env,
            _OneModel(),
            "1-of-1",
            reward_scale=agent.reward_scale,
            policy_kwargs=agent.policy_kwargs,
            device=agent.device,
            **(settings | {"seed": None}),
        )
        self.draws = agent.draws
        self.policy.load_state_dict(agent.policy.state_dict())

    def step_rewards(self, steps: Steps) -> np.ndarray:
        """What the mixture pays, [1, B]."""
        return (self._weights @ self._agent.step_rewards(steps))[None]


class _OneModel:
    """Says that there is one model."""

    def step_rewards(self, observations: Any, actions: np.ndarray, following: Any) -> np.ndarray:
        return np.zeros((1, len(actions)))


def find_gap(agent: JudgedPPO, total_timesteps: int, num_episodes: int) -> GapFound:
    """What `KofNPPO.gap_found` says."""
    with frozen_statistics(agent):  # which the copy shares
        copy = Responder(agent, agent.standings.average).learn(total_timesteps)
    response, value = copy.value(num_episodes), agent.value(num_episodes)
    return GapFound(response.estimate - value.estimate, response, value)
