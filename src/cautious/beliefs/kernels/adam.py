"""One step of Adam over all models' parameters, in one pass over memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from cautious.errors import InvalidInputError

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
"""PyTorch's defaults."""

BLOCK = 1024


@triton.jit
def _adam(
    parameters, gradient, first_moment, second_moment, rate, correction, decay, size,
    BETA_1: tl.constexpr, BETA_2: tl.constexpr, EPSILON: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`BLOCK` parameters a program; each is updated by itself, so models stay apart."""
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = n < size
    weight = tl.load(parameters + n, mask=inside)
    slope = tl.load(gradient + n, mask=inside) + decay * weight
    mean = BETA_1 * tl.load(first_moment + n, mask=inside) + (1 - BETA_1) * slope
    square = BETA_2 * tl.load(second_moment + n, mask=inside) + (1 - BETA_2) * slope * slope
    weight -= rate * mean / (tl.sqrt(square * correction) + EPSILON)
    tl.store(first_moment + n, mean, mask=inside)
    tl.store(second_moment + n, square, mask=inside)
    tl.store(parameters + n, weight, mask=inside)


def adam_step(
    parameters: Tensor,
    gradient: Tensor,
    first_moment: Tensor,
    second_moment: Tensor,
    *,
    step: int,
    learning_rate: float,
    weight_decay: float = 0.0,
) -> None:
    """One step of Adam with PyTorch's defaults and L2 weight decay, in place (`beliefs.epochs.adam_step`).

        m = β₁m + (1-β₁)g,   v = β₂v + (1-β₂)g²,   w = w - η m̂ / (√v̂ + ε)

    Args:
        parameters: [M, P], float32, changed.
        gradient: [M, P], float32.
        first_moment: [M, P], float32, changed.
        second_moment: [M, P], float32, changed.
        step: Number of this step, from 1.
        learning_rate: η.
        weight_decay: Times the parameters, added to the gradient.
    """
    for tensor in (parameters, gradient, first_moment, second_moment):
        if tensor.dtype != torch.float32 or tensor.shape != parameters.shape or not tensor.is_contiguous():
            raise InvalidInputError("adam_step: parameters, gradient and moments must be contiguous float32 [M, P].")
    rate, correction = learning_rate / (1 - BETA_1**step), 1 / (1 - BETA_2**step)
    size = parameters.numel()
    _adam[(triton.cdiv(size, BLOCK),)](
        parameters, gradient, first_moment, second_moment, rate, correction, weight_decay, size,
        BETA_1, BETA_2, EPSILON, BLOCK, num_warps=4,
    )  # fmt: skip
