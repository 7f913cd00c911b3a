"""The layers of the image network, forward and backward, M models at once; `part` is what `ImageNetwork.split` gives.

The first convolution is one matrix product over image patches (a single input channel makes library convolutions slow), the
second a grouped convolution with one group per model, channels last. Pooling drops the last row and column of both
convolutions' outputs, so only the first 25x25 pixels ever matter: 22x22 and 8x8 outputs are computed, no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cautious.beliefs.fixed_shapes import aligned

SIDE = 28
KERNEL = 4
SEEN = 25
"""Rows and columns of an image that reach the output at all."""
FIRST = SEEN - KERNEL + 1  # 22 x 22 outputs of the first convolution,
POOLED = FIRST // 2  # 11 x 11 after pooling,
SECOND = POOLED - KERNEL + 1  # 8 x 8 outputs of the second,
LAST = SECOND // 2  # 4 x 4 after pooling
CHANNELS = (64, 16)
NUM_FEATURES = CHANNELS[1] * LAST * LAST  # 256
HIDDEN = (50, 15)

Part = Mapping[str, Tensor]
"""Weights by name, each with M in front."""


class ImageActivations(NamedTuple):
    """What the backward pass needs of the forward pass."""

    patches: Tensor
    """The pixels that each output of the first convolution looks at, [M, B*484, 16]."""
    first: Tensor
    """Outputs of the first convolution, channels last: [M*B, 64, 22, 22]."""
    first_choice: Tensor
    """Which output each pooled one came from, [M*B, 64, 11, 11]."""
    pooled: Tensor
    """After ReLU, models side by side: [B, M*64, 11, 11], channels last."""
    second: Tensor
    """Outputs of the second convolution, [B, M*16, 8, 8]."""
    second_choice: Tensor
    """Which of these outputs each pool took, [B, M*16, 4, 4]."""
    features: Tensor
    """[M, B, 256 or 257]."""
    hidden: tuple[Tensor, Tensor]
    """[M, B, 50], [M, B, 15]."""
    predictions: Tensor
    """Rewards, [M, B, A]."""


def forward(part: Part, images: Tensor, help_available: Tensor | None) -> ImageActivations:
    """Each model's rewards on its own images: bytes [M, B, 28, 28] (and bits [M, B]) -> predictions [M, B, A]."""
    asked = images.shape[1]
    images = aligned(images, 1)
    num_models, batch = images.shape[:2]
    patches = patches_of(images.flatten(0, 1)).view(num_models, batch * FIRST * FIRST, KERNEL**2)
    kernels = part["conv1.weight"].flatten(2).transpose(1, 2)  # [M, 16, 64]
    first = torch.baddbmm(part["conv1.bias"].unsqueeze(1), patches, kernels)  # [M, B*484, 64]
    first = first.view(num_models * batch, FIRST, FIRST, CHANNELS[0]).permute(0, 3, 1, 2)
    best, first_choice = torch.ops.aten.max_pool2d_with_indices(first, [2, 2], [2, 2])
    pooled = _side_by_side(best.relu_(), num_models)
    second = _second_convolution(pooled, part["conv2.weight"], part["conv2.bias"])
    best, second_choice = torch.ops.aten.max_pool2d_with_indices(second, [2, 2], [2, 2])
    bits = None if help_available is None else aligned(help_available, 1)
    features, hidden, predictions = dense_layers(part, best.relu_(), bits)
    activations = (patches, first, first_choice, pooled, second, second_choice, features, hidden)
    return ImageActivations(*activations, predictions[:, :asked])


@torch.no_grad()
def forward_shared(part: Part, images: Tensor, help_available: Tensor | None = None) -> Tensor:
    """Every model's rewards on the same images: bytes [S, 28, 28] (and bits [S]) -> [M, S, A]; on the CPU `image_prediction`.

    Patches are cut once for all models, whose first convolutions are one product; nothing is kept for a backward pass.
    """
    num_models = len(part["conv1.bias"])
    kernels = part["conv1.weight"].reshape(num_models * CHANNELS[0], KERNEL**2)
    first = torch.addmm(part["conv1.bias"].flatten(), patches_of(images).view(-1, KERNEL**2), kernels.T)
    pooled = pool(first.view(len(images), FIRST, FIRST, -1)).relu_().permute(0, 3, 1, 2)  # [S, M*64, 11, 11]
    second = _second_convolution(pooled, part["conv2.weight"], part["conv2.bias"])
    best = pool(second.permute(0, 2, 3, 1)).relu_().permute(0, 3, 1, 2)
    bits = None if help_available is None else help_available.expand(num_models, -1)
    return dense_layers(part, best, bits)[2]


