"""The three linear layers and the loss, forward and backward in one kernel, with images as the rows of every product."""

from __future__ import annotations

import triton
import triton.language as tl

from cautious_paper.kernels.image.constants import CHANNELS_2, DENSE_START, FEATURES, HIDDEN_1, HIDDEN_2, PADDED
from cautious_paper.kernels.image.encoding import decode


@triton.jit
def dense_and_loss(
    features,
    packed,
    parameters,
    batch,
    help_bits,
    targets,
    loss_weights,
    gradient_2,
    partials,
    batch_size,
    batch_stride,
    help_bit_stride,
    num_samples,
    scale,
    num_chunks,
    A: tl.constexpr,
    P: tl.constexpr,
    B: tl.constexpr,
    BLOCK: tl.constexpr,
    HELP: tl.constexpr,
    PARTIAL: tl.constexpr,
    PACKED: tl.constexpr,
):
    """Linear layers, loss, and their gradients: `BLOCK` images of one model per program.

    Every program writes its own sums over its images, so that they can be added in a fixed order afterwards.

    Args:
        features: [M, 256, B], encoded.
        packed: [M, PACKED], float16: first [64, 256], second [16, 64] and third [16, 16] layer, filled up with zeros.
        parameters: [M, P], float32, for biases and the help bit's weights.
        batch: Sample numbers [M, batch_size], int64, rows `batch_stride` apart.
        help_bits: Help bits [M, batch_size], uint8, rows `help_bit_stride` apart; not read without a help bit.
        targets: [tables, num_samples, A], float32; NaN carries no loss.
        loss_weights: [A], float32.
        gradient_2: Out, [M, 14, 14, 16, B], float16: gradient at the second convolution's outputs; its border stays zero.
        partials: Out, [M, B / BLOCK, PARTIAL], float32: conv2's bias and the linear layers in their flat order, then the
            sum of weighted squared errors.
        batch_size: Images in the batch; those after them carry no loss.
        batch_stride: See `batch`.
        help_bit_stride: See `help_bits`.
        num_samples: Rows of one table of targets.
        scale: Gradients are multiplied by this, to stay in float16's range.
        num_chunks: 4, the chunks of 64 features.
        A: Actions.
        P: Parameters of a model.
        B: Padded batch.
        BLOCK: Images per program.
        HELP: Whether the network has a help bit.
        PARTIAL: Size of one program's sums.
        PACKED: Size of one model's packed weights.
    """
    INPUTS: tl.constexpr = FEATURES + HELP
    BIAS_1: tl.constexpr = CHANNELS_2 + HIDDEN_1 * INPUTS
    LAYER_2: tl.constexpr = BIAS_1 + HIDDEN_1
    BIAS_2: tl.constexpr = LAYER_2 + HIDDEN_2 * HIDDEN_1
    LAYER_3: tl.constexpr = BIAS_2 + HIDDEN_2
    BIAS_3: tl.constexpr = LAYER_3 + A * HIDDEN_2
    model = tl.program_id(1).to(tl.int64)
    image = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j, k = tl.arange(0, 64), tl.arange(0, 16)
    in_1, in_2, in_3, real = j < HIDDEN_1, k < HIDDEN_2, k < A, image < batch_size
    flat = parameters + model * P + DENSE_START
    packed += model * PACKED
    partials += (model * tl.num_programs(0) + tl.program_id(0)) * PARTIAL
    feature = features + (model * FEATURES + j[None, :]) * B + image[:, None]
    weights_1 = packed + j[:, None] * FEATURES + j[None, :]  # rows: hidden units; columns: features of a chunk
    sums_1 = tl.zeros([BLOCK, 64], tl.float32) + tl.load(flat + BIAS_1 + j, mask=in_1, other=0.0)[None, :]
    sample = tl.load(batch + model * batch_stride + image, mask=real, other=0)
    if HELP:
        help_bit = tl.load(help_bits + model * help_bit_stride + image, mask=real, other=0)
        sample += help_bit.to(tl.int64) * num_samples
        help_bit = help_bit.to(tl.float32)[:, None]
        sums_1 += help_bit * tl.load(flat + CHANNELS_2 + j * INPUTS + FEATURES, mask=in_1, other=0.0)[None, :]
    for chunk in tl.range(num_chunks):
        inputs = decode(tl.load(feature + chunk * (64 * B)))
        sums_1 = tl.dot(inputs, tl.trans(tl.load(weights_1 + chunk * 64)), sums_1)
    hidden_1 = tl.maximum(sums_1, 0.0).to(tl.float16)
    weights_2 = tl.load(packed + 16384 + k[:, None] * 64 + j[None, :])
    sums_2 = tl.dot(hidden_1, tl.trans(weights_2)) + tl.load(flat + BIAS_2 + k, mask=in_2, other=0.0)[None, :]
    hidden_2 = tl.maximum(sums_2, 0.0).to(tl.float16)
    weights_3 = tl.load(packed + 17408 + k[:, None] * 16 + k[None, :])
    prediction = tl.dot(hidden_2, tl.trans(weights_3)) + tl.load(flat + BIAS_3 + k, mask=in_3, other=0.0)[None, :]

    weighted, loss = _weighted_errors(prediction, targets, loss_weights, sample, real, k, A)
    tl.store(partials + BIAS_3 + A, loss)
    slope = weighted * scale
    tl.store(partials + BIAS_3 + k, tl.sum(slope, 0), mask=in_3)
    slope = slope.to(tl.float16)
    to_3 = partials + LAYER_3 + k[:, None] * HIDDEN_2 + k[None, :]
    tl.store(to_3, tl.dot(tl.trans(slope), hidden_2), mask=in_3[:, None] & in_2[None, :])
    slope_2 = tl.where(hidden_2 > 0, tl.dot(slope, weights_3), 0.0)
    tl.store(partials + BIAS_2 + k, tl.sum(slope_2, 0), mask=in_2)
    slope_2 = slope_2.to(tl.float16)
    to_2 = partials + LAYER_2 + k[None, :] * HIDDEN_1 + j[:, None]  # transposed: the product is [64, 16]
    tl.store(to_2, tl.dot(tl.trans(hidden_1), slope_2), mask=in_1[:, None] & in_2[None, :])
    slope_1 = tl.where(hidden_1 > 0, tl.dot(slope_2, weights_2), 0.0)
    tl.store(partials + BIAS_1 + j, tl.sum(slope_1, 0), mask=in_1)
    if HELP:
        tl.store(partials + CHANNELS_2 + j * INPUTS + FEATURES, tl.sum(slope_1 * help_bit, 0), mask=in_1)
    gradient_2 += model * (PADDED * PADDED * 16 * B) + image[:, None]
    _to_features(slope_1.to(tl.float16), feature, weights_1, gradient_2, partials, j, num_chunks, INPUTS, B)


