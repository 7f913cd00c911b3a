"""Regret of one iteration, and the three ways in which it may join the cumulative regret."""

from __future__ import annotations

from collections.abc import Callable

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


UPDATES: dict[Update, Callable[[Tensor, Tensor], Tensor]] = {
    Update.REGRET_MATCHING: sum_signed,
    Update.REGRET_MATCHING_PLUS: sum_and_clip,
    Update.AS_PRINTED: sum_clipped,
}
