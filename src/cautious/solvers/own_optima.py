"""The objective `regret`: each model's returns less what the best policy would have under that model.

    value(π) = Σ_i w_i · (i-th smallest of J_m(π) - J*_m),        J*_m = max_π' J_m(π')

A normalised occupancy sums to one, so that J_m(π) - J*_m is the return of π under the reward function r_m - J*_m. Regret is
therefore the ordinary problem with a constant taken off each model, and every solver and certificate serves it as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cautious.mdp.tabular import TabularMDP
from cautious.solvers.optimal import optimal_policy
from cautious.solvers.rewards import DenseRewards, Rewards, StreamedRewards, model_blocks

ENTRIES_AT_ONCE = 2**22
"""Entries S*S of systems that are factorised together, at most."""


def own_optima(mdp: TabularMDP, rewards: Rewards) -> Tensor:
    """J*_m, each model's highest return in a world, normalised: [M]."""
    size = max(1, ENTRIES_AT_ONCE // mdp.num_states**2)
    return torch.cat(
        [optimal_policy(mdp, some).expected_return for _, block in model_blocks(rewards) for some in block.split(size)]
    )


def less_own_optima(mdp: TabularMDP, rewards: Rewards) -> Rewards:
    """Reward functions r_m - J*_m, whose returns are the models' regrets, with the sign that more is better."""
    optima = own_optima(mdp, rewards)
    if isinstance(rewards, DenseRewards):
        return DenseRewards(rewards.tensor.double() - optima[:, None, None])
    return StreamedRewards(_LessConstants(rewards, optima), rewards.device)


class _LessConstants:
    """Streamed reward functions, each with a constant taken off."""

    def __init__(self, rewards: Rewards, constants: Tensor) -> None:
        self.num_models = rewards.num_models
        self._rewards, self._constants = rewards, constants

    def rewards_for(self, indices: Tensor) -> Any:
        return self._rewards.rewards_for(indices) - self._constants[indices, None, None]
