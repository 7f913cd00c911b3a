"""Sums whose order is our own, so that their bits depend on how many terms there are and on nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

FEW = 2**14
"""Up to so many terms are added by numpy, whose calls cost less than torch's; each addition is rounded once in both."""


def pairwise_sum(terms: Tensor, dim: int = 0) -> Tensor:
    """Sum along `dim` by halves: x₁ + ... + x_n = (x₁ + x_{h+1}) + ... + (x_h + x_n), h = ⌈n/2⌉, and again.

    A library's own sum may take the last columns of an array in another order than the others (those that do not fill a
    vector register), and a large one in as many pieces as there are threads. This one adds whole arrays, entry by entry:
    each addition is rounded once, wherever it is made. Its error also grows with log n only.
    """
    if terms.device.type == "cpu" and terms.numel() <= FEW and not terms.requires_grad:
        return torch.from_numpy(np.asarray(_halved(np.moveaxis(terms.numpy(), dim, 0))))
    return _halved(terms.movedim(dim, 0))


def _halved(terms: Any) -> Any:
    """The sum along the first dimension of an array or a tensor."""
    count, half = terms.shape[0], (terms.shape[0] + 1) // 2
    if count == 1:
        return terms[0]
    first = terms[:half].clone() if isinstance(terms, Tensor) else terms[:half].copy()
    rest = terms[half:]
    while True:
        first[: count - half] += rest
        if half == 1:
            return first[0]
        count, half = half, (half + 1) // 2
        rest = first[half:count]


def pairwise_mean(terms: Tensor, dim: int = 0) -> Tensor:
    """Mean along `dim`, by `pairwise_sum`."""
    return pairwise_sum(terms, dim) / terms.shape[dim]
