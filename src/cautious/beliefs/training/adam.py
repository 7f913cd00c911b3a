"""One step of Adam over all models' parameters, in one pass over memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from cautious.beliefs.training.state import BETA_1, BETA_2, EPSILON
from cautious.errors import InvalidInputError

BLOCK = 1024
_BETA_1, _BETA_2, _EPSILON = tl.constexpr(BETA_1), tl.constexpr(BETA_2), tl.constexpr(EPSILON)


@triton.jit
def adam_at(weights, mean, square, at, mask, slope, rate, correction, decay):
    """One step of Adam on the weights at `at` (`beliefs.training.loop.adam_step`)."""
    weight = tl.load(weights + at, mask=mask, other=0.0)
    slope += decay * weight  # L2 penalty, as PyTorch's Adam: through the averages, not beside them
    m = _BETA_1 * tl.load(mean + at, mask=mask, other=0.0) + (1 - _BETA_1) * slope
    v = _BETA_2 * tl.load(square + at, mask=mask, other=0.0) + (1 - _BETA_2) * slope * slope
    tl.store(mean + at, m, mask=mask)
    tl.store(square + at, v, mask=mask)
    tl.store(weights + at, weight - rate * m / (tl.sqrt(v * correction) + _EPSILON), mask=mask)


@triton.jit
def _adam(parameters, gradient, first_moment, second_moment, rate, correction, decay, size, BLOCK: tl.constexpr):
    """`BLOCK` parameters per program; each is updated by itself, so models stay apart."""
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # int64: M x P may exceed 2^31
    slope = tl.load(gradient + n, mask=n < size)
    adam_at(parameters, first_moment, second_moment, n, n < size, slope, rate, correction, decay)


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
    """One step of Adam with PyTorch's defaults and L2 weight decay, in place (`beliefs.training.loop.adam_step`).

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
    # Computed here in float64, not in the kernel: 1 - β₂^step loses digits in float32 at the first steps.
    rate, correction = learning_rate / (1 - BETA_1**step), 1 / (1 - BETA_2**step)
    size = parameters.numel()
    _adam[(triton.cdiv(size, BLOCK),)](
        parameters, gradient, first_moment, second_moment, rate, correction, weight_decay, size,
        BLOCK, num_warps=4,
    )  # fmt: skip
