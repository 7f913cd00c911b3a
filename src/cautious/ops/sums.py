"""Sums whose order is our own, so that their bits depend on how many terms there are and on nothing else."""

from __future__ import annotations

from torch import Tensor


def pairwise_sum(terms: Tensor, dim: int = 0) -> Tensor:
    """Sum along `dim` by halves: x₁ + ... + x_n = (x₁ + x_{h+1}) + ... + (x_h + x_n), h = ⌈n/2⌉, and again.

    A library's own sum may take the last columns of an array in another order than the others (those that do not fill a
    vector register), and a large one in as many pieces as there are threads. This one adds whole arrays, entry by entry:
    each addition is rounded once, wherever it is made. Its error also grows with log n only.
    """
    terms = terms.movedim(dim, 0)
    count, half = terms.shape[0], (terms.shape[0] + 1) // 2
    if count == 1:
        return terms[0]
    first = terms[:half].clone()
    rest = terms[half:]
    while True:
        first[: count - half].add_(rest)
        if half == 1:
            return first[0]
        count, half = half, (half + 1) // 2
        rest = first[half:count]


def pairwise_mean(terms: Tensor, dim: int = 0) -> Tensor:
    """Mean along `dim`, by `pairwise_sum`."""
    return pairwise_sum(terms, dim) / terms.shape[dim]
