"""The problem of an uncertain world, checked: dynamics, rewards and rank weights, and what a policy is worth in each model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cautious.mdp.evaluation import Dynamics, optimal_values, policy_values
from cautious.solvers.envelope import worst_weights


@dataclass(frozen=True, eq=False)
class UncertainProblem:
    """Find the policy of highest rank-weighted return over M models.

    Policies are arrays [T, S, A]; T = 1 where they are stationary. Returns are normalised.

    Attributes:
        dynamics: Transitions, start and discount.
        rewards: [S*A, M], scaled as `UncertainMDP.scaled_rewards` does.
        rank_weights: [M], worst model first.
        horizon: Steps of an episode; None without end.
        regret: Whether each model's returns are taken less its own optimum.
    """

    dynamics: Dynamics
    rewards: np.ndarray
    rank_weights: np.ndarray
    horizon: int | None
    regret: bool = False

    @property
    def num_models(self) -> int:
        """M."""
        return self.rewards.shape[1]

    @property
    def policy_shape(self) -> tuple[int, int, int]:
        """(T, S, A)."""
        num_states = len(self.dynamics.start)
        return self.horizon or 1, num_states, len(self.rewards) // num_states

    @cached_property
    def optima(self) -> tuple[np.ndarray, np.ndarray]:
        """Each model's own optimum: values [T, S, M] and actions [T, S, M]."""
        return optimal_values(self.dynamics, self.rewards, self.horizon)

    @cached_property
    def best_returns(self) -> np.ndarray:
        """Return of each model's own optimum, [M]."""
        return self.dynamics.start @ self.optima[0][0]

    @cached_property
    def offset(self) -> np.ndarray:
        """What is taken from the returns: each model's best return where regret counts, otherwise nothing, [M]."""
        return self.best_returns if self.regret else np.zeros(self.num_models)

    def values(self, policy: np.ndarray) -> np.ndarray:
        """V[t, s, m], [T, S, M]; without the offset."""
        return policy_values(self.dynamics, self.rewards, policy, self.horizon)

    def returns(self, policy: np.ndarray) -> np.ndarray:
        """What a policy is worth in each model, less the offset: [M]."""
        return self.dynamics.start @ self.values(policy)[0] - self.offset

    def of_actions(self, actions: np.ndarray) -> np.ndarray:
        """The deterministic policy [T, S, A] of actions [T, S]."""
        return np.eye(self.policy_shape[2])[actions]

    def ranked(self, returns: np.ndarray) -> np.ndarray:
        """The adversary's answer to returns [M]: the largest rank weight for the worst model; ties by the model's number."""
        return worst_weights(returns, self.rank_weights)

    def value(self, returns: np.ndarray) -> float:
        """The rank-weighted value of returns [M]."""
        return float(np.sort(returns) @ self.rank_weights)
