"""The four groups of four warps of the Hopper kernel for both convolutions (`hopper_forward`).

Places and rows of the first map are counted through all blocks of images of a program.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cautious_paper.kernels.image import layout
from cautious_paper.kernels.image.constants import IMAGES, MAP_1, PLACES, SIDE
from cautious_paper.kernels.image.encoding import encode, tag_offset

REACH = gl.constexpr(7)
"""Columns of the first map that four columns of conv2's outputs look at, and the step from filter row to filter row."""
FILTERS = gl.constexpr(3 * REACH.value + 3 + 4 + 3)
"""Blocks of 16 rows of conv2's weights: three of zeros before, between and after the four blocks of each filter row."""
STAGES = gl.constexpr(4)
"""Number of places whose pooled activations are in shared memory: a power of two, and at least as many as the places that a
consumer skips in succession."""
assert STAGES.value & (STAGES.value - 1) == 0 and STAGES.value >= layout.MAP_1 - REACH.value  # noqa: PT018
TURNS = gl.constexpr(2 * STAGES.value)
"""Barriers that say a place is there, or no longer needed: two for each stage. A wait tells only odd uses from even ones,
and groups skip up to STAGES places: with one for each stage they could take the next use for granted."""
PAIRS = gl.constexpr(12)
"""Pairs of pixel columns that a row of the first map looks at, for either column offset of its pool."""
HALF_ROW_BYTES = gl.constexpr(2 * PAIRS.value * 8 * 64 * 2)
"""Of the pixels that one row looks at, those of one row offset: two column offsets, each pair of columns with four rows."""


@gluon.jit
def _product(weights, ring, first):
    """Start the first convolution of one place and pool offset, whose first pair of columns is at `first` in the ring.

    The 16 taps are by pair of columns (2), row (4), column in the pair (2). The second pair of a place is the first of the
    next: pairs lie one after the other.
    """
    L: gl.constexpr = weights.type.layout.parent
    window: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    patch = ring.index(first)._reinterpret(gl.float16, [16, IMAGES], window)
    return warpgroup_mma(weights, patch, gl.zeros([64, IMAGES], gl.float32, L), use_acc=False, is_async=True)


