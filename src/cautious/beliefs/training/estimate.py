"""How long a training will take, measured by a few of its steps, and what would shorten it."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from cautious.beliefs.training.loop import TrainingJob, adam_step, loss_and_gradient_in_blocks, shuffles
from cautious.beliefs.training.state import MiniBatch, TrainState
from cautious.parallel import single_thread
from cautious.seeding import make_rng

MANY_SAMPLES = 50_000_000
"""An estimate is made from this many samples on, counted over all epochs and models: fewer take a minute or so."""
LONG = 60.0
"""A training of this many seconds or more is called long."""
STEPS_PER_EPOCH, LARGEST_BATCH = 500, 4096
"""The batch size that is suggested for many rows: so many steps in an epoch, and no larger batches than that."""
WORTH_IT = 0.8
"""Larger batches are suggested only if they shorten the training to less than this share."""
TIMED_STEPS, TIMED_SAMPLES = 3, 20_000


class LongTrainingWarning(UserWarning):
    """Training will take long; the text says how long, and what would shorten it."""


def is_large(job: TrainingJob) -> bool:
    """Whether the training is so large on the CPU that an estimate, which takes about a second, is worth it."""
    settings = job.settings
    samples = settings.num_models * settings.num_epochs * job.problem.num_samples
    return job.device.type == "cpu" and samples >= MANY_SAMPLES


def training_seconds(job: TrainingJob) -> float:
    """Seconds of the whole training on this machine's CPU, estimated from a few steps of the first models and one shuffle."""
    problem, settings = job.problem, job.settings
    models = range(min(settings.num_models, problem.models_per_call))
    state = TrainState.fresh(problem, settings, models, job.device)
    rng = make_rng(settings.seed, "estimate")
    size = min(settings.batch_size, problem.num_samples)
    samples = torch.from_numpy(rng.integers(problem.num_samples, size=(len(models), size)))
    bits = torch.zeros_like(samples) if problem.uses_help_bit else None
    steps = []
    with single_thread() as num_threads:
        for step in range(1, TIMED_STEPS + 2):
            started = time.perf_counter()
            _, gradient = loss_and_gradient_in_blocks(problem, state.parameters, MiniBatch(samples, bits), models)
            adam_step(state, gradient, step, settings.learning_rate, settings.weight_decay)
            steps.append(time.perf_counter() - started)
        started = time.perf_counter()
        few = min(problem.num_samples, TIMED_SAMPLES)
        shuffles(torch.arange(len(models)), 0, few)
        shuffling = (time.perf_counter() - started) * problem.num_samples / few
    shards = -(-settings.num_models // len(models))
    rounds = -(-shards // min(num_threads, shards))
    epoch = settings.num_batches(problem.num_samples) * min(steps[1:]) + shuffling
    return rounds * settings.num_epochs * epoch


def advice(job: TrainingJob) -> str | None:
    """One sentence for a training that will take long: how long, and what would shorten it. None for a short training."""
    seconds = training_seconds(job)
    if seconds < LONG:
        return None
    settings, count = job.settings, job.problem.num_samples
    sizes = f"{count:,} rows x {settings.num_models} models x {settings.num_epochs} epochs, batches of {settings.batch_size}"
    ways = []
    larger = suggested_batch(count)
    if larger > settings.batch_size:
        quicker = training_seconds(job._replace(settings=replace(settings, batch_size=larger)))
        if quicker < WORTH_IT * seconds:
            ways.append(f"batch_size={larger} (about {in_words(quicker)})")
    epochs = max(1, settings.num_epochs // 10)
    if epochs < settings.num_epochs:
        ways.append(f"num_epochs={epochs} (about {in_words(seconds * epochs / settings.num_epochs)})")
    ways.append("a random sample of the rows")
    return f"training will take about {in_words(seconds)}: {sizes}. Shorter: {', '.join(ways[:-1])} or {ways[-1]}."


def suggested_batch(num_samples: int) -> int:
    """A power of two that gives about `STEPS_PER_EPOCH` steps per epoch, at least 64.

    >>> suggested_batch(1000), suggested_batch(100_000), suggested_batch(10_000_000)
    (64, 128, 4096)
    """
    size = 64
    while 2 * size <= min(num_samples // STEPS_PER_EPOCH, LARGEST_BATCH):
        size *= 2
    return size


def in_words(seconds: float) -> str:
    """A number of seconds in the unit that suits it.

    >>> in_words(40), in_words(400), in_words(40_000)
    ('40 s', '7 min', '11 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"