def patches_of(images: Tensor) -> Tensor:
    """What the first convolution sees of each image, scaled to [0, 1]: bytes [n, 28, 28] -> [n, 484*16]."""
    scaled = images.reshape(len(images), SIDE * SIDE).float().div_(255)
    return scaled.index_select(1, _patch_places(scaled.device))


def pool(last: Tensor) -> Tensor:
    """2x2 max-pooling of [n, H, W, C] -> [n, H/2, W/2, C], without noting where each maximum came from."""
    rows = torch.maximum(last[:, ::2], last[:, 1::2])
    return torch.maximum(rows[:, :, ::2], rows[:, :, 1::2])


def dense_layers(part: Part, pooled: Tensor, bits: Tensor | None) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
    """The linear layers: [B, M*16, 4, 4] (and bits [M, B]) -> features, hidden layers and predictions, each [M, B, ...]."""
    flat = pooled.reshape(len(pooled), -1, NUM_FEATURES)  # (channel, y, x), as PyTorch flattens
    features = flat.transpose(0, 1)
    if bits is not None:
        features = torch.cat([features, bits.to(features.dtype).unsqueeze(2)], dim=2)
        missing = part["fc1.weight"].shape[2] - features.shape[2]
        features = torch.nn.functional.pad(features, (0, missing)) if missing else features
    one = _linear(part, "fc1", features).relu_()
    two = _linear(part, "fc2", one).relu_()
    return features, (one, two), _linear(part, "fc3", two)


def aligned_dense(part: Part) -> dict[str, Tensor]:
    """The linear layers' weights with units of weight 0 beside their own, so that each is as wide as whole cache lines."""
    layers = ("fc1", "fc2", "fc3")
    weights = {f"{layer}.weight": aligned(part[f"{layer}.weight"], 1, 2) for layer in layers}
    return weights | {f"{layer}.bias": aligned(part[f"{layer}.bias"], 1) for layer in layers}


def backward(part: Part, activations: ImageActivations, slope: Tensor) -> dict[str, Tensor]:
    """Gradient of Σ slope · predictions by the chain rule, layer by layer: slope [M, B, A] -> each weight's, flat [M, ...].

    Written out so that every sum has a fixed order and no model touches another's.
    """
    slope = aligned(slope, 1)
    num_models, batch = slope.shape[:2]
    gradient: dict[str, Tensor] = {}
    for layer, inputs in zip(("fc3", "fc2", "fc1"), (*reversed(activations.hidden), activations.features), strict=True):
        gradient[f"{layer}.weight"] = torch.bmm(slope.transpose(1, 2), inputs)
        gradient[f"{layer}.bias"] = _column_sums(slope)
        slope = torch.bmm(slope, part[f"{layer}.weight"])
        slope = torch.ops.aten.threshold_backward(slope, inputs, 0)  # zero where the ReLU is
    to_features = slope[..., :NUM_FEATURES].transpose(0, 1).reshape(batch, num_models * CHANNELS[1], LAST, LAST)
    to_second = _unpool(
        to_features.contiguous(memory_format=torch.channels_last), activations.second, activations.second_choice
    )
    kernels = by_channel(part["conv2.weight"])
    with _exact_convolution():
        to_pooled, to_kernels, to_bias = torch.ops.aten.convolution_backward(
            to_second,
            activations.pooled,
            kernels,
            [len(kernels)],
            [1, 1],
            [0, 0],
            [1, 1],
            False,
            [0, 0],
            num_models,
            [True] * 3,
        )
    gradient["conv2.weight"] = to_kernels.reshape(num_models, -1)
    gradient["conv2.bias"] = to_bias.reshape(num_models, -1)
    to_pooled = _one_by_one(torch.ops.aten.threshold_backward(to_pooled, activations.pooled, 0), num_models)
    gradient["conv1.bias"] = _column_sums(to_pooled.permute(0, 2, 3, 1).reshape(num_models, -1, CHANNELS[0]))
    to_first = _unpool(to_pooled, activations.first, activations.first_choice)  # [M*B, 64, 22, 22], channels last
    to_first = to_first.permute(0, 2, 3, 1).reshape(num_models, -1, CHANNELS[0])
    gradient["conv1.weight"] = torch.bmm(activations.patches.transpose(1, 2), to_first).transpose(1, 2)
    return {name: values.reshape(num_models, -1) for name, values in gradient.items()}


