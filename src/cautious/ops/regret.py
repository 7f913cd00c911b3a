"""Regret: of one iteration, the three ways to accumulate it, and the policy that matches it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cautious.types import Update
from cautious.validation import check_shape


def instantaneous_regret(action_values: Tensor, policy: Tensor) -> Tensor:
    """How much better each action is than the policy, in each state.

        P^t(s,a) = q(s,a) - Σ_b π(b|s) q(s,b)

    Alg. 1 line 9 with q = W_μ (contextual bandit, γ = 0); the advantage ρ_s of section 5 in an MDP.

    Args:
        action_values: [..., S, A], under the reward that this iteration's adversary chose.
        policy: [..., S, A].

    Returns:
        Regret [..., S, A].
    """
    check_shape(action_values, "... S A", "action_values")
    return action_values - (policy * action_values).sum(dim=-1, keepdim=True)


def sum_signed(cumulative_regret: Tensor, regret: Tensor) -> Tensor:
    """Regret matching: P^T = P^{T-1} + P^t; clipped only when the policy is formed (deviation D1)."""
    return cumulative_regret + regret


def sum_and_clip(cumulative_regret: Tensor, regret: Tensor) -> Tensor:
    """Regret matching+: P^T = max(0, P^{T-1} + P^t). Tammelin (2014)."""
    return (cumulative_regret + regret).clamp(min=0)


def sum_clipped(cumulative_regret: Tensor, regret: Tensor) -> Tensor:
    """Alg. 1 line 10 as printed: P^T = P^{T-1} + max(0, P^t). Kept for comparison: no theorem covers it."""
    return cumulative_regret + regret.clamp(min=0)


# The paper prints one rule and its text names another: the choice has a name and is not inlined (deviation D1).
UPDATES: dict[Update, Callable[[Tensor, Tensor], Tensor]] = {
    Update.REGRET_MATCHING: sum_signed,
    Update.REGRET_MATCHING_PLUS: sum_and_clip,
    Update.AS_PRINTED: sum_clipped,
}


def uniform_policy(*shape: int, device: torch.device | None = None) -> Tensor:
    """The policy π(a|s) = 1/A, of the given shape [..., S, A]."""
    return torch.full(shape, 1 / shape[-1], dtype=torch.float64, device=device)


def regret_matching(cumulative_regret: Tensor) -> Tensor:
    """Policy proportional to positive regret, uniform where none is positive.

        π(a|s) = max(0, P(s,a)) / Σ_b max(0, P(s,b))

    Hart & Mas-Colell (2000); Alg. 1, last line. The uniform branch is ours (deviation D2).

    Args:
        cumulative_regret: [..., S, A].

    Returns:
        Policy [..., S, A]; each row sums to one.
    """
    check_shape(cumulative_regret, "... S A", "cumulative_regret")
    positive = cumulative_regret.clamp(min=0)
    total = positive.sum(dim=-1, keepdim=True)
    # Below 1e-300 the quotient loses its digits, and `where` evaluates both branches: keep 0/0 out of the unused one.
    smallest = 1e-300 if total.dtype == torch.float64 else torch.finfo(total.dtype).tiny
    return torch.where(total > smallest, positive / total.clamp(min=smallest), 1 / positive.shape[-1])
