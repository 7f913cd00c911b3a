"""Loss and gradient of M copies of the image network, each on its own batch, by fused kernels.

Matrix operands are float16, sums float32, parameters and gradients float32. Every sum has a fixed order that depends on
the batch size alone: a model's result has the same bits each time, whatever other models are in the call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeAlias

import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.validation import parse_count
from cautious_paper.kernels.image import launches, layout
from cautious_paper.kernels.image.layout import dense_size, padded_batch
from cautious_paper.kernels.image.tuning import KernelVariant, choose_variant, interpreted
from cautious_paper.kernels.image.workspace import Workspace
from cautious_paper.kernels.streams import side_by_side, streams_of
from cautious_paper.networks.image import ImageNetwork

Stages: TypeAlias = dict[str, Callable[[], None]]
"""Kernels by name, in the order they run."""

LANES = 2
"""Streams that take turns with parts of the models: where one part's kernel ends, and leaves multiprocessors idle, the other's
runs."""

GRADIENT_SCALE = 64.0
"""Gradients of errors of order one are multiplied by this: float16 keeps small ones, and large ones have room to 1,000."""


class FusedImageStep:
    """Loss and gradient of M image networks at once, on the GPU.

    Each model is 28x28 bytes/255 -> conv 64@4x4 -> max pool 2 -> ReLU -> conv 16@4x4 -> max pool 2 -> ReLU -> 256 features
    (and the help bit) -> 50 -> ReLU -> 15 -> ReLU -> A; parameters are flat, in PyTorch's order (`ImageNetwork`).
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
            variant: "auto", or one of `tuning.KernelVariant`.
        """
        if images.dtype != torch.uint8 or images.shape[1:] != (layout.SIDE, layout.SIDE):
            raise InvalidInputError(f"images: expected uint8 [S, 28, 28], got {images.dtype} {list(images.shape)}.")
        if images.device.type != "cuda" and not interpreted():
            raise InvalidInputError(f"images are on {images.device}; the kernels need a GPU (or TRITON_INTERPRET=1).")
        self._tables = _as_tables(targets, len(images), has_help_bit).to(images.device)
        num_actions = self._tables.shape[2]
        weights = torch.ones(num_actions) if loss_weights is None else loss_weights
        if weights.shape != (num_actions,):
            raise InvalidInputError(f"loss_weights: expected [{num_actions}], got {list(weights.shape)}.")
        self.network = ImageNetwork(num_actions, has_help_bit)
        self.num_samples = len(images)
        self.variant = choose_variant(variant, images.device)
        self._images = images.contiguous()
        self._loss_weights = weights.to(images.device, torch.float32).contiguous()
        self._max_models = parse_count(max_models, "max_models")
        self._streams = streams_of(images.device, LANES)[: self._max_models] if images.is_cuda else ()
        self._workspaces: dict[tuple[int, int], Workspace] = {}
        largest = self._tables.nan_to_num().abs().clamp(min=1).amax(dim=(0, 1)) * self._loss_weights.abs()
        self._scale = GRADIENT_SCALE / max(float(largest.max()), 1e-30)

    def loss_and_gradient(
        self, parameters: Tensor, batch: Tensor, help_bits: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Loss of each model on its own batch, and its gradient.

            loss = 1/(B A) Σ_b Σ_a w_a (prediction_ba - target_ba)²

        Args:
            parameters: [M, P], float32.
            batch: Sample numbers [M, B], int64.
            help_bits: Help bits [M, B], bool or uint8, if the network has one.

        Returns:
            Losses [M] and gradient [M, P], float32.
        """
        num_models = len(parameters)
        self._check(parameters, batch, help_bits)
        parameters = parameters.contiguous()
        batch = batch if batch.stride(1) == 1 else batch.contiguous()
        # Without a help bit it is not read: any tensor will do.
        help_bits = batch if help_bits is None else help_bits.to(torch.uint8).contiguous()
        losses, gradient = parameters.new_empty(num_models), torch.empty_like(parameters)
        lanes = max(len(self._streams), 1)
        size = self._max_models // lanes
        with side_by_side(self._streams):
            for i, first in enumerate(range(0, num_models, size)):
                part, lane = slice(first, min(first + size, num_models)), i % lanes
                with torch.cuda.stream(self._streams[lane]) if self._streams else nullcontext():
                    stages = self.stages(
                        parameters[part], batch[part], help_bits[part], losses[part], gradient[part], lane
                    )
                    for run in stages.values():
                        run()
        return losses, gradient

    def _check(self, parameters: Tensor, batch: Tensor, help_bits: Tensor | None) -> None:
        wanted = self.network.num_parameters
        if parameters.dim() != 2 or parameters.shape[1] != wanted or parameters.dtype != torch.float32:
            found = f"{parameters.dtype} {list(parameters.shape)}"
            raise InvalidInputError(f"parameters: expected float32 [M, {wanted}], got {found}.")
        if batch.dim() != 2 or len(batch) != len(parameters) or batch.shape[1] < 1 or batch.dtype != torch.int64:
            raise InvalidInputError(
                f"batch: expected int64 [{len(parameters)}, B], got {batch.dtype} {list(batch.shape)}."
            )
        if (help_bits is not None) != self.network.help_bit or (
            help_bits is not None and help_bits.shape != batch.shape
        ):
            raise InvalidInputError(
                "help_bits: expected [M, B] for a network with a help bit, and None for one without."
            )

    def _workspace(self, num_models: int, padded: int, lane: int = 0) -> Workspace:
        """Memory for a padded batch, kept from call to call and grown when more models come."""
        space = self._workspaces.get((padded, lane))
        if space is None or len(space.pixels) < num_models:
            space = Workspace(num_models, padded, dense_size(self.network) + 1, self.variant, self._images.device)
            self._workspaces[padded, lane] = space
        return space

    def stages(
        self, parameters: Tensor, batch: Tensor, help_bits: Tensor, losses: Tensor, gradient: Tensor, lane: int = 0
    ) -> Stages:
        """The kernels of one step by name, in their order, with everything they need; for models that fit at once.

        Args:
            parameters: [M, P], float32, contiguous, at most `max_models`.
            batch: Sample numbers [M, B], int64.
            help_bits: Help bits [M, B], uint8; any tensor of that shape without a help bit.
            losses: Out, [M].
            gradient: Out, [M, P].
            lane: Whose memory to use: calls that may run at the same time must differ in it.
        """
        batch_size, variant, network = batch.shape[1], self.variant, self.network
        space = self._workspace(len(parameters), padded_batch(batch_size), lane)
        loss_scale = 1 / (batch_size * network.num_actions)
        scale = 2 * loss_scale / self._scale
        convolutions: Stages = {
            "convolve 1": lambda: launches.convolve_1(space, parameters, variant),
            "convolve 2": lambda: launches.convolve_2(space, parameters, variant),
        }
        if variant is KernelVariant.HOPPER:
            convolutions = {"both convolutions": lambda: launches.convolutions(space, parameters)}
        return {
            "pack": lambda: launches.pack(space, parameters, network, variant),
            "gather": lambda: launches.gather(space, self._images, batch),
            **convolutions,
            "linear layers": lambda: launches.linear_layers(
                space, parameters, batch, help_bits, self._tables, self._loss_weights, network, self._scale
            ),
            "convolutions' gradients": lambda: launches.convolution_gradients(space, len(parameters), variant),
            "collect": lambda: launches.collect(space, gradient, losses, variant, scale, loss_scale),
        }


def _as_tables(targets: Tensor, num_samples: int, has_help_bit: bool) -> Tensor:
    """Targets as float32 tables [1, S, A], or [2, S, A] with a help bit."""
    tables = targets[None] if targets.dim() == 2 and not has_help_bit else targets
    fits = tables.dim() == 3 and tables.shape[:2] == (1 + has_help_bit, num_samples)
    if not fits or not 1 <= tables.shape[2] <= layout.MAX_ACTIONS:
        wanted = f"[2, {num_samples}, A]" if has_help_bit else f"[{num_samples}, A]"
        raise InvalidInputError(f"targets: expected {wanted} with A <= 16, got {list(targets.shape)}.")
    return tables.to(torch.float32).contiguous()
