"""Training M copies of one network at once: one axis for the models, no loop over them.

    for each shard of models:                                    `train_shard`
        for each epoch:                                          `train_epoch`
            for each batch, in each model's own order:           `BatchSampler`
                loss and gradient of all models, a step of Adam  `adam_step`

Model i depends on (seed, i) alone: its initial weights come from its own random stream, its order of the samples from a hash
of (seed, i, epoch), and every operation keeps models apart. So on the CPU it has the same bits however many others train
beside it, in whichever shard, after whichever interruption.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from cautious.beliefs.fixed_shapes import filled_up
from cautious.beliefs.training.state import (
    BETA_1,
    BETA_2,
    EPSILON,
    Checkpoints,
    MiniBatch,
    ShardExecutor,
    TrainingJob,
    TrainingProblem,
    TrainingSettings,
    TrainState,
)
from cautious.parallel import parallel_map
from cautious.progress import Progress, ProgressTracker
from cautious.seeding import derive_seed, hashed
from cautious.validation import parse_count, triton_available

CHECKPOINT_SECONDS = 20.0
"""Seconds of work between two checkpoints: what an interruption may cost."""

CALL_SECONDS = 1.0
"""Seconds between two reports of progress; also the length of a call of `TrainingProblem.train_epochs`."""


class TrainedModels(NamedTuple):
    """Weights and final losses of M models."""

    parameters: Tensor
    """Weights, [M, P]."""
    losses: Tensor
    """Each model's mean loss over its last epoch, [M]."""


def train(
    problem: TrainingProblem,
    settings: TrainingSettings,
    *,
    device: torch.device | str = "cpu",
    shard_size: int | None = None,
    checkpoint_dir: Path | None = None,
    progress: Progress | None = None,
    executor: ShardExecutor | None = None,
) -> TrainedModels:
    """M trained models. They are trained in shards, and work that `checkpoint_dir` holds is not done again.

    Args:
        problem: The network, its data and its loss.
        settings: Number of models, epochs, batch size, learning rate, weight decay and seed: they determine the result.
        device: Where to train.
        shard_size: Models that are trained together. It changes speed and memory, not the result.
        checkpoint_dir: Folder for unfinished and finished shards.
        progress: Called after each epoch, or about once a second where epochs are shorter.
        executor: Where shards are trained; None for this process. A shard that is trained elsewhere is kept when it is
            finished, not before.
    """
    job = TrainingJob(problem, settings, torch.device(device))
    size = _default_shard_size(job, executor) if shard_size is None else parse_count(shard_size, "shard_size")
    checkpoints = None if checkpoint_dir is None else Checkpoints(checkpoint_dir, problem, settings)
    shards = partition_models(settings.num_models, size, checkpoints.begun() if checkpoints else ())
    tracker = ProgressTracker(len(shards), progress)
    if executor is None:
        states = _train_here(job, shards, checkpoints, tracker)
    else:
        states = _train_elsewhere(executor, job, shards, checkpoints, tracker)
    return TrainedModels(
        torch.cat([state.parameters.cpu() for state in states]), torch.cat([state.losses.cpu() for state in states])
    )


def _default_shard_size(job: TrainingJob, executor: ShardExecutor | None) -> int:
    most = job.problem.shard_size[job.device.type]
    if executor is None:
        return most
    return balanced_shard_size(
        job.settings.num_models,
        most,
        executor.num_workers(job.device),
        multiple=job.problem.models_per_call if job.device.type == "cpu" else 1,
    )


class Training(NamedTuple):
    """A trained ensemble, the time it took and the hardware it took it on."""

    models: TrainedModels
    seconds: float
    """Seconds of this process; on a cluster the sum over its workers, which is the time of a single worker."""
    hardware: str


class EnsembleExecutor(Protocol):
    """What trains a whole ensemble, in this process or elsewhere (`cautious.executors`)."""

    def device(self, name: str) -> torch.device:
        """The device that is meant by "auto", "cpu" or "cuda", checked to exist."""
        ...

    def train(
        self,
        problem: TrainingProblem,
        settings: TrainingSettings,
        *,
        device: torch.device | str,
        checkpoint_dir: Path | None,
        progress: Progress | None = None,
    ) -> Training:
        """Train an ensemble as `train` does, resuming from `checkpoint_dir`."""
        ...


