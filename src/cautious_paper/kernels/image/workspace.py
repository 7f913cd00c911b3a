"""Device memory between parameters and gradient, kept from step to step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from cautious_paper.kernels.image import layout, packing
from cautious_paper.kernels.image.tuning import KernelVariant, Tuning

Described: TypeAlias = tuple[Any, ...]
"""Tensor descriptors: tensors with the blocks in which a Hopper kernel copies them."""


class Workspace:
    """Everything between parameters and gradient, for a fixed number of models and a padded batch B."""

    def __init__(
        self, num_models: int, padded: int, partial_size: int, variant: KernelVariant, device: torch.device
    ) -> None:
        """Reserve device memory: about 25 KiB per model and image, at 512 images."""

        def zeros(*shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
            return torch.zeros(num_models, *shape, dtype=dtype, device=device)

        self.padded = padded
        self._described: dict[Callable[[Workspace], Described], Described] = {}
        self.tuning = Tuning.of(padded, device)
        self.pixels = zeros(layout.PIXELS, padded)
        self.map_1 = zeros(layout.MAP_1**2, layout.CHANNELS_1, padded, dtype=torch.int16)
        self.features = zeros(layout.FEATURES, padded, dtype=torch.int16)
        self.gradient_2 = zeros(layout.PADDED, layout.PADDED, layout.CHANNELS_2, padded)  # its border stays zero
        self.weights_1 = zeros(layout.CHANNELS_1, layout.TAPS)
        self.weights_2t = zeros(4, 64, 64)
        if variant is not KernelVariant.HOPPER:  # which reads `weights_2t` alone
            self.weights_2 = zeros(25, 64, 64)  # places no filter tap reaches stay zero
        self.packed = zeros(packing.PACKED)
        num_partials = padded // self.tuning.dense_block
        self.dense_partials = zeros(num_partials, partial_size, dtype=torch.float32)
        if variant is KernelVariant.HOPPER:
            num_partials = padded // 64 // layout.hopper_blocks(padded)
            self.conv2_partials = zeros(num_partials, 4, 64, 64, dtype=torch.float32)
            self.conv1_partials = zeros(2 * num_partials, layout.CONV1_SIZE, dtype=torch.float32)
        else:
            num_partials = layout.MAP_1 * padded // self.tuning.conv1_gradient_block
            self.conv2_partials = zeros(25, 64, 64, dtype=torch.float32)
            self.conv1_partials = zeros(num_partials, layout.CONV1_SIZE, dtype=torch.float32)

    def described(self, describe: Callable[[Workspace], Described]) -> Described:
        """What `describe` says of this memory, kept: to describe what a Hopper kernel copies takes as long as a launch."""
        if describe not in self._described:
            self._described[describe] = describe(self)
        return self._described[describe]
