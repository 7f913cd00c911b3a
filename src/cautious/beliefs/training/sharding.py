"""How the models of an ensemble are divided into shards, and what an executor that trains them elsewhere must offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from cautious.beliefs.training.state import TrainingProblem, TrainingSettings, TrainState
from cautious.progress import Progress


class TrainingJob(NamedTuple):
    """What is trained, how, and on what kind of device."""

    problem: TrainingProblem
    settings: TrainingSettings
    device: torch.device


class ShardExecutor(Protocol):
    """Workers elsewhere: other processes, other machines. All executors give bitwise identical results."""

    def num_workers(self, device: torch.device) -> int:
        """How many shards are trained at the same time."""
        ...

    def train_shards(
        self,
        job: TrainingJob,
        shards: Sequence[range | TrainState],
        report: Progress,
        finished: Callable[[int, TrainState], None],
    ) -> None:
        """Train all shards, in any order.

        Args:
            job: What they have in common.
            shards: For each, models to start with, or a shard to resume.
            report: Called now and then with (number of a shard, epochs done).
            finished: Called with (number of a shard, the shard on the CPU) as soon as it is done.
        """
        ...


class EnsembleExecutor(Protocol):
    """What trains a whole ensemble: `experiments.executors.executor.Executor`."""

    def device(self, name: str) -> torch.device:
        """The device that "auto", "cpu" or "cuda" stands for."""
        ...

    def train(
        self,
        problem: TrainingProblem,
        settings: TrainingSettings,
        *,
        device: torch.device | str,
        checkpoint_dir: Path | None,
        progress: Progress | None = None,
    ) -> Any:
        """Train all models; `models` of what it returns are what `training.loop.train` returns."""
        ...


def balanced_shard_size(num_models: int, most: int, num_workers: int, multiple: int = 1) -> int:
    """Models per shard, at most `most`, such that all workers are busy to the end: as few rounds as possible, all even.

    >>> balanced_shard_size(24, 16, 2), balanced_shard_size(64, 16, 3), balanced_shard_size(2000, 16, 2)
    (12, 11, 16)

    Args:
        num_models: M.
        most: What one worker trains well together.
        num_workers: How many work at once.
        multiple: The size is a multiple of it.
    """
    num_rounds = -(-num_models // (most * num_workers))
    fair = -(-num_models // (num_rounds * num_workers))
    return min(most, -(-fair // multiple) * multiple)


def partition_models(num_models: int, size: int, begun: Sequence[range] = ()) -> list[range]:
    """All models in order: those that were begun together stay together, the others are divided into shards of `size`.

    >>> partition_models(10, 4, [range(2, 5)])
    [range(0, 2), range(2, 5), range(5, 9), range(9, 10)]
    """
    shards: list[range] = []
    first = 0
    for kept in [*begun, range(num_models, num_models)]:
        shards += [range(start, min(start + size, kept.start)) for start in range(first, kept.start, size)]
        shards += [kept] if kept else []
        first = kept.stop
    return shards
