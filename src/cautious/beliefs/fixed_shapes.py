"""Library calls of one fixed shape, so that a model's bits are independent of what else is in the batch.

Matrix and convolution libraries choose their kernels, and with them the order of their sums, by the shape of a call, the
kind of CPU and the alignment of the data. So on the CPU every call has a fixed number of models (and, in prediction, of
rows); what is missing is filled up with copies of the first entry. In training each model also has a fixed position in its
block, its number modulo the block's size.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ALIGNMENT = 64
"""Bytes of a cache line, which is also the widest vector register: memory that torch allocates begins at a multiple of it."""
LINE = ALIGNMENT // 4
"""Float32 numbers of a cache line."""


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
    padded = torch.zeros(size, dtype=values.dtype, device=values.device)
    padded[tuple(slice(0, length) for length in values.shape)] = values
    return padded
