"""Many epochs of training of a driving network in one kernel, one program a model."""

from __future__ import annotations

import triton
import triton.language as tl

from cautious.beliefs import driving
from cautious.beliefs.kernels.adam import BETA_1 as _BETA_1
from cautious.beliefs.kernels.adam import BETA_2 as _BETA_2
from cautious.beliefs.kernels.adam import EPSILON as _EPSILON
from cautious.beliefs.kernels.driving_batches import write_batches

BETA_1, BETA_2, EPSILON = tl.constexpr(_BETA_1), tl.constexpr(_BETA_2), tl.constexpr(_EPSILON)
HEADS, HIDDEN = tl.constexpr(driving.NUM_SPEEDS), tl.constexpr(driving.NUM_HIDDEN)
CHANNELS = tl.constexpr(2 * driving.NUM_CHANNELS)
POSITIONS = tl.constexpr(driving.NUM_POSITIONS)
FEATURES = tl.constexpr(2 * driving.NUM_FEATURES)  # 48 inputs of the hidden layer come from the convolutions
SLOTS = tl.constexpr(2 * driving.NUM_POSITIONS)
WIDTH = tl.constexpr(driving.NUM_SPEEDS * driving.NUM_HIDDEN)
INPUTS = tl.constexpr(driving.NUM_INPUTS + 1)  # 53 with the bias
TAPS = tl.constexpr(driving.PATCH + 1)
HIDDEN_START = tl.constexpr(driving.SIZES["convolution"])
OUTPUT_START = tl.constexpr(driving.SIZES["convolution"] + driving.SIZES["hidden"])
PARAMETERS = tl.constexpr(driving.NUM_PARAMETERS)


@triton.jit
def _add_product(binary, x, sums, PARTS: tl.constexpr):
    """sums + binary @ x, as exact as float32: x is cut into `PARTS` bfloat16 numbers, zeros and ones need no cutting."""
    if PARTS == 0:
        return tl.dot(binary, x, sums, input_precision="ieee")
    for _ in tl.static_range(PARTS):
        part = x.to(tl.bfloat16)
        sums = tl.dot(binary, part, sums)
        x -= part.to(tl.float32)
    return sums


@triton.jit
def _adam(weights, mean, square, at, mask, slope, rate, correction, decay):
    """One step of Adam on the weights at `at` (`beliefs.training.adam_step`)."""
    weight = tl.load(weights + at, mask=mask, other=0.0)
    slope += decay * weight
    m = BETA_1 * tl.load(mean + at, mask=mask, other=0.0) + (1 - BETA_1) * slope
    v = BETA_2 * tl.load(square + at, mask=mask, other=0.0) + (1 - BETA_2) * slope * slope
    tl.store(mean + at, m, mask=mask)
    tl.store(square + at, v, mask=mask)
    tl.store(weights + at, weight - rate * m / (tl.sqrt(v * correction) + EPSILON), mask=mask)