@gluon.jit
def _hand_over(best, bias, tiles, maps, full, left_done, right_done, n, corner, image):
    """A pooled place, with its bias, rectified and encoded: to shared memory for conv2, and on to the map in memory."""
    slot = n & (STAGES - 1)
    turn = (n ^ STAGES) & (TURNS - 1)  # that of place n - STAGES, which was in this slot
    phase = ((n + STAGES) // TURNS & 1) ^ 1  # likewise, but never below zero
    encoded = encode(best, best + bias, True).to(gl.float16, bitcast=True)
    tma.store_wait(STAGES // 2 - 1)  # place n - STAGES was this group's too: of its copies to memory, STAGES / 2 ago
    mbarrier.wait(left_done.index(turn), phase, pred=n >= STAGES)
    mbarrier.wait(right_done.index(turn), phase, pred=n >= STAGES)
    tiles.index(slot).store(encoded)
    fence_async_shared()
    mbarrier.arrive(full.index(n & (TURNS - 1)), count=1)
    tma.async_copy_shared_to_global(maps, [corner, image], tiles.index(slot))


@gluon.jit
def pooled_map(
    weights_1, biases, maps, ring, tiles, ring_full, ring_empty, full, left_done, right_done, model, first_block,
    TURN: gl.constexpr, blocks,
):  # fmt: skip
    """A group that computes every second place of the first map: first convolution, 2x2 max pool and ReLU.

    A place is handed over while the first product of the next one runs; otherwise the two groups fill each other's gaps.
    """
    L: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    A: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=L, k_width=2)
    channel = gl.arange(0, 64, gl.SliceLayout(1, A))[:, None]
    k = gl.arange(0, 16, gl.SliceLayout(0, A))[None, :]  # in the order of `_product`; in memory, row by row
    weights = gl.load(weights_1 + channel * 16 + (k % 8) // 2 * 4 + k // 8 * 2 + k % 2)
    bias = gl.load(biases + gl.arange(0, 64, gl.SliceLayout(1, L)))[:, None]
    best = gl.zeros([64, IMAGES], gl.float32, L)
    n = gl.to_tensor(TURN)
    corner, image = model * (PLACES * 64), first_block * IMAGES
    for block in range(blocks):
        for y in range(MAP_1):
            row = block * MAP_1 + y
            mbarrier.wait(ring_full.index(row & 1), (row >> 1) & 1)
            for x in range((row + TURN) & 1, MAP_1, 2):  # MAP_1 is odd: even places in one row, odd ones in the next
                first = (row & 1) * (4 * PAIRS) + x
                value = _product(weights, ring, first)
                if n > TURN:
                    _hand_over(best, bias, tiles, maps, full, left_done, right_done, n - 2, corner, image)
                value = warpgroup_mma_wait(0, deps=(value,))
                best = tag_offset(value, 0, True)
                value = warpgroup_mma_wait(0, deps=(_product(weights, ring, first + PAIRS),))
                best = gl.maximum(best, tag_offset(value, 1, True))
                value = warpgroup_mma_wait(0, deps=(_product(weights, ring, first + 2 * PAIRS),))
                best = gl.maximum(best, tag_offset(value, 2, True))
                value = warpgroup_mma_wait(0, deps=(_product(weights, ring, first + 3 * PAIRS),))
                best = gl.maximum(best, tag_offset(value, 3, True))
                n += 2
                corner = (model * PLACES + y * MAP_1 + x) * 64
                image = (first_block + block) * IMAGES
            mbarrier.arrive(ring_empty.index(row & 1), count=1)
    _hand_over(best, bias, tiles, maps, full, left_done, right_done, n - 2, corner, image)
    tma.store_wait(0)


@gluon.jit
def _scatter_row(sums, filters, tiles, full, done, start, Y: gl.constexpr):
    """Seven places of row Y of the first map into the sums of the output rows that filter rows FIRST .. LAST reach."""
    FIRST: gl.constexpr = Y - 7 if Y > 7 else 0
    LAST: gl.constexpr = Y if Y < 3 else 3
    window: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    sums_0, sums_1, sums_2, sums_3 = sums
    for x in range(REACH):
        n = start + x
        mbarrier.wait(full.index(n % TURNS), (n // TURNS) & 1)
        tile = tiles.index(n % STAGES)
        if FIRST <= 0:
            filter_0 = filters.index(REACH - 1 - x)._reinterpret(gl.float16, [64, 64], window)
            sums_0 = warpgroup_mma(filter_0, tile, sums_0, is_async=True)
        if FIRST <= 1 and LAST >= 1:
            filter_1 = filters.index(2 * REACH - 1 - x)._reinterpret(gl.float16, [64, 64], window)
            sums_1 = warpgroup_mma(filter_1, tile, sums_1, is_async=True)
        if FIRST <= 2 and LAST >= 2:
            filter_2 = filters.index(3 * REACH - 1 - x)._reinterpret(gl.float16, [64, 64], window)
            sums_2 = warpgroup_mma(filter_2, tile, sums_2, is_async=True)
        if LAST >= 3:
            filter_3 = filters.index(4 * REACH - 1 - x)._reinterpret(gl.float16, [64, 64], window)
            sums_3 = warpgroup_mma(filter_3, tile, sums_3, is_async=True)
        # What is still running now belongs to this place: the one before it is done.
        sums_0, sums_1, sums_2, sums_3 = warpgroup_mma_wait(LAST - FIRST + 1, deps=(sums_0, sums_1, sums_2, sums_3))
        mbarrier.arrive(done.index((n + TURNS - 1) % TURNS), count=1, pred=x > 0)
    sums_0, sums_1, sums_2, sums_3 = warpgroup_mma_wait(0, deps=(sums_0, sums_1, sums_2, sums_3))
    # Done with the last place, and with the next ones, which look at none of this group's outputs.
    for after in gl.static_range(MAP_1 - REACH + 1):
        mbarrier.arrive(done.index((start + REACH - 1 + after) % TURNS), count=1)
    return sums_0, sums_1, sums_2, sums_3


@gluon.jit
def _pool(sums, row: gl.constexpr, scratch, biases, features, padded):
    """One finished row of outputs, four columns: kept until the next one, with which it is pooled and stored.

    Args:
        sums: [4 columns x 16 channels, images].
        row: Of the outputs, 0 to 7.
        scratch: [64, images], float32, in shared memory.
        biases: Of the 16 channels, float32.
        features: Of this block and of the first of the two pooled columns, [16, 16 places, padded].
        padded: Images in the padded batch.
    """
    L: gl.constexpr = sums.type.layout
    column = gl.arange(0, 64, gl.SliceLayout(1, L)) // 16
    offset = (row % 2 * 2 + column % 2)[:, None]
    tagged = ((sums.to(gl.int32, bitcast=True) & -4) | offset).to(gl.float32, bitcast=True)
    if row % 2 == 0:
        scratch.store(tagged)
    else:
        scratch.store(gl.maximum(tagged, scratch.load(L)))
        F: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
        channel = gl.arange(0, 16, gl.SliceLayout(1, F))
        bias = gl.load(biases + channel)[:, None]
        out = features + (channel * (16 * padded))[:, None] + gl.arange(0, IMAGES, gl.SliceLayout(0, F))[None, :]
        for pair in gl.static_range(2):
            left = scratch.slice(pair * 32, 16).load(F)
            best = gl.maximum(left, scratch.slice(pair * 32 + 16, 16).load(F))
            gl.store(out + (row // 2 * 4 + pair) * padded, encode(best, best + bias, True))


@gluon.jit
def _copy_pixels(pixels, ring, ring_full, model, row, first_block, HALF: gl.constexpr):
    """Start copying half of the pixels that one row of the first map looks at: row offset HALF of its pools."""
    slot = row % 2
    copied = ring_full.index(slot)
    image = (first_block + row // MAP_1) * IMAGES
    pixel_row = model * SIDE + 2 * (row % MAP_1) + HALF
    mbarrier.expect(copied, HALF_ROW_BYTES)
    for i in range(6):  # two column offsets, three times four pairs of columns
        place = ring.index((slot * 4 + 2 * HALF) * PAIRS + i * 4)
        target = place._reinterpret(gl.float16, [4, 4, 2, IMAGES], pixels.layout)
        tma.async_copy_global_to_shared(pixels, [i % 3 * 4, pixel_row, i // 3, image], copied, target)


@gluon.jit
def scattered_rows(
    pixels, weights, ring, filters, tiles, scratch, ring_full, ring_empty, full, done, filters_ready, biases, features,
    model, first_block, HALF: gl.constexpr, blocks, padded,
):  # fmt: skip
    """A group with four of conv2's eight output columns: HALF 0 the left ones, 1 the right ones.

    Sums of four output rows are in its registers: at row y of the first map, sums_i are those of output row y - i. Each group
    also copies half of the pixels, two rows ahead, into the place of those that are no longer needed.
    """
    L: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    SKIPPED: gl.constexpr = MAP_1 - REACH
    if HALF == 0:
        mbarrier.expect(filters_ready, 4 * 64 * 64 * 2)
        for ty in gl.static_range(4):
            taps = filters.index(REACH * ty + 3)._reinterpret(gl.float16, [64, 64], weights.layout)
            tma.async_copy_global_to_shared(weights, [(model * 4 + ty) * 64, 0], filters_ready, taps)
    else:
        for skipped in gl.static_range(SKIPPED):
            mbarrier.arrive(done.index(skipped), count=1)
    _copy_pixels(pixels, ring, ring_full, model, 0, first_block, HALF)
    _copy_pixels(pixels, ring, ring_full, model, 1, first_block, HALF)
    features += 2 * HALF * padded
    zero = gl.zeros([64, IMAGES], gl.float32, L)
    mbarrier.wait(filters_ready, 0)
    for block in range(blocks):
        sums = (zero, zero, zero, zero)
        for y in gl.static_range(MAP_1):
            start = block * PLACES + y * MAP_1 + SKIPPED * HALF
            sums = _scatter_row(sums, filters, tiles, full, done, start, y)
            if y >= 3:
                _pool(sums[3], y - 3, scratch, biases, features + block * IMAGES, padded)
            row = block * MAP_1 + y
            if row + 2 < MAP_1 * blocks:
                mbarrier.wait(ring_empty.index(row % 2), (row // 2) & 1)
                _copy_pixels(pixels, ring, ring_full, model, row + 2, first_block, HALF)
            sums = (zero, sums[0], sums[1], sums[2])
