"""Training M copies of one network at once: one axis for the models, no loop over them.

Model i depends on (seed, i) alone: its first weights come from its own stream, its shuffles from a hash of (seed, i,
epoch), and every operation keeps models apart. So it has the same bits on the CPU however many others train beside it, in
whichever shard, after whichever interruption.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from cautious.beliefs.memory import keep_freed_memory
from cautious.beliefs.shards import Checkpoints, Shard, StackedNetwork, TrainingSettings
from cautious.beliefs.shuffling import shuffles
from cautious.seeding import seed_of
from cautious.types import parse_count

CHECKPOINT_SECONDS = 20.0
"""How much work an interruption may cost at most, about."""

SHARD_SIZE = {"cpu": 16, "cuda": 2048}
"""Models trained together by default: on the CPU as many as a core's cache holds, on a GPU as many as keep it busy."""


Progress = Callable[[int, int], None]
"""Called with (epochs done, epochs in all), counted over all shards."""


class TrainedModels:
    """Weights of M models, and how well each fits."""

    def __init__(self, parameters: Tensor, losses: Tensor) -> None:
        """Keep weights [M, P] and each model's mean loss over its last epoch [M]."""
        self.parameters = parameters
        self.losses = losses


def train(
    network: StackedNetwork,
    settings: TrainingSettings,
    *,
    device: torch.device | str = "cpu",
    shard_size: int | None = None,
    checkpoint_dir: Path | None = None,
    progress: Progress | None = None,
) -> TrainedModels:
    """Train all models, shard by shard, going on from `checkpoint_dir` where it holds earlier work.

    Args:
        network: What to train, and on what.
        settings: What decides the result.
        device: Where to train.
        shard_size: Models trained together; changes speed and memory, not the result.
        checkpoint_dir: Where to keep unfinished and finished shards.
        progress: Told after each epoch.
    """
    place = torch.device(device)
    if place.type == "cpu":
        keep_freed_memory()
    size = SHARD_SIZE[place.type] if shard_size is None else parse_count(shard_size, "shard_size")
    shards = [range(first, min(first + size, settings.num_models)) for first in range(0, settings.num_models, size)]
    checkpoints = None if checkpoint_dir is None else Checkpoints(checkpoint_dir, network, settings)
    board = _Board(len(shards), settings.num_epochs, progress)

    def work(number: int) -> Shard:
        own = network.to(place)
        return _train_shard(
            own, settings, shards[number], place, checkpoints, lambda epochs: board.tell(number, epochs)
        )

    side_by_side = place.type == "cpu"
    done = _on_every_core(work, len(shards), board) if side_by_side else [work(number) for number in range(len(shards))]
    return TrainedModels(
        torch.cat([shard.parameters.cpu() for shard in done]), torch.cat([shard.losses.cpu() for shard in done])
    )


class _Board:
    """Where shards write how far they are, and read whether to go on."""

    def __init__(self, num_shards: int, num_epochs: int, progress: Progress | None) -> None:
        self._epochs = [0] * num_shards
        self._total = num_shards * num_epochs
        self._progress = progress
        self._lock = threading.Lock()
        self.stopped = False

    def tell(self, shard: int, epochs: int) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        with self._lock:
            self._epochs[shard] = epochs
            if self._progress is not None:
                self._progress(sum(self._epochs), self._total)


def _on_every_core(work: Callable[[int], Shard], num_shards: int, board: _Board) -> list[Shard]:
    """Shards side by side, one core each: they never wait for each other, as the threads of one operation would."""
    num_threads = torch.get_num_threads()

    def alone(number: int) -> Shard:
        torch.set_num_threads(1)
        return work(number)

    try:
        with ThreadPoolExecutor(max_workers=num_threads) as pool:
            futures = [pool.submit(alone, number) for number in range(num_shards)]
            try:
                return [future.result() for future in futures]
            except BaseException:
                board.stopped = True  # the others stop after their epoch; their last checkpoints stay
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        torch.set_num_threads(num_threads)


def _train_shard(
    network: StackedNetwork,
    settings: TrainingSettings,
    models: range,
    device: torch.device,
    checkpoints: Checkpoints | None,
    report: Callable[[int], None],
) -> Shard:
    shard = None if checkpoints is None else checkpoints.load(models, device)
    shard = shard or Shard.fresh(network, settings, models, device)
    seeds = torch.tensor([seed_of(settings.seed, "shuffle", model) for model in models], device=device)
    last_written = time.monotonic()
    report(shard.epoch)
    while shard.epoch < settings.num_epochs:
        _train_epoch(network, settings, shard, shuffles(seeds, shard.epoch, network.num_samples))
        try:
            report(shard.epoch)
        except BaseException:  # told to stop between two epochs: nothing is half done, so keep all of it
            if checkpoints is not None:
                checkpoints.save(shard)
            raise
        if checkpoints is not None and time.monotonic() - last_written > CHECKPOINT_SECONDS:
            checkpoints.save(shard)
            last_written = time.monotonic()
    if checkpoints is not None:
        checkpoints.save(shard)
    return shard


def _train_epoch(network: StackedNetwork, settings: TrainingSettings, shard: Shard, order: Tensor) -> None:
    """One pass over all samples in each model's own order [M, samples]."""
    total = torch.zeros_like(shard.losses)
    for number, batch in enumerate(order.split(settings.batch_size, dim=1)):
        losses, gradient = network.loss_and_gradient(shard.parameters, batch)
        step = shard.epoch * -(-order.shape[1] // settings.batch_size) + number + 1
        adam_step(shard, gradient, step, settings.learning_rate, settings.weight_decay)
        total += losses * batch.shape[1]
    shard.losses = total / order.shape[1]
    shard.epoch += 1


def adam_step(shard: Shard, gradient: Tensor, step: int, learning_rate: float, weight_decay: float) -> None:
    """One step of Adam with PyTorch's defaults (β = 0.9, 0.999, ε = 1e-8) and L2 weight decay, in place.

        m = β₁m + (1-β₁)g,   v = β₂v + (1-β₂)g²,   w = w - η m̂ / (√v̂ + ε)

    Written out in single operations: a fused one may round the last few entries of a tensor differently, and where those
    fall depends on how many models are in it.
    """
    beta1, beta2, epsilon = 0.9, 0.999, 1e-8
    if weight_decay:
        gradient = gradient + weight_decay * shard.parameters
    shard.first_moment.mul_(beta1).add_(gradient * (1 - beta1))
    shard.second_moment.mul_(beta2).add_(gradient.square_().mul_(1 - beta2))
    scale = (shard.second_moment / (1 - beta2**step)).sqrt_().add_(epsilon)
    shard.parameters.sub_((shard.first_moment / scale).mul_(learning_rate / (1 - beta1**step)))