def _second_convolution(pooled: Tensor, kernels: Tensor, bias: Tensor) -> Tensor:
    """[B, M*64, 11, 11], [M, 16, 64, 4, 4], [M, 16] -> [B, M*16, 8, 8], channels last.

    On a GPU a matrix product over patches, since libraries are slow at grouped convolutions in float32 there.
    """
    num_models = len(kernels)
    if pooled.device.type == "cpu":
        return torch.nn.functional.conv2d(pooled, by_channel(kernels), bias.flatten(), groups=num_models)
    by_model = _one_by_one(pooled, num_models).permute(0, 2, 3, 1)  # [M*B, 11, 11, 64]
    patches = by_model.unfold(1, KERNEL, 1).unfold(2, KERNEL, 1)  # [M*B, 8, 8, 64, 4, 4]
    rows = patches.reshape(num_models, -1, CHANNELS[0] * KERNEL**2)
    second = torch.baddbmm(bias.unsqueeze(1), rows, kernels.flatten(2).transpose(1, 2))  # [M, B*64, 16]
    return _side_by_side(second.view(-1, SECOND, SECOND, CHANNELS[1]).permute(0, 3, 1, 2), num_models)


def by_channel(kernels: Tensor) -> Tensor:
    """[M, 16, 64, 4, 4] -> [M*16, 64, 4, 4], channels last, as a grouped convolution takes them."""
    return kernels.flatten(0, 1).contiguous(memory_format=torch.channels_last)


def _linear(part: Part, layer: str, inputs: Tensor) -> Tensor:
    """[M, B, in] -> [M, B, out]."""
    return torch.baddbmm(part[f"{layer}.bias"].unsqueeze(1), inputs, part[f"{layer}.weight"].transpose(1, 2))


def _column_sums(rows: Tensor) -> Tensor:
    """[M, n, c] -> [M, c] as a product with ones: the same order of summing for any M."""
    ones = rows.new_ones(1, 1, rows.shape[1]).expand(len(rows), 1, rows.shape[1])
    return torch.bmm(ones, rows).squeeze(1)


def _side_by_side(images: Tensor, num_models: int) -> Tensor:
    """[M*B, C, H, W] -> [B, M*C, H, W], both channels last: one group of channels per model."""
    last = images.permute(0, 2, 3, 1).unflatten(0, (num_models, -1)).permute(1, 2, 3, 0, 4)  # [B, H, W, M, C]
    return last.flatten(3).permute(0, 3, 1, 2)


def _one_by_one(images: Tensor, num_models: int) -> Tensor:
    """The reverse of `_side_by_side`."""
    last = images.permute(0, 2, 3, 1).unflatten(3, (num_models, -1)).permute(3, 0, 1, 2, 4)  # [M, B, H, W, C]
    return last.flatten(0, 1).permute(0, 3, 1, 2)


def _unpool(slope: Tensor, inputs: Tensor, choice: Tensor) -> Tensor:
    """Where the 2x2 max-pooling took its values from, there the slope goes."""
    slope = slope.contiguous(memory_format=torch.channels_last)
    return torch.ops.aten.max_pool2d_with_indices_backward(slope, inputs, [2, 2], [2, 2], [0, 0], [1, 1], False, choice)


def _patch_places(device: torch.device) -> Tensor:
    """Which of the 784 pixels make up each of the 22x22 patches, [484*16]."""
    step, tap = torch.arange(FIRST, device=device), torch.arange(KERNEL, device=device)
    rows = step[:, None, None, None] + tap[:, None]  # [22, 1, 4, 1]
    columns = step[:, None, None] + tap  # [22, 1, 4]
    return (rows * SIDE + columns).flatten()


def _exact_convolution() -> Any:
    """Float32 all the way on a GPU too, in an order that does not change: this path is what faster ones are checked against."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
