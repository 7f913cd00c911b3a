"""Training the driving network: the pairs of states of a familiar world, and the loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.training.state import MiniBatch, TrainingSettings, TrainState
from cautious.io.arrays import fingerprint_of
from cautious.validation import triton_available
from cautious_paper.networks.driving import DrivingNetwork, PairInputs, backward, forward
from cautious_paper.worlds.driving import DrivingWorld, driving_world


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
        """The problem of the familiar world: the same pairs for every p below 1, fewer at p = 1."""
        return cls(driving_world(novel=False, appearance_probability=appearance_probability))

    @property
    def mean_reward_loss(self) -> float:
        """The loss of always predicting the mean reward: what a model has that learned nothing of the states."""
        return float(self._world.pair_rewards.double().var(correction=0))

    def to(self, device: torch.device) -> DrivingTrainingProblem:
        """The same on `device`."""
        return self if self._targets.device.type == device.type else type(self)(self._world, device)

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Initial weights of one model, [P]."""
        return self.network.init(rng)

    @cached_property
    def train_epochs(self) -> Callable[[TrainState, TrainingSettings, int], None] | None:
        """A function that trains several epochs in one kernel; None without a suitable GPU and Triton."""
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
