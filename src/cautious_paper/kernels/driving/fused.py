"""Training of M driving networks for many epochs at once, on the GPU: the plain path's steps in one kernel.

Sums are float32 or as exact, each in a fixed order: one seed gives the same bits on the same kind of GPU, whatever other
models are in the call and however the epochs are cut into calls.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from cautious.beliefs.training.state import BETA_1, BETA_2, TrainingSettings, TrainState
from cautious.errors import InvalidInputError
from cautious.seeding import derive_seed
from cautious_paper.kernels.driving.pair_tables import pair_tables
from cautious_paper.kernels.driving.train_model import SCRATCH, train_model
from cautious_paper.kernels.image.tuning import bound, interpreted
from cautious_paper.kernels.streams import side_by_side, streams_of
from cautious_paper.networks.driving import NUM_PARAMETERS, PairInputs

TILE = 64
"""Pairs at a time."""

MAX_REGISTERS = 168
"""A thread's, so that three models share a multiprocessor."""

NUM_STREAMS, MIN_EPOCHS, MAX_LAUNCHES = 4, 16, 8
"""A call is cut into groups of models, each a chain of launches of some epochs: no multiprocessor waits for the last model
of a launch, since another group's launch is ready."""

MAX_PAIRS = 1 << 14
"""A head's pairs of a batch are counted in 16 bits, of which the kernel takes the upper two for zeros."""


class FusedDrivingTraining:
    """Trains shards on one set of pairs, several epochs per call."""

    def __init__(self, inputs: PairInputs, targets: Tensor) -> None:
        """Keep the pairs where `targets` are.

        Args:
            inputs: The training pairs.
            targets: Their rewards, pairs by initial speed, [P].
        """
        self._device = targets.device
        if self._device.type != "cuda" and not interpreted():
            raise InvalidInputError(f"targets are on {self._device}; the kernel needs a GPU (or TRITON_INTERPRET=1).")
        if targets.shape != (inputs.num_pairs,) or inputs.num_pairs >= MAX_PAIRS:
            raise InvalidInputError(f"targets: expected [{inputs.num_pairs}], fewer than {MAX_PAIRS}.")
        tables = pair_tables(inputs)
        # Entries are 0 and 1, exact in bfloat16, and tensor cores multiply it; the interpreter on the CPU has no such type.
        self._members = tables.members.to(self._device, torch.float32 if interpreted() else torch.bfloat16)
        self._tables = [table.to(self._device) for table in tables[1:]]
        self._most = int(tables.starts.diff().max())
        self._targets = targets.to(torch.float32).contiguous()

    def train_epochs(self, shard: TrainState, settings: TrainingSettings, num_epochs: int) -> None:
        """Advance a shard by `num_epochs` in place; `losses` are the means over the last of them.

        Returns before the GPU is done.
        """
        num_models = len(shard.models)
        for tensor in (shard.parameters, shard.first_moment, shard.second_moment):
            if tensor.shape != (num_models, NUM_PARAMETERS) or not tensor.is_contiguous():
                raise InvalidInputError(f"shard: expected contiguous [{num_models}, {NUM_PARAMETERS}] tensors.")
        state = [shard.parameters, shard.first_moment, shard.second_moment, shard.losses]
        seeds = [derive_seed(settings.seed, "shuffle", model) for model in shard.models]
        num_batches = settings.num_batches(len(self._targets))
        rates = corrections(shard.epoch * num_batches, num_epochs * num_batches, settings.learning_rate)
        tensors = [*state, torch.tensor(seeds, device=self._device), *self._workspace(num_models, num_batches)]
        call = _Call([*tensors, rates.to(self._device)], settings, shard.epoch)
        if interpreted():  # no streams on the CPU: one launch
            self._launch(call, range(num_models), range(shard.epoch, shard.epoch + num_epochs))
        else:
            self._launch_all(call, num_models, num_epochs)
        shard.epoch += num_epochs

    def _workspace(self, num_models: int, num_batches: int) -> list[Tensor]:
        """Each model's order of the pairs, sizes of its batches, and what its threads hand each other."""
        return [
            torch.empty(num_models, len(self._targets), dtype=torch.int32, device=self._device),
            torch.empty(num_models, num_batches, dtype=torch.int64, device=self._device),
            torch.empty(num_models, SCRATCH * self._members.shape[1], dtype=torch.float32, device=self._device),
        ]

    def _launch_all(self, call: _Call, num_models: int, num_epochs: int) -> None:
        """Groups of models side by side, each in a chain of launches."""
        groups = _cut(range(num_models), NUM_STREAMS)
        chain = _cut(
            range(call.first_epoch, call.first_epoch + num_epochs), min(MAX_LAUNCHES, num_epochs // MIN_EPOCHS)
        )
        streams = streams_of(self._device, NUM_STREAMS)[: len(groups)]
        # Launches of one stream run in order, so a group's epochs follow each other; groups share nothing that is written.
        with side_by_side(streams):
            for stream, models in zip(streams, groups, strict=True):
                with torch.cuda.stream(stream):
                    for epochs in chain:
                        self._launch(call, models, epochs)

    def _launch(self, call: _Call, models: range, epochs: range) -> None:
        """One kernel: some epochs of some of the call's models."""
        num_pairs, batch_size = len(self._targets), call.settings.batch_size
        options = {} if interpreted() or torch.version.hip else {"maxnreg": MAX_REGISTERS}
        train_model[(len(models),)](
            *call.tensors, self._members, self._targets, *self._tables, float(call.settings.weight_decay),
            models.start, call.first_epoch, epochs.start, bound(len(epochs)),
            num_pairs, batch_size, bound(call.settings.num_batches(num_pairs)),
            self._members.shape[1], self._most, TILE, interpreted(), 1 << (num_pairs - 1).bit_length(),
            num_warps=4, **options,
        )  # fmt: skip


class _Call(NamedTuple):
    """What all launches of one call share."""

    tensors: list[Tensor]
    settings: TrainingSettings
    first_epoch: int


def _cut(whole: range, num_parts: int) -> list[range]:
    """Cut a range into at most `num_parts` parts of nearly equal length, none empty."""
    num_parts = max(1, min(num_parts, len(whole)))
    borders = [whole.start + len(whole) * number // num_parts for number in range(num_parts + 1)]
    return [range(start, end) for start, end in pairwise(borders)]


def corrections(first_step: int, num_steps: int, learning_rate: float) -> Tensor:
    """Adam's corrections for its averages' start at zero, [steps, 2]: η/(1-β₁ᵗ) and 1/(1-β₂ᵗ), t from first_step + 1."""
    step = torch.arange(first_step + 1, first_step + num_steps + 1, dtype=torch.float64)
    return torch.stack([learning_rate / (1 - BETA_1**step), 1 / (1 - BETA_2**step)], dim=1).float()
