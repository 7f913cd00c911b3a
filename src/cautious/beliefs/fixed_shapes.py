"""Library calls of one fixed shape, so that a model's bits are independent of what else is in the batch.

Matrix and convolution libraries choose their kernels, and with them the order of their sums, by the shape of a call, the
kind of CPU and the alignment of the data. So on the CPU every call has a fixed number of models (and, in prediction, of
rows); what is missing is filled up with copies of the first entry. In training each model also has a fixed position in its
block, its number modulo the block's size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from cautious.beliefs.training.state import MiniBatch, TrainingProblem

ALIGNMENT = 64
"""Bytes of a cache line, which is also the widest vector register: memory that torch allocates begins at a multiple of it."""
LINE = ALIGNMENT // 4
"""Float32 numbers of a cache line."""


class Block(NamedTuple):
    """Some of a shard's models, and where they stand in a call."""

    models: slice
    """Which of the shard's models."""
    offset: int
    """The position of the first of them."""


def filled_up(values: Tensor, size: int, offset: int = 0) -> Tensor:
    """`values` [n, ...] as entries `offset` to `offset + n` of `size`, the others copies of the first: [size, ...].

    The result begins at an aligned address, too.
    """
    if len(values) == size and values.data_ptr() % ALIGNMENT == 0:
        return values
    filled = values[:1].expand(size, *values.shape[1:]).clone(memory_format=torch.contiguous_format)
    filled[offset : offset + len(values)] = values
    return filled


def rounds_alike(predict: Callable[[Tensor], Tensor], rows: Tensor, fewer: int) -> bool:
    """Whether calls with `fewer` rows give each row the bits that one call with all `rows` [S, F] gives it.

    The order in which a library sums is set by the shapes of a call, not by the numbers in it. So a comparison of many sums
    tells whether both shapes have the same order here: in another order, about half of them would round differently.

    Args:
        predict: Rows [s, F] -> [M, s, A].
        rows: S is a multiple of `fewer`.
        fewer: Rows of the shorter call.
    """
    whole = predict(rows)
    parts = zip(rows.split(fewer), whole.split(fewer, dim=1), strict=True)
    return all(torch.equal(predict(filled_up(part, fewer)), expected) for part, expected in parts)


def aligned(values: Tensor, *dims: int) -> Tensor:
    """A copy with zeros behind along each of `dims`, up to whole cache lines of float32 numbers.

    Along the last dimension, every row then begins at an aligned address: a library may round a row by where it begins, and
    that depends on its position among the others.
    """
    size = list(values.shape)
    for dim in dims:
        size[dim] = -(-size[dim] // LINE) * LINE
    room = torch.zeros(size, dtype=values.dtype, device=values.device)
    room[tuple(slice(0, length) for length in values.shape)] = values
    return room


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


def loss_and_gradient(
    network: TrainingProblem, parameters: Tensor, batch: MiniBatch, models: range
) -> tuple[Tensor, Tensor]:
    """Loss of each model on its own batch of samples, and its gradient, in calls of one shape on the CPU.

    Args:
        network: What is trained.
        parameters: [M, P].
        batch: What each of the M models sees.
        models: Their numbers in the ensemble.

    Returns:
        Losses [M] and gradients [M, P].
    """
    if parameters.device.type != "cpu":
        return network.loss_and_gradient(parameters, batch)
    size = network.models_per_call
    if len(models) == size and models.start % size == 0:  # as usual: nothing to fill up, nothing to copy
        return network.loss_and_gradient(parameters, batch)
    losses, gradients = [], []
    for block, offset in blocks_of(models, size):
        own = [
            filled_up(part[block], size, offset) for part in (parameters, *(part for part in batch if part is not None))
        ]
        loss, gradient = network.loss_and_gradient(own[0], type(batch)(*own[1:]))
        kept = slice(offset, offset + block.stop - block.start)
        losses.append(loss[kept])
        gradients.append(gradient[kept])
    return torch.cat(losses), torch.cat(gradients)