@triton.jit
def _head(
    parts, output, bias, members, targets, order, first, last, scale, squares,
    R: tl.constexpr, TILE: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Pairs order[first:last] of one head through hidden and output layer, and back to the parts.

    Args:
        parts: What each row adds to the hidden layer, [R, 32].
        output: The head's output weights, [32].
        bias: The head's output bias.
        members: [P, R], bfloat16 (float32 if PARTS is 0).
        targets: [P], float32.
        order: The batch's pairs, int32.
        first: The head's first place in `order`.
        last: One after its last.
        scale: 2 / batch size.
        squares: Sums of squared errors so far, [TILE].
        R: Rows.
        TILE: Pairs at a time.
        PARTS: See `_add_product`.

    Returns:
        Gradients of parts [R, 32], output weights [32] and bias, and the new `squares`.
    """
    row, unit, n = tl.arange(0, R), tl.arange(0, HIDDEN), tl.arange(0, TILE)
    to_parts = tl.zeros([R, HIDDEN], tl.float32)
    to_output = tl.zeros([TILE, HIDDEN], tl.float32)
    to_bias = tl.zeros([TILE], tl.float32)
    start = first
    while start < last:  # not `for`: the interpreter cannot count to a computed number
        inside = start + n < last
        pair = tl.load(order + start + n, mask=inside, other=0)
        member = tl.load(members + pair[:, None] * R + row[None, :])  # [TILE, R]
        before = _add_product(member, parts, tl.zeros([TILE, HIDDEN], tl.float32), PARTS)
        hidden = tl.maximum(before, 0.0)
        error = tl.sum(hidden * output[None, :], 1) + bias - tl.load(targets + pair)
        error = tl.where(inside, error, 0.0)
        squares += error * error
        slope = error * scale
        to_bias += slope
        to_output += slope[:, None] * hidden
        to_hidden = tl.where(before > 0, slope[:, None] * output[None, :], 0.0)
        to_parts = _add_product(tl.trans(member), to_hidden, to_parts, PARTS)
        start += TILE
    return to_parts, tl.sum(to_output, 0), tl.sum(to_bias), squares


@triton.jit
def _line(slot, c):
    """Row of the hidden layer's weights that takes feature c of a slot (speeds and bias have one feature, c = 0)."""
    return tl.where(slot < SLOTS, (slot % 2 * 4 + c) * POSITIONS + slot // 2, slot - SLOTS + FEATURES)


@triton.jit
def _write_features(weights, patches, row, slot, features):
    """Four features of each row's patch, ReLU(patch · kernel); 1, 0, 0, 0 for speeds and bias: `features` [R, 4]."""
    tap = tl.arange(0, 32)
    patch = tl.load(patches + row[:, None] * 32 + tap[None, :])
    for c in tl.static_range(4):
        at = tap[None, :] * CHANNELS + (slot % 2 * 4 + c)[:, None]
        kernel = tl.load(weights + at, mask=(tap < TAPS)[None, :], other=0.0)
        feature = tl.maximum(tl.sum(patch * kernel, 1), 0.0)
        tl.store(features + row * 4 + c, tl.where(slot < SLOTS, feature, 1.0 if c == 0 else 0.0))


@triton.jit
def _parts(layer, features, row, slot, R: tl.constexpr):
    """What each row adds to a head's hidden layer: its features through their own rows of weights, [R, 32]."""
    unit = tl.arange(0, HIDDEN)
    parts = tl.zeros([R, HIDDEN], tl.float32)
    for c in tl.static_range(4):
        line = tl.load(layer + _line(slot, c)[:, None] * WIDTH + unit[None, :])
        parts += tl.load(features + row * 4 + c)[:, None] * line
    return parts


@triton.jit
def _add_to_features(layer, features, to_features, to_parts, row, slot, is_first):
    """Add one head's gradient at the features, [R, 4]: the transpose of `_parts`, zero where the ReLU is."""
    unit = tl.arange(0, HIDDEN)
    part = tl.load(to_parts + row[:, None] * HIDDEN + unit[None, :])
    for c in tl.static_range(4):
        line = tl.load(layer + _line(slot, c)[:, None] * WIDTH + unit[None, :])
        before = tl.where(is_first, 0.0, tl.load(to_features + row * 4 + c))
        active = (slot < SLOTS) & (tl.load(features + row * 4 + c) > 0)
        tl.store(to_features + row * 4 + c, tl.where(active, before + tl.sum(part * line, 1), 0.0))


@triton.jit
def _to_layer(features, to_parts, starts, line):
    """Gradient of a head's hidden weights: over the rows of each slot, Σ_r feature[r, c] to_parts[r], [64, 32]."""
    unit = tl.arange(0, HIDDEN)
    convolved = line < FEATURES
    slot = tl.where(convolved, line % POSITIONS * 2 + line // (FEATURES // 2), line - FEATURES + SLOTS)
    c = tl.where(convolved, line // POSITIONS % 4, 0)
    real = line < INPUTS
    row = tl.load(starts + slot, mask=real, other=0)
    last = tl.load(starts + slot + 1, mask=real, other=0)
    sums = tl.zeros([64, HIDDEN], tl.float32)
    most = tl.max(last - row)
    while most > 0:
        inside = row < last
        feature = tl.load(features + row * 4 + c, mask=inside, other=0.0)
        part = tl.load(to_parts + row[:, None] * HIDDEN + unit[None, :], mask=inside[:, None], other=0.0)
        sums += feature[:, None] * part
        row += 1
        most -= 1
    return sums


@triton.jit
def _to_kernel(patches, to_features, row, slot):
    """Gradient of the convolutions' weights, Σ_r patch[r] to_features[r], [32, 16]: 17 inputs, 4 channels of s, 4 of s'."""
    tap, channel = tl.arange(0, 32), tl.arange(0, 16)
    patch = tl.load(patches + row[None, :] * 32 + tap[:, None])
    own = (slot % 2)[:, None] == (channel // 4)[None, :]
    slope = tl.load(to_features + row[:, None] * 4 + (channel % 4)[None, :], mask=own, other=0.0)
    return tl.dot(patch, slope, input_precision="tf32x3")


@triton.jit
def _step(
    weights, mean, square, members, targets, patches, slots, starts, order, count, scratch, scale, rate, correction,
    decay, squares, R: tl.constexpr, TILE: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """One step of one model on the batch `order`; returns the new `squares`. Arguments as in `train_model`.

    Threads hand each other features and gradients through `scratch`, hence the barriers.
    """
    unit = tl.arange(0, HIDDEN)
    features, to_features, to_parts = scratch, scratch + R * 4, scratch + R * 8
    first = (count >> 62).to(tl.int32)  # 0, though the compiler cannot know: see below
    row = tl.arange(0, R) + first
    _write_features(weights, patches, row, tl.load(slots + row), features)
    tl.debug_barrier()
    for head in tl.range(HEADS, num_stages=1):
        zero = first >> 20  # depends on the loop: else all indices would be kept in registers from before it
        row, line = tl.arange(0, R) + zero, tl.arange(0, 64) + zero
        slot = tl.load(slots + row)
        last = first + ((count >> (16 * head)) & 0xFFFF).to(tl.int32)
        start, out = HIDDEN_START + head * HIDDEN, OUTPUT_START + head * (HIDDEN + 1)
        parts = _parts(weights + start, features, row, slot, R)
        to_part, to_output, to_bias, squares = _head(
            parts, tl.load(weights + out + unit), tl.load(weights + out + HIDDEN), members, targets, order,
            first, last, scale, squares, R, TILE, PARTS,
        )  # fmt: skip
        tl.store(to_parts + row[:, None] * HIDDEN + unit[None, :], to_part)
        tl.debug_barrier()
        _add_to_features(weights + start, features, to_features, to_parts, row, slot, head == 0)
        to_layer = _to_layer(features, to_parts, starts, line)
        tl.debug_barrier()  # every thread has read the old weights
        at = start + line[:, None] * WIDTH + unit[None, :]
        _adam(weights, mean, square, at, (line < INPUTS)[:, None], to_layer, rate, correction, decay)
        _adam(weights, mean, square, out + unit, unit >= 0, to_output, rate, correction, decay)
        one = tl.arange(0, 1)
        _adam(weights, mean, square, out + HIDDEN + one, one == 0, to_bias, rate, correction, decay)
        first = last
    row = tl.arange(0, R) + (first >> 20)
    tap, channel = tl.arange(0, 32)[:, None], tl.arange(0, 16)[None, :]
    to_kernel = _to_kernel(patches, to_features, row, tl.load(slots + row))
    inside = (tap < TAPS) & (channel < CHANNELS)
    _adam(weights, mean, square, tap * CHANNELS + channel, inside, to_kernel, rate, correction, decay)
    tl.debug_barrier()  # every thread sees the new weights
    return squares


@triton.jit
def train_model(
    parameters, first_moment, second_moment, losses, seeds, members, targets, patches, slots, starts, samples, heads, order,
    counts, scratch, corrections, decay, first_epoch, num_epochs, num_pairs, batch_size, num_batches,
    R: tl.constexpr, TILE: tl.constexpr, PARTS: tl.constexpr, CAPACITY: tl.constexpr,
):  # fmt: skip
    """`num_epochs` epochs of one model: shuffles, forward, backward and Adam, its weights never leaving the cache.

    Args:
        parameters: [M, 7052], float32, changed.
        first_moment: [M, 7052], float32, changed.
        second_moment: [M, 7052], float32, changed.
        losses: Out, [M]: mean loss over the last epoch.
        seeds: Seeds of the models' shuffles, [M], int64.
        members: [P, R], bfloat16 (float32 if PARTS is 0), pairs by head (`driving_tables.PairTables`).
        targets: [P], float32.
        patches: [R, 32], float32.
        slots: [R], int32.
        starts: [18], int32.
        samples: [P], int32.
        heads: [P], int32.
        order: Scratch, [M, P], int32.
        counts: Scratch, [M, num_batches], int64.
        scratch: [M, 40 R], float32.
        corrections: Of each step: η/(1-β₁ᵗ) and 1/(1-β₂ᵗ), [num_epochs * num_batches, 2], float32.
        decay: Times the weights, added to the gradient.
        first_epoch: Epochs done before.
        num_epochs: Epochs to do.
        num_pairs: P.
        batch_size: Pairs in every batch but the last.
        num_batches: How many batches an epoch has.
        R: Rows.
        TILE: Pairs at a time.
        PARTS: Pieces of a float32 number in products with zeros and ones; 0 for the interpreter.
        CAPACITY: P, filled up to a power of two.
    """
    model = tl.program_id(0).to(tl.int64)
    weights, mean = parameters + model * PARAMETERS, first_moment + model * PARAMETERS
    square = second_moment + model * PARAMETERS
    order += model * num_pairs
    counts += model * num_batches
    scratch += model * (40 * R)
    seed = tl.load(seeds + model)
    for epoch in tl.range(num_epochs, num_stages=1):
        write_batches(
            seed, first_epoch + epoch, samples, heads, order, counts, num_pairs, batch_size, num_batches, CAPACITY
        )
        tl.debug_barrier()
        squares = tl.zeros([TILE], tl.float32)
        for batch in tl.range(num_batches, num_stages=1):
            size = tl.minimum(batch_size, num_pairs - batch * batch_size)
            at = corrections + (epoch * num_batches + batch) * 2
            squares = _step(
                weights, mean, square, members, targets, patches, slots, starts, order + batch * batch_size,
                tl.load(counts + batch), scratch, 2.0 / size, tl.load(at), tl.load(at + 1), decay, squares, R, TILE, PARTS,
            )  # fmt: skip
        if epoch == num_epochs - 1:
            tl.store(losses + model, tl.sum(squares) / num_pairs)
