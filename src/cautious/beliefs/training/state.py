"""What training is made of: settings, data and loss, models in the middle of training, checkpoints, and who trains them."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.fixed_shapes import filled_up
from cautious.beliefs.networks.base import Network
from cautious.beliefs.networks.module import MODELS_PER_CALL, ModuleNetwork
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.errors import Argument, BadFileError, InvalidInputError, OtherRunError
from cautious.io.arrays import (
    FORMAT,
    checksum_of,
    fingerprint_of,
    load_json,
    load_tensors,
    pick,
    save_json,
    save_tensors,
)
from cautious.progress import Progress
from cautious.seeding import check_seed, make_rng
from cautious.validation import as_float_tensor, as_number, check_finite, check_shape, check_size, parse_count

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
"""Constants of Adam: PyTorch's defaults. The GPU kernels read them too."""


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training. Together with the network and its data they determine the trained weights."""

    num_models: int
    num_epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every number and convert it to a plain Python number, so that files can hold the settings."""
        for name in ("num_models", "num_epochs", "batch_size"):
            object.__setattr__(self, name, parse_count(getattr(self, name), name))
        if not 0 < as_number(self.learning_rate) < math.inf:
            raise InvalidInputError(Argument("learning_rate", self.learning_rate), " must be a positive number.")
        if not 0 <= as_number(self.weight_decay) < math.inf:
            raise InvalidInputError(Argument("weight_decay", self.weight_decay), " must be zero or a positive number.")
        for name in ("learning_rate", "weight_decay"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "seed", check_seed(self.seed))

    def num_batches(self, num_samples: int) -> int:
        """Steps per epoch."""
        return -(-num_samples // self.batch_size)


class MiniBatch(NamedTuple):
    """The samples that each of M models is trained on in one step."""

    samples: Tensor
    """Numbers of the samples, [M, B]."""
    help_bits: Tensor | None = None
    """Help bit of each sample, 0 or 1, [M, B]; None unless `TrainingProblem.uses_help_bit`."""


class TrainingProblem(Protocol):
    """A network with the data and the loss that it is trained on, for any number of models at once."""

    name: str
    num_samples: int
    num_parameters: int
    fingerprint: str
    """A digest of the training data, by which checkpoints of other data are recognised."""
    uses_help_bit: bool
    """Whether each sample comes with a random help bit, drawn anew in each epoch."""
    shard_size: Mapping[str, int]
    """Number of models to train together, by kind of device."""
    models_per_call: int
    """Number of models in every call of `loss_and_gradient` on the CPU (`beliefs.fixed_shapes`)."""

    @property
    def network(self) -> Network:
        """The network that is trained."""
        ...

    @property
    def train_epochs(self) -> Callable[[TrainState, TrainingSettings, int], None] | None:
        """Trains several epochs at once, as the driving kernels do; None where the loop takes them step by step.

        Called with (state, settings, number of epochs): it advances the state as that many plain epochs would, however
        they are divided into calls.
        """
        ...

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Initial weights of one model, [P]."""
        ...

    def to(self, device: torch.device) -> TrainingProblem:
        """The same with its data on `device`."""
        ...

    def loss_and_gradient(self, parameters: Tensor, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        """Loss of each model on its own batch of samples, and its gradient: [M, P], [M, B] -> [M], [M, P]."""
        ...


LARGEST = 1e18
"""Largest absolute reward to learn from: its square still fits into float32."""


def checked_loss_weights(loss_weights: Any, num_actions: int) -> Tensor:
    """Loss weight per action, shape [A], float32, checked to be finite and not negative; all 1 if not given."""
    weights = (
        torch.ones(num_actions, dtype=torch.float32)
        if loss_weights is None
        else as_float_tensor(loss_weights, "loss_weights").float()
    )
    check_shape(weights, "A", "loss_weights", A=num_actions)
    check_finite(weights, "loss_weights")
    if bool((weights < 0).any()):
        raise InvalidInputError("loss_weights: some are negative; a weight says how much an error counts, 0 or more.")
    if not bool((weights > 0).any()):
        raise InvalidInputError(
            "loss_weights: all are 0, so nothing would be learned; give at least one action a weight."
        )
    return weights


def checked_rewards(rewards: Any) -> Tensor:
    """Checked training rewards [..., S, A]: NaN where an action was not tried, finite elsewhere; each action has a reward."""
    table = as_float_tensor(rewards, "rewards")
    if table.dim() == 1:
        raise InvalidInputError(
            f"rewards: expected shape [S, A], got {list(table.shape)}; give each action a column, with NaN where it was not "
            "tried. If there is only one action, pass rewards[:, None]."
        )
    check_shape(table, "... S A", "rewards")
    if bool(table.isinf().any()):
        raise InvalidInputError("rewards: some are infinite; use NaN for what was not tried.")
    check_size(table.nan_to_num(), "rewards", LARGEST)
    tried = (~table.isnan()).flatten(0, -2).any(dim=0)
    if not bool(tried.all()):
        never = [int(action) for action in (~tried).nonzero().flatten()]
        raise InvalidInputError(
            f"rewards: actions {never} have no reward in any state, so nothing can be learned about them; leave them out."
        )
    return table


def squared_error(predictions: Tensor, targets: Tensor, weights: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
    """Weighted mean squared error, and its slope by the predictions.

        loss = Σ_b Σ_a w_a (r̂(x_b, a) - r(x_b, a))² / (B A)

    Args:
        predictions: r̂, [..., b, A]: a whole batch, or a piece of one.
        targets: r, [..., b, A]; NaN where nothing is known: such an entry carries no loss.
        weights: w, [A].
        batch_size: B, of the whole batch.

    Returns:
        This piece's part of the loss [...], and the slope [..., b, A].
    """
    errors = torch.where(targets.isnan(), 0.0, predictions - targets.nan_to_num())
    weighted = errors * weights / (batch_size * predictions.shape[-1])
    return (weighted * errors).sum(dim=(-2, -1)), 2 * weighted


BatchLoss = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""Loss of a batch and its slope, from (predictions, targets, weights, batch size), as of `squared_error`."""


class ModuleTrainingProblem:
    """Training data and loss of a vector network, or of a user's own module."""

    uses_help_bit = False
    shard_size: Mapping[str, int] = MappingProxyType({"cpu": MODELS_PER_CALL, "cuda": 256})
    models_per_call = MODELS_PER_CALL
    train_epochs = None

    def __init__(
        self,
        network: VectorNetwork | ModuleNetwork,
        inputs: Tensor,
        rewards: Tensor,
        loss_weights: Tensor | None = None,
        device: torch.device | None = None,
        loss: BatchLoss = squared_error,
    ) -> None:
        """Take inputs [S, ...] as `network.as_states` gives them, rewards [S, A] (NaN where unknown) and weights [A].

        With `labels.cross_entropy` as the loss, "rewards" are 1 for a row's label and 0 for the others, [S, L].
        """
        self.network = network
        self._batch_loss = loss
        self.name = network.title if loss is squared_error else f"{network.title}, {loss.__name__}"
        if rewards.shape[1] != network.num_actions:
            what, each = ("rewards of", "action") if loss is squared_error else ("targets for", "label")
            raise InvalidInputError(
                f"network: the module gives {network.num_actions} numbers per state, and there are {what} "
                f"{rewards.shape[1]} {each}s; its last layer must have one output for each {each}."
            )
        weights = checked_loss_weights(loss_weights, network.num_actions)
        self._inputs, self._rewards, self._weights = (part.float().to(device) for part in (inputs, rewards, weights))
        self.num_samples, self.num_parameters = len(inputs), network.num_parameters
        self.fingerprint = fingerprint_of(self._inputs, self._rewards, self._weights, *network.constants)

    def to(self, device: torch.device) -> ModuleTrainingProblem:
        """The same on `device`."""
        if self._inputs.device.type == device.type:
            return self
        return ModuleTrainingProblem(self.network, self._inputs, self._rewards, self._weights, device, self._batch_loss)

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Initial weights of one model, [P]."""
        return self.network.init(rng)

    def loss_and_gradient(self, parameters: Tensor, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        """Loss of each model on its own batch, and its gradient: [M, P], [M, B] -> [M], [M, P]."""
        # On the CPU there is always one part.
        calls = zip(parameters.split(MODELS_PER_CALL), batch.samples.split(MODELS_PER_CALL), strict=True)
        parts = [
            self.network.gradient(weights, self._inputs[samples], self._rewards[samples], self._loss)
            for weights, samples in calls
        ]
        if len(parts) == 1:
            return parts[0]
        losses, gradients = zip(*parts, strict=True)
        return torch.cat(losses), torch.cat(gradients)

    def _loss(self, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Losses in the rewards' units, squared [...]; the slope in the network's units [..., B, A].

        The gradient is that of the loss in the network's units, so that one learning rate suits rewards in any units.
        """
        size, network = targets.shape[-2], self.network
        if network.action_units is None:
            losses, slope = self._batch_loss(predictions, targets / network.reward_scale, self._weights, size)
            return losses * network.reward_scale**2, slope
        mean, deviation = network.action_units.to(targets.device)
        centred = targets - mean
        losses, _ = squared_error(predictions * deviation, centred, self._weights, size)
        _, slope = squared_error(predictions, centred / deviation, self._weights, size)
        return losses, slope


WEIGHTS, LOSSES = ("parameters", "first_moment", "second_moment"), ("losses", "running")
"""Names of the tensors of a checkpoint: those with one row per model, and those with one number per model."""


class TrainState:
    """A shard: some models in the middle of training."""

    def __init__(self, models: range, tensors: Mapping[str, Tensor], epoch: int, device: torch.device) -> None:
        """Keep weights, the two averages of Adam and losses; `epoch` is the number of epochs done."""
        self.models = models
        """Numbers of the models in the ensemble."""
        self.epoch = epoch
        self.batch = int(tensors.get("batch", 0))
        """Number of steps done in the current epoch."""
        # At an aligned address wherever they come from, a file or numpy: a library may round by it.
        self.parameters = filled_up(tensors["parameters"].to(device), len(models))
        self.first_moment = tensors["first_moment"].to(device)
        self.second_moment = tensors["second_moment"].to(device)
        self.losses = tensors["losses"].to(device)
        """Each model's mean loss over its last epoch, [M]."""
        self.running = tensors.get("running", torch.zeros_like(self.losses)).to(device)
        """Sum of each model's losses over the samples of the current epoch so far, [M]."""

    @classmethod
    def fresh(
        cls, problem: TrainingProblem, settings: TrainingSettings, models: range, device: torch.device
    ) -> TrainState:
        """Initial weights, each model's from its own random stream."""
        # Drawn on the CPU, whatever the device, so that every device starts from the same weights.
        weights = np.stack([problem.init(make_rng(settings.seed, "init", model)) for model in models])
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


FILE_NAME = re.compile(r"models-(\d+)-(\d+)\.safetensors")


class Checkpoints:
    """A folder of shards: each file written atomically and checked against the training run that it belongs to."""

    def __init__(self, folder: Path, problem: TrainingProblem, settings: TrainingSettings) -> None:
        """Open the folder, or start it; `BadFileError` if it belongs to another training run."""
        self._folder = Path(folder)
        self._num_parameters = problem.num_parameters
        self._num_epochs = settings.num_epochs
        self._num_batches = settings.num_batches(problem.num_samples)
        self._run: dict[str, Any] = {
            "format": FORMAT,
            "network": problem.name,
            "num_samples": problem.num_samples,
            "data": problem.fingerprint,
            **asdict(settings),
        }
        # Written before the first shard: a folder with shards always says which run they belong to.
        path = self._folder / "training.json"
        if path.exists():
            self._refuse_if_different(load_json(path))
        else:
            save_json(path, self._run)

    def _refuse_if_different(self, content: Any) -> None:
        there = content if isinstance(content, dict) else {}
        differing = [name for name, value in self._run.items() if there.get(name) != value]
        if differing:
            what = ", ".join(f"{name} is {there.get(name)!r} there and {self._run[name]!r} here" for name in differing)
            raise OtherRunError(
                f"{self._folder}: holds checkpoints of another training run ({what}); choose another folder or delete it."
            )

    def _path(self, models: range) -> Path:
        return self._folder / f"models-{models.start:05d}-{models.stop - 1:05d}.safetensors"

    def _identity(self, models: range) -> Tensor:
        """A digest of this run and these models, [32], by which a file of another run is recognised."""
        text = checksum_of([self._run, models.start, models.stop])
        return torch.tensor(list(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)

    def begun(self) -> list[range]:
        """Models of the shards in the folder, in order; of two shards that overlap, the first."""
        # Sizes are those of the call that began them: one on other hardware resumes them as they are.
        names = [FILE_NAME.fullmatch(path.name) for path in self._folder.iterdir()]
        shards: list[range] = []
        for first, last in sorted((int(name[1]), int(name[2])) for name in names if name):
            if first <= last and (not shards or first >= shards[-1].stop):
                shards.append(range(first, last + 1))
        return shards

    def save(self, state: TrainState) -> None:
        """Write a shard. Call it between two steps."""
        save_tensors(self._path(state.models), {**state.tensors(), "identity": self._identity(state.models)})

    def load(self, models: range, device: torch.device) -> TrainState | None:
        """The shard that was last written; None if there is none."""
        path = self._path(models)
        if not path.exists():
            return None
        tensors = load_tensors(path, checked=True)
        shapes: dict[str, tuple[int, ...]] = {name: (len(models), self._num_parameters) for name in WEIGHTS}
        shapes |= {name: (len(models),) for name in LOSSES} | {"epoch": (), "batch": ()}
        for name, shape in shapes.items():
            if tuple(pick(tensors, name, path).shape) != shape:
                raise BadFileError(f"{path}: {name} has shape {list(tensors[name].shape)}, expected {list(shape)}.")
        epoch, batch = int(tensors["epoch"]), int(tensors["batch"])
        if not (0 <= epoch <= self._num_epochs and 0 <= batch < self._num_batches):
            raise BadFileError(
                f"{path}: epoch {epoch}, step {batch}; expected at most {self._num_epochs} epochs of {self._num_batches} steps."
            )
        if not torch.equal(pick(tensors, "identity", path), self._identity(models)):
            raise BadFileError(f"{path}: a checkpoint of other models than its name says; delete it, or the folder.")
        return TrainState(models, tensors, epoch, device)


class TrainingJob(NamedTuple):
    """What is trained, how, and on what kind of device."""

    problem: TrainingProblem
    settings: TrainingSettings
    device: torch.device


class ShardExecutor(Protocol):
    """Workers in other processes or on other machines. All executors give the same bits."""

    def num_workers(self, device: torch.device) -> int:
        """Number of shards that are trained at the same time."""
        ...

    def train_shards(
        self,
        job: TrainingJob,
        shards: Sequence[range | TrainState],
        report: Progress,
        finished: Callable[[int, TrainState], None],
    ) -> None:
        """Train all shards, in any order.

        Args:
            job: What they have in common.
            shards: For each, models to start with, or a shard to resume.
            report: Called now and then with (number of a shard, epochs done).
            finished: Called with (number of a shard, the shard on the CPU) as soon as it is done.
        """
        ...
