"""What is solved together, and averages over its iterations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cautious.ops.risk import KofN

WINDOWS = (0.0, 0.5, 0.75)
"""The adversary is averaged over all answers, their last half and their last quarter: each a point of the risk envelope,
so that the lowest of the three bounds holds, and early answers to poor policies do not loosen it."""


class Batch(NamedTuple):
    """What is solved together: every run of every level; member l*R + r is run r of level l."""

    levels: tuple[KofN, ...]
    num_runs: int

    @property
    def size(self) -> int:
        """B = levels x runs."""
        return len(self.levels) * self.num_runs

    def groups(self) -> Iterator[tuple[KofN, slice]]:
        """Each level with the members that are its runs."""
        for number, level in enumerate(self.levels):
            yield level, slice(number * self.num_runs, (number + 1) * self.num_runs)

    def rank_weights(self, num_models: int, device: torch.device) -> Tensor:
        """Exact weights by rank, [B, M]."""
        weights = torch.stack([level.rank_weights(num_models) for level in self.levels])
        return weights.repeat_interleave(self.num_runs, dim=0).to(device)


class WindowedSum:
    """Sums of what comes in one an iteration, over each of `WINDOWS`."""

    def __init__(self, num_iterations: int) -> None:
        """Prepare for T additions."""
        self._first = [int(window * num_iterations) for window in WINDOWS]
        self._num_iterations = num_iterations
        self._count = 0
        self._sums: list[Tensor] = []

    def add(self, term: Tensor) -> None:
        """Add the next term."""
        if not self._sums:
            self._sums = [torch.zeros_like(term) for _ in WINDOWS]
        for total, first in zip(self._sums, self._first, strict=True):
            if self._count >= first:
                total += term
        self._count += 1

    def averages(self) -> Tensor | None:
        """The average of each window, [W, ...]; None if nothing came in."""
        if not self._sums:
            return None
        counts = [self._num_iterations - first for first in self._first]
        return torch.stack([total / count for total, count in zip(self._sums, counts, strict=True)])
