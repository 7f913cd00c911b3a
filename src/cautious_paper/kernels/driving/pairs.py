"""Pairs of one head through hidden and output layer and back: parts of the kernel that trains driving networks."""

from __future__ import annotations

import triton
import triton.language as tl

from cautious_paper.kernels.driving.convolutions import HIDDEN


@triton.jit
def _upper(x):
    """The upper half of a float32 number's bits: a bfloat16 number, and what is left of x is exact in float32."""
    return (x.to(tl.int32, bitcast=True) & -0x10000).to(tl.float32, bitcast=True)


@triton.jit
def _add_product(binary, x, sums, EXACT: tl.constexpr):
    """Add the product binary @ x: float32 numbers as sums of three bfloat16 ones (3 x 8 bits), zeros and ones as they are."""
    if EXACT:
        return tl.dot(binary, x, sums, input_precision="ieee")
    high = _upper(x)
    middle = _upper(x - high)
    low = x - high - middle
    a, b, c = (
        high.to(tl.bfloat16),
        middle.to(tl.bfloat16),
        low.to(tl.bfloat16),
    )  # before the first product: fewer barriers
    return tl.dot(binary, c, tl.dot(binary, b, tl.dot(binary, a, sums)))


@triton.jit
def pairs_of_head(
    parts, output, bias, members, targets, order, first, last, scale, squares,
    R: tl.constexpr, TILE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Pairs order[first:last] of one head through hidden and output layer, and back to the parts.

    Args:
        parts: What each row adds to the hidden layer, [R, 32].
        output: The head's output weights, [32].
        bias: The head's output bias.
        members: [P, R], bfloat16 (float32 if EXACT).
        targets: [P], float32.
        order: The batch's pairs, int32.
        first: The head's first place in `order`.
        last: One after its last.
        scale: 2 / batch size.
        squares: Sums of squared errors so far, [TILE].
        R: Rows.
        TILE: Pairs at a time.
        EXACT: See `_add_product`.

    Returns:
        Gradients of parts [R, 32], output weights [32] and bias, and the new `squares`.
    """
    row, n = tl.arange(0, R), tl.arange(0, TILE)
    to_parts = tl.zeros([R, HIDDEN], tl.float32)
    to_output = tl.zeros([TILE, HIDDEN], tl.float32)
    to_bias = tl.zeros([TILE], tl.float32)
    start = first
    pair = tl.load(order + start + n, mask=start + n < last, other=0)
    member = tl.load(members + pair[:, None] * R + row[None, :])  # [TILE, R]
    while start < last:  # not `for`: the interpreter cannot count to a computed number
        inside = start + n < last
        target = tl.load(targets + tl.load(order + start + n, mask=inside, other=0))
        start += TILE
        pair = tl.load(order + start + n, mask=start + n < last, other=0)  # of the next round, ahead of time
        before = _add_product(member, parts, tl.zeros([TILE, HIDDEN], tl.float32), EXACT)
        ahead = tl.load(members + pair[:, None] * R + row[None, :])
        hidden = tl.maximum(before, 0.0)
        error = tl.where(inside, tl.sum(hidden * output[None, :], 1) + bias - target, 0.0)
        squares += error * error
        slope = error * scale
        to_bias += slope
        to_output += slope[:, None] * hidden
        to_hidden = tl.where(before > 0, slope[:, None] * output[None, :], 0.0)
        to_parts = _add_product(tl.trans(member), to_hidden, to_parts, EXACT)
        member = ahead
    return to_parts, tl.sum(to_output, 0), tl.sum(to_bias), squares