def balanced_shard_size(num_models: int, most: int, num_workers: int, multiple: int = 1) -> int:
    """Models per shard, at most `most`, such that all workers are busy to the end: as few rounds as possible, all even.

    >>> balanced_shard_size(24, 16, 2), balanced_shard_size(64, 16, 3), balanced_shard_size(2000, 16, 2)
    (12, 11, 16)

    Args:
        num_models: M.
        most: What one worker trains well together.
        num_workers: Number of workers that train at the same time.
        multiple: The size is a multiple of this number.
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


def _train_here(
    job: TrainingJob, shards: list[range], checkpoints: Checkpoints | None, tracker: ProgressTracker
) -> list[TrainState]:
    """Train in this process: on the CPU one shard per core, on a GPU one shard after another."""
    num_epochs = job.settings.num_epochs

    def work(number: int) -> TrainState:
        begun = None if checkpoints is None else checkpoints.load(shards[number], job.device)
        save = None if checkpoints is None else checkpoints.save
        return train_shard(
            job, begun or shards[number], lambda epochs: tracker.report(number, epochs, num_epochs), save
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
    """Train by an executor. This process writes each shard when it comes back; finished shards are not given out again."""
    home, num_epochs = torch.device("cpu"), job.settings.num_epochs
    loaded = {} if checkpoints is None else {number: checkpoints.load(one, home) for number, one in enumerate(shards)}
    begun = {number: state for number, state in loaded.items() if state is not None}
    done = {number: state for number, state in begun.items() if state.epoch >= num_epochs}
    tracker.report_all({number: state.epoch for number, state in begun.items()}, num_epochs)
    missing = [number for number in range(len(shards)) if number not in done]

    # An executor counts the shards that it was given, which are the missing ones.
    def finished(index: int, state: TrainState) -> None:
        if checkpoints is not None:
            checkpoints.save(state)
        done[missing[index]] = state
        tracker.report(missing[index], state.epoch, num_epochs)

    if missing:
        work = [begun.get(number) or shards[number] for number in missing]
        executor.train_shards(
            job, work, lambda index, epochs: tracker.report(missing[index], epochs, num_epochs), finished
        )
    return [done[number] for number in range(len(shards))]


def train_shard(
    job: TrainingJob,
    begun: range | TrainState,
    report: Callable[[int], None],
    save: Callable[[TrainState], None] | None = None,
) -> TrainState:
    """Train some models to the end.

    Args:
        job: What is trained.
        begun: Numbers of the models to train; or a shard to resume.
        report: Called with the number of epochs done; may raise to stop.
        save: Called with the shard now and then, at the end, and when stopped.
    """
    device, settings = job.device, job.settings
    problem = job.problem.to(device)
    state = begun.to(device) if isinstance(begun, TrainState) else TrainState.fresh(problem, settings, begun, device)
    sampler = BatchSampler(problem, settings.seed, state.models, device)
    checkpointer = _Checkpointer(state, save, report)
    num_epochs = 1  # of the next call of `problem.train_epochs`; grows until a call takes about a second
    report(state.epoch)
    unfinished = state.epoch < settings.num_epochs  # a shard that was finished before is not written again
    while state.epoch < settings.num_epochs:
        started = time.monotonic()
        # A kernel that trains whole epochs cannot resume in the middle of one: the plain path finishes it first.
        if problem.train_epochs is None or state.batch:
            train_epoch(problem, settings, state, sampler, checkpointer.report_if_due)
        else:
            problem.train_epochs(state, settings, min(num_epochs, settings.num_epochs - state.epoch))
        checkpointer.report_and_save()
        num_epochs = _epochs_per_call(num_epochs, time.monotonic() - started, settings.num_epochs)
    if unfinished:
        checkpointer.save()
    return state


def train_plainly(problem: TrainingProblem, settings: TrainingSettings, state: TrainState, num_epochs: int) -> None:
    """Advance a shard by some epochs in place, step by step: the reference for `TrainingProblem.train_epochs`."""
    sampler = BatchSampler(problem, settings.seed, state.models, state.parameters.device)
    for _ in range(num_epochs):
        train_epoch(problem, settings, state, sampler)


def train_epoch(
    problem: TrainingProblem,
    settings: TrainingSettings,
    state: TrainState,
    sampler: BatchSampler,
    between_steps: Callable[[], None] = lambda: None,
) -> None:
    """One pass over all samples in each model's own order, or the rest of one."""
    num_batches = settings.num_batches(problem.num_samples)
    # A resumed epoch begins at the batch that was next when it was interrupted: the order of the samples is a function of the
    # epoch, so nothing of it has to be saved.
    for batch in sampler.batches(state.epoch, settings.batch_size, state.batch):
        if state.batch:  # not before the first step: the caller reports between epochs
            between_steps()
        losses, gradient = loss_and_gradient_in_blocks(problem, state.parameters, batch, state.models)
        state.batch += 1
        step = state.epoch * num_batches + state.batch  # counted from 1 since the start, for Adam's bias correction
        adam_step(state, gradient, step, settings.learning_rate, settings.weight_decay)
        state.running += losses * batch.samples.shape[1]  # the last batch may be smaller: weighted by its size
    state.losses = state.running / problem.num_samples
    state.running = torch.zeros_like(state.losses)
    state.epoch, state.batch = state.epoch + 1, 0


