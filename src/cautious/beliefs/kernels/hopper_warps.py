"""The warps of the Hopper kernel for both convolutions' gradients (`hopper`): one copies, three groups of four compute."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from cautious.beliefs.kernels import layout
from cautious.beliefs.kernels.encoding import split_by_offset

MAP = gl.constexpr(layout.MAP_1)
PLACES = gl.constexpr(layout.MAP_1**2)
PADDED = gl.constexpr(layout.PADDED)
CONV1_SIZE = gl.constexpr(layout.CONV1_SIZE)
IMAGES = gl.constexpr(64)
ROWS = gl.constexpr(5)
"""Rows of `gradient_2` in shared memory: four in use and one on its way."""
STAGES = gl.constexpr(3)
"""Places whose activations and pixels are in shared memory."""
TURNS = gl.constexpr(2 * 3)
"""Barriers that say a stage is full: two for each stage, so that a group which takes every second place meets each use of
its own. A wait tells only odd uses from even ones: a group that missed one could take the next for granted."""
PUBLIC_REINTERPRET = gl.constexpr(hasattr(gl.shared_memory_descriptor, "reinterpret"))
"""Newer versions of Triton gave the method a public name."""
ROW_BYTES = gl.constexpr(layout.PADDED * 16 * 64 * 2)
STAGE_BYTES = gl.constexpr((64 + 4 * 16) * 64 * 2)


@gluon.jit
def _copy_row(slopes, ring, row_full, model, row, first_block):
    """Start copying one row of `gradient_2`, 14 columns; rows are counted through, 8 a block of images."""
    slot = row % ROWS
    source = (model * PADDED + row % 8 + 3) * (PADDED * 16)
    image = (first_block + row // 8) * IMAGES
    mbarrier.expect(row_full.index(slot), ROW_BYTES)
    for column in range(PADDED):
        place = ring.index(slot * PADDED + column)
        tma.async_copy_global_to_shared(slopes, [source + column * 16, image], row_full.index(slot), place)


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
        y = (n % PLACES) // MAP
        x = n % PLACES % MAP
        image = (first_block + n // PLACES) * IMAGES
        slot = n % STAGES
        mbarrier.wait(empty.index(slot), ((n // STAGES) & 1) ^ 1)
        filled = full.index(n % TURNS)
        mbarrier.expect(filled, STAGE_BYTES)
        source = (model * PLACES + n % PLACES) * 64
        tma.async_copy_global_to_shared(maps, [source, image], filled, stages.index(slot))
        for offset in gl.static_range(4):
            corner = [model, 2 * y + offset // 2, 2 * x + offset % 2, image]
            tma.async_copy_global_to_shared(pixels, corner, filled, patches.index(slot * 4 + offset))
        row = (n // PLACES) * 8 + y + 1
        if (x == 3) & (y < 8) & (row < 8 * BLOCKS):
            mbarrier.wait(row_empty.index(row % ROWS), ((row // ROWS) & 1) ^ 1)
            _copy_row(slopes, ring, row_full, model, row, first_block)


@gluon.jit
def _window(ring, row, x, WINDOW: gl.constexpr):
    """Columns x - 3 .. x of a row, 64 rows of shared memory: four columns lie one after the other."""
    first = ring.index((row % ROWS) * PADDED + x)
    if PUBLIC_REINTERPRET:
        return first.reinterpret(gl.float16, [64, 64], WINDOW)
    else:
        return first._reinterpret(gl.float16, [64, 64], WINDOW)


@gluon.jit
def _conv2_row(
    sums, ring, stages, row_full, row_empty, full, empty, block, y,
    FIRST: gl.constexpr, LAST: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """One row of the first map for conv2's weights; filter rows FIRST .. LAST reach outputs that exist."""
    newest = block * 8 + gl.minimum(y, 7)
    mbarrier.wait(row_full.index(newest % ROWS), (newest // ROWS) & 1)
    sums_0, sums_1, sums_2, sums_3 = sums
    for x in range(MAP):
        n = block * PLACES + y * MAP + x
        slot = n % STAGES
        mbarrier.wait(full.index(n % TURNS), (n // TURNS) & 1)
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
def conv1_weights(
    ring, stages, patches, filters, ones, row_full, row_empty, full, empty, ready, partials, program,
    TURN: gl.constexpr, BLOCKS: gl.constexpr,
):  # fmt: skip
    """A warpgroup that takes every second place: gradient at the first map, then conv1's weights and biases."""
    L: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    N: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 16, 16])
    A: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=N, k_width=2)
    to_weights = gl.zeros([64, 16], gl.float32, N)
    to_bias = gl.zeros([64, 16], gl.float32, N)
    mbarrier.wait(ready, 0)
    for n in range(TURN, PLACES * BLOCKS, 2):
        y = (n % PLACES) // MAP
        x = n % PLACES % MAP
        base = (n // PLACES) * 8
        newest = base + gl.minimum(y, 7)
        mbarrier.wait(row_full.index(newest % ROWS), (newest // ROWS) & 1)
        slope = warpgroup_mma_init(gl.zeros([64, 64], gl.float32, L))
        for ty in range(gl.maximum(y - 7, 0), gl.minimum(y, 3) + 1):
            first = ((base + y - ty) % ROWS) * PADDED + x
            for i in gl.static_range(4):
                tap_filter = filters.index(ty * 4 + i).permute((1, 0))
                slope = warpgroup_mma(tap_filter, ring.index(first + i), slope, is_async=True)
        slot = n % STAGES
        mbarrier.wait(full.index(n % TURNS), (n // TURNS) & 1)
        encoded = stages.index(slot).load(L).to(gl.int16, bitcast=True)
        slope = warpgroup_mma_wait(0, deps=(slope,))
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
        leaving = (x >= MAP - 2) & (y >= 3)
        mbarrier.arrive(row_empty.index((base + y + 2) % ROWS), count=1, pred=leaving)  # row y - 3, as ROWS is 5
    channel = gl.arange(0, 64, gl.SliceLayout(1, N))
    tap = gl.arange(0, 16, gl.SliceLayout(0, N))
    partials += (program * 2 + TURN) * CONV1_SIZE
    gl.store(partials + channel[:, None] * 16 + tap[None, :], to_weights)
    gl.store(partials + 1024 + channel, gl.sum(to_bias, 1) * 0.0625)
