"""The warps of the Hopper kernel for both convolutions' gradients (`hopper`): one copies, three groups of four compute."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cautious_paper.kernels.image.constants import CONV1_SIZE, IMAGES, MAP_1, PADDED, PLACES
from cautious_paper.kernels.image.encoding import split_by_offset

ROWS = gl.constexpr(5)
"""Rows of `gradient_2` in shared memory: four in use and one on its way."""
COLUMNS = gl.constexpr(8 + 3)
"""Columns of a row in shared memory: eight, after three of zeros that are the border of the row before as well."""
STAGES = gl.constexpr(4)
"""Places whose activations and pixels are in shared memory. An even number, so that a group which takes every second place
meets each use of its stages. A wait tells only odd uses from even ones: who missed one could take the next for granted."""
assert STAGES.value == 4  # `_conv1_row` steps from stage to stage by turning over a bit
ROW_BYTES = gl.constexpr(8 * 16 * 64 * 2)
STAGE_BYTES = gl.constexpr((64 + 4 * 16) * 64 * 2)


@gluon.jit
def _copy_row(slopes, ring, row_full, model, row, first_block):
    """Start copying one row of `gradient_2` without its border; rows are counted through, 8 a block of images."""
    slot = row % ROWS
    source = ((model * PADDED + row % 8 + 3) * PADDED + 3) * 16
    image = (first_block + row // 8) * IMAGES
    mbarrier.expect(row_full.index(slot), ROW_BYTES)
    target = ring.index(slot * COLUMNS + 3)._reinterpret(gl.float16, [8 * 16, IMAGES], slopes.layout)
    tma.async_copy_global_to_shared(slopes, [source, image], row_full.index(slot), target)


@gluon.jit
def copy(
    slopes, maps, pixels, weights, ring, stages, patches, filters,
    row_full, row_empty, full, empty, ready, model, first_block, BLOCKS: gl.constexpr,
):  # fmt: skip
    """The copying warp: filters once, then rows, activations and pixels in the order they are needed."""
    mbarrier.expect(ready, 16 * 16 * 64 * 2)
    for tap in range(16):
        tma.async_copy_global_to_shared(weights, [(model * 16 + tap) * 16, 0], ready, filters.index(tap))
    _copy_row(slopes, ring, row_full, model, 0, first_block)
    for n in range(PLACES * BLOCKS):
        y = (n % PLACES) // MAP_1
        x = n % PLACES % MAP_1
        image = (first_block + n // PLACES) * IMAGES
        slot = n % STAGES
        mbarrier.wait(
            empty.index(slot), ((n // STAGES) & 1) ^ 1
        )  # the phase before: at the first use it is over already
        filled = full.index(slot)
        mbarrier.expect(filled, STAGE_BYTES)
        source = (model * PLACES + n % PLACES) * 64
        tma.async_copy_global_to_shared(maps, [source, image], filled, stages.index(slot))
        for offset in gl.static_range(4):
            corner = [model, 2 * y + offset // 2, 2 * x + offset % 2, image]
            tma.async_copy_global_to_shared(pixels, corner, filled, patches.index(slot * 4 + offset))
        row = (n // PLACES) * 8 + y + 1
        # Copy the next row early enough that it arrives in time, and late enough that its slot is free (see `hopper`).
        if (x == 3) & (y < 8) & (row < 8 * BLOCKS):
            mbarrier.wait(row_empty.index(row % ROWS), ((row // ROWS) & 1) ^ 1)
            _copy_row(slopes, ring, row_full, model, row, first_block)


@gluon.jit
def _window(ring, row, x, WINDOW: gl.constexpr):
    """Columns x - 3 .. x of a row, 64 rows of shared memory: four columns lie one after the other."""
    return ring.index((row % ROWS) * COLUMNS + x)._reinterpret(gl.float16, [64, 64], WINDOW)


@gluon.jit
def _conv2_row(
    sums, ring, stages, row_full, row_empty, full, empty, block, y,
    FIRST: gl.constexpr, LAST: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """One row of the first map for conv2's weights; filter rows FIRST .. LAST reach outputs that exist."""
    newest = block * 8 + gl.minimum(y, 7)
    mbarrier.wait(row_full.index(newest % ROWS), (newest // ROWS) & 1)
    sums_0, sums_1, sums_2, sums_3 = sums
    for x in range(MAP_1):
        n = block * PLACES + y * MAP_1 + x
        slot = n % STAGES
        mbarrier.wait(full.index(slot), (n // STAGES) & 1)
        activation = stages.index(slot)
        if FIRST <= 0:
            window = _window(ring, block * 8 + y, x, WINDOW)
            sums_0 = warpgroup_mma(activation, window.permute((1, 0)), sums_0, is_async=True)
        if FIRST <= 1 and LAST >= 1:
            window = _window(ring, block * 8 + y - 1, x, WINDOW)
            sums_1 = warpgroup_mma(activation, window.permute((1, 0)), sums_1, is_async=True)
        if FIRST <= 2 and LAST >= 2:
            window = _window(ring, block * 8 + y - 2, x, WINDOW)
            sums_2 = warpgroup_mma(activation, window.permute((1, 0)), sums_2, is_async=True)
        if LAST >= 3:
            window = _window(ring, block * 8 + y - 3, x, WINDOW)
            sums_3 = warpgroup_mma(activation, window.permute((1, 0)), sums_3, is_async=True)
        # What is still running now belongs to this place: the one before it is done.
        sums_0, sums_1, sums_2, sums_3 = warpgroup_mma_wait(LAST - FIRST + 1, deps=(sums_0, sums_1, sums_2, sums_3))
        mbarrier.arrive(empty.index((n + STAGES - 1) % STAGES), count=1, pred=n > 0)
        # At the first place of a row the products of the row before are done, and with them a row of `gradient_2`.
        freed = block * 8 - 1 if y == 0 else block * 8 + y - 4
        leaving = (x == 0) & ((y > 3) | ((y == 0) & (block > 0)))
        mbarrier.arrive(row_empty.index((freed + ROWS) % ROWS), count=1, pred=leaving)
    return sums_0, sums_1, sums_2, sums_3


@gluon.jit
def conv2_weights(
    ring, stages, row_full, row_empty, full, empty, partials, program, BLOCKS: gl.constexpr, WINDOW: gl.constexpr
):
    """The warpgroup that sums conv2's weight gradient, [4, 64, 64]: filter row; input channel; 3 - column x channel."""
    L: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    zero = gl.zeros([64, 64], gl.float32, L)
    sums = (zero, zero, zero, zero)
    for block in range(BLOCKS):
        sums = _conv2_row(sums, ring, stages, row_full, row_empty, full, empty, block, 0, 0, 0, WINDOW)
        sums = _conv2_row(sums, ring, stages, row_full, row_empty, full, empty, block, 1, 0, 1, WINDOW)
        sums = _conv2_row(sums, ring, stages, row_full, row_empty, full, empty, block, 2, 0, 2, WINDOW)
        for y in range(3, 8):
            sums = _conv2_row(sums, ring, stages, row_full, row_empty, full, empty, block, y, 0, 3, WINDOW)
        sums = _conv2_row(sums, ring, stages, row_full, row_empty, full, empty, block, 8, 1, 3, WINDOW)
        sums = _conv2_row(sums, ring, stages, row_full, row_empty, full, empty, block, 9, 2, 3, WINDOW)
        sums = _conv2_row(sums, ring, stages, row_full, row_empty, full, empty, block, 10, 3, 3, WINDOW)
    sums_0, sums_1, sums_2, sums_3 = warpgroup_mma_wait(0, deps=sums)
    channel = gl.arange(0, 64, gl.SliceLayout(1, L))[:, None]
    column = gl.arange(0, 64, gl.SliceLayout(0, L))[None, :]
    partials += program * 16384 + channel * 64 + column
    gl.store(partials, sums_0)
    gl.store(partials + 4096, sums_1)
    gl.store(partials + 8192, sums_2)
    gl.store(partials + 12288, sums_3)


@gluon.jit
def _slope(
    ring, filters, row, column, first_ty, COUNT: gl.constexpr, TX: gl.constexpr, K: gl.constexpr, WINDOW: gl.constexpr
):
    """Gradient at one place of the first map, [64, images]: K / 16 filter columns from TX on, whose outputs begin at `column`.

    COUNT filter rows from first_ty on reach rows row - first_ty, row - first_ty - 1, ... of the outputs.
    """
    L: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    slope = gl.zeros([64, 64], gl.float32, L)
    for i in gl.static_range(COUNT):
        ty = first_ty + i
        taps = filters.index(ty * 4 + TX)._reinterpret(gl.float16, [K, 64], WINDOW).permute((1, 0))
        window = ring.index((row - ty) % ROWS * COLUMNS + column)._reinterpret(gl.float16, [K, 64], WINDOW)
        slope = warpgroup_mma(taps, window, slope, use_acc=i > 0, is_async=True)
    return warpgroup_mma_wait(0, deps=(slope,))


@gluon.jit
def _conv1_row(
    sums, slot, phase, ring, stages, patches, filters, ones, full, empty, base, y, first_x, COUNT: gl.constexpr,
    WINDOW: gl.constexpr,
):  # fmt: skip
    """Every second place of row y of the first map, from first_x on, into the sums for conv1's biases and weights.

    COUNT filter rows reach outputs that exist.
    """
    L: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    to_bias, to_weights = sums
    A: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=to_weights.type.layout, k_width=2)
    first_ty = gl.maximum(y - 7, 0)
    for x in range(first_x, MAP_1, 2):
        mbarrier.wait(full.index(slot), phase)
        encoded = stages.index(slot).load(L).to(gl.int16, bitcast=True)
        # At the edges of the map, half of the filter's columns or more look at zeros.
        if x < 2:
            slope = _slope(ring, filters, base + y, x + 2, first_ty, COUNT, 2, 32, WINDOW)
        elif x > 8:
            slope = _slope(ring, filters, base + y, x, first_ty, COUNT, 0, 32, WINDOW)
        else:
            slope = _slope(ring, filters, base + y, x, first_ty, COUNT, 0, 64, WINDOW)
        alive, part_0, part_1, part_2, part_3 = split_by_offset(slope, encoded, True)
        to_bias = warpgroup_mma(gl.convert_layout(alive, A), ones.permute((1, 0)), to_bias, is_async=True)
        patch = patches.index(slot * 4).reshape([16, 64]).permute((1, 0))
        to_weights = warpgroup_mma(gl.convert_layout(part_0, A), patch, to_weights, is_async=True)
        patch = patches.index(slot * 4 + 1).reshape([16, 64]).permute((1, 0))
        to_weights = warpgroup_mma(gl.convert_layout(part_1, A), patch, to_weights, is_async=True)
        patch = patches.index(slot * 4 + 2).reshape([16, 64]).permute((1, 0))
        to_weights = warpgroup_mma(gl.convert_layout(part_2, A), patch, to_weights, is_async=True)
        patch = patches.index(slot * 4 + 3).reshape([16, 64]).permute((1, 0))
        to_weights = warpgroup_mma(gl.convert_layout(part_3, A), patch, to_weights, is_async=True)
        to_bias, to_weights = warpgroup_mma_wait(0, deps=(to_bias, to_weights))
        mbarrier.arrive(empty.index(slot), count=1)
        phase = gl.where(slot >= STAGES - 2, phase ^ 1, phase)
        slot = slot ^ 2
    return (to_bias, to_weights), slot, phase


@gluon.jit
def conv1_weights(
    ring, stages, patches, filters, ones, row_full, row_empty, full, empty, ready, partials, program,
    TURN: gl.constexpr, BLOCKS: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """A warpgroup that takes every second place: gradient at the first map, then conv1's weights and biases."""
    N: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 16, 16])
    zero = gl.zeros([64, 16], gl.float32, N)
    sums = (zero, zero)
    slot = gl.to_tensor(TURN)
    phase = gl.to_tensor(0)
    mbarrier.wait(ready, 0)
    # Blocks go in pairs: with one loop over all of them the compiler runs out of registers.
    WIDTH: gl.constexpr = 2 if BLOCKS > 1 else 1
    for pair in range(BLOCKS // WIDTH):
        for row in range(MAP_1 * WIDTH):
            y = row % MAP_1
            base = (pair * WIDTH + row // MAP_1) * 8
            first_x = (row + TURN) % 2  # rows have an odd number of places, pairs of blocks an even one
            newest = base + gl.minimum(y, 7)
            mbarrier.wait(row_full.index(newest % ROWS), (newest // ROWS) & 1)
            count = gl.minimum(gl.minimum(y, 10 - y), 3) + 1
            for COUNT in gl.static_range(1, 5):
                if count == COUNT:
                    sums, slot, phase = _conv1_row(sums, slot, phase, ring, stages, patches, filters, ones, full, empty,
                                                   base, y, first_x, COUNT, WINDOW)  # fmt: skip
            mbarrier.arrive(row_empty.index((base + y + 2) % ROWS), count=1, pred=y >= 3)  # row y - 3: ROWS is 5
    channel = gl.arange(0, 64, gl.SliceLayout(1, N))
    tap = gl.arange(0, 16, gl.SliceLayout(0, N))
    partials += (program * 2 + TURN) * CONV1_SIZE
    gl.store(partials + channel[:, None] * 16 + tap[None, :], sums[1])
    gl.store(partials + 1024 + channel, gl.sum(sums[0], 1) * 0.0625)  # 16 equal columns, as in `backward`
