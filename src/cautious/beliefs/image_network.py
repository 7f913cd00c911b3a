"""The paper's reward model for images, M of them stacked: r(image, a) for all actions at once.

    28x28 -> conv 64 @ 4x4 -> max-pool 2 -> ReLU -> conv 16 @ 4x4 -> max-pool 2 -> ReLU -> 256 (+ help bit) -> 50 -> 15 -> A

The first convolution is one matrix product over image patches (a single input channel makes library convolutions slow), the
second a grouped convolution with one group a model, channels last. Pooling drops the last row and column of both
convolutions' outputs, so only the first 25x25 pixels ever matter: 22x22 and 8x8 outputs are computed, no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.types import as_float_tensor, check_finite

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

ALIGNED = 16
"""Every model's weights and activations start at a multiple of 16 numbers (64 bytes). Matrix libraries may round otherwise
where they do not, and then a model's bits would depend on its place among the others."""


@dataclass(frozen=True)
class ImageNetwork:
    """The architecture: how many actions, and whether a help bit joins the 256 features (claims no. 9)."""

    num_actions: int
    help_bit: bool = False

    name = "image"
    state_shape = (SIDE, SIDE)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Weights of one model in PyTorch's order and shapes, so that a plain module's parameters are these, joined."""
        inputs = NUM_FEATURES + int(self.help_bit)
        return {
            "conv1.weight": (CHANNELS[0], 1, KERNEL, KERNEL),
            "conv1.bias": (CHANNELS[0],),
            "conv2.weight": (CHANNELS[1], CHANNELS[0], KERNEL, KERNEL),
            "conv2.bias": (CHANNELS[1],),
            "fc1.weight": (HIDDEN[0], inputs),
            "fc1.bias": (HIDDEN[0],),
            "fc2.weight": (HIDDEN[1], HIDDEN[0]),
            "fc2.bias": (HIDDEN[1],),
            "fc3.weight": (self.num_actions, HIDDEN[1]),
            "fc3.bias": (self.num_actions,),
        }

    @property
    def sizes(self) -> list[int]:
        """How many numbers each part has."""
        return [int(np.prod(shape)) for shape in self.shapes.values()]

    @property
    def num_parameters(self) -> int:
        """P."""
        return sum(self.sizes)

    def describe(self) -> dict[str, Any]:
        """What a file needs to say about the architecture."""
        return {"num_actions": self.num_actions, "help_bit": self.help_bit}

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """PyTorch's default: every weight and bias uniform within ±1/√(inputs of its layer), [P]."""
        parts = []
        for name, shape in self.shapes.items():
            inputs = int(np.prod(self.shapes[f"{name.split('.')[0]}.weight"][1:]))
            parts.append(rng.uniform(-1, 1, int(np.prod(shape))) / np.sqrt(inputs))
        return np.concatenate(parts)

    def split(self, parameters: Tensor) -> dict[str, Tensor]:
        """[M, P] -> each part with its own shape behind M, every model's at an aligned address (`ALIGNED`)."""
        parts = parameters.split(self.sizes, dim=1)
        return {
            name: _padded(part, dim=1)[:, : part.shape[1]].unflatten(1, shape)
            for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)
        }

    def as_states(self, states: Any) -> tuple[Tensor, ...]:
        """What a caller passes as states, checked: images [S, 28, 28], and with a help bit whether it is available [S].

        Args:
            states: Images; for a network with a help bit a pair of them and one truth value, or one an image.
        """
        if not self.help_bit:
            return (as_images(states),)
        if not isinstance(states, (tuple, list)) or len(states) != 2:
            raise InvalidInputError("states: this network has a help bit; pass a pair (images, help_available).")
        images, flags = as_images(states[0]), as_float_tensor(states[1], "help_available").float()
        check_finite(flags, "help_available")
        if flags.dim() > 1 or (flags.dim() == 1 and len(flags) != len(images)):
            raise InvalidInputError(
                f"help_available: expected one value or [S={len(images)}], got shape {list(flags.shape)}."
            )
        return images, flags.expand(len(images))

    def predict(self, parameters: Tensor, *states: Tensor) -> Tensor:
        """Every model's rewards on the same images: [M, P], [S, 28, 28] (and bits [S]) -> [M, S, A]."""
        images, *bits = (part.expand(len(parameters), *part.shape) for part in states)
        return forward(self, parameters, images, bits[0] if bits else None).predictions


