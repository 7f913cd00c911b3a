"""Training M copies of one network at once: one axis for the models, no loop over them.

Model i depends on (seed, i) alone: its first weights come from its own stream, its shuffles from a hash of (seed, i,
epoch), and every operation keeps models apart. So it has the same bits on the CPU however many others train beside it, in
whichever shard, after whichever interruption.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from cautious.beliefs.training.epochs import BatchSampler, train_epoch
from cautious.beliefs.training.memory import keep_freed_memory
from cautious.beliefs.training.sharding import (
    ShardExecutor,
    TrainingJob,
    balanced_shard_size,
    partition_models,
)
from cautious.beliefs.training.state import Checkpoints, TrainingProblem, TrainingSettings, TrainState
from cautious.parallel import parallel_map
from cautious.progress import Progress, ProgressTracker
from cautious.validation import parse_count

CHECKPOINT_SECONDS = 20.0
"""How much work an interruption may cost at most, about."""

CALL_SECONDS = 1.0
"""How long a network that trains several epochs by itself may take for one call, about."""


class TrainedModels:
    """Weights of M models, and how well each fits."""

    def __init__(self, parameters: Tensor, losses: Tensor) -> None:
        """Keep weights [M, P] and each model's mean loss over its last epoch [M]."""
        self.parameters = parameters
        self.losses = losses


def train(
    network: TrainingProblem,
    settings: TrainingSettings,
    *,
    device: torch.device | str = "cpu",
    shard_size: int | None = None,
    checkpoint_dir: Path | None = None,
    progress: Progress | None = None,
    executor: ShardExecutor | None = None,
) -> TrainedModels:
    """Train all models, shard by shard, going on from `checkpoint_dir` where it holds earlier work.

    Args:
        network: What to train, and on what.
        settings: What decides the result.
        device: Where to train.
        shard_size: Models trained together; changes speed and memory, not the result.
        checkpoint_dir: Where to keep unfinished and finished shards.
        progress: Told after each epoch, or about once a second where epochs are shorter.
        executor: Who trains; this process if not given. A shard of theirs is kept when it is finished, not before.
    """
    job = TrainingJob(network, settings, torch.device(device))
    size = _usual_shard_size(job, executor) if shard_size is None else parse_count(shard_size, "shard_size")
    checkpoints = None if checkpoint_dir is None else Checkpoints(checkpoint_dir, network, settings)
    shards = partition_models(settings.num_models, size, checkpoints.begun() if checkpoints else ())
    tracker = ProgressTracker(len(shards), progress)
    if executor is None:
        done = _train_here(job, shards, checkpoints, tracker)
    else:
        done = _train_elsewhere(executor, job, shards, checkpoints, tracker)
    return TrainedModels(
        torch.cat([shard.parameters.cpu() for shard in done]), torch.cat([shard.losses.cpu() for shard in done])
    )


def _usual_shard_size(job: TrainingJob, executor: ShardExecutor | None) -> int:
    most = job.network.shard_size[job.device.type]
    if executor is None:
        return most
    return balanced_shard_size(
        job.settings.num_models,
        most,
        executor.num_workers(job.device),
        multiple=job.network.models_per_call if job.device.type == "cpu" else 1,
    )


def _train_here(
    job: TrainingJob, shards: list[range], checkpoints: Checkpoints | None, tracker: ProgressTracker
) -> list[TrainState]:
    """In this process: on the CPU one shard a core, elsewhere one after another."""

    def work(number: int) -> TrainState:
        begun = None if checkpoints is None else checkpoints.load(shards[number], job.device)
        keep = None if checkpoints is None else checkpoints.save
        return train_shard(
            job, begun or shards[number], lambda epochs: tracker.report(number, epochs, job.settings.num_epochs), keep
        )

    if job.device.type == "cpu":
        return parallel_map(work, len(shards), tracker.stop)
    return [work(number) for number in range(len(shards))]


