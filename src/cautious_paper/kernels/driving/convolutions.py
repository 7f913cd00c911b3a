"""Convolutions and hidden layer on the distinct patches, there and back: parts of the kernel that trains driving networks."""

from __future__ import annotations

import triton
import triton.language as tl

from cautious_paper.networks import driving

HIDDEN = tl.constexpr(driving.NUM_HIDDEN)
CHANNELS = tl.constexpr(2 * driving.NUM_CHANNELS)
POSITIONS = tl.constexpr(driving.NUM_POSITIONS)
SLOTS = tl.constexpr(2 * driving.NUM_POSITIONS)
FEATURES = tl.constexpr(2 * driving.NUM_FEATURES)  # 48 inputs of the hidden layer come from the convolutions
INPUTS = tl.constexpr(driving.NUM_INPUTS + 1)  # 53 with the bias
WIDTH = tl.constexpr(driving.NUM_SPEEDS * driving.NUM_HIDDEN)
TAPS = tl.constexpr(driving.PATCH + 1)


@triton.jit
def _line(slot, c):
    """Row of the hidden layer's weights that takes feature c of a slot (speeds and bias have one feature, c = 0)."""
    return tl.where(slot < SLOTS, (slot % 2 * 4 + c) * POSITIONS + slot // 2, slot - SLOTS + FEATURES)


@triton.jit
def write_features(weights, patches, row, slot, features):
    """Four features of each row's patch, ReLU(patch · kernel); 1, 0, 0, 0 for speeds and bias: `features` [R, 4]."""
    tap = tl.arange(0, 32)
    patch = tl.load(patches + row[:, None] * 32 + tap[None, :])
    for c in tl.static_range(4):
        at = tap[None, :] * CHANNELS + (slot % 2 * 4 + c)[:, None]
        kernel = tl.load(weights + at, mask=(tap < TAPS)[None, :], other=0.0)
        feature = tl.maximum(tl.sum(patch * kernel, 1), 0.0)
        tl.store(features + row * 4 + c, tl.where(slot < SLOTS, feature, 1.0 if c == 0 else 0.0))


@triton.jit
def parts_of_rows(layer, features, row, slot, R: tl.constexpr):
    """What each row adds to a head's hidden layer: its features through their own rows of weights, [R, 32]."""
    unit = tl.arange(0, HIDDEN)
    parts = tl.zeros([R, HIDDEN], tl.float32)
    for c in tl.static_range(4):
        line = tl.load(layer + _line(slot, c)[:, None] * WIDTH + unit[None, :])
        parts += tl.load(features + row * 4 + c)[:, None] * line
    return parts


@triton.jit
def add_to_features(layer, features, to_features, to_parts, row, slot, is_first):
    """Add one head's gradient at the features, [R, 4]: the transpose of `parts_of_rows`, zero where the ReLU is."""
    unit = tl.arange(0, HIDDEN)
    part = tl.load(to_parts + row[:, None] * HIDDEN + unit[None, :])
    for c in tl.static_range(4):
        line = tl.load(layer + _line(slot, c)[:, None] * WIDTH + unit[None, :])
        before = tl.where(is_first, 0.0, tl.load(to_features + row * 4 + c))
        active = (slot < SLOTS) & (tl.load(features + row * 4 + c) > 0)
        tl.store(to_features + row * 4 + c, tl.where(active, before + tl.sum(part * line, 1), 0.0))


@triton.jit
def layer_gradient(features, to_parts, starts, line, MOST: tl.constexpr):
    """Gradient of a head's hidden weights: Σ_r feature[r, c] to_parts[r] over a slot's rows, at most MOST, [64, 32]."""
    unit = tl.arange(0, HIDDEN)
    convolved = line < FEATURES
    slot = tl.where(convolved, line % POSITIONS * 2 + line // (FEATURES // 2), line - FEATURES + SLOTS)
    c = tl.where(convolved, line // POSITIONS % 4, 0)
    real = line < INPUTS
    first = tl.load(starts + slot, mask=real, other=0)
    last = tl.load(starts + slot + 1, mask=real, other=0)
    sums = tl.zeros([64, HIDDEN], tl.float32)
    for number in tl.range(MOST, num_stages=1, loop_unroll_factor=3):
        row = first + number
        inside = row < last
        feature = tl.load(features + row * 4 + c, mask=inside, other=0.0)
        part = tl.load(to_parts + row[:, None] * HIDDEN + unit[None, :], mask=inside[:, None], other=0.0)
        sums += feature[:, None] * part
    return sums


@triton.jit
def kernel_gradient(patches, to_features, row, slot):
    """Gradient of the convolutions' weights, Σ_r patch[r] to_features[r], [32, 16]: 17 inputs, 4 channels of s, 4 of s'."""
    tap, channel = tl.arange(0, 32), tl.arange(0, 16)
    patch = tl.load(patches + row[None, :] * 32 + tap[:, None])
    own = (slot % 2)[:, None] == (channel // 4)[None, :]
    slope = tl.load(to_features + row[:, None] * 4 + (channel % 4)[None, :], mask=own, other=0.0)
    return tl.dot(patch, slope, input_precision="tf32x3")