def as_images(images: Any) -> Tensor:
    """Images [S, 28, 28], checked: bytes from 0 to 255, or numbers from 0 to 1 that become bytes."""
    tensor = images if images_are_bytes(images) else as_float_tensor(images, "images")
    tensor = torch.as_tensor(tensor)
    if tensor.dim() != 3 or tuple(tensor.shape[1:]) != (SIDE, SIDE) or not len(tensor):
        raise InvalidInputError(f"images: expected shape [S, {SIDE}, {SIDE}], got {list(tensor.shape)}.")
    if tensor.dtype == torch.uint8:
        return tensor
    check_finite(tensor, "images")
    if float(tensor.min()) < 0 or float(tensor.max()) > 1:
        raise InvalidInputError(
            f"images: numbers from {float(tensor.min()):g} to {float(tensor.max()):g}; expected bytes (uint8) from 0 to 255, "
            "or numbers from 0 to 1."
        )
    return (tensor * 255).round().to(torch.uint8)


def images_are_bytes(images: Any) -> bool:
    """Whether an array holds bytes."""
    return getattr(images, "dtype", None) in (torch.uint8, np.dtype(np.uint8))


class Activations(NamedTuple):
    """What the backward pass needs of the forward pass."""

    patches: Tensor
    """[M, B*484, 16]."""
    first: Tensor
    """Outputs of the first convolution, channels last: [M*B, 64, 22, 22]."""
    first_choice: Tensor
    """Which output each pooled one came from, [M*B, 64, 11, 11]."""
    pooled: Tensor
    """After ReLU, models side by side: [B, M*64, 11, 11], channels last."""
    second: Tensor
    """[B, M*16, 8, 8]."""
    second_choice: Tensor
    """[B, M*16, 4, 4]."""
    features: Tensor
    """[M, B, 256 or 257]."""
    hidden: tuple[Tensor, Tensor]
    """[M, B, 50], [M, B, 15]."""
    predictions: Tensor
    """[M, B, A]."""


def forward(network: ImageNetwork, parameters: Tensor, images: Tensor, help_available: Tensor | None) -> Activations:
    """Each model's rewards on its own images: [M, P], bytes [M, B, 28, 28] (and bits [M, B]) -> predictions [M, B, A]."""
    part = network.split(parameters)
    asked = images.shape[1]
    images = _padded(images, dim=1)
    num_models, batch = images.shape[:2]
    scaled = images.reshape(num_models * batch, SIDE * SIDE).float().div_(255)
    patches = scaled.index_select(1, _patch_places(scaled.device)).view(num_models, batch * FIRST * FIRST, KERNEL**2)
    kernels = part["conv1.weight"].flatten(2).transpose(1, 2)  # [M, 16, 64]
    first = torch.baddbmm(part["conv1.bias"].unsqueeze(1), patches, kernels)  # [M, B*484, 64]
    first = first.view(num_models * batch, FIRST, FIRST, CHANNELS[0]).permute(0, 3, 1, 2)
    best, first_choice = torch.ops.aten.max_pool2d_with_indices(first, [2, 2], [2, 2])
    pooled = _side_by_side(best.relu_(), num_models)
    second = _second_convolution(pooled, part["conv2.weight"], part["conv2.bias"])
    best, second_choice = torch.ops.aten.max_pool2d_with_indices(second, [2, 2], [2, 2])
    features = (
        best.relu_().reshape(batch, num_models, NUM_FEATURES).transpose(0, 1)
    )  # (channel, y, x), as PyTorch flattens
    if help_available is not None:
        features = torch.cat([features, _padded(help_available, dim=1).to(features.dtype).unsqueeze(2)], dim=2)
    one = _linear(part, "fc1", features).relu_()
    two = _linear(part, "fc2", one).relu_()
    predictions = _linear(part, "fc3", two)[:, :asked]
    return Activations(patches, first, first_choice, pooled, second, second_choice, features, (one, two), predictions)