def _train_elsewhere(
    executor: ShardExecutor,
    job: TrainingJob,
    shards: list[range],
    checkpoints: Checkpoints | None,
    tracker: ProgressTracker,
) -> list[TrainState]:
    """By others: each shard is written down here when it comes back; one that is finished is not given out again."""
    home, num_epochs = torch.device("cpu"), job.settings.num_epochs
    found = {} if checkpoints is None else {number: checkpoints.load(own, home) for number, own in enumerate(shards)}
    begun = {number: shard for number, shard in found.items() if shard is not None}
    done = {number: shard for number, shard in begun.items() if shard.epoch >= num_epochs}
    tracker.report_all({number: shard.epoch for number, shard in begun.items()}, num_epochs)
    missing = [number for number in range(len(shards)) if number not in done]

    def finished(place: int, shard: TrainState) -> None:
        if checkpoints is not None:
            checkpoints.save(shard)
        done[missing[place]] = shard
        tracker.report(missing[place], shard.epoch, num_epochs)

    if missing:
        work = [begun.get(number) or shards[number] for number in missing]
        executor.train_shards(
            job, work, lambda place, epochs: tracker.report(missing[place], epochs, num_epochs), finished
        )
    return [done[number] for number in range(len(shards))]


def train_shard(
    job: TrainingJob,
    begun: range | TrainState,
    report: Callable[[int], None],
    keep: Callable[[TrainState], None] | None = None,
) -> TrainState:
    """Train some models to the end.

    Args:
        job: What is trained.
        begun: Which models; or a shard to go on with.
        report: Told how many epochs are done; may raise to stop.
        keep: Given the shard now and then, at the end, and when stopped.
    """
    device, settings = job.device, job.settings
    if device.type == "cpu":
        keep_freed_memory()
    network = job.network.to(device)
    shard = begun.to(device) if isinstance(begun, TrainState) else TrainState.fresh(network, settings, begun, device)
    sampler = BatchSampler(network, settings.seed, shard.models, device)
    keeper = _Checkpointer(shard, keep, report)
    train_epochs = getattr(network, "train_epochs", None)
    num_epochs = 1
    report(shard.epoch)
    unfinished = shard.epoch < settings.num_epochs
    while shard.epoch < settings.num_epochs:
        started = time.monotonic()
        if train_epochs is None or shard.batch:
            train_epoch(network, settings, shard, sampler, keeper.rest_if_due)
        else:
            train_epochs(shard, settings, min(num_epochs, settings.num_epochs - shard.epoch))
        keeper.rest()
        num_epochs = _epochs_a_call(num_epochs, time.monotonic() - started, settings.num_epochs)
    if unfinished:
        keeper.save()
    return shard


class _Checkpointer:
    """Tells how far a shard is and keeps its work, always between two steps: then nothing is half done."""

    def __init__(
        self, shard: TrainState, keep: Callable[[TrainState], None] | None, report: Callable[[int], None]
    ) -> None:
        self._shard = shard
        self._keep = keep
        self._report = report
        self._rested = self._written = time.monotonic()

    def rest_if_due(self) -> None:
        """Rest about once a second."""
        if time.monotonic() - self._rested > CALL_SECONDS:
            self.rest()

    def rest(self) -> None:
        """Tell; write, if the last time was a while ago or the answer is to stop."""
        try:
            if self._shard.parameters.is_cuda:
                torch.cuda.synchronize(self._shard.parameters.device)
            self._report(self._shard.epoch)
        except BaseException:
            self.save()
            raise
        self._rested = time.monotonic()
        if self._rested - self._written > CHECKPOINT_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the shard as it stands."""
        if self._keep is not None:
            self._keep(self._shard)
            self._written = time.monotonic()


def _epochs_a_call(num_epochs: int, seconds: float, most: int) -> int:
    """How many epochs the next call may take, where `num_epochs` took so many seconds: at most four times as many."""
    share = CALL_SECONDS / max(seconds, 1e-3)
    return max(1, min(int(num_epochs * min(share, 4)), most))
