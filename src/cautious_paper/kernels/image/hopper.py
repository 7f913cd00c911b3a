"""Gradients of both convolutions in one kernel for Hopper GPUs: three warpgroups compute, one warp copies.

A program owns one model and some blocks of 64 images. It walks the first feature map place by place; the rows of
`gradient_2` that the place needs stay in shared memory between columns of zeros, each read once. At a place (y, x) with
activations h [64, 64 images]:

    conv2's weights:  G[ty] += h · window(y - ty, x)ᵀ                      one warpgroup
    gradient at h:    s = Σ_ty W[ty] · window(y - ty, x), then masked       two warpgroups, places in turn
    conv1's weights:  split by pool offset, times that offset's pixels

where window(r, x) is row r, columns x - 3 .. x, 16 channels: 64 contiguous rows of shared memory.

Barriers. Places n and rows r are counted through all blocks of a program. Place n (activations and pixels) lies in stage
n % STAGES, row r of `gradient_2` in slot r % ROWS of the ring. Every barrier belongs to one buffer:

    full[stage]      completes when the bytes of a place have arrived     the computing groups wait
    empty[stage]     2 arrivals: conv2's group, and the conv1 group       the copying warp waits before it refills
                     whose turn the place is
    row_full[slot]   completes when the bytes of a row have arrived       the computing groups wait
    row_empty[slot]  3 arrivals: all computing groups                     the copying warp waits before it refills
    ready            completes when the filters have arrived, once        conv1's groups wait

Why a buffer may be overwritten: a group arrives at `empty` or `row_empty` only after `warpgroup_mma_wait` says that its
products of that buffer are done. conv2's group leaves the products of one place running, so it frees place n - 1 while it
works on place n. Row y of a block is last needed at row y + 3 of the map: conv1's groups free it at the end of that row,
conv2's group at the first place of the next one (of the next block for the last row). The zeros between rows and the ones
are written before the groups start, hence the fence, and never again.

Why there is no deadlock: data are copied in the order in which they are used, and each wait is for something earlier. The
copying warp waits, at place n, for place n - STAGES to be freed, which needs place n - STAGES + 1 at most, and at column 3
of row y for the slot of the row five before. That row was last needed before row y of this block, and the last group to
free it does so at (y, 0), which has been copied. What nobody waits for at the end need not be freed.

Why no use is missed: a wait tells only odd uses of a barrier from even ones. A buffer is refilled only after every group
that reads it has arrived, so that no barrier can be two uses ahead of a group that waits for it; and every group sees every
use of the barriers it waits for: conv1's groups take every second place, and STAGES is even.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from cautious_paper.kernels.image import layout
from cautious_paper.kernels.image.constants import IMAGES
from cautious_paper.kernels.image.hopper_warps import (
    COLUMNS,
    ROWS,
    STAGES,
    conv1_weights,
    conv2_weights,
    copy,
)
from cautious_paper.kernels.image.layout import hopper_blocks

if TYPE_CHECKING:
    from cautious_paper.kernels.image.workspace import Described, Workspace


@gluon.jit
def _gradients(
    slopes,
    maps,
    pixels,
    weights,
    conv2_partials,
    conv1_partials,
    BLOCKS: gl.constexpr,
    num_warps: gl.constexpr,
):
    """One model and BLOCKS blocks of 64 images; see the module's docstring."""
    model = gl.program_id(1)
    first_block = gl.program_id(0) * BLOCKS
    program = model.to(gl.int64) * gl.num_programs(0) + gl.program_id(0)
    window: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    ring = gl.allocate_shared_memory(gl.float16, [ROWS * COLUMNS + 3, 16, IMAGES], window)
    stages = gl.allocate_shared_memory(gl.float16, [STAGES, 64, IMAGES], maps.layout)
    patches = gl.allocate_shared_memory(gl.float16, [4 * STAGES, 1, 4, 4, IMAGES], pixels.layout)
    filters = gl.allocate_shared_memory(gl.float16, [16, 16, 64], weights.layout)
    plain: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    ones = gl.allocate_shared_memory(gl.float16, [16, IMAGES], window, gl.full([16, IMAGES], 1.0, gl.float16, plain))
    row_full = gl.allocate_shared_memory(gl.int64, [ROWS, 1], mbarrier.MBarrierLayout())
    row_empty = gl.allocate_shared_memory(gl.int64, [ROWS, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for i in gl.static_range(ROWS):
        mbarrier.init(row_full.index(i), count=1)
        mbarrier.init(row_empty.index(i), count=3)
    for i in gl.static_range(STAGES):
        mbarrier.init(empty.index(i), count=2)
        mbarrier.init(full.index(i), count=1)
    mbarrier.init(ready, count=1)
    for i in gl.static_range(ROWS * COLUMNS + 3):
        if i % COLUMNS < 3:
            ring.index(i).store(gl.zeros([16, IMAGES], gl.float16, plain))
    fence_async_shared()
    gl.warp_specialize(
        [
            (conv2_weights, (ring, stages, row_full, row_empty, full, empty, conv2_partials, program, BLOCKS, window)),
            (conv1_weights, (ring, stages, patches, filters, ones, row_full, row_empty, full, empty, ready,
                              conv1_partials, program, 0, BLOCKS, window)),
            (conv1_weights, (ring, stages, patches, filters, ones, row_full, row_empty, full, empty, ready,
                              conv1_partials, program, 1, BLOCKS, window)),
            (copy, (slopes, maps, pixels, weights, ring, stages, patches, filters, row_full, row_empty, full, empty,
                     ready, model, first_block, BLOCKS)),
        ],
        [4, 4, 1],
        [160, 160, 24],
    )  # fmt: skip


def _described(space: Workspace) -> Described:
    """Gradients at conv2's outputs, the first map, pixels and conv2's weights, with the blocks in which they are copied."""
    flat, deep = gl.NVMMASharedLayout(128, 16, rank=2), gl.NVMMASharedLayout(128, 16, rank=4)
    padded = space.padded
    pixels = space.pixels.view(-1, layout.SIDE, layout.SIDE, padded)
    return (
        TensorDescriptor.from_tensor(space.gradient_2.view(-1, padded), [8 * 16, 64], flat),
        TensorDescriptor.from_tensor(space.map_1.view(torch.float16).view(-1, padded), [64, 64], flat),
        TensorDescriptor.from_tensor(pixels, [1, 4, 4, 64], deep),
        TensorDescriptor.from_tensor(space.weights_2t.view(-1, 64), [16, 64], flat),
    )


def convolution_gradients(space: Workspace, num_models: int) -> None:
    """Sums for both convolutions' gradients into `space.conv2_partials` and `space.conv1_partials`."""
    blocks = hopper_blocks(space.padded)
    _gradients[(space.padded // 64 // blocks, num_models)](
        *space.described(_described),
        space.conv2_partials,
        space.conv1_partials,
        blocks,
        num_warps=4,
        maxnreg=128,
    )
