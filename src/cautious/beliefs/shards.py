"""Models in the middle of training, and the folder that keeps them: each shard whole, each checked."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.files import load_json, load_tensors, pick, save_json, save_tensors
from cautious.errors import BadFileError, InvalidInputError
from cautious.seeding import seed_of, stream
from cautious.types import as_number, parse_count


@dataclass(frozen=True)
class TrainingSettings:
    """What decides the trained weights, together with the network and its data."""

    num_models: int
    num_epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every number, and keep it as a plain one."""
        for name in ("num_models", "num_epochs", "batch_size"):
            object.__setattr__(self, name, parse_count(getattr(self, name), name))
        if not 0 < as_number(self.learning_rate) < math.inf:
            raise InvalidInputError(f"learning_rate={self.learning_rate!r} must be a positive number.")
        if not 0 <= as_number(self.weight_decay) < math.inf:
            raise InvalidInputError(f"weight_decay={self.weight_decay!r} must be zero or a positive number.")
        seed_of(self.seed)
        for name in ("learning_rate", "weight_decay"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "seed", int(self.seed))


class Batch(NamedTuple):
    """What each of M models sees in one step."""

    samples: Tensor
    """Which samples, [M, B]."""
    coins: Tensor | None = None
    """A fair coin for each of them, [M, B], where the network asks for it (`StackedNetwork.flips_coins`)."""


class StackedNetwork(Protocol):
    """A network and its training data, for any number of models at once.

    It may also train several epochs by itself: then it has `train_epochs(shard, settings, num_epochs)`, which advances a
    shard as that many plain epochs would, however they are cut into calls; None where it cannot.
    """

    name: str
    num_samples: int
    num_parameters: int
    fingerprint: str
    """Changes with the training data, so that checkpoints of other data are told apart."""
    flips_coins: bool
    """Whether each sample comes with a coin, flipped anew in each epoch."""
    shard_size: Mapping[str, int]
    """How many models to train together, by kind of device."""

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """First weights of one model, [P]."""
        ...

    def to(self, device: torch.device) -> StackedNetwork:
        """The same network with its data on `device`."""
        ...

    def loss_and_gradient(self, parameters: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Loss of each model on its own batch of samples, and its gradient: [M, P], [M, B] -> [M], [M, P]."""
        ...


def fingerprint_of(*arrays: Tensor) -> str:
    """A short hash of some arrays' content and shape."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str((array.dtype, tuple(array.shape))).encode())
        digest.update(np.ascontiguousarray(array.detach().cpu().numpy()).tobytes())
    return digest.hexdigest()[:16]


class Shard:
    """Some models in the middle of training."""

    def __init__(self, models: range, tensors: dict[str, Tensor], epoch: int, device: torch.device) -> None:
        """Take weights, Adam's two averages and losses; `epoch` is how many are done."""
        self.models = models
        self.epoch = epoch
        self.parameters = tensors["parameters"].to(device)
        self.first_moment = tensors["first_moment"].to(device)
        self.second_moment = tensors["second_moment"].to(device)
        self.losses = tensors["losses"].to(device)

    @classmethod
    def fresh(cls, network: StackedNetwork, settings: TrainingSettings, models: range, device: torch.device) -> Shard:
        """First weights, each model's from its own stream."""
        weights = np.stack([network.init(stream(settings.seed, "init", model)) for model in models])
        parameters = torch.from_numpy(weights.astype(np.float32))
        zeros, losses = torch.zeros_like(parameters), torch.full((len(models),), torch.nan)
        tensors = {"parameters": parameters, "first_moment": zeros, "second_moment": zeros.clone(), "losses": losses}
        return cls(models, tensors, 0, device)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint keeps."""
        names = ("parameters", "first_moment", "second_moment", "losses")
        return {name: getattr(self, name) for name in names} | {"epoch": torch.tensor(self.epoch)}


class Checkpoints:
    """A folder of shards: each written whole, each checked against the experiment it belongs to."""

    def __init__(self, folder: Path, network: StackedNetwork, settings: TrainingSettings) -> None:
        """Open the folder, or start it; refuse one that belongs to another experiment."""
        self._folder = Path(folder)
        self._shape = network.num_parameters
        own: dict[str, Any] = {
            "format": 1,
            "network": network.name,
            "num_samples": network.num_samples,
            "data": network.fingerprint,
            **asdict(settings),
        }
        path = self._folder / "training.json"
        if path.exists():
            found = load_json(path)
            differing = [name for name in own if not isinstance(found, dict) or found.get(name) != own[name]]
            if differing:
                what = ", ".join(
                    f"{name} is {found.get(name)!r} there and {own[name]!r} here" if isinstance(found, dict) else name
                    for name in differing
                )
                raise BadFileError(
                    f"{self._folder}: holds checkpoints of another experiment ({what}); choose another folder or delete it."
                )
        else:
            save_json(path, own)

    def _path(self, models: range) -> Path:
        return self._folder / f"models-{models.start:05d}-{models.stop - 1:05d}.safetensors"

    def save(self, shard: Shard) -> None:
        """Write a shard as it stands."""
        save_tensors(self._path(shard.models), shard.tensors())

    def load(self, models: range, device: torch.device) -> Shard | None:
        """The shard as it was last written; None if it never was."""
        path = self._path(models)
        if not path.exists():
            return None
        tensors = load_tensors(path)
        wanted = {name: (len(models), self._shape) for name in ("parameters", "first_moment", "second_moment")}
        for name, shape in {**wanted, "losses": (len(models),), "epoch": ()}.items():
            if tuple(pick(tensors, name, path).shape) != shape:
                raise BadFileError(f"{path}: {name} has shape {list(tensors[name].shape)}, expected {list(shape)}.")
        return Shard(models, tensors, int(tensors["epoch"]), device)
