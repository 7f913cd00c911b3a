"""Loss and gradient of M copies of the image network, each on its own batch, by fused kernels.

Matrix operands are float16, sums float32, parameters and gradients float32. Every sum has a fixed order that depends on
the batch size alone: a model's result has the same bits each time, whatever other models are in the call.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from cautious.beliefs.kernels import backward, dense, forward, layout, packing
from cautious.beliefs.kernels.layout import ImageLayout, padded_batch
from cautious.beliefs.kernels.tuning import Tuning, Variant, choose_variant, interpreted
from cautious.errors import InvalidInputError
from cautious.types import parse_count

GRADIENT_SCALE = 64.0
"""Gradients of errors of order one are multiplied by this: float16 keeps small ones, and large ones have room to 1,000."""


class Workspace:
    """Everything between parameters and gradient, for a fixed number of models and a padded batch B."""

    def __init__(
        self, num_models: int, padded: int, partial_size: int, variant: Variant, device: torch.device
    ) -> None:
        """Reserve device memory: about 27 KiB a model and image."""

        def zeros(*shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
            return torch.zeros(num_models, *shape, dtype=dtype, device=device)

        self.tuning = Tuning.of(padded, device)
        self.pixels = zeros(layout.PIXELS, padded)
        self.map_1 = zeros(layout.MAP_1**2, layout.CHANNELS_1, padded, dtype=torch.int16)
        self.features = zeros(layout.FEATURES, padded, dtype=torch.int16)
        self.gradient_2 = zeros(layout.PADDED, layout.PADDED, layout.CHANNELS_2, padded)  # its border stays zero
        self.weights_1 = zeros(layout.CHANNELS_1, layout.TAPS)
        self.weights_2 = zeros(25, 64, 64)  # places no filter tap reaches stay zero
        self.weights_2t = zeros(4, 64, 64)
        self.packed = zeros(packing.PACKED)
        num_partials = padded // self.tuning.dense_block
        self.dense_partials = zeros(num_partials, partial_size, dtype=torch.float32)
        if variant is Variant.HOPPER:
            num_partials = padded // 64 // layout.hopper_blocks(padded)
            self.conv2_partials = zeros(num_partials, 4, 64, 64, dtype=torch.float32)
            self.conv1_partials = zeros(2 * num_partials, layout.CONV1_SIZE, dtype=torch.float32)
        else:
            num_partials = layout.MAP_1 * padded // self.tuning.conv1_gradient_block
            self.conv2_partials = zeros(25, 64, 64, dtype=torch.float32)
            self.conv1_partials = zeros(num_partials, layout.CONV1_SIZE, dtype=torch.float32)


class FusedImageStep:
    """Loss and gradient of M image networks at once, on the GPU.

    Each model is 28x28 bytes/255 -> conv 64@4x4 -> max pool 2 -> ReLU -> conv 16@4x4 -> max pool 2 -> ReLU -> 256 features
    (and the help bit) -> 50 -> ReLU -> 15 -> ReLU -> A; parameters are flat, in PyTorch's order (`ImageLayout`).
    """

    def __init__(
        self,
        images: Tensor,
        targets: Tensor,
        loss_weights: Tensor | None = None,
        *,
        has_help_bit: bool = False,
        max_models: int = 256,
        variant: str = "auto",
    ) -> None:
        """Keep the training data on its device.

        Args:
            images: [S, 28, 28], uint8.
            targets: [S, A], or [2, S, A] with a help bit (first without help, then with); NaN carries no loss.
            loss_weights: [A], on the squared errors; ones by default.
            has_help_bit: Whether a 0/1 input joins the flattened features.
            max_models: Models in flight at once: bounds the workspace, not the result.
            variant: "auto", or one of `tuning.Variant`.
        """
        if images.dtype != torch.uint8 or images.shape[1:] != (layout.SIDE, layout.SIDE):
            raise InvalidInputError(f"images: expected uint8 [S, 28, 28], got {images.dtype} {list(images.shape)}.")
        if images.device.type != "cuda" and not interpreted():
            raise InvalidInputError(f"images are on {images.device}; the kernels need a GPU (or TRITON_INTERPRET=1).")
        self._targets = _as_tables(targets, len(images), has_help_bit).to(images.device)
        num_actions = self._targets.shape[2]
        weights = torch.ones(num_actions) if loss_weights is None else loss_weights
        if weights.shape != (num_actions,):
            raise InvalidInputError(f"loss_weights: expected [{num_actions}], got {list(weights.shape)}.")
        self.layout = ImageLayout(num_actions, has_help_bit)
        self.num_samples = len(images)
        self.variant = choose_variant(variant, images.device)
        self._images = images.contiguous()
        self._loss_weights = weights.to(images.device, torch.float32).contiguous()
        self._max_models = parse_count(max_models, "max_models")
        self._workspaces: dict[int, Workspace] = {}
        largest = self._targets.nan_to_num().abs().clamp(min=1).amax(dim=(0, 1)) * self._loss_weights.abs()
        self._scale = GRADIENT_SCALE / max(float(largest.max()), 1e-30)

    def loss_and_gradient(self, parameters: Tensor, batch: Tensor, coins: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Loss of each model on its own batch, and its gradient.

            loss = 1/(B A) Σ_b Σ_a w_a (prediction_ba - target_ba)²

        Args:
            parameters: [M, P], float32.
            batch: Sample numbers [M, B], int64.
            coins: Help bits [M, B], bool or uint8, if the network has one.

        Returns:
            Losses [M] and gradient [M, P], float32.
        """
        num_models = len(parameters)
        self._check(parameters, batch, coins)
        parameters = parameters.contiguous()
        batch = batch if batch.stride(1) == 1 else batch.contiguous()
        coins = batch if coins is None else coins.to(torch.uint8).contiguous()  # without a help bit it is not read
        losses, gradient = torch.empty(num_models, device=parameters.device), torch.empty_like(parameters)
        for first in range(0, num_models, self._max_models):
            part = slice(first, min(first + self._max_models, num_models))
            self._run(parameters[part], batch[part], coins[part], losses[part], gradient[part])
        return losses, gradient

    def _check(self, parameters: Tensor, batch: Tensor, coins: Tensor | None) -> None:
        wanted = self.layout.num_parameters
        if parameters.dim() != 2 or parameters.shape[1] != wanted or parameters.dtype != torch.float32:
            found = f"{parameters.dtype} {list(parameters.shape)}"
            raise InvalidInputError(f"parameters: expected float32 [M, {wanted}], got {found}.")
        if batch.dim() != 2 or len(batch) != len(parameters) or batch.shape[1] < 1 or batch.dtype != torch.int64:
            raise InvalidInputError(f"batch: expected int64 [{len(parameters)}, B], got {batch.dtype} {list(batch.shape)}.")
        if (coins is not None) != self.layout.has_help_bit or (coins is not None and coins.shape != batch.shape):
            raise InvalidInputError("coins: expected [M, B] with a help bit, and None without one.")

    def _workspace(self, num_models: int, padded: int) -> Workspace:
        """Memory for a padded batch, kept from call to call and grown when more models come."""
        space = self._workspaces.get(padded)
        if space is None or len(space.pixels) < num_models:
            space = Workspace(num_models, padded, self.layout.dense_size + 1, self.variant, self._images.device)
            self._workspaces[padded] = space
        return space

    def _run(self, parameters: Tensor, batch: Tensor, coins: Tensor, losses: Tensor, gradient: Tensor) -> None:
        space = self._workspace(len(parameters), padded_batch(batch.shape[1]))
        self._forward(space, parameters, batch)
        self._dense(space, parameters, batch, coins)
        scale = 2 / (batch.shape[1] * self.layout.num_actions * self._scale)
        self._backward(space, gradient, scale)
        self._collect(space, gradient, losses, batch.shape[1], scale)

    @property
    def _ptx(self) -> bool:
        return self.variant is not Variant.PORTABLE

    def _forward(self, space: Workspace, parameters: Tensor, batch: Tensor) -> None:
        num_models, P = parameters.shape
        B, tuning = space.pixels.shape[2], space.tuning
        help_bit = int(self.layout.has_help_bit)
        packing.pack_small[(19, num_models)](
            parameters, space.weights_1, space.packed, self.layout.num_actions, P, help_bit, packing.PACKED
        )
        packing.pack_conv2[(16, num_models)](parameters, space.weights_2, space.weights_2t, P)
        forward.gather_pixels[(B // 32 * 7, num_models)](
            self._images, batch, space.pixels, batch.shape[1], batch.stride(0), B, 32, 128
        )
        forward.convolve_1[(layout.MAP_1 * B // tuning.conv1_block, num_models)](
            space.pixels, space.weights_1, parameters, space.map_1, _bound(layout.MAP_1),
            P, B, tuning.conv1_block, tuning.conv1_stages, self._ptx,
        )  # fmt: skip
        forward.convolve_2[(16 * B // tuning.conv2_block, num_models)](
            space.map_1.view(torch.float16), space.weights_2, parameters, space.features, _bound(25),
            P, B, tuning.conv2_block, tuning.conv2_stages, self._ptx, num_warps=8 if tuning.conv2_block == 256 else 4,
        )  # fmt: skip

    def _dense(self, space: Workspace, parameters: Tensor, batch: Tensor, coins: Tensor) -> None:
        num_models, P = parameters.shape
        B, block = space.pixels.shape[2], space.tuning.dense_block
        dense.dense_and_loss[(B // block, num_models)](
            space.features, space.packed, parameters, batch, coins, self._targets, self._loss_weights,
            space.gradient_2, space.dense_partials, batch.shape[1], batch.stride(0), coins.stride(0), self.num_samples,
            self._scale, _bound(4), self.layout.num_actions, P, B, block, int(self.layout.has_help_bit),
            space.dense_partials.shape[2], packing.PACKED, num_warps=8 if block == 128 else 4,
        )  # fmt: skip

    def _backward(self, space: Workspace, gradient: Tensor, scale: float) -> None:
        num_models, P = gradient.shape
        B, tuning = space.pixels.shape[2], space.tuning
        if self.variant is Variant.HOPPER:
            from cautious.beliefs.kernels import hopper

            hopper.convolution_gradients(space, num_models)
            packing.fold_rows[(4, num_models)](space.conv2_partials, gradient, space.conv2_partials.shape[1], scale, P)
            return
        backward.conv2_gradient[(5, num_models)](
            space.map_1.view(torch.float16), space.gradient_2, space.conv2_partials, _bound(16 * B // 64),
            B, 64, tuning.conv2_gradient_stages,
        )  # fmt: skip
        packing.fold_windows[(16, num_models)](space.conv2_partials, gradient, scale, P)
        backward.conv1_gradient[(space.conv1_partials.shape[1], num_models)](
            space.map_1, space.gradient_2, space.pixels, space.weights_2t, space.conv1_partials, _bound(layout.MAP_1),
            B, tuning.conv1_gradient_block, tuning.conv1_gradient_stages, self._ptx,
        )  # fmt: skip

    def _collect(self, space: Workspace, gradient: Tensor, losses: Tensor, batch_size: int, scale: float) -> None:
        """Everything but conv2's weights: sums over programs, in a fixed order."""
        num_models, P = gradient.shape
        packing.add_partials[(9, num_models)](
            space.conv1_partials, gradient, losses, _bound(space.conv1_partials.shape[1]), 0, layout.CONV1_SIZE, scale,
            0.0, 1024, P, layout.CONV1_SIZE, 128,
        )  # fmt: skip
        _, num_partials, stride = space.dense_partials.shape
        packing.add_partials[(triton.cdiv(stride, 256), num_models)](
            space.dense_partials, gradient, losses, _bound(num_partials), layout.DENSE_START, stride - 1, scale,
            1 / (batch_size * self.layout.num_actions), 0, P, stride, 256,
        )  # fmt: skip


def _bound(count: int) -> Any:
    """A loop's bound: a run-time number on a GPU (see `forward.convolve_2`), a constant in the interpreter."""
    return tl.constexpr(count) if interpreted() else count


def _as_tables(targets: Tensor, num_samples: int, has_help_bit: bool) -> Tensor:
    """Targets as float32 tables [1, S, A], or [2, S, A] with a help bit."""
    tables = targets[None] if targets.dim() == 2 and not has_help_bit else targets
    fits = tables.dim() == 3 and tables.shape[:2] == (1 + has_help_bit, num_samples)
    if not fits or not 1 <= tables.shape[2] <= layout.MAX_ACTIONS:
        wanted = f"[2, {num_samples}, A]" if has_help_bit else f"[{num_samples}, A]"
        raise InvalidInputError(f"targets: expected {wanted} with A <= 16, got {list(targets.shape)}.")
    return tables.to(torch.float32).contiguous()
