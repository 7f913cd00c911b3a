"""The queue of reward models: shuffle them, pull N out at a time, shuffle again when fewer than N are left."""

from __future__ import annotations

import torch
from torch import Tensor

from cautious.ops.risk import KofN
from cautious.seeding import make_rng


class ModelQueue:
    """Which models each iteration of each run draws.

    A draw depends on (seed, run, iteration, n, M) alone, so it does not change with what else is solved in the same
    call; levels share the shuffles of a run, which makes them comparable. Within one shuffle no model comes twice: with
    M >= N T models none is ever drawn twice in a run, as in the paper (deviation D3 says what happens below that).
    """

    def __init__(self, num_runs: int, num_models: int, seed: int) -> None:
        """Prepare the queues of R runs over M models."""
        self._num_runs = num_runs
        self._num_models = num_models
        self._seed = seed
        self._shuffles: dict[int, Tensor] = {}

    def draw(self, level: KofN, t: int) -> Tensor:
        """Model indices [R, N] of iteration `t`, in the order of the models: ties then fall as when all are ranked."""
        draws_a_shuffle = self._num_models // level.n
        first = (t % draws_a_shuffle) * level.n
        return self._shuffle(t // draws_a_shuffle)[:, first : first + level.n].sort(dim=1).values

    def _shuffle(self, number: int) -> Tensor:
        """The `number`-th shuffle of every run, [R, M]; the last few are kept, since levels with other n lag behind."""
        if number not in self._shuffles:
            if len(self._shuffles) >= 8:
                self._shuffles.pop(min(self._shuffles))
            orders = [
                make_rng(self._seed, "queue", run, number).permutation(self._num_models)
                for run in range(self._num_runs)
            ]
            self._shuffles[number] = torch.stack([torch.from_numpy(order) for order in orders])
        return self._shuffles[number]


def num_reshuffles(level: KofN, num_models: int, num_iterations: int) -> int:
    """How often a queue of M models runs out and is shuffled again in T iterations."""
    return (num_iterations - 1) // (num_models // level.n)
