"""Float32 parameters to the 16-bit forms the matrix units read, and their sums back to flat float32 gradients."""

from __future__ import annotations

import triton
import triton.language as tl

from cautious_paper.kernels.image.constants import CHANNELS_2, CONV1_SIZE, DENSE_START, FEATURES, HIDDEN_1, HIDDEN_2

PACKED = 64 * 256 + 16 * 64 + 16 * 16
"""Halves of one model's packed linear layers."""


@triton.jit
def pack_small(
    parameters, weights_1, packed, A: tl.constexpr, P: tl.constexpr, HELP: tl.constexpr, PACKED: tl.constexpr
):
    """conv1's weights and the linear layers as float16, filled up with zeros: 1,024 numbers per program, 19 programs per model.

    Args:
        parameters: [M, P], float32.
        weights_1: Out, [M, 64, 16], float16, times 256/255.
        packed: Out, [M, PACKED], float16: [64, 256], [16, 64], [16, 16]; rows are outputs.
        A: Actions.
        P: Parameters of a model.
        HELP: Whether the network has a help bit (its weights stay in float32).
        PACKED: Size of one model's packed linear layers.
    """
    INPUTS: tl.constexpr = FEATURES + HELP
    LAYER_2: tl.constexpr = CHANNELS_2 + HIDDEN_1 * (INPUTS + 1)
    LAYER_3: tl.constexpr = LAYER_2 + HIDDEN_2 * (HIDDEN_1 + 1)
    block = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    parameters += model * P
    n = tl.arange(0, 1024)
    if block == 18:
        value = tl.load(parameters + n) * (256.0 / 255.0)
        tl.store(weights_1 + model * 1024 + n, value.to(tl.float16))
    else:
        parameters += DENSE_START
        if block < 16:
            row = block * 4 + n // 256
            value = tl.load(parameters + CHANNELS_2 + row * INPUTS + n % 256, mask=row < HIDDEN_1, other=0.0)
        elif block == 16:
            inside = (n // 64 < HIDDEN_2) & (n % 64 < HIDDEN_1)
            value = tl.load(parameters + LAYER_2 + (n // 64) * HIDDEN_1 + n % 64, mask=inside, other=0.0)
        else:
            inside = (n // 16 < A) & (n % 16 < HIDDEN_2)
            value = tl.load(parameters + LAYER_3 + (n // 16) * HIDDEN_2 + n % 16, mask=inside, other=0.0)
        tl.store(packed + model * PACKED + block * 1024 + n, value.to(tl.float16), mask=block * 1024 + n < PACKED)


@triton.jit
def pack_conv2(parameters, weights_2, weights_2t, P: tl.constexpr):
    """conv2's weights as float16 in the two orders the kernels read: one output channel per program.

    Args:
        parameters: [M, P], float32.
        weights_2: Out, [M, 25, 64, 64]: place in a 5x5 window; channel x offset (2x2); input channel. Places that an
            offset does not reach stay zero: they are zero from the start and never written. None if they are not wanted.
        weights_2t: Out, [M, 4, 64, 64]: filter row; 3 - filter column (4) x channel (16); input channel.
        P: Parameters of a model.
    """
    out_channel = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    channel, tap = tl.arange(0, 64)[:, None], tl.arange(0, 16)[None, :]
    value = tl.load(parameters + model * P + CONV1_SIZE + out_channel * 1024 + channel * 16 + tap).to(tl.float16)
    y, x = tap // 4, tap % 4
    if weights_2 is not None:
        for offset in tl.static_range(4):
            place = (y + offset // 2) * 5 + x + offset % 2
            tl.store(weights_2 + (model * 25 + place) * 4096 + (out_channel * 4 + offset) * 64 + channel, value)
    tl.store(weights_2t + model * 16384 + ((y * 4 + 3 - x) * 16 + out_channel) * 64 + channel, value)


@triton.jit
def fold_windows(window_sums, gradient, scale, P: tl.constexpr):
    """conv2's gradient from sums over 5x5 windows, each filter tap from the four offsets: one output channel per program.

    Args:
        window_sums: [M, 25, 64, 64], float32, from `backward.conv2_gradient`.
        gradient: Out, [M, P], float32.
        scale: Multiplied on.
        P: Parameters of a model.
    """
    out_channel = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    channel, tap = tl.arange(0, 64)[:, None], tl.arange(0, 16)[None, :]
    total = tl.zeros([64, 16], tl.float32)
    for offset in tl.static_range(4):
        place = (tap // 4 + offset // 2) * 5 + tap % 4 + offset % 2
        total += tl.load(window_sums + (model * 25 + place) * 4096 + (offset * 16 + out_channel) * 64 + channel)
    tl.store(gradient + model * P + CONV1_SIZE + out_channel * 1024 + channel * 16 + tap, total * scale)


@triton.jit
def add_partials(
    partials,
    gradient,
    losses,
    num_partials,
    start,
    size,
    scale,
    loss_scale,
    SCALED: tl.constexpr,
    P: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One stretch of the gradient, summed over the programs that made it in a fixed order.

    Args:
        partials: [M, num_partials, STRIDE], float32; `size` numbers of each, and after them the loss if STRIDE is larger.
        gradient: Out, [M, P], float32, from `start` on.
        losses: Out, [M], float32; written only if there is a loss.
        num_partials: How many to add.
        start: Where the stretch starts.
        size: Its length.
        scale: Multiplied onto the gradient.
        loss_scale: Multiplied onto the loss.
        SCALED: The first so many numbers belong to pixels of byte/256: times 256/255.
        P: Parameters of a model.
        STRIDE: Numbers in one partial sum.
        BLOCK: Numbers per program.
    """
    model = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    partials += model * num_partials * STRIDE + n
    total = tl.zeros([BLOCK], tl.float32)
    for i in tl.range(num_partials):
        total += tl.load(partials + i * STRIDE, mask=n < STRIDE, other=0.0)
    factor = tl.where(n < SCALED, 256.0 / 255.0, 1.0) * scale
    tl.store(gradient + model * P + start + n, total * factor, mask=n < size)
    tl.store(losses + model + n * 0, total * loss_scale, mask=(n == size) & (n < STRIDE))


@triton.jit
def fold_rows(partials, gradient, num_partials, scale, P: tl.constexpr):
    """conv2's gradient from sums by filter row, added in a fixed order: 16 input channels per program, 4 programs per model.

    Args:
        partials: [M, num_partials, 4, 64, 64], float32: filter row; input channel; 3 - filter column (4) x channel (16).
        gradient: Out, [M, P], float32.
        num_partials: How many to add.
        scale: Multiplied on.
        P: Parameters of a model.
    """
    model = tl.program_id(1).to(tl.int64)
    n = tl.arange(0, 4096)  # 4 filter rows, 16 input channels, 64 columns
    place = (n // 1024) * 4096 + tl.program_id(0) * 1024 + n % 1024
    total = tl.zeros([4096], tl.float32)
    for i in tl.range(num_partials):
        total += tl.load(partials + (model * num_partials + i) * 16384 + place)
    by_output = tl.permute(tl.reshape(total, [4, 16, 4, 16]), (3, 1, 0, 2))  # channel, input channel, row, 3 - column
    n = tl.arange(0, 256)
    out_channel = tl.arange(0, 16)[:, None]
    inner = (n // 4) * 4 + 3 - n % 4
    out = gradient + model * P + CONV1_SIZE + out_channel * 1024 + tl.program_id(0) * 256 + inner[None, :]
    tl.store(out, tl.reshape(by_output, [16, 256]) * scale)
