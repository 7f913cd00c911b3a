"""Gradients of the two convolutions' weights, M models side by side, in plain Triton.

`gradient_2` [M, 14, 14, 16, B] is the gradient at the second convolution's outputs with a border of three zeros, so that
every 4x4 window lies inside and the 4 columns x 16 channels of a window's row are 64 contiguous rows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cautious_paper.kernels.image import layout
from cautious_paper.kernels.image.constants import CONV1_SIZE, MAP_1, PIXELS, SIDE
from cautious_paper.kernels.image.encoding import split_by_offset

PADDED_ROW = tl.constexpr(layout.PADDED * 16)
PADDED_MAP = tl.constexpr(layout.PADDED * layout.PADDED * 16)


@triton.jit
def conv2_gradient(
    map_1,
    gradient_2,
    window_sums,
    num_steps,
    B: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Gradient of conv2's weights over a 5x5 window: one row of the window a program, all images and pooled places.

    Args:
        map_1: [M, 121, 64, B], encoded, read as float16.
        gradient_2: [M, 14, 14, 16, B], float16.
        window_sums: Out, [M, 25, 64, 64], float32: place in the window; offset (2x2) x channel; input channel.
        num_steps: 16 pooled places times B / BLOCK blocks of images.
        B: Padded batch.
        BLOCK: Images per step.
        STAGES: Loads in flight.
    """
    model = tl.program_id(1).to(tl.int64)
    window_row = tl.program_id(0)
    row, channel, image = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, BLOCK)
    # Five sums by name, one per column of the window: the compiler keeps no list of tiles in registers.
    sums_0 = tl.zeros([64, 64], tl.float32)
    sums_1 = tl.zeros([64, 64], tl.float32)
    sums_2 = tl.zeros([64, 64], tl.float32)
    sums_3 = tl.zeros([64, 64], tl.float32)
    sums_4 = tl.zeros([64, 64], tl.float32)
    slopes = gradient_2 + (model * PADDED_MAP + 3 * PADDED_ROW + 48) * B
    slopes += ((row // 32) * PADDED_ROW + row % 32)[:, None] * B + image[None, :]
    maps = map_1 + (model * (MAP_1 * MAP_1) + window_row * MAP_1) * (64 * B) + channel[:, None] * B + image[None, :]
    for step in tl.range(num_steps, num_stages=STAGES):
        y, x = (step % 16) // 4, step % 4
        first = (step // 16) * BLOCK
        slope = tl.load(slopes + (2 * y * PADDED_ROW + 2 * x * 16) * B + first)
        place = maps + (2 * y * MAP_1 + 2 * x) * (64 * B) + first
        sums_0 = tl.dot(slope, tl.trans(tl.load(place)), sums_0)
        sums_1 = tl.dot(slope, tl.trans(tl.load(place + 64 * B)), sums_1)
        sums_2 = tl.dot(slope, tl.trans(tl.load(place + 128 * B)), sums_2)
        sums_3 = tl.dot(slope, tl.trans(tl.load(place + 192 * B)), sums_3)
        sums_4 = tl.dot(slope, tl.trans(tl.load(place + 256 * B)), sums_4)
    out = window_sums + (model * 25 + window_row * 5) * 4096 + row[:, None] * 64 + channel[None, :]
    tl.store(out, sums_0)
    tl.store(out + 4096, sums_1)
    tl.store(out + 8192, sums_2)
    tl.store(out + 12288, sums_3)
    tl.store(out + 16384, sums_4)


@triton.jit
def conv1_gradient(
    map_1,
    gradient_2,
    pixels,
    weights_2t,
    partials,
    num_columns,
    B: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    PTX: tl.constexpr,
):
    """Gradient through conv2 and of conv1's weights: one row of the first map and `BLOCK` images per program.

    The gradient at the first map, the network's largest tensor, is used where it is made and never stored.

    Args:
        map_1: [M, 121, 64, B], encoded.
        gradient_2: [M, 14, 14, 16, B], float16.
        pixels: [M, 784, B], float16.
        weights_2t: [M, 4, 64, 64], float16: filter row; 3 - filter column (4) x channel (16); input channel.
        partials: Out, [M, programs, 1088], float32: sums over this program's images, [64, 16] weights and 64 biases.
        num_columns: 11.
        B: Padded batch.
        BLOCK: Images per program.
        STAGES: Loads in flight.
        PTX: See `encoding.encode`.
    """
    model = tl.program_id(1).to(tl.int64)
    y = tl.program_id(0) % MAP_1
    image = (tl.program_id(0) // MAP_1) * BLOCK + tl.arange(0, BLOCK)
    channel, column, tap = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, 16)
    weights = weights_2t + model * 16384 + column[:, None] * 64 + channel[None, :]
    weights_0, weights_1 = tl.trans(tl.load(weights)), tl.trans(tl.load(weights + 4096))
    weights_2, weights_3 = tl.trans(tl.load(weights + 8192)), tl.trans(tl.load(weights + 12288))
    # A product with ones sums over images on the matrix units; 16 equal columns are the fewest that they take.
    ones = tl.full([BLOCK, 16], 1.0, tl.float16)
    to_weights = tl.zeros([64, 16], tl.float32)
    to_bias = tl.zeros([64, 16], tl.float32)
    slopes = gradient_2 + (model * PADDED_MAP + (y + 3) * PADDED_ROW + column[:, None]) * B + image[None, :]
    maps = map_1 + (model * (MAP_1 * MAP_1) + y * MAP_1) * (64 * B) + channel[:, None] * B + image[None, :]
    patch = pixels + model * (PIXELS * B) + (2 * y + tap // 4)[:, None] * (SIDE * B)
    patch += (tap % 4)[:, None] * B + image[None, :]
    for _ in tl.range(num_columns, num_stages=STAGES):
        encoded = tl.load(maps)
        slope = tl.dot(weights_0, tl.load(slopes))
        slope = tl.dot(weights_1, tl.load(slopes - PADDED_ROW * B), slope)
        slope = tl.dot(weights_2, tl.load(slopes - 2 * PADDED_ROW * B), slope)
        slope = tl.dot(weights_3, tl.load(slopes - 3 * PADDED_ROW * B), slope)
        alive, part_0, part_1, part_2, part_3 = split_by_offset(slope, encoded, PTX)
        to_bias = tl.dot(alive, ones, to_bias)
        to_weights = tl.dot(part_0, tl.trans(tl.load(patch)), to_weights)
        to_weights = tl.dot(part_1, tl.trans(tl.load(patch + B)), to_weights)
        to_weights = tl.dot(part_2, tl.trans(tl.load(patch + SIDE * B)), to_weights)
        to_weights = tl.dot(part_3, tl.trans(tl.load(patch + (SIDE + 1) * B)), to_weights)
        slopes += 16 * B
        maps += 64 * B
        patch += 2 * B
    partials += (model * tl.num_programs(0) + tl.program_id(0)) * CONV1_SIZE
    tl.store(partials + channel[:, None] * 16 + tap[None, :], to_weights)
    tl.store(partials + 1024 + channel, tl.sum(to_bias, 1) * 0.0625)  # the mean of the 16 equal columns
