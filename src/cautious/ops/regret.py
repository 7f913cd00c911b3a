"""Regret: of one iteration, the rules by which it accumulates, and the policy that matches it.

All rules are of one form. With r the regret of iteration t and P the cumulative regret before it,

    P ← keep_positive · max(0, Q) + keep_negative · min(0, Q),   Q = P + max(0, r) + losses · min(0, r)
    π(a) ∝ max(0, P(a) + prediction · r(a))

so that a rule is a function from t to four numbers (`RegretStep`). Tensors, compiled code and kernels all follow the form:
a new rule is one function here, and its line in `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

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


class RegretStep(NamedTuple):
    """What one iteration does with its regret; as it stands, regret matching."""

    keep_positive: float = 1.0
    """What is kept of cumulative regret above zero."""
    keep_negative: float = 1.0
    """What is kept of cumulative regret below zero."""
    losses: float = 1.0
    """How much this iteration's regret counts where it is below zero."""
    prediction: float = 0.0
    """How often this iteration's regret counts once more when the next policy is formed."""


UpdateRule: TypeAlias = Callable[[int], RegretStep]
"""An update rule: from the number t = 0, 1, ... of an iteration to what it does."""


def regret_matching_signed(t: int) -> RegretStep:
    """Regret matching: P^T = P^{T-1} + P^t; clipped only when the policy is formed (deviation D1)."""
    return RegretStep()


def regret_matching_plus(t: int) -> RegretStep:
    """Regret matching+: P^T = max(0, P^{T-1} + P^t). Tammelin (2014)."""
    return RegretStep(keep_negative=0.0)


def as_printed(t: int) -> RegretStep:
    """Alg. 1 line 10 as printed: P^T = P^{T-1} + max(0, P^t). Kept for comparison: no theorem covers it."""
    return RegretStep(losses=0.0)


def predictive_regret_matching_plus(t: int) -> RegretStep:
    """Regret matching+ that expects the last regret again: π ∝ max(0, P^T + P^t). Farina, Kroer and Sandholm (2021)."""
    return RegretStep(keep_negative=0.0, prediction=1.0)


def discounted_regret_matching(t: int) -> RegretStep:
    """Regret matching that forgets early iterations: factors n^1.5 / (n^1.5 + 1) and 1/2, n = t + 1.

    Brown and Sandholm (2019) with their α = 1.5 and β = 0. Averages of policies keep equal weights (their γ is 0 here).
    """
    weight = (t + 1.0) ** 1.5
    return RegretStep(keep_positive=weight / (weight + 1.0), keep_negative=0.5)


# The paper prints one rule and its text names another: the choice has a name and is not inlined (deviation D1).
RULES: dict[Update, UpdateRule] = {
    Update.REGRET_MATCHING: regret_matching_signed,
    Update.REGRET_MATCHING_PLUS: regret_matching_plus,
    Update.AS_PRINTED: as_printed,
    Update.PREDICTIVE: predictive_regret_matching_plus,
    Update.DISCOUNTED: discounted_regret_matching,
}


def accumulate(cumulative_regret: Tensor, regret: Tensor, step: RegretStep) -> Tensor:
    """Cumulative regret P^T from that of before and this iteration's regret, by the rule's numbers for this iteration.

    Args:
        cumulative_regret: P^{T-1}, [..., S, A].
        regret: P^t, [..., S, A].
        step: What the rule does in this iteration.

    Returns:
        P^T, [..., S, A].
    """
    total = cumulative_regret + _scaled(regret, 1.0, step.losses)
    return _scaled(total, step.keep_positive, step.keep_negative)


def _scaled(numbers: Tensor, positive: float, negative: float) -> Tensor:
    """Numbers above zero times one factor, those below zero times another."""
    if positive == negative == 1.0:
        return numbers
    return positive * numbers.clamp(min=0) + negative * numbers.clamp(max=0)


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
    return torch.where(total > 0, positive / total, 1 / positive.shape[-1])
