"""Many epochs of training of a driving network in one kernel, one program per model."""

from __future__ import annotations

import triton
import triton.language as tl

from cautious.beliefs.training.adam import adam_at
from cautious_paper.kernels.driving.batches import write_batches
from cautious_paper.kernels.driving.convolutions import (
    CHANNELS,
    HIDDEN,
    INPUTS,
    TAPS,
    WIDTH,
    add_to_features,
    kernel_gradient,
    layer_gradient,
    parts_of_rows,
    write_features,
)
from cautious_paper.kernels.driving.pairs import pairs_of_head
from cautious_paper.networks import driving

HEADS = tl.constexpr(driving.NUM_SPEEDS)
HIDDEN_START = tl.constexpr(driving.SIZES["convolution"])
OUTPUT_START = tl.constexpr(driving.SIZES["convolution"] + driving.SIZES["hidden"])
PARAMETERS = tl.constexpr(driving.NUM_PARAMETERS)
SCRATCH = 2 * driving.NUM_CHANNELS + driving.NUM_HIDDEN
"""Numbers per row that threads hand each other: four features, their gradient, and that of what the row adds."""

SCRATCH_SIZE = tl.constexpr(SCRATCH)


@triton.jit
def _step(
    weights, mean, square, members, targets, patches, slots, starts, order, count, scratch, scale, rate, correction,
    decay, squares, R: tl.constexpr, MOST: tl.constexpr, TILE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """One step of one model on the batch `order`; returns the new `squares`. Arguments as in `train_model`.

    Threads hand each other features and gradients through `scratch`, hence the barriers.
    """
    unit = tl.arange(0, HIDDEN)
    features, to_features, to_parts = scratch, scratch + R * 4, scratch + R * 8
    first = (count >> 62).to(tl.int32)  # 0, though the compiler cannot know: see below
    row = tl.arange(0, R) + first
    write_features(weights, patches, row, tl.load(slots + row), features)
    tl.debug_barrier()
    for head in tl.range(HEADS, num_stages=1):
        zero = first >> 20  # depends on the loop: else all indices would be kept in registers from before it
        row, line = tl.arange(0, R) + zero, tl.arange(0, 64) + zero
        slot = tl.load(slots + row)
        last = first + ((count >> (16 * head)) & 0xFFFF).to(tl.int32)
        start, out = HIDDEN_START + head * HIDDEN, OUTPUT_START + head * (HIDDEN + 1)
        parts = parts_of_rows(weights + start, features, row, slot, R)
        to_part, to_output, to_bias, squares = pairs_of_head(
            parts, tl.load(weights + out + unit), tl.load(weights + out + HIDDEN), members, targets, order,
            first, last, scale, squares, R, TILE, EXACT,
        )  # fmt: skip
        tl.store(to_parts + row[:, None] * HIDDEN + unit[None, :], to_part)
        tl.debug_barrier()
        add_to_features(weights + start, features, to_features, to_parts, row, slot, head == 0)
        to_layer = layer_gradient(features, to_parts, starts, line, MOST)
        tl.debug_barrier()  # every thread has read the old weights
        at = start + line[:, None] * WIDTH + unit[None, :]
        adam_at(weights, mean, square, at, (line < INPUTS)[:, None], to_layer, rate, correction, decay)
        adam_at(weights, mean, square, out + unit, unit >= 0, to_output, rate, correction, decay)
        one = tl.arange(0, 1)
        adam_at(weights, mean, square, out + HIDDEN + one, one == 0, to_bias, rate, correction, decay)
        first = last
    row = tl.arange(0, R) + (first >> 20)
    tap, channel = tl.arange(0, 32)[:, None], tl.arange(0, 16)[None, :]
    to_kernel = kernel_gradient(patches, to_features, row, tl.load(slots + row))
    inside = (tap < TAPS) & (channel < CHANNELS)
    adam_at(weights, mean, square, tap * CHANNELS + channel, inside, to_kernel, rate, correction, decay)
    tl.debug_barrier()  # every thread sees the new weights
    return squares


COUNTS = ("first_model", "corrected_epoch", "first_epoch", "num_epochs", "num_pairs", "batch_size", "num_batches")
"""Compiled once for all values of these, so that a model's bits do not depend on how its training is cut into launches."""


@triton.jit(do_not_specialize=COUNTS)
def train_model(
    parameters, first_moment, second_moment, losses, seeds, order, counts, scratch, corrections,
    members, targets, patches, slots, starts, samples, heads,
    decay, first_model, corrected_epoch, first_epoch, num_epochs, num_pairs, batch_size, num_batches,
    R: tl.constexpr, MOST: tl.constexpr, TILE: tl.constexpr, EXACT: tl.constexpr, CAPACITY: tl.constexpr,
):  # fmt: skip
    """`num_epochs` epochs of one model: shuffles, forward, backward and Adam, its weights never leaving the cache.

    Args:
        parameters: [M, 7052], float32, changed.
        first_moment: [M, 7052], float32, changed.
        second_moment: [M, 7052], float32, changed.
        losses: Out, [M]: mean loss over the last epoch.
        seeds: Seeds of the models' shuffles, [M], int64.
        order: Scratch, [M, P], int32.
        counts: Scratch, [M, num_batches], int64.
        scratch: [M, SCRATCH * R], float32.
        corrections: Of each step from `corrected_epoch`: η/(1-β₁ᵗ) and 1/(1-β₂ᵗ), [steps, 2], float32.
        members: [P, R], bfloat16 (float32 if EXACT), pairs by head (`pair_tables.PairTables`).
        targets: [P], float32.
        patches: [R, 32], float32.
        slots: [R], int32.
        starts: [18], int32.
        samples: [P], int32.
        heads: [P], int32.
        decay: Times the weights, added to the gradient.
        first_model: Of this launch.
        corrected_epoch: Epoch of the first row of `corrections`.
        first_epoch: Epochs done before.
        num_epochs: Epochs to do.
        num_pairs: P.
        batch_size: Pairs in every batch but the last.
        num_batches: Batches in an epoch.
        R: Rows.
        MOST: Rows of the largest slot.
        TILE: Pairs at a time.
        EXACT: Whether to multiply in float32, for the interpreter, which knows no bfloat16 products.
        CAPACITY: P, filled up to a power of two.
    """
    model = first_model + tl.program_id(0).to(tl.int64)
    weights, mean = parameters + model * PARAMETERS, first_moment + model * PARAMETERS
    square = second_moment + model * PARAMETERS
    order += model * num_pairs
    counts += model * num_batches
    scratch += model * (SCRATCH_SIZE * R)
    seed = tl.load(seeds + model)
    for epoch in tl.range(num_epochs, num_stages=1):
        write_batches(
            seed, first_epoch + epoch, samples, heads, order, counts, num_pairs, batch_size, num_batches, CAPACITY
        )
        tl.debug_barrier()
        squares = tl.zeros([TILE], tl.float32)
        for batch in tl.range(num_batches, num_stages=1):
            size = tl.minimum(batch_size, num_pairs - batch * batch_size)
            at = corrections + ((first_epoch - corrected_epoch + epoch) * num_batches + batch) * 2
            squares = _step(
                weights, mean, square, members, targets, patches, slots, starts, order + batch * batch_size,
                tl.load(counts + batch), scratch, 2.0 / size, tl.load(at), tl.load(at + 1), decay, squares,
                R, MOST, TILE, EXACT,
            )  # fmt: skip
        if epoch == num_epochs - 1:
            tl.store(losses + model, tl.sum(squares) / num_pairs)
