"""Training of M driving networks for many epochs at once, on the GPU: the plain path's steps in one kernel.

Sums are float32 or as exact, each in a fixed order: one seed gives the same bits on the same kind of GPU, whatever other
models are in the call and however the epochs are cut into calls.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from cautious.beliefs.driving import NUM_PARAMETERS, PairInputs
from cautious.beliefs.kernels.adam import BETA_1, BETA_2
from cautious.beliefs.kernels.driving_step import train_model
from cautious.beliefs.kernels.driving_tables import pair_tables
from cautious.beliefs.kernels.tuning import interpreted
from cautious.beliefs.shards import Shard, TrainingSettings
from cautious.errors import InvalidInputError
from cautious.seeding import seed_of

TILE = 64
"""Pairs at a time."""

NUM_PARTS = 3
"""bfloat16 numbers that together are one float32 number: 3 x 8 bits of mantissa."""

MAX_REGISTERS = 128
"""A thread: so that four models share a multiprocessor."""

MAX_PAIRS = 1 << 15
"""A head's pairs of a batch are counted in 16 bits."""


class FusedDrivingTraining:
    """Trains shards on one set of pairs, several epochs a call."""

    def __init__(self, inputs: PairInputs, targets: Tensor) -> None:
        """Keep the pairs where `targets` are.

        Args:
            inputs: The training pairs.
            targets: Their rewards, pairs by initial speed, [P].
        """
        device = targets.device
        if device.type != "cuda" and not interpreted():
            raise InvalidInputError(f"targets are on {device}; the kernel needs a GPU (or TRITON_INTERPRET=1).")
        if inputs.num_pairs >= MAX_PAIRS or targets.shape != (inputs.num_pairs,):
            raise InvalidInputError(f"targets: expected [{inputs.num_pairs}], fewer than {MAX_PAIRS}.")
        tables = pair_tables(inputs)
        self._members = tables.members.to(device, torch.float32 if interpreted() else torch.bfloat16)
        self._patches, self._slots, self._starts, self._samples, self._heads = (table.to(device) for table in tables[1:])
        self._targets = targets.to(torch.float32).contiguous()

    def train_epochs(self, shard: Shard, settings: TrainingSettings, num_epochs: int) -> None:
        """Advance a shard by `num_epochs` in place; `losses` are the means over the last of them.

        Returns before the GPU is done.
        """
        num_pairs, num_models = len(self._targets), len(shard.models)
        for tensor in (shard.parameters, shard.first_moment, shard.second_moment):
            if tensor.shape != (num_models, NUM_PARAMETERS) or not tensor.is_contiguous():
                raise InvalidInputError(f"shard: expected contiguous [{num_models}, {NUM_PARAMETERS}] tensors.")
        num_batches = -(-num_pairs // settings.batch_size)
        device = self._targets.device
        seeds = [seed_of(settings.seed, "shuffle", model) for model in shard.models]
        first_step = shard.epoch * num_batches
        train_model[(num_models,)](
            shard.parameters, shard.first_moment, shard.second_moment, shard.losses, torch.tensor(seeds, device=device),
            self._members, self._targets, self._patches, self._slots, self._starts, self._samples, self._heads,
            torch.empty(num_models, num_pairs, dtype=torch.int32, device=device),
            torch.empty(num_models, num_batches, dtype=torch.int64, device=device),
            torch.empty(num_models, 40 * self._members.shape[1], device=device),
            corrections(first_step, num_epochs * num_batches, settings.learning_rate).to(device),
            settings.weight_decay, shard.epoch, _bound(num_epochs), num_pairs, settings.batch_size, _bound(num_batches),
            self._members.shape[1], TILE, 0 if interpreted() else NUM_PARTS, 1 << (num_pairs - 1).bit_length(),
            num_warps=4, **({} if interpreted() else {"maxnreg": MAX_REGISTERS}),
        )  # fmt: skip
        shard.epoch += num_epochs


def _bound(count: int) -> Any:
    """A loop's bound: a run-time number on a GPU, a constant in the interpreter, which cannot count to another."""
    return tl.constexpr(count) if interpreted() else count


def corrections(first_step: int, num_steps: int, learning_rate: float) -> Tensor:
    """Adam's corrections for its averages' start at zero, [steps, 2]: η/(1-β₁ᵗ) and 1/(1-β₂ᵗ), t from first_step + 1."""
    step = torch.arange(first_step + 1, first_step + num_steps + 1, dtype=torch.float64)
    return torch.stack([learning_rate / (1 - BETA_1**step), 1 / (1 - BETA_2**step)], dim=1).float()
