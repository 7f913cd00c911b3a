"""One critic per model, whose advantages are mixed after GAE: the alternative to `KofNPPO`'s one critic of the mixture.

With one critic, the values that PPO compares with are those of a mixture that moves on; with M critics each learns the return
of one model, and the newest weights apply to their advantages. `benchmarks.deep` and `benchmarks.deep_comparison` compare the
two (`--critics many`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor, nn

from cautious import KofN, KofNPPO


class ManyCritics(ActorCriticPolicy):
    """A policy whose value network has one output per model."""

    def __init__(self, *args: Any, num_models: int, **settings: Any) -> None:
        """M is the number of models."""
        self.num_models = num_models
        super().__init__(*args, **settings)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.value_net = nn.Linear(self.mlp_extractor.latent_dim_vf, self.num_models)
        nn.init.orthogonal_(self.value_net.weight)
        nn.init.zeros_(self.value_net.bias)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]

    def forward(self, obs: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Actions, values and log probabilities; of the values nothing is used (`ManyReturns`)."""
        actions, values, log_probabilities = super().forward(obs, deterministic)
        return actions, values.mean(dim=1), log_probabilities

    def predict_values(self, obs: Any) -> Tensor:
        """Likewise."""
        return super().predict_values(obs).mean(dim=1, keepdim=True)

    def model_values(self, observations: np.ndarray) -> np.ndarray:
        """The values of all models for observations [B, ...]: [B, M]."""
        with torch.no_grad():
            return super().predict_values(self.obs_to_tensor(observations)[0]).cpu().numpy()


class ManyReturns(RolloutBuffer):
    """A rollout buffer that holds, for each step, the values and returns of all models [T, E, M], and one advantage.

    `model_rewards`, `model_values`, `values_after` [T, E, M] and `weights` [M] come from `KofNPPOManyCritics` when it is full.
    Stable-Baselines3 flattens returns and predicted values before it compares them, so nothing else has to change.
    """

    model_rewards: np.ndarray
    model_values: np.ndarray
    values_after: np.ndarray
    weights: np.ndarray

    def compute_returns_and_advantage(self, last_values: Tensor, dones: np.ndarray) -> None:
        """GAE for each model, and the mixture's advantages."""
        self.values, self.returns = self.model_values, np.zeros_like(self.model_values)
        ends = np.concatenate([self.episode_starts[1:], dones[None].astype(np.float32)])[..., None]
        # Episodes of these worlds only ever stop at random: what would have come counts, as after any other step.
        errors = self.model_rewards + self.gamma * self.values_after - self.values
        advantage = np.zeros_like(self.values[0])
        for t in reversed(range(self.buffer_size)):
            advantage = errors[t] + self.gamma * self.gae_lambda * (1 - ends[t]) * advantage
            self.returns[t] = advantage + self.values[t]
        self.advantages = (self.returns - self.values) @ self.weights  # [T, E]


class KofNPPOManyCritics(KofNPPO):
    """`KofNPPO` with one critic per model; for worlds whose episodes never terminate by themselves."""

    def __init__(self, policy: str, env: Any, belief: Any, level: KofN | str, **settings: Any) -> None:
        """As `KofNPPO`, for a belief that says how many models it has; `policy` is "MlpPolicy", which gets M values."""
        if policy != "MlpPolicy":
            raise ValueError(f"policy={policy!r}: only MlpPolicy is written here.")
        kinds: dict[str, Any] = {
            "rollout_buffer_class": ManyReturns,
            "policy_kwargs": {"num_models": belief.num_models},
        }
        super().__init__(ManyCritics, env, belief, level, **kinds, **settings)

    def _pay(self, buffer: Any) -> None:
        """Rank the models, and give the buffer what each of them pays and expects."""
        steps, rewards, weights = self._weigh_models()
        self.standings.note_paid(weights @ rewards)
        self._step_factors = None
        shape, critics = (*buffer.rewards.shape, self.num_models), self.policy
        assert isinstance(critics, ManyCritics)
        critics.set_training_mode(False)
        buffer.weights = weights.astype(np.float32)
        buffer.model_rewards = (self._factor() * rewards.T).astype(np.float32).reshape(shape)
        buffer.model_values = critics.model_values(steps.observations).reshape(shape)
        buffer.values_after = critics.model_values(steps.following).reshape(shape)
