"""Models in the middle of training, and the folder that keeps them: each shard whole, each checked."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.fixed_shapes import filled_up
from cautious.errors import BadFileError, InvalidInputError
from cautious.io.arrays import (
    FORMAT,
    add_to,
    checksum_of,
    is_early,
    load_json,
    load_tensors,
    pick,
    save_json,
    save_tensors,
)
from cautious.seeding import derive_seed, make_rng
from cautious.validation import as_number, parse_count

FILE_NAME = re.compile(r"models-(\d+)-(\d+)\.safetensors")
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's, PyTorch's defaults."""


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
        derive_seed(self.seed)
        for name in ("learning_rate", "weight_decay"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "seed", int(self.seed))

    def num_batches(self, num_samples: int) -> int:
        """Steps of one epoch."""
        return -(-num_samples // self.batch_size)


class Batch(NamedTuple):
    """What each of M models sees in one step."""

    samples: Tensor
    """Which samples, [M, B]."""
    help_bits: Tensor | None = None
    """A fair coin for each of them, [M, B], where the network asks for it (`StackedNetwork.uses_help_bit`)."""


class TrainingProblem(Protocol):
    """A network and its training data, for any number of models at once.

    It may also train several epochs by itself: then it has `train_epochs(shard, settings, num_epochs)`, which advances a
    shard as that many plain epochs would, however they are cut into calls; None where it cannot.
    """

    name: str
    num_samples: int
    num_parameters: int
    fingerprint: str
    """Changes with the training data, so that checkpoints of other data are told apart."""
    uses_help_bit: bool
    """Whether each sample comes with a coin, flipped anew in each epoch."""
    shard_size: Mapping[str, int]
    """How many models to train together, by kind of device."""
    models_per_call: int
    """How many models every call of `loss_and_gradient` has on the CPU (`beliefs.fixed_shapes`)."""

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """First weights of one model, [P]."""
        ...

    def to(self, device: torch.device) -> TrainingProblem:
        """The same network with its data on `device`."""
        ...

    def loss_and_gradient(self, parameters: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Loss of each model on its own batch of samples, and its gradient: [M, P], [M, B] -> [M], [M, P]."""
        ...


def fingerprint_of(*arrays: Tensor) -> str:
    """A short hash of some arrays' content and shape."""
    digest = hashlib.sha256()
    for array in arrays:
        add_to(digest, array)
    return digest.hexdigest()[:16]


class TrainState:
    """Some models in the middle of training."""

    def __init__(self, models: range, tensors: Mapping[str, Tensor], epoch: int, device: torch.device) -> None:
        """Take weights, Adam's two averages and losses; `epoch` is how many are done."""
        self.models = models
        self.epoch = epoch
        self.batch = int(tensors.get("batch", 0))
        """How many steps of the next epoch are done."""
        # At an aligned address wherever they come from, a file or numpy: a library may round by it.
        self.parameters = filled_up(tensors["parameters"].to(device), len(models))
        self.first_moment = tensors["first_moment"].to(device)
        self.second_moment = tensors["second_moment"].to(device)
        self.losses = tensors["losses"].to(device)
        """Each model's mean loss over its last epoch, [M]."""
        self.running = tensors.get("running", torch.zeros_like(self.losses)).to(device)
        """Sum of its losses over the samples of the steps done since, [M]."""

    @classmethod
    def fresh(
        cls, network: TrainingProblem, settings: TrainingSettings, models: range, device: torch.device
    ) -> TrainState:
        """First weights, each model's from its own stream."""
        weights = np.stack([network.init(make_rng(settings.seed, "init", model)) for model in models])
        parameters = torch.from_numpy(weights.astype(np.float32))
        zeros, losses = torch.zeros_like(parameters), torch.full((len(models),), torch.nan, dtype=torch.float32)
        tensors = {"parameters": parameters, "first_moment": zeros, "second_moment": zeros.clone(), "losses": losses}
        return cls(models, tensors, 0, device)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint keeps."""
        counts = {"epoch": torch.tensor(self.epoch), "batch": torch.tensor(self.batch)}
        return {name: getattr(self, name) for name in (*WEIGHTS, *LOSSES)} | counts

    def to(self, device: torch.device) -> TrainState:
        """The same on `device`."""
        return TrainState(self.models, self.tensors(), self.epoch, device)


WEIGHTS, LOSSES = ("parameters", "first_moment", "second_moment"), ("losses", "running")


class Checkpoints:
    """A folder of shards: each written whole, each checked against the experiment it belongs to."""

    def __init__(self, folder: Path, network: TrainingProblem, settings: TrainingSettings) -> None:
        """Open the folder, or start it; refuse one that belongs to another experiment."""
        self._folder = Path(folder)
        self._num_parameters = network.num_parameters
        self._num_epochs = settings.num_epochs
        self._num_batches = settings.num_batches(network.num_samples)
        self._own: dict[str, Any] = {
            "format": FORMAT,
            "network": network.name,
            "num_samples": network.num_samples,
            "data": network.fingerprint,
            **asdict(settings),
        }
        path = self._folder / "training.json"
        self._early = False
        if path.exists():
            self._refuse_if_different(load_json(path))
        else:
            save_json(path, self._own)

    def _refuse_if_different(self, found: Any) -> None:
        there = found if isinstance(found, dict) else {}
        self._early = is_early(there)  # which has the same entries
        early = {"format": FORMAT} if self._early else {}
        differing = [name for name, value in self._own.items() if (there | early).get(name) != value]
        if differing:
            what = ", ".join(f"{name} is {there.get(name)!r} there and {self._own[name]!r} here" for name in differing)
            raise BadFileError(
                f"{self._folder}: holds checkpoints of another experiment ({what}); choose another folder or delete it."
            )

    def _path(self, models: range) -> Path:
        return self._folder / f"models-{models.start:05d}-{models.stop - 1:05d}.safetensors"

    def _identity(self, models: range) -> Tensor:
        """Tells these models of this experiment from any others, [32]."""
        text = checksum_of([self._own, models.start, models.stop])
        return torch.tensor(list(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)

    def begun(self) -> list[range]:
        """Models of the shards that are there, in order, whatever their sizes; of two that overlap, the first."""
        names = [FILE_NAME.fullmatch(path.name) for path in self._folder.iterdir()]
        found: list[range] = []
        for first, last in sorted((int(name[1]), int(name[2])) for name in names if name):
            if first <= last and (not found or first >= found[-1].stop):
                found.append(range(first, last + 1))
        return found

    def save(self, shard: TrainState) -> None:
        """Write a shard as it stands, which must be between two steps."""
        save_tensors(self._path(shard.models), {**shard.tensors(), "identity": self._identity(shard.models)})

    def load(self, models: range, device: torch.device) -> TrainState | None:
        """The shard as it was last written; None if it never was."""
        path = self._path(models)
        if not path.exists():
            return None
        tensors = load_tensors(path, checked=None if self._early else True)
        if self._early:
            lacking = {
                "running": torch.zeros(len(models), dtype=torch.float32),
                "batch": torch.tensor(0),
                "identity": self._identity(models),
            }
            tensors = lacking | tensors
        shapes: dict[str, tuple[int, ...]] = {name: (len(models), self._num_parameters) for name in WEIGHTS}
        shapes |= {name: (len(models),) for name in LOSSES} | {"epoch": (), "batch": ()}
        for name, shape in shapes.items():
            if tuple(pick(tensors, name, path).shape) != shape:
                raise BadFileError(f"{path}: {name} has shape {list(tensors[name].shape)}, expected {list(shape)}.")
        epoch, batch = int(tensors["epoch"]), int(tensors["batch"])
        if not (0 <= epoch <= self._num_epochs and 0 <= batch < self._num_batches):
            raise BadFileError(
                f"{path}: epoch {epoch}, step {batch}: there are {self._num_epochs} of {self._num_batches}."
            )
        if not torch.equal(pick(tensors, "identity", path), self._identity(models)):
            raise BadFileError(f"{path}: a checkpoint of other models than its name says; delete it, or the folder.")
        return TrainState(models, tensors, epoch, device)
