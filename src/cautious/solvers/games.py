"""What a policy is evaluated on: a distribution over states (γ = 0), or a continuing MDP. One interface for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from cautious.ops.bellman import PolicyEvaluation
from cautious.solvers.optimal import optimal_return_bound
from cautious.worlds.mdp import TabularMDP


class Evaluation(NamedTuple):
    """A batch of policies, evaluated."""

    occupancy: Tensor
    """Discounted state distribution d(s), [B, S]."""
    action_values: Callable[[Tensor], Tensor]
    """Normalised q(s,a) under a reward function: [B, S, A] -> [B, S, A]."""


class Game(Protocol):
    """A world in which one reward function decides over all states together."""

    def evaluate(self, policy: Tensor) -> Evaluation:
        """Evaluate a batch of policies [B, S, A]."""
        ...

    def best_return(self, reward: Tensor) -> Tensor:
        """The ordinary optimum under each reward function, never less: [B, S, A] -> [B]."""
        ...


class BanditGame:
    """States drawn from a fixed distribution; actions do not move them (γ = 0)."""

    def __init__(self, state_dist: Tensor) -> None:
        """Keep the distribution over states, [S]."""
        self.state_dist = state_dist

    def evaluate(self, policy: Tensor) -> Evaluation:
        """Occupancy is the state distribution; an action's value is its reward."""
        return Evaluation(self.state_dist.expand(len(policy), -1), action_values=lambda reward: reward)

    def best_return(self, reward: Tensor) -> Tensor:
        """Best action in each state, averaged over states."""
        return (self.state_dist * reward.amax(dim=-1)).sum(dim=-1)


class MDPGame:
    """A continuing MDP, evaluated by one factorisation a policy."""

    def __init__(self, mdp: TabularMDP, device: torch.device) -> None:
        """Keep the world, its dynamics moved to `device`."""
        self._mdp = mdp
        self._dynamics = mdp.dynamics.to(device)
        self._start = mdp.initial_state_dist.to(device)
        self._discount = mdp.discount

    def evaluate(self, policy: Tensor) -> Evaluation:
        """One factorisation gives the occupancy now and action values on demand."""
        evaluation = PolicyEvaluation(self._dynamics, policy, self._discount)
        return Evaluation(evaluation.occupancy(self._start), evaluation.action_values)

    def best_return(self, reward: Tensor) -> Tensor:
        """Policy iteration under each reward function."""
        return optimal_return_bound(self._mdp, reward)
