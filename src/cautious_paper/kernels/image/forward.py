"""From images to the flattened features, M models side by side; the image index is the contiguous one everywhere.

    images [N, 784] bytes -> pixels [M, 784, B] -> map 1 [M, 121, 64, B] -> features [M, 256, B]

On a Hopper GPU `hopper_forward` takes the place of the last two, with the same bits.

Tiles are [channels, images], so that no gather is left after the first kernel and the matrix units get shapes they like.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cautious_paper.kernels.image.constants import DENSE_START, MAP_1, PIXELS, SIDE
from cautious_paper.kernels.image.encoding import encode, tag_offset


@triton.jit
def gather_pixels(
    images,
    batch,
    pixels,
    batch_size,
    batch_stride,
    B: tl.constexpr,
    BLOCK_IMAGES: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr,
):
    """Each model's batch of images, transposed, as float16 of byte/256 (exact; weights carry the 256/255).

    Args:
        images: [N, 784], uint8.
        batch: Sample numbers [M, batch_size], int64, rows `batch_stride` apart.
        pixels: Out, [M, 784, B], float16; blank beyond `batch_size`.
        batch_size: Images in the batch.
        batch_stride: See `batch`.
        B: Padded batch.
        BLOCK_IMAGES: Images per program.
        BLOCK_PIXELS: Pixels per program.
    """
    model = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0)
    num_blocks: tl.constexpr = B // BLOCK_IMAGES
    image = (block % num_blocks) * BLOCK_IMAGES + tl.arange(0, BLOCK_IMAGES)
    pixel = (block // num_blocks) * BLOCK_PIXELS + tl.arange(0, BLOCK_PIXELS)
    real = image < batch_size
    sample = tl.load(batch + model * batch_stride + image, mask=real, other=0)
    inside = pixel[None, :] < PIXELS
    value = tl.load(images + sample[:, None] * PIXELS + pixel[None, :], mask=inside & real[:, None], other=0)
    value = (value.to(tl.float32) * 0.00390625).to(tl.float16)
    tl.store(pixels + model * (PIXELS * B) + pixel[None, :] * B + image[:, None], value, mask=inside)


@triton.jit
def convolve_1(
    pixels,
    weights_1,
    parameters,
    map_1,
    num_columns,
    P: tl.constexpr,
    B: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    PTX: tl.constexpr,
):
    """First convolution, 2x2 max pool and ReLU: one row of the pooled map and `BLOCK` images per program.

    Args:
        pixels: [M, 784, B], float16.
        weights_1: [M, 64, 16], float16, times 256/255.
        parameters: [M, P], float32, for the bias.
        map_1: Out, [M, 121, 64, B], encoded.
        num_columns: 11; a run-time bound on a GPU, as in `convolve_2`.
        P: Parameters of a model.
        B: Padded batch.
        BLOCK: Images per program.
        STAGES: Loads in flight.
        PTX: See `encode`.
    """
    model = tl.program_id(1).to(tl.int64)
    num_blocks: tl.constexpr = B // BLOCK
    row = tl.program_id(0) // num_blocks
    image = (tl.program_id(0) % num_blocks) * BLOCK + tl.arange(0, BLOCK)
    channel, tap = tl.arange(0, 64), tl.arange(0, 16)
    weights = tl.load(weights_1 + model * 1024 + channel[:, None] * 16 + tap[None, :])
    bias = tl.load(parameters + model * P + 1024 + channel)[:, None]
    patch = pixels + model * (PIXELS * B) + (2 * row + tap // 4)[:, None] * (SIDE * B)
    patch += (tap % 4)[:, None] * B + image[None, :]
    out = map_1 + (model * (MAP_1 * MAP_1) + row * MAP_1) * (64 * B) + channel[:, None] * B + image[None, :]
    for _ in tl.range(num_columns, num_stages=STAGES):
        # Pool before bias and ReLU, which keep the order: three of four are then never computed.
        best = tag_offset(tl.dot(weights, tl.load(patch)), 0, PTX)
        for offset in tl.static_range(1, 4):
            x = tl.load(patch + ((offset // 2) * SIDE + offset % 2) * B)
            best = tl.maximum(best, tag_offset(tl.dot(weights, x), offset, PTX))
        tl.store(out, encode(best, best + bias, PTX))
        patch += 2 * B
        out += 64 * B


@triton.jit
def convolve_2(
    map_1,
    weights_2,
    parameters,
    features,
    num_places,
    P: tl.constexpr,
    B: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    PTX: tl.constexpr,
):
    """Second convolution, 2x2 max pool and ReLU: one pooled place and `BLOCK` images per program.

    The four convolution outputs that one pooled place looks at share a 5x5 window: 25 products of [64, 64] weights (rows:
    16 channels x 4 offsets, zero where an output does not reach) with [64, BLOCK] activations.

    Args:
        map_1: [M, 121, 64, B], encoded, read as float16: the offset bits are rounding noise.
        weights_2: [M, 25, 64, 64], float16.
        parameters: [M, P], float32, for the bias.
        features: Out, [M, 256, B], encoded, in the order (channel, row, column).
        num_places: 25. A run-time bound on a GPU: with a constant one, an assembler dropped the matrix instructions.
        P: Parameters of a model.
        B: Padded batch.
        BLOCK: Images per program.
        STAGES: Loads in flight.
        PTX: See `encode`.
    """
    model = tl.program_id(1).to(tl.int64)
    pooled = tl.program_id(0) % 16
    image = (tl.program_id(0) // 16) * BLOCK + tl.arange(0, BLOCK)
    row, channel = tl.arange(0, 64), tl.arange(0, 64)
    sums = tl.zeros([64, BLOCK], tl.float32)
    weights = weights_2 + model * (25 * 4096) + row[:, None] * 64 + channel[None, :]
    corner = model * (MAP_1 * MAP_1) + 2 * (pooled // 4) * MAP_1 + 2 * (pooled % 4)
    window = map_1 + corner * (64 * B) + channel[:, None] * B + image[None, :]
    for place in tl.range(num_places, num_stages=STAGES):
        activation = tl.load(window + ((place // 5) * MAP_1 + place % 5) * (64 * B))
        sums = tl.dot(tl.load(weights + place * 4096), activation, sums)
    tagged = ((sums.to(tl.int32, bitcast=True) & -4) | (row & 3)[:, None]).to(tl.float32, bitcast=True)
    best = tl.max(tl.reshape(tagged, [16, 4, BLOCK]), axis=1)
    out_channel = tl.arange(0, 16)
    bias = tl.load(parameters + model * P + DENSE_START + out_channel)[:, None]
    out = features + (model * 256 + out_channel[:, None] * 16 + pooled) * B + image[None, :]
    tl.store(out, encode(best, best + bias, PTX))