class Block(NamedTuple):
    """Some models of a shard, and their position in a call of `loss_and_gradient`."""

    models: slice
    """Which of the shard's models."""
    offset: int
    """The position of the first of them."""


def blocks_of(models: range, size: int) -> Iterator[Block]:
    """Consecutive models, cut at multiples of `size`.

    >>> [(block.models, block.offset) for block in blocks_of(range(3, 9), 4)]
    [(slice(0, 1, None), 3), (slice(1, 5, None), 0), (slice(5, 6, None), 0)]
    """
    first = models.start
    while first < models.stop:
        following = min((first // size + 1) * size, models.stop)
        yield Block(slice(first - models.start, following - models.start), first % size)
        first = following


def loss_and_gradient_in_blocks(
    problem: TrainingProblem, parameters: Tensor, batch: MiniBatch, models: range
) -> tuple[Tensor, Tensor]:
    """`TrainingProblem.loss_and_gradient` for all models of a shard; on the CPU in calls of one shape (`beliefs.fixed_shapes`).

    A block has `models_per_call` models, and each model a fixed position in its block: its number modulo the block's size. So
    its bits do not depend on which models are in the shard.

    Args:
        problem: What is trained.
        parameters: [M, P].
        batch: The samples that each of the M models learns from in this step.
        models: Numbers of the M models in the ensemble.

    Returns:
        Losses [M] and gradients [M, P].
    """
    if parameters.device.type != "cpu":
        return problem.loss_and_gradient(parameters, batch)
    size = problem.models_per_call
    if len(models) == size and models.start % size == 0:  # as usual: nothing to fill up, nothing to copy
        return problem.loss_and_gradient(parameters, batch)
    losses, gradients = [], []
    for block, offset in blocks_of(models, size):
        # The missing models of a block are copies of its first one; their losses and gradients are dropped below.
        parts = (parameters, *(part for part in batch if part is not None))
        weights, *rest = (filled_up(part[block], size, offset) for part in parts)
        loss, gradient = problem.loss_and_gradient(weights, MiniBatch(*rest))
        kept = slice(offset, offset + block.stop - block.start)
        losses.append(loss[kept])
        gradients.append(gradient[kept])
    return torch.cat(losses), torch.cat(gradients)


def adam_step(state: TrainState, gradient: Tensor, step: int, learning_rate: float, weight_decay: float) -> None:
    """One step of Adam with PyTorch's defaults (β = 0.9, 0.999, ε = 1e-8) and L2 weight decay, in place.

        m = β₁m + (1-β₁)g,   v = β₂v + (1-β₂)g²,   w = w - η m̂ / (√v̂ + ε)

    On a GPU one fused kernel. On the CPU written out in single operations: a fused one may round the last few entries of a
    tensor differently, and where those fall depends on how many models are in it.
    """
    if state.parameters.is_cuda and triton_available():
        from cautious.beliefs.training.adam import adam_step as fused_step

        moments = state.first_moment, state.second_moment
        fused_step(
            state.parameters, gradient, *moments, step=step, learning_rate=learning_rate, weight_decay=weight_decay
        )
        return
    if weight_decay:
        gradient = gradient + weight_decay * state.parameters
    state.first_moment.mul_(BETA_1).add_(gradient * (1 - BETA_1))
    state.second_moment.mul_(BETA_2).add_(gradient.square_().mul_(1 - BETA_2))
    scale = (state.second_moment / (1 - BETA_2**step)).sqrt_().add_(EPSILON)
    state.parameters.sub_((state.first_moment / scale).mul_(learning_rate / (1 - BETA_1**step)))


class BatchSampler:
    """Per-model batch order and help bits: sorted and drawn by a hash of (model's seed, epoch, sample).

    Integer arithmetic only, so that they are the same on every device, and vectorised over the models.
    """

    def __init__(self, problem: TrainingProblem, seed: int, models: range, device: torch.device) -> None:
        """Derive the models' seeds."""
        self._num_samples = problem.num_samples

        def seeds(address: str) -> Tensor:
            return torch.tensor([derive_seed(seed, address, model) for model in models], device=device)

        self._order_seeds = seeds("shuffle")
        # "coin" is the earlier name of the help bit. It stays: another address would give other bits and so other models.
        self._help_bit_seeds = seeds("coin") if problem.uses_help_bit else None

    def batches(self, epoch: int, size: int, first: int = 0) -> Iterator[MiniBatch]:
        """One pass over all samples, `size` at a time, from batch `first` on."""
        order = shuffles(self._order_seeds, epoch, self._num_samples)
        help_bits = None
        if self._help_bit_seeds is not None:
            help_bits = draw_help_bits(self._help_bit_seeds, epoch, self._num_samples)
        for samples in order.split(size, dim=1)[first:]:
            yield MiniBatch(samples, None if help_bits is None else help_bits.gather(1, samples))


def shuffles(model_seeds: Tensor, epoch: int, num_samples: int) -> Tensor:
    """Each model's order of the samples in one epoch, [M, samples], from seeds [M], int64."""
    # Stable, so that two samples of equal hash have one order on every device.
    return torch.argsort(_hashes(model_seeds, epoch, num_samples), dim=1, stable=True)


def draw_help_bits(model_seeds: Tensor, epoch: int, num_samples: int) -> Tensor:
    """Each model's fair help bit for each sample in one epoch, [M, samples], 0 or 1."""
    return _hashes(model_seeds, epoch, num_samples) & 1


def _hashes(model_seeds: Tensor, epoch: int, num_samples: int) -> Tensor:
    """A random whole number for each (model's seed, epoch, sample), [M, samples]."""
    return hashed(model_seeds[:, None], epoch * num_samples + torch.arange(num_samples, device=model_seeds.device))


class _Checkpointer:
    """Reports the progress of a shard and saves it, between two steps, so a checkpoint never splits a step."""

    def __init__(
        self, state: TrainState, save: Callable[[TrainState], None] | None, report: Callable[[int], None]
    ) -> None:
        self._state = state
        self._save = save
        self._report = report
        self._reported = self._written = time.monotonic()

    def report_if_due(self) -> None:
        """Report about once a second."""
        if time.monotonic() - self._reported > CALL_SECONDS:
            self.report_and_save()

    def report_and_save(self) -> None:
        """Report; save if the last save was a while ago, or if the report raises an exception to stop the training."""
        try:
            if self._state.parameters.is_cuda:  # calls return before the GPU has worked: wait, so that times are true
                torch.cuda.synchronize(self._state.parameters.device)
            self._report(self._state.epoch)
        except BaseException:  # Ctrl-C too: what was trained is kept, and the same call resumes there
            self.save()
            raise
        self._reported = time.monotonic()
        if self._reported - self._written > CHECKPOINT_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the shard as it is."""
        if self._save is not None:
            self._save(self._state)
            self._written = time.monotonic()


def _epochs_per_call(num_epochs: int, seconds: float, most: int) -> int:
    """How many epochs the next call may take, where `num_epochs` took so many seconds: at most four times as many."""
    share = CALL_SECONDS / max(seconds, 1e-3)
    return max(1, min(int(num_epochs * min(share, 4)), most))
