"""Gradients of both convolutions in one kernel for Hopper GPUs: three warpgroups compute, one warp copies.

A program owns one model and some blocks of 64 images. It walks the first feature map place by place; the rows of
`gradient_2` that the place needs stay in shared memory, each read once. At each place (y, x) with activations h [64, 64 images]:

    conv2's weights:  G[ty] += h · window(y - ty, x)ᵀ                      one warpgroup
    gradient at h:    s = Σ_ty W[ty] · window(y - ty, x), then masked       two warpgroups, places in turn
    conv1's weights:  split by pool offset, times that offset's pixels

where window(r, x) is row r, columns x - 3 .. x, 16 channels: 64 contiguous rows of shared memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from cautious.beliefs.kernels import layout
from cautious.beliefs.kernels.encoding import split_by_offset
from cautious.beliefs.kernels.layout import hopper_blocks

if TYPE_CHECKING:
    from cautious.beliefs.kernels.step import Workspace

MAP = gl.constexpr(layout.MAP_1)
PLACES = gl.constexpr(layout.MAP_1**2)
PADDED = gl.constexpr(layout.PADDED)
CONV1_SIZE = gl.constexpr(layout.CONV1_SIZE)
IMAGES = gl.constexpr(64)
ROWS = gl.constexpr(5)
"""Rows of `gradient_2` in shared memory: four in use and one on its way."""
STAGES = gl.constexpr(3)
"""Places whose activations and pixels are in shared memory."""
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
def _copy(
    slopes, maps, pixels, weights, ring, stages, patches, filters,
    row_full, row_empty, full, empty, ready, model, first_block, BLOCKS: gl.constexpr,
):  # fmt: skip
    """The copying warp: filters once, then rows, activations and pixels in the order they are needed."""
    mbarrier.expect(ready, 4 * 64 * 64 * 2)
    for ty in gl.static_range(4):
        tma.async_copy_global_to_shared(weights, [(model * 4 + ty) * 64, 0], ready, filters.index(ty))
    _copy_row(slopes, ring, row_full, model, 0, first_block)
    for n in range(PLACES * BLOCKS):
        y = (n % PLACES) // MAP
        x = n % PLACES % MAP
        image = (first_block + n // PLACES) * IMAGES
        slot = n % STAGES
        mbarrier.wait(empty.index(slot), ((n // STAGES) & 1) ^ 1)
        mbarrier.expect(full.index(slot), STAGE_BYTES)
        source = (model * PLACES + n % PLACES) * 64
        tma.async_copy_global_to_shared(maps, [source, image], full.index(slot), stages.index(slot))
        for offset in gl.static_range(4):
            corner = [model, 2 * y + offset // 2, 2 * x + offset % 2, image]
            tma.async_copy_global_to_shared(pixels, corner, full.index(slot), patches.index(slot * 4 + offset))
        row = (n // PLACES) * 8 + y + 1
        if (x == 3) & (y < 8) & (row < 8 * BLOCKS):
            mbarrier.wait(row_empty.index(row % ROWS), ((row // ROWS) & 1) ^ 1)
            _copy_row(slopes, ring, row_full, model, row, first_block)


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
        mbarrier.wait(full.index(slot), (n // STAGES) & 1)
        activation = stages.index(slot)
        if FIRST <= 0:
            window = ring.index(((block * 8 + y) % ROWS) * PADDED + x)._reinterpret(gl.float16, [64, 64], WINDOW)
            sums_0 = warpgroup_mma(activation, window.permute((1, 0)), sums_0, is_async=True)
        if FIRST <= 1 and LAST >= 1:
            window = ring.index(((block * 8 + y - 1) % ROWS) * PADDED + x)._reinterpret(gl.float16, [64, 64], WINDOW)
            sums_1 = warpgroup_mma(activation, window.permute((1, 0)), sums_1, is_async=True)
        if FIRST <= 2 and LAST >= 2:
            window = ring.index(((block * 8 + y - 2) % ROWS) * PADDED + x)._reinterpret(gl.float16, [64, 64], WINDOW)
            sums_2 = warpgroup_mma(activation, window.permute((1, 0)), sums_2, is_async=True)
        if LAST >= 3:
            window = ring.index(((block * 8 + y - 3) % ROWS) * PADDED + x)._reinterpret(gl.float16, [64, 64], WINDOW)
            sums_3 = warpgroup_mma(activation, window.permute((1, 0)), sums_3, is_async=True)
        # What is still running now belongs to this place: the one before it is done.
        sums_0, sums_1, sums_2, sums_3 = warpgroup_mma_wait(LAST - FIRST + 1, deps=(sums_0, sums_1, sums_2, sums_3))
        mbarrier.arrive(empty.index((n + STAGES - 1) % STAGES), count=1, pred=n > 0)
        freed = block * 8 - 1 if y == 0 else block * 8 + y - 4
        leaving = (x == 0) & ((y > 3) | ((y == 0) & (block > 0)))
        mbarrier.arrive(row_empty.index((freed + ROWS) % ROWS), count=1, pred=leaving)
    return sums_0, sums_1, sums_2, sums_3


@gluon.jit
def _conv2_weights(
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
def _conv1_weights(
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
            row_filter = filters.index(ty)
            for i in gl.static_range(4):
                slope = warpgroup_mma(row_filter.slice(i * 16, 16, dim=1), ring.index(first + i), slope, is_async=True)
        slot = n % STAGES
        mbarrier.wait(full.index(slot), (n // STAGES) & 1)
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


@gluon.jit
def _gradients(
    slopes, maps, pixels, weights, conv2_partials, conv1_partials, BLOCKS: gl.constexpr, num_warps: gl.constexpr
):
    """One model and BLOCKS blocks of 64 images; see the module's docstring."""
    model = gl.program_id(1)
    first_block = gl.program_id(0) * BLOCKS
    program = model.to(gl.int64) * gl.num_programs(0) + gl.program_id(0)
    window: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    ring = gl.allocate_shared_memory(gl.float16, [ROWS * PADDED, 16, IMAGES], slopes.layout)
    stages = gl.allocate_shared_memory(gl.float16, [STAGES, 64, IMAGES], maps.layout)
    patches = gl.allocate_shared_memory(gl.float16, [4 * STAGES, 1, 4, 4, IMAGES], pixels.layout)
    filters = gl.allocate_shared_memory(gl.float16, [4, 64, 64], weights.layout)
    plain: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    ones = gl.allocate_shared_memory(
        gl.float16, [16, IMAGES], window, gl.full([16, IMAGES], 1.0, gl.float16, plain)
    )
    row_full = gl.allocate_shared_memory(gl.int64, [ROWS, 1], mbarrier.MBarrierLayout())
    row_empty = gl.allocate_shared_memory(gl.int64, [ROWS, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for i in gl.static_range(ROWS):
        mbarrier.init(row_full.index(i), count=1)
        mbarrier.init(row_empty.index(i), count=3)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    mbarrier.init(ready, count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (_conv2_weights, (ring, stages, row_full, row_empty, full, empty, conv2_partials, program, BLOCKS, window)),
            (_conv1_weights, (ring, stages, patches, filters, ones, row_full, row_empty, full, empty, ready,
                              conv1_partials, program, 0, BLOCKS)),
            (_conv1_weights, (ring, stages, patches, filters, ones, row_full, row_empty, full, empty, ready,
                              conv1_partials, program, 1, BLOCKS)),
            (_copy, (slopes, maps, pixels, weights, ring, stages, patches, filters, row_full, row_empty, full, empty,
                     ready, model, first_block, BLOCKS)),
        ],
        [4, 4, 1],
        [144, 144, 24],
    )  # fmt: skip


def convolution_gradients(space: Workspace, num_models: int) -> None:
    """Sums for both convolutions' gradients into `space.conv2_partials` and `space.conv1_partials`."""
    padded = space.pixels.shape[2]
    flat, deep = gl.NVMMASharedLayout(128, 16, rank=2), gl.NVMMASharedLayout(128, 16, rank=4)
    slopes = space.gradient_2.view(-1, padded)
    maps = space.map_1.view(torch.float16).view(-1, padded)
    pixels = space.pixels.view(-1, layout.SIDE, layout.SIDE, padded)
    weights = space.weights_2t.view(-1, 64)
    blocks = hopper_blocks(padded)
    _gradients[(padded // 64 // blocks, num_models)](
        TensorDescriptor.from_tensor(slopes, [16, 64], flat),
        TensorDescriptor.from_tensor(maps, [64, 64], flat),
        TensorDescriptor.from_tensor(pixels, [1, 4, 4, 64], deep),
        TensorDescriptor.from_tensor(weights, [64, 64], flat),
        space.conv2_partials,
        space.conv1_partials,
        blocks,
        num_warps=4,
        maxnreg=128,
    )
