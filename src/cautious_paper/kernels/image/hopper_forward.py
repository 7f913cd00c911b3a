"""Both convolutions, their pools and ReLUs in one kernel for Hopper GPUs: four groups of four warps.

A program owns one model and some blocks of 64 images. It walks the first feature map place by place; each place is
computed once, goes to memory for the gradients, and is used from shared memory. At a place (y, x) with
activations h [64, 64 images]:

    first map:      h = encode(max over four offsets of W1 · patch, plus bias)   two groups, places in turn
    second, left:   S[y - ty] += window(W2[ty], x) · h, output columns 0 to 3     one group, x in 0 .. 6
    second, right:  S[y - ty] += window(W2[ty], x - 4) · h, columns 4 to 7        one group, x in 4 .. 10

where window(W, x) is [4 columns x 16 channels, 64]: filter column x - j for output column j, and zeros where there is
none. Filter columns lie in shared memory in falling order between zeros, so that every window is 64 rows of it.

Barriers. Places n and rows of the map are counted through all blocks of a program. Pixels of a row lie in slot row % 2 of the
ring, a pooled place in tile n % STAGES. "First" are the two groups of the first map, "left" and "right" those of the second:

    ring_full[slot]   2 arrivals with bytes: left and right copy half each   first wait before a row
    ring_empty[slot]  2 arrivals: first, each after its part of a row        left and right wait, then copy the row after next
    full[turn]        1 arrival: the first group that made the place         left and right wait, for the places they use
    left_done[turn],  1 arrival each: left and right, also for the places    first wait before they overwrite the tile
    right_done[turn]  that they skip
    filters_ready     completes when the filters have arrived, once          left and right wait

Why a buffer may be overwritten: place n goes into the tile of place n - STAGES after left and right have arrived for it,
which they do when `warpgroup_mma_wait` says that its products are done, and after `tma.store_wait`: that place was this
group's own, as STAGES is even, and its copy to memory must have been read. Pixels of a row are overwritten when both first
groups have waited for all of their products of the row. `scratch` is one group's own. The zeros between filters are
written before the groups start, hence the fence, and never again.

Why there is no deadlock: each wait is for a smaller place number. Place n can be handed over once left and
right have released place n - STAGES. For that they need place n - STAGES + 1 at most, since they release a skipped place
together with the last place before it. Place n also waits for the pixels of place n + 2, since its group begins that place
before it hands over place n. These pixels lie in the next row at most, and were copied when all groups had finished the row
before this one.

Why no use is missed: a wait tells only odd uses of a barrier from even ones. Left and right skip four places in a row and wait
for none of them. With one barrier for each tile they could find a use of a skipped place not yet complete and take the use
before it for their own. There are TURNS = 2 STAGES barriers instead: the use before is then eight places ago, by the same
first group as a place that the waiting group has already seen. And no barrier gets ahead: the next use needs the waiting
group's own arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from cautious_paper.kernels.image import layout
from cautious_paper.kernels.image.constants import DENSE_START, IMAGES
from cautious_paper.kernels.image.hopper_forward_warps import (
    FILTERS,
    PAIRS,
    REACH,
    STAGES,
    TURNS,
    pooled_map,
    scattered_rows,
)
from cautious_paper.kernels.image.layout import hopper_blocks

if TYPE_CHECKING:
    from cautious_paper.kernels.image.workspace import Described, Workspace


@gluon.jit
def _convolutions(
    pixels,
    maps,
    weights,
    weights_1,
    parameters,
    features,
    num_parameters,
    padded,
    blocks,
    num_warps: gl.constexpr,
):
    """One model and `blocks` blocks of 64 images; see the module's docstring."""
    model = gl.program_id(1)
    first_block = gl.program_id(0) * blocks
    model_64 = model.to(gl.int64)
    weights_1 += model_64 * 1024
    parameters += model_64 * num_parameters
    features += model_64 * (256 * padded) + first_block * IMAGES
    flat: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    ring = gl.allocate_shared_memory(gl.float16, [2 * 4 * PAIRS, 8, IMAGES], flat)
    tiles = gl.allocate_shared_memory(gl.float16, [STAGES, 64, IMAGES], maps.layout)
    filters = gl.allocate_shared_memory(gl.float16, [FILTERS, 16, 64], flat)
    spread: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 8, [1, 0])  # eight rows at a time meet all banks
    scratch = gl.allocate_shared_memory(gl.float32, [2, 64, IMAGES], spread)
    ring_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    ring_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [TURNS, 1], mbarrier.MBarrierLayout())
    left_done = gl.allocate_shared_memory(gl.int64, [TURNS, 1], mbarrier.MBarrierLayout())
    right_done = gl.allocate_shared_memory(gl.int64, [TURNS, 1], mbarrier.MBarrierLayout())
    filters_ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(ring_full.index(i), count=2)
        mbarrier.init(ring_empty.index(i), count=2)
    for i in gl.static_range(TURNS):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(left_done.index(i), count=1)
        mbarrier.init(right_done.index(i), count=1)
    mbarrier.init(filters_ready, count=1)
    plain: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    for i in gl.static_range(FILTERS):
        if i % REACH < 3:
            filters.index(i).store(gl.zeros([16, 64], gl.float16, plain))
    fence_async_shared()
    biases = parameters + DENSE_START
    gl.warp_specialize(
        [
            (pooled_map, (weights_1, parameters + 1024, maps, ring, tiles, ring_full, ring_empty, full, left_done,
                          right_done, model, first_block, 0, blocks)),
            (pooled_map, (weights_1, parameters + 1024, maps, ring, tiles, ring_full, ring_empty, full, left_done,
                          right_done, model, first_block, 1, blocks)),
            (scattered_rows, (pixels, weights, ring, filters, tiles, scratch.index(0), ring_full, ring_empty, full,
                              left_done, filters_ready, biases, features, model, first_block, 0, blocks, padded)),
            (scattered_rows, (pixels, weights, ring, filters, tiles, scratch.index(1), ring_full, ring_empty, full,
                              right_done, filters_ready, biases, features, model, first_block, 1, blocks, padded)),
        ],
        [4, 4, 4],
        [96, 160, 160],  # registers of a thread: 4 x 128 in all, of which the first group keeps the other 96
    )  # fmt: skip


def _described(space: Workspace) -> Described:
    """Pixels, the first map and conv2's weights, with the blocks in which they are copied."""
    flat, deep = gl.NVMMASharedLayout(128, 16, rank=2), gl.NVMMASharedLayout(128, 16, rank=4)
    padded = space.padded
    return (
        TensorDescriptor(  # pairs of columns; rows; columns from the first of a pair on (they overlap); images
            space.pixels,
            [PAIRS.value, len(space.pixels) * layout.SIDE, 3, padded],
            [2 * padded, layout.SIDE * padded, padded, 1],
            [4, 4, 2, 64],
            deep,
        ),
        TensorDescriptor.from_tensor(space.map_1.view(torch.float16).view(-1, padded), [64, 64], flat),
        TensorDescriptor.from_tensor(space.weights_2t.view(-1, 64), [64, 64], flat),
    )


def convolutions(space: Workspace, parameters: Tensor) -> None:
    """Both convolutions of `space.pixels` into `space.map_1` and `space.features`."""
    num_models, num_parameters = parameters.shape
    padded = space.padded
    blocks = hopper_blocks(padded)
    _convolutions[(padded // 64 // blocks, num_models)](
        *space.described(_described),
        space.weights_1,
        parameters,
        space.features,
        num_parameters,
        padded,
        blocks,
        num_warps=4,
        maxnreg=128,
    )
