"""Points of the probability simplex: the uniform policy and regret matching."""

from __future__ import annotations

import torch
from torch import Tensor

from cautious.validation import check_shape


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