@triton.jit
def _weighted_errors(prediction, targets, loss_weights, sample, real, k, A: tl.constexpr):
    """Errors times loss weights [BLOCK, 16], zero where there is no target, and the sum of weighted squared errors."""
    counts = real[:, None] & (k < A)[None, :]
    target = tl.load(targets + sample[:, None] * A + k[None, :], mask=counts, other=0.0)
    error = tl.where(counts & (target == target), prediction - target, 0.0)  # NaN is the one value unequal to itself
    weighted = error * tl.load(loss_weights + k, mask=k < A, other=0.0)[None, :]
    return weighted, tl.sum(error * weighted)


@triton.jit
def _to_features(slope, feature, weights_1, gradient_2, partials, j, num_chunks, INPUTS: tl.constexpr, B: tl.constexpr):
    """From the gradient at the first hidden layer [BLOCK, 64] to its weights, to conv2's outputs and to conv2's bias."""
    to_weights = partials + CHANNELS_2 + j[:, None] * INPUTS + j[None, :]
    pooled = j % 16
    cell = ((2 * (pooled // 4) + 3) * PADDED + 2 * (pooled % 4) + 3) * 16 + j // 16
    out = gradient_2 + cell[None, :] * B
    for chunk in tl.range(num_chunks):
        encoded = tl.load(feature + chunk * (64 * B))
        tl.store(to_weights + chunk * 64, tl.dot(tl.trans(slope), decode(encoded)), mask=(j < HIDDEN_1)[:, None])
        to_feature = tl.where(encoded > 3, tl.dot(slope, tl.load(weights_1 + chunk * 64)), 0.0)
        by_channel = tl.sum(tl.reshape(tl.sum(to_feature, 0), [4, 16]), 1)
        tl.store(partials + chunk * 4 + tl.arange(0, 4), by_channel)
        offset = encoded & 3
        to_feature = to_feature.to(tl.float16)
        for place in tl.static_range(4):
            part = tl.where(offset == place, to_feature, 0.0).to(tl.float16)
            tl.store(out + (((place // 2) * PADDED + place % 2) * 16 + chunk * 4) * B, part)
