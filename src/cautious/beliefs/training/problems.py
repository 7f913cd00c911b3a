"""What networks are trained on: familiar data, and the loss. One `TrainingProblem` per kind of network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.networks.module import MODELS_PER_CALL, ModuleNetwork
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.beliefs.training.state import MiniBatch, TrainingSettings, TrainState
from cautious.errors import InvalidInputError
from cautious.io.arrays import fingerprint_of
from cautious.validation import as_float_tensor, check_finite, check_shape, check_size, triton_available
from cautious_paper.networks.driving import DrivingNetwork, PairInputs, backward, forward
from cautious_paper.networks.image import ImageNetwork, as_images
from cautious_paper.worlds.driving import DrivingWorld, driving_world

if TYPE_CHECKING:
    from cautious_paper.kernels.image.step import FusedImageStep

LARGEST = 1e18
"""Rewards to learn from are at most this far from zero: their squares are float32 numbers."""


def checked_loss_weights(loss_weights: Any, num_actions: int) -> Tensor:
    """Weight of each action in the loss, [A], float32: finite, none negative; all 1 if not given."""
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
    """Training rewards [..., S, A]: NaN where an action was not tried, finite elsewhere, every action tried somewhere."""
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


class ModuleTrainingProblem:
    """Inputs and rewards for a vector network, or for a user's own module."""

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
    ) -> None:
        """Take inputs [S, ...] as `network.as_states` gives them, rewards [S, A] (NaN where unknown) and weights [A]."""
        self.network = network
        self.name = network.title
        if rewards.shape[1] != network.num_actions:
            raise InvalidInputError(
                f"network: the module gives {network.num_actions} numbers per state, and there are rewards of "
                f"{rewards.shape[1]} actions; its last layer must have one output for each action."
            )
        weights = checked_loss_weights(loss_weights, network.num_actions)
        self._inputs, self._rewards, self._weights = (part.float().to(device) for part in (inputs, rewards, weights))
        self.num_samples, self.num_parameters = len(inputs), network.num_parameters
        self.fingerprint = fingerprint_of(self._inputs, self._rewards, self._weights, *network.constants)

    def to(self, device: torch.device) -> ModuleTrainingProblem:
        """The same on `device`."""
        if self._inputs.device.type == device.type:
            return self
        return ModuleTrainingProblem(self.network, self._inputs, self._rewards, self._weights, device)

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Initial weights of one model, [P]."""
        return self.network.init(rng)

    def loss_and_gradient(self, parameters: Tensor, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        """`squared_error` of each model on its own batch, and its gradient: [M, P], [M, B] -> [M], [M, P]."""
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

        The gradient is that of the loss in the network's units, so that a learning rate means the same in any.
        """
        size, network = targets.shape[-2], self.network
        if network.action_units is None:
            losses, slope = squared_error(predictions, targets / network.reward_scale, self._weights, size)
            return losses * network.reward_scale**2, slope
        mean, deviation = network.action_units.to(targets.device)
        centred = targets - mean
        losses, _ = squared_error(predictions * deviation, centred, self._weights, size)
        _, slope = squared_error(predictions, centred / deviation, self._weights, size)
        return losses, slope


CHUNK = {"cpu": 64, "cuda": 512}
"""Images of a batch that go through the network together: on the CPU as many as its caches hold. It decides the order of
summing, so it is the same however many models train together."""


