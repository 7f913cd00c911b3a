"""`RewardEnsemble`: M trained reward models, a belief about what each action pays in any state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cautious.beliefs.cores import on_every_core
from cautious.beliefs.files import load_json, load_tensors, pick, save_json, save_tensors
from cautious.beliefs.image_network import ImageNetwork
from cautious.beliefs.images import as_image_bytes
from cautious.errors import BadFileError, InvalidInputError
from cautious.types import ArrayLike, as_device, as_float_tensor, check_finite

FORMAT = 1
BLOCK = {"cpu": (4, 64), "cuda": (16, 1024)}
"""Models and images that are predicted together: little enough for a core's cache, enough to keep a GPU busy."""


class ImageStates(NamedTuple):
    """Images to decide on, and whether help is available on each."""

    images: Tensor
    """Bytes [S, 28, 28]."""
    help_available: Tensor | None
    """0 or 1, [S]; None where the network has no such input."""


class RewardEnsemble:
    """M reward models of one architecture.

    >>> import numpy as np
    >>> network = ImageNetwork(num_actions=11)
    >>> weights = torch.tensor(np.stack([network.init(np.random.default_rng(i)) for i in range(3)])).float()
    >>> belief = RewardEnsemble(network, weights)
    >>> belief.rewards(np.zeros((2, 28, 28), dtype=np.uint8)).shape
    torch.Size([3, 2, 11])
    """

    def __init__(
        self,
        network: ImageNetwork,
        parameters: Tensor,
        losses: Tensor | None = None,
        settings: Mapping[str, Any] | None = None,
        states: ImageStates | None = None,
    ) -> None:
        """Keep the architecture, weights [M, P], each model's final loss [M] and how they were trained."""
        self.network = network
        self.parameters = parameters
        self.losses = torch.full((len(parameters),), torch.nan) if losses is None else losses
        self.settings = dict(settings or {})
        self._states = states

    @property
    def num_models(self) -> int:
        """M."""
        return len(self.parameters)

    @property
    def num_actions(self) -> int:
        """A."""
        return self.network.num_actions

    def __repr__(self) -> str:
        """Sizes; the weights are many."""
        return f"RewardEnsemble(network={self.network}, num_models={self.num_models})"

    def to(self, device: torch.device | str) -> RewardEnsemble:
        """The same models on `device`."""
        place = as_device(device)
        return RewardEnsemble(
            self.network, self.parameters.to(place), self.losses.to(place), self.settings, self._states
        )

    def rewards(self, states: Any, *, progress: Callable[[int, int], None] | None = None) -> Tensor:
        """What each model says each action pays in each state, [M, S, A], float32.

        Args:
            states: Images, bytes [S, 28, 28]; for a network with a help bit a pair of them and whether help is available
                (one truth value, or one an image).
            progress: Called with (blocks done, blocks in all).
        """
        return self._predict(torch.arange(self.num_models), self._as_states(states), progress)

    def on(self, states: Any) -> RewardEnsemble:
        """The same belief about these states: what the solvers stream from, where all rewards at once are too many."""
        return RewardEnsemble(self.network, self.parameters, self.losses, self.settings, self._as_states(states))

    def rewards_for(self, indices: ArrayLike) -> Tensor:
        """Rewards [N, S, A] of the models at `indices` [N] in the states given to `on`."""
        if self._states is None:
            raise InvalidInputError("rewards_for: no states are given; call it on `ensemble.on(states)`.")
        return self._predict(torch.as_tensor(indices, dtype=torch.long), self._states, None)

    def save(self, folder: Path | str) -> None:
        """Write weights and settings (safetensors, JSON)."""
        tensors = {"parameters": self.parameters, "losses": self.losses}
        save_tensors(Path(folder) / "models.safetensors", tensors)
        described = {
            "format": FORMAT,
            "network": self.network.name,
            **self.network.describe(),
            "settings": self.settings,
        }
        save_json(Path(folder) / "ensemble.json", described)

    @classmethod
    def load(cls, folder: Path | str) -> RewardEnsemble:
        """Read what `save` wrote; runs no code from it."""
        path = Path(folder) / "ensemble.json"
        network, settings = _described(load_json(path), path)
        path = Path(folder) / "models.safetensors"
        tensors = load_tensors(path)
        parameters, losses = (pick(tensors, name, path) for name in ("parameters", "losses"))
        if parameters.dim() != 2 or parameters.shape[1] != network.num_parameters or not len(parameters):
            raise BadFileError(
                f"{path}: parameters have shape {list(parameters.shape)}, expected [M, {network.num_parameters}]."
            )
        if not bool(torch.isfinite(parameters.float()).all()):
            raise BadFileError(f"{path}: some weights are not finite numbers.")
        return cls(network, parameters.float(), losses.float(), settings)

    def _as_states(self, states: Any) -> ImageStates:
        bits: Any
        if isinstance(states, ImageStates):
            images, bits = states
        elif self.network.help_bit:
            if not isinstance(states, (tuple, list)) or len(states) != 2:
                raise InvalidInputError("states: this network has a help bit; pass a pair (images, help_available).")
            images, bits = states
        else:
            images, bits = states, None
        images = as_image_bytes(images)
        if not self.network.help_bit:
            return ImageStates(images, None)
        flags = as_float_tensor(bits, "help_available").float()
        check_finite(flags, "help_available")
        if flags.dim() > 1 or (flags.dim() == 1 and len(flags) != len(images)):
            raise InvalidInputError(
                f"help_available: expected one value or [S={len(images)}], got shape {list(flags.shape)}."
            )
        return ImageStates(images, flags.expand(len(images)))

    @torch.no_grad()
    def _predict(self, indices: Tensor, states: ImageStates, progress: Callable[[int, int], None] | None) -> Tensor:
        """[N, S, A], block by block into one array."""
        place = self.parameters.device
        out = torch.empty(len(indices), len(states.images), self.num_actions, device=place)
        blocks = list(_blocks(len(indices), len(states.images), place.type))

        def fill(number: int) -> None:
            models, images = blocks[number]
            bits = None if states.help_available is None else states.help_available[images].to(place)
            weights = self.parameters[indices[models].to(place)]
            out[models, images] = self.network.predict(weights, states.images[images].to(place), bits)
            if progress is not None:
                progress(number + 1, len(blocks))

        if place.type == "cpu":
            on_every_core(fill, len(blocks))
        else:
            for number in range(len(blocks)):
                fill(number)
        return out


def _blocks(num_models: int, num_images: int, device: str) -> Iterator[tuple[slice, slice]]:
    models, images = BLOCK[device]
    for first in range(0, num_models, models):
        for start in range(0, num_images, images):
            yield slice(first, min(first + models, num_models)), slice(start, min(start + images, num_images))


def _described(found: Any, path: Path) -> tuple[ImageNetwork, dict[str, Any]]:
    """Architecture and settings as a file tells them, checked."""
    if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("network") != ImageNetwork.name:
        raise BadFileError(
            f"{path}: not an ensemble that this version reads (network {ImageNetwork.name!r}, format {FORMAT})."
        )
    num_actions, help_bit, settings = (found.get(name) for name in ("num_actions", "help_bit", "settings"))
    if type(num_actions) is not int or num_actions < 1 or type(help_bit) is not bool or not isinstance(settings, dict):
        raise BadFileError(f"{path}: num_actions, help_bit and settings must be a count, a truth value and an object.")
    return ImageNetwork(num_actions, help_bit), settings