def backward(network: ImageNetwork, parameters: Tensor, seen: Activations, slope: Tensor) -> Tensor:
    """Gradient of Σ slope · predictions by the chain rule, layer by layer: slope [M, B, A] -> [M, P].

    Written out so that every sum has a fixed order and no model touches another's.
    """
    part = network.split(parameters)
    slope = _padded(slope, dim=1)
    num_models, batch = slope.shape[:2]
    gradient: dict[str, Tensor] = {}
    for layer, inputs in zip(("fc3", "fc2", "fc1"), (*reversed(seen.hidden), seen.features), strict=True):
        gradient[f"{layer}.weight"] = torch.bmm(slope.transpose(1, 2), inputs)
        gradient[f"{layer}.bias"] = _column_sums(slope)
        slope = torch.bmm(slope, part[f"{layer}.weight"])
        slope = torch.ops.aten.threshold_backward(slope, inputs, 0)  # zero where the ReLU is
    to_features = slope[..., :NUM_FEATURES].transpose(0, 1).reshape(batch, num_models * CHANNELS[1], LAST, LAST)
    to_second = _unpool(to_features.contiguous(memory_format=torch.channels_last), seen.second, seen.second_choice)
    kernels = part["conv2.weight"].flatten(0, 1).contiguous(memory_format=torch.channels_last)
    with _exact_convolution():
        to_pooled, to_kernels, to_bias = torch.ops.aten.convolution_backward(
            to_second,
            seen.pooled,
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
    to_pooled = _one_by_one(torch.ops.aten.threshold_backward(to_pooled, seen.pooled, 0), num_models)
    gradient["conv1.bias"] = _column_sums(to_pooled.permute(0, 2, 3, 1).reshape(num_models, -1, CHANNELS[0]))
    to_first = _unpool(to_pooled, seen.first, seen.first_choice)  # [M*B, 64, 22, 22], channels last
    to_first = to_first.permute(0, 2, 3, 1).reshape(num_models, -1, CHANNELS[0])
    gradient["conv1.weight"] = torch.bmm(seen.patches.transpose(1, 2), to_first).transpose(1, 2)
    return torch.cat([gradient[name].reshape(num_models, -1) for name in network.shapes], dim=1)


def _second_convolution(pooled: Tensor, kernels: Tensor, bias: Tensor) -> Tensor:
    """[B, M*64, 11, 11], [M, 16, 64, 4, 4], [M, 16] -> [B, M*16, 8, 8], channels last.

    On a GPU a matrix product over patches, since libraries are slow at grouped convolutions in float32 there.
    """
    num_models = len(kernels)
    if pooled.device.type == "cpu":
        by_channel = kernels.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        return torch.nn.functional.conv2d(pooled, by_channel, bias.flatten(), groups=num_models)
    by_model = _one_by_one(pooled, num_models).permute(0, 2, 3, 1)  # [M*B, 11, 11, 64]
    patches = by_model.unfold(1, KERNEL, 1).unfold(2, KERNEL, 1)  # [M*B, 8, 8, 64, 4, 4]
    rows = patches.reshape(num_models, -1, CHANNELS[0] * KERNEL**2)
    second = torch.baddbmm(bias.unsqueeze(1), rows, kernels.flatten(2).transpose(1, 2))  # [M, B*64, 16]
    return _side_by_side(second.view(-1, SECOND, SECOND, CHANNELS[1]).permute(0, 3, 1, 2), num_models)


def _padded(values: Tensor, dim: int) -> Tensor:
    """A copy with zeros behind along `dim`, up to a multiple of `ALIGNED`."""
    size = list(values.shape)
    size[dim] = -(-size[dim] // ALIGNED) * ALIGNED
    room = torch.zeros(size, dtype=values.dtype, device=values.device)
    room.narrow(dim, 0, values.shape[dim]).copy_(values)
    return room


def _linear(part: dict[str, Tensor], layer: str, inputs: Tensor) -> Tensor:
    """[M, B, in] -> [M, B, out]."""
    return torch.baddbmm(part[f"{layer}.bias"].unsqueeze(1), inputs, part[f"{layer}.weight"].transpose(1, 2))


def _column_sums(rows: Tensor) -> Tensor:
    """[M, n, c] -> [M, c] as a product with ones: the same order of summing for any M."""
    ones = torch.ones(1, 1, rows.shape[1], device=rows.device).expand(len(rows), 1, rows.shape[1])
    return torch.bmm(ones, rows).squeeze(1)


def _side_by_side(images: Tensor, num_models: int) -> Tensor:
    """[M*B, C, H, W] -> [B, M*C, H, W], both channels last: one group of channels a model."""
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
