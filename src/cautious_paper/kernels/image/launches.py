"""The kernels of one step, each with its grid and block sizes; M models, batch padded to B."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from cautious_paper.kernels.image import backward, dense, forward, layout, packing
from cautious_paper.kernels.image.tuning import KernelVariant, bound
from cautious_paper.kernels.image.workspace import Workspace
from cautious_paper.networks.image import ImageNetwork


def pack(space: Workspace, parameters: Tensor, network: ImageNetwork, variant: KernelVariant) -> None:
    """16-bit forms of all weights."""
    num_models, P = parameters.shape
    help_bit = int(network.help_bit)
    packing.pack_small[(19, num_models)](
        parameters, space.weights_1, space.packed, network.num_actions, P, help_bit, packing.PACKED
    )
    windows = None if variant is KernelVariant.HOPPER else space.weights_2
    packing.pack_conv2[(16, num_models)](parameters, windows, space.weights_2t, P)


def gather(space: Workspace, images: Tensor, batch: Tensor) -> None:
    """Each model's images, transposed."""
    B = space.padded
    forward.gather_pixels[(B // 32 * 7, len(batch))](
        images, batch, space.pixels, batch.shape[1], batch.stride(0), B, 32, 128
    )


def convolve_1(space: Workspace, parameters: Tensor, variant: KernelVariant) -> None:
    """First convolution, pool and ReLU."""
    num_models, P = parameters.shape
    B, block = space.padded, space.tuning.conv1_block
    forward.convolve_1[(layout.MAP_1 * B // block, num_models)](
        space.pixels, space.weights_1, parameters, space.map_1, bound(layout.MAP_1),
        P, B, block, space.tuning.conv1_stages, variant.has_ptx,
    )  # fmt: skip


def convolve_2(space: Workspace, parameters: Tensor, variant: KernelVariant) -> None:
    """Second convolution, pool and ReLU."""
    num_models, P = parameters.shape
    B, block = space.padded, space.tuning.conv2_block
    forward.convolve_2[(16 * B // block, num_models)](
        space.map_1.view(torch.float16), space.weights_2, parameters, space.features, bound(25),
        P, B, block, space.tuning.conv2_stages, variant.has_ptx, num_warps=8 if block == 256 else 4,
    )  # fmt: skip


def convolutions(space: Workspace, parameters: Tensor) -> None:
    """Both convolutions at once, on a Hopper GPU."""
    from cautious_paper.kernels.image import hopper_forward

    hopper_forward.convolutions(space, parameters)


def linear_layers(
    space: Workspace,
    parameters: Tensor,
    batch: Tensor,
    help_bits: Tensor,
    tables: Tensor,
    loss_weights: Tensor,
    network: ImageNetwork,
    slope_scale: float,
) -> None:
    """Linear layers and loss, forward and backward."""
    num_models, P = parameters.shape
    B, block = space.padded, space.tuning.dense_block
    dense.dense_and_loss[(B // block, num_models)](
        space.features, space.packed, parameters, batch, help_bits, tables, loss_weights, space.gradient_2,
        space.dense_partials, batch.shape[1], batch.stride(0), help_bits.stride(0), tables.shape[1], slope_scale, bound(4),
        network.num_actions, P, B, block, int(network.help_bit), space.dense_partials.shape[2], packing.PACKED,
        num_warps=8 if block == 128 else 4,
    )  # fmt: skip


def convolution_gradients(space: Workspace, num_models: int, variant: KernelVariant) -> None:
    """Sums for the gradients of both convolutions' weights."""
    if variant is KernelVariant.HOPPER:
        from cautious_paper.kernels.image import hopper

        hopper.convolution_gradients(space, num_models)
        return
    B, tuning = space.padded, space.tuning
    backward.conv2_gradient[(5, num_models)](
        space.map_1.view(torch.float16), space.gradient_2, space.conv2_partials, bound(16 * B // 64),
        B, 64, tuning.conv2_gradient_stages,
    )  # fmt: skip
    backward.conv1_gradient[(space.conv1_partials.shape[1], num_models)](
        space.map_1, space.gradient_2, space.pixels, space.weights_2t, space.conv1_partials, bound(layout.MAP_1),
        B, tuning.conv1_gradient_block, tuning.conv1_gradient_stages, variant.has_ptx,
    )  # fmt: skip


def collect(
    space: Workspace, gradient: Tensor, losses: Tensor, variant: KernelVariant, scale: float, loss_scale: float
) -> None:
    """Partial sums to the flat gradient and the losses, added in a fixed order."""
    num_models, P = gradient.shape
    num_partials, stride = space.dense_partials.shape[1:]
    packing.add_partials[(9, num_models)](
        space.conv1_partials, gradient, losses, bound(space.conv1_partials.shape[1]), 0, layout.CONV1_SIZE, scale,
        0.0, 1024, P, layout.CONV1_SIZE, 128,
    )  # fmt: skip
    if variant is KernelVariant.HOPPER:
        packing.fold_rows[(4, num_models)](space.conv2_partials, gradient, space.conv2_partials.shape[1], scale, P)
    else:
        packing.fold_windows[(16, num_models)](space.conv2_partials, gradient, scale, P)
    packing.add_partials[(triton.cdiv(stride, 256), num_models)](
        space.dense_partials, gradient, losses, bound(num_partials), layout.DENSE_START, stride - 1, scale,
        loss_scale, 0, P, stride, 256,
    )  # fmt: skip
