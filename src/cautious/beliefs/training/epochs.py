"""One epoch of training M models: each in its own order of the samples, one step of Adam after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from cautious.beliefs.fixed_shapes import loss_and_gradient
from cautious.beliefs.kernels import triton_available
from cautious.beliefs.training.shuffling import draw_help_bits, shuffles
from cautious.beliefs.training.state import (
    BETA_1,
    BETA_2,
    EPSILON,
    Batch,
    TrainingProblem,
    TrainingSettings,
    TrainState,
)
from cautious.seeding import derive_seed


class BatchSampler:
    """What chance decides in training: each model's own order of the samples, and its coins where the network uses them."""

    def __init__(self, network: TrainingProblem, seed: int, models: range, device: torch.device) -> None:
        self._num_samples = network.num_samples

        def seeds(what: str) -> Tensor:
            return torch.tensor([derive_seed(seed, what, model) for model in models], device=device)

        self._orders = seeds("shuffle")
        self._coins = seeds("coin") if network.uses_help_bit else None

    def batches(self, epoch: int, size: int, first: int = 0) -> Iterator[Batch]:
        """One pass over all samples, `size` at a time, from batch `first` on."""
        order = shuffles(self._orders, epoch, self._num_samples)
        help_bits = None if self._coins is None else draw_help_bits(self._coins, epoch, self._num_samples)
        for samples in order.split(size, dim=1)[first:]:
            yield Batch(samples, None if help_bits is None else help_bits.gather(1, samples))


def train_plainly(network: TrainingProblem, settings: TrainingSettings, shard: TrainState, num_epochs: int) -> None:
    """Advance a shard by some epochs in place, step by step: what a network that trains itself must agree with."""
    sampler = BatchSampler(network, settings.seed, shard.models, shard.parameters.device)
    for _ in range(num_epochs):
        train_epoch(network, settings, shard, sampler)


def train_epoch(
    network: TrainingProblem,
    settings: TrainingSettings,
    shard: TrainState,
    sampler: BatchSampler,
    between_steps: Callable[[], None] = lambda: None,
) -> None:
    """One pass over all samples in each model's own order, or the rest of one."""
    num_batches = settings.num_batches(network.num_samples)
    for batch in sampler.batches(shard.epoch, settings.batch_size, shard.batch):
        if shard.batch:
            between_steps()
        losses, gradient = loss_and_gradient(network, shard.parameters, batch, shard.models)
        shard.batch += 1
        step = shard.epoch * num_batches + shard.batch
        adam_step(shard, gradient, step, settings.learning_rate, settings.weight_decay)
        shard.running += losses * batch.samples.shape[1]
    shard.losses = shard.running / network.num_samples
    shard.running = torch.zeros_like(shard.losses)
    shard.epoch, shard.batch = shard.epoch + 1, 0


def adam_step(shard: TrainState, gradient: Tensor, step: int, learning_rate: float, weight_decay: float) -> None:
    """One step of Adam with PyTorch's defaults (β = 0.9, 0.999, ε = 1e-8) and L2 weight decay, in place.

        m = β₁m + (1-β₁)g,   v = β₂v + (1-β₂)g²,   w = w - η m̂ / (√v̂ + ε)

    On a GPU one fused kernel. On the CPU written out in single operations: a fused one may round the last few entries of a
    tensor differently, and where those fall depends on how many models are in it.
    """
    if shard.parameters.is_cuda and triton_available():
        from cautious.beliefs.kernels.adam import adam_step as fused_step

        moments = shard.first_moment, shard.second_moment
        fused_step(
            shard.parameters, gradient, *moments, step=step, learning_rate=learning_rate, weight_decay=weight_decay
        )
        return
    if weight_decay:
        gradient = gradient + weight_decay * shard.parameters
    shard.first_moment.mul_(BETA_1).add_(gradient * (1 - BETA_1))
    shard.second_moment.mul_(BETA_2).add_(gradient.square_().mul_(1 - BETA_2))
    scale = (shard.second_moment / (1 - BETA_2**step)).sqrt_().add_(EPSILON)
    shard.parameters.sub_((shard.first_moment / scale).mul_(learning_rate / (1 - BETA_1**step)))
