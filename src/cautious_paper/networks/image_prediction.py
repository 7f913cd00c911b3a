"""What M image networks say about the same images, on the CPU: weights laid out once, calls of a fixed shape.

The first convolution, its pooling and ReLU are one compiled loop: as separate operations they write and read four times as many
numbers as are kept, which takes longer than the arithmetic. Each of its sums is a chain of fused multiplications and additions,
as in the matrix product of `image_layers.forward_shared`. That both have the same bits here is compared once; if they had not,
the product would be used. The second convolution is the library's, whose speed is that of the largest matrix products.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.fixed_shapes import LINE, filled_up
from cautious_paper.networks.image_layers import (
    CHANNELS,
    FIRST,
    KERNEL,
    LAST,
    POOLED,
    SIDE,
    Part,
    aligned_dense,
    by_channel,
    dense_layers,
    patches_of,
    pool,
)

MODELS_PER_CALL, IMAGES_PER_CALL = 25, 2
"""Models of one call: as many as are quickest with many images, and a share of 100 and of 2,000, the usual numbers, so that no
place is filled up in vain. Few images, so that little is filled up where one is asked about."""


class ImageLayers(NamedTuple):
    """The weights of M networks as `predict_images` takes them."""

    first: Tensor
    """Weights of the first convolution, [M*64, 16]."""
    first_by_tap: Tensor
    """The same, [M, 16, 64]."""
    first_bias: Tensor
    """Biases of the first convolution, [M, 64]."""
    second: Tensor
    """[M*16, 64, 4, 4], channels last."""
    second_bias: Tensor
    """Biases of the second convolution, [M*16]."""
    dense: Mapping[str, Tensor]
    """Linear layers, as wide as whole cache lines: narrower ones round an image by its position among the others."""
    num_actions: int


def layers_of(part: Part) -> ImageLayers:
    """Weights by name (`ImageNetwork.split`) laid out for predictions."""
    bias = part["conv1.bias"]
    kernels = part["conv1.weight"].reshape(len(bias), CHANNELS[0], KERNEL**2)
    return ImageLayers(
        kernels.reshape(-1, KERNEL**2),
        kernels.transpose(1, 2).contiguous(),
        bias.contiguous(),
        by_channel(part["conv2.weight"]),
        part["conv2.bias"].flatten(),
        aligned_dense(part),
        part["fc3.bias"].shape[1],
    )


@torch.no_grad()
def predict_images(layers: ImageLayers, images: Tensor, help_available: Tensor | None = None) -> Tensor:
    """Every model's rewards on the same images: bytes [S, 28, 28] (and bits [S]) -> [M, S, A]; S is even."""
    num_models, results = len(layers.first_bias), []
    pooled = torch.empty(IMAGES_PER_CALL, POOLED, POOLED, num_models * CHANNELS[0], dtype=torch.float32)
    first_layer = _compiled_first_layer if _compiled_rounds_alike() else _first_layer
    for start in range(0, len(images), LINE):  # the linear layers of a cache line of images at a time
        some = images[start : start + LINE]
        features = torch.zeros(LINE, num_models * CHANNELS[1], LAST, LAST, dtype=torch.float32)
        for begin in range(0, len(some), IMAGES_PER_CALL):
            rows = slice(begin, begin + IMAGES_PER_CALL)
            first_layer(layers, some[rows], pooled)
            second = torch.nn.functional.conv2d(
                pooled.permute(0, 3, 1, 2), layers.second, layers.second_bias, groups=num_models
            )  # [2, M*16, 8, 8], channels last
            features[rows] = pool(second.permute(0, 2, 3, 1)).relu_().permute(0, 3, 1, 2)
        bits = None
        if help_available is not None:
            own = help_available[start : start + LINE]
            bits = torch.nn.functional.pad(own, (0, LINE - len(own))).expand(num_models, -1)
        results.append(dense_layers(layers.dense, features, bits)[2][:, : len(some), : layers.num_actions])
    return results[0] if len(results) == 1 else torch.cat(results, dim=1)


def _first_layer(layers: ImageLayers, images: Tensor, pooled: Tensor) -> None:
    """Both images' first convolution, pooling and ReLU into `pooled` [2, 11, 11, M*64], by a matrix product."""
    first = torch.addmm(layers.first_bias.flatten(), patches_of(images).view(-1, KERNEL**2), layers.first.T)
    pooled.copy_(pool(first.view(len(images), FIRST, FIRST, -1)).relu_())


def _compiled_first_layer(layers: ImageLayers, images: Tensor, pooled: Tensor) -> None:
    """As `_first_layer`, compiled."""
    from cautious_paper.networks.image_compiled import first_layer  # loads the compiler

    scaled = images.float().div_(255)
    models = pooled.view(len(images), POOLED, POOLED, -1, CHANNELS[0])
    first_layer(scaled.numpy(), layers.first_by_tap.numpy(), layers.first_bias.numpy(), models.numpy())


@cache
def _compiled_rounds_alike() -> bool:
    """Whether compiled sums have the bits of the library's here; in another order, about half of them would differ."""
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(rng.uniform(-1, 1, (2, CHANNELS[0], KERNEL**2 + 1))).float()
    kernels, bias = weights[..., 1:], weights[..., 0].contiguous()
    kernels, bias = (filled_up(part, MODELS_PER_CALL).contiguous() for part in (kernels, bias))
    nothing = torch.empty(0)
    by_tap = kernels.transpose(1, 2).contiguous()
    layers = ImageLayers(kernels.reshape(-1, KERNEL**2), by_tap, bias, nothing, nothing, {}, 0)
    images = torch.from_numpy(rng.integers(0, 256, (IMAGES_PER_CALL, SIDE, SIDE), dtype=np.uint8))
    found = torch.empty(2, IMAGES_PER_CALL, POOLED, POOLED, len(bias) * CHANNELS[0], dtype=torch.float32)
    _first_layer(layers, images, found[0])
    _compiled_first_layer(layers, images, found[1])
    return torch.equal(found[0], found[1])