class ImageTrainingProblem:
    """The stacked network with images and rewards as its training data (`beliefs.training.state.TrainingProblem`)."""

    name = ImageNetwork.name
    shard_size: Mapping[str, int] = MappingProxyType({"cpu": 2, "cuda": 256})
    models_per_call = 1  # one model's convolutions are also quicker than those of two side by side
    train_epochs = None

    def __init__(
        self,
        images: Any,
        rewards: Any,
        loss_weights: Any = None,
        device: torch.device | None = None,
        kernels: str = "auto",
    ) -> None:
        """Take the training data.

        Args:
            images: [S, 28, 28], bytes, or numbers from 0 to 1.
            rewards: What each action pays on each image, [S, A]; or [2, S, A], without and with help available: then the
                network has a help bit, drawn fairly for each image in each epoch. NaN where nothing is known: no loss.
            loss_weights: Weight of each action in the loss, [A]; all 1 if not given.
            device: Where to keep them.
            kernels: How to compute on a GPU: "auto" takes the fused kernels where Triton is installed, "plain" never, and
                any name of `beliefs.kernels.image.tuning.KernelVariant` that one.
        """
        self._images = as_images(images).to(device)
        table = checked_rewards(rewards).float()
        if table.dim() not in (2, 3) or (table.dim() == 3 and len(table) != 2):
            raise InvalidInputError(f"rewards: expected shape [S, A] or [2, S, A], got {list(table.shape)}.")
        check_shape(table, "... S A", "rewards", S=len(self._images))
        self.network = ImageNetwork(table.shape[-1], help_bit=table.dim() == 3)
        self._rewards = table.reshape(-1, *table.shape[-2:]).to(device)
        self._loss_weights = checked_loss_weights(loss_weights, table.shape[-1]).to(device)
        self.num_samples = len(self._images)
        self.num_parameters = self.network.num_parameters
        self.uses_help_bit = self.network.help_bit
        self.fingerprint = fingerprint_of(self._images, self._rewards, self._loss_weights)
        self._kernels = kernels
        self._fused = self._fused_step() if self._images.is_cuda and kernels != "plain" else None

    def to(self, device: torch.device) -> ImageTrainingProblem:
        """The same on `device`."""
        if self._images.device.type == device.type:
            return self
        return ImageTrainingProblem(self._images, self._table(), self._loss_weights, device, self._kernels)

    def _table(self) -> Tensor:
        return self._rewards if self.network.help_bit else self._rewards[0]

    def _fused_step(self) -> FusedImageStep | None:
        """The fused kernels, where Triton is installed."""
        if not triton_available():
            return None
        from cautious_paper.kernels.image.step import FusedImageStep

        bit, most, variant = self.network.help_bit, self.shard_size["cuda"], self._kernels
        return FusedImageStep(
            self._images, self._table(), self._loss_weights, has_help_bit=bit, max_models=most, variant=variant
        )

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """First weights of one model, [P]."""
        return self.network.init(rng)

    def loss_and_gradient(self, parameters: Tensor, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        """Weighted mean squared error of each model on its own batch, and its gradient: [M, P], [M, B] -> [M], [M, P].

        loss = Σ_b Σ_a w_a (r̂(x_b, a) - r(x_b, a))² / (B A)
        """
        if self._fused is not None:
            return self._fused.loss_and_gradient(parameters, batch.samples, batch.help_bits)
        size = batch.samples.shape[1]
        losses = parameters.new_zeros(len(parameters))
        gradient = torch.zeros_like(parameters)
        for first in range(0, size, CHUNK[parameters.device.type]):
            part = slice(first, first + CHUNK[parameters.device.type])
            samples = batch.samples[:, part]
            help_bits = None if batch.help_bits is None else batch.help_bits[:, part]
            activations = self.network.forward(parameters, self._images[samples], help_bits)
            targets = self._rewards[0 if help_bits is None else help_bits, samples]  # [M, b, A]
            loss, slope = squared_error(activations.predictions, targets, self._loss_weights, size)
            losses += loss
            gradient += self.network.backward(parameters, activations, slope)
        return losses, gradient


class DrivingTrainingProblem:
    """The pairs of states of a familiar driving world, and their rewards."""

    name = DrivingNetwork.name
    num_parameters = DrivingNetwork.num_parameters
    uses_help_bit = False
    models_per_call = DrivingNetwork.block["cpu"][0]  # what a core's cache holds
    shard_size: Mapping[str, int] = MappingProxyType({"cpu": models_per_call, "cuda": 2048})  # enough for a GPU

    def __init__(self, world: DrivingWorld, device: torch.device | None = None) -> None:
        """Take the training pairs of a familiar world."""
        self.network = DrivingNetwork()
        self._world = world
        self.num_samples = len(world.pairs)
        self.fingerprint = fingerprint_of(world.pairs, world.pair_rewards)
        self._inputs = PairInputs(world.states, world.pairs, device)
        self._targets = torch.empty(self.num_samples, 1, device=device, dtype=torch.float32)
        self._targets[self._inputs.place, 0] = world.pair_rewards.float().to(device)  # pairs by speed

    @classmethod
    def familiar(cls, appearance_probability: float) -> DrivingTrainingProblem:
        """Of the familiar world: the same pairs for every p below 1, fewer at p = 1."""
        return cls(driving_world(novel=False, appearance_probability=appearance_probability))

    def to(self, device: torch.device) -> DrivingTrainingProblem:
        """The same on `device`."""
        return self if self._targets.device.type == device.type else type(self)(self._world, device)

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Initial weights of one model, [P]."""
        return self.network.init(rng)

    @cached_property
    def train_epochs(self) -> Callable[[TrainState, TrainingSettings, int], None] | None:
        """Several epochs in one kernel, where a GPU and Triton can do it; None elsewhere."""
        device = self._targets.device
        if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0) or not triton_available():
            return None  # the kernel multiplies bfloat16 numbers, which older GPUs cannot
        from cautious_paper.kernels.driving.fused import FusedDrivingTraining

        return FusedDrivingTraining(self._inputs, self._targets[:, 0]).train_epochs

    def loss_and_gradient(self, parameters: Tensor, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        """Mean squared error of each model on its own batch, and its gradient: [M, P], [M, B] -> [M], [M, P].

        All pairs go through the network, and a batch is a set of weights on them, 1/B on those that are in it: pairs share
        their states' convolutions, so that a part of them would take nearly as long.
        """
        samples = batch.samples
        weights = parameters.new_zeros(self.num_samples, len(parameters))
        weights.scatter_(0, self._inputs.place[samples].T, 1 / samples.shape[1])  # [P, M]
        activations = forward(parameters, self._inputs)
        errors = activations.predictions - self._targets
        slope = 2 * errors * weights
        losses = (errors.square() * weights).T.contiguous().sum(dim=1)
        return losses, backward(parameters, self._inputs, activations, slope)
