"""The paper's reward model for images, M of them stacked: r(image, a) for all actions at once.

    28x28 -> conv 64 @ 4x4 -> max-pool 2 -> ReLU -> conv 16 @ 4x4 -> max-pool 2 -> ReLU -> 256 (+ help bit) -> 50 -> 15 -> A

`networks/image_layers.py` and, for predictions on the CPU, `image_prediction.py` compute it; this file says what it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.fixed_shapes import aligned
from cautious.errors import BadFileError, InvalidInputError
from cautious.validation import are_counts, as_float_tensor, check_finite, images_are_bytes
from cautious_paper.networks.image_layers import (
    CHANNELS,
    HIDDEN,
    KERNEL,
    NUM_FEATURES,
    SIDE,
    ImageActivations,
    backward,
    forward,
    forward_shared,
)
from cautious_paper.networks.image_prediction import (
    IMAGES_PER_CALL,
    MODELS_PER_CALL,
    ImageLayers,
    layers_of,
    predict_images,
)

LEARNING_RATE = 0.0016
"""Adam's, appendix B.1."""


@dataclass(frozen=True)
class ImageNetwork:
    """The architecture: how many actions, and whether a help bit joins the 256 features (deviation D12)."""

    num_actions: int
    help_bit: bool = False

    name = "image"
    state_shape = (SIDE, SIDE)
    block = MappingProxyType({"cpu": (MODELS_PER_CALL, 64), "cuda": (16, 1024)})
    rows_per_call = IMAGES_PER_CALL
    blocks_per_task = 1
    takes_pictures = True

    @classmethod
    def read(cls, described: Mapping[str, Any], path: object) -> ImageNetwork:
        """The network that `describe` described in a file."""
        num_actions, help_bit = described.get("num_actions"), described.get("help_bit")
        if not are_counts(num_actions) or type(help_bit) is not bool:
            raise BadFileError(f"{path}: num_actions and help_bit must be a count and a truth value.")
        return cls(num_actions, help_bit)  # type: ignore[arg-type]

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
        """Number of weights in each part."""
        return [int(np.prod(shape)) for shape in self.shapes.values()]

    @property
    def num_parameters(self) -> int:
        """Number of weights of one model, P."""
        return sum(self.sizes)

    def describe(self) -> dict[str, Any]:
        """Number of actions and help bit, as plain values for JSON."""
        return {"num_actions": self.num_actions, "help_bit": self.help_bit}

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """PyTorch's default: every weight and bias uniform within ±1/√(inputs of its layer), [P]."""
        parts = []
        for name, shape in self.shapes.items():
            inputs = int(np.prod(self.shapes[f"{name.split('.')[0]}.weight"][1:]))
            parts.append(rng.uniform(-1, 1, int(np.prod(shape))) / np.sqrt(inputs))
        return np.concatenate(parts)

    def split(self, parameters: Tensor) -> dict[str, Tensor]:
        """[M, P] -> each part with its own shape behind M, every model's at an aligned address."""
        parts = parameters.split(self.sizes, dim=1)
        return {
            name: aligned(part, 1)[:, : part.shape[1]].unflatten(1, shape)
            for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)
        }

    def as_states(self, states: Any) -> tuple[Tensor, ...]:
        """Checked states: images [S, 28, 28], and for a network with a help bit also whether help is available [S].

        Args:
            states: Images; for a network with a help bit a pair of them and one truth value, or one an image; or the two by
                name, as `cautious/HelpIfAvailable-v0` shows them: "image" and "help_available".
        """
        if isinstance(states, Mapping) and {"image", "help_available"} <= states.keys():
            states = (states["image"], states["help_available"])
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
        if bool(((flags != 0) & (flags != 1)).any()):
            raise InvalidInputError("help_available: expected truth values (0 or 1): whether help is available.")
        return images, flags.expand(len(images))

    def predict(self, parameters: Tensor, *states: Tensor) -> Tensor:
        """Every model's rewards on the same images: [M, P], [S, 28, 28] (and bits [S]) -> [M, S, A]."""
        if parameters.device.type != "cpu":
            return forward_shared(self.split(parameters), *states)
        return self.predict_by(self.layers_of(parameters), *states)

    def layers_of(self, parameters: Tensor) -> ImageLayers:
        """Weights [M, P] as `predict_by` takes them, on the CPU."""
        return layers_of(self.split(parameters))

    def predict_by(self, layers: ImageLayers, *states: Tensor) -> Tensor:
        """`predict` with the result of `layers_of`, which can be kept: it takes nearly as long as predicting an image."""
        return predict_images(layers, *states)

    def forward(self, parameters: Tensor, images: Tensor, help_available: Tensor | None) -> ImageActivations:
        """Each model's rewards on its own images, and what `backward` needs: [M, P], [M, B, 28, 28] (and bits [M, B])."""
        return forward(self.split(parameters), images, help_available)

    def backward(self, parameters: Tensor, activations: ImageActivations, slope: Tensor) -> Tensor:
        """Gradient of Σ slope · predictions: slope [M, B, A] -> [M, P]."""
        gradient = backward(self.split(parameters), activations, slope)
        return torch.cat([gradient[name] for name in self.shapes], dim=1)


def as_images(images: Any) -> Tensor:
    """Images [S, 28, 28], checked: bytes from 0 to 255, or numbers from 0 to 1 that become bytes."""
    if isinstance(images, (list, tuple)) and images and all(map(images_are_bytes, images)):
        same_shape = len({tuple(image.shape) for image in images}) == 1
        if same_shape:
            images = (
                torch.stack(list(images)) if all(isinstance(image, Tensor) for image in images) else np.stack(images)
            )
    if not images_are_bytes(images):
        tensor = as_float_tensor(images, "images")
    elif isinstance(images, Tensor):
        tensor = images
    else:  # copied where torch could not share it: a file opened for reading, rows in reverse
        tensor = torch.from_numpy(np.require(images, requirements=["C", "W"]))
    if tensor.dim() and not len(tensor):
        raise InvalidInputError(f"images: there are none (shape {list(tensor.shape)}); give at least one.")
    if tensor.dim() != 3 or tuple(tensor.shape[1:]) != (SIDE, SIDE):
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
