"""The paper's reward model for driving, M of them stacked: r(s, s') from two images and two speeds.

One 2x2 convolution (4 -> 4 channels) on the image of s and one on that of s', joined with the next speed (one-hot), then
52 -> 32 -> 1 with a pair of layers of its own for each initial speed: 7,052 weights a model.

The familiar world has 1,714 pairs but only 256 states, so everything up to the hidden layer is computed once a state and
gathered by pair; a batch is a set of weights on the pairs. That is the same sum as a loop over the batch, in fewer steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.ensemble_files import load_description, load_models, save_models
from cautious.beliefs.fixed_shapes import filled_up
from cautious.beliefs.kernels import triton_available
from cautious.beliefs.networks.driving_inputs import (
    FAN_IN,
    NUM_CHANNELS,
    NUM_FEATURES,
    NUM_HIDDEN,
    NUM_PARAMETERS,
    NUM_POSITIONS,
    NUM_SPEEDS,
    SHAPES,
    SIZES,
    PairInputs,
)
from cautious.beliefs.table_belief import state_numbers
from cautious.beliefs.training.state import Batch, TrainingSettings, TrainState, fingerprint_of
from cautious.errors import BadFileError, InvalidInputError
from cautious.parallel import parallel_map, single_threaded
from cautious.types import ArrayLike
from cautious.validation import as_folder, as_path
from cautious.worlds.driving import DrivingWorld, driving_world
from cautious.worlds.driving_rules import ACTIONS

MODELS_PER_CALL = 16
"""Models that are computed together on the CPU: what a core's cache holds."""


def split_parameters(parameters: Tensor) -> list[Tensor]:
    """[M, 7052] -> convolution [M, 17, 8], hidden [M, 53, 128], output [M, 4, 33]."""
    parts = parameters.split(list(SIZES.values()), dim=1)
    return [part.unflatten(1, shape) for part, shape in zip(parts, SHAPES.values(), strict=True)]


class Activations(NamedTuple):
    """What the backward pass needs of the forward pass."""

    features: Tensor
    """After the convolution, [M, 8, S*6]."""
    images: list[Tensor]
    """Inputs of the hidden layer from s [M, S, 24] and from s' (with the next speed and 1) [M, S, 29]."""
    hidden: Tensor
    """[P, M*32], pairs by speed."""
    predictions: Tensor
    """[P, M], pairs by speed."""


def forward(parameters: Tensor, inputs: PairInputs) -> Activations:
    """Every model's reward of every pair: [M, 7052] -> [P, M]."""
    convolution, hidden_weight, output = split_parameters(parameters)
    num_models = len(parameters)
    features = torch.bmm(convolution.transpose(1, 2), inputs.patches.expand(num_models, -1, -1)).relu_()
    by_state = features.reshape(num_models, 2, NUM_CHANNELS, inputs.num_states, NUM_POSITIONS).transpose(2, 3)
    of_state, of_next = (by_state[:, image].flatten(2) for image in (0, 1))  # [M, S, 24] each
    of_next = torch.cat([of_next, inputs.speeds.expand(num_models, -1, -1)], dim=2)  # [M, S, 29]
    hidden = _by_row(torch.bmm(of_state, hidden_weight[:, :NUM_FEATURES])).index_select(0, inputs.rows[0])
    hidden += _by_row(torch.bmm(of_next, hidden_weight[:, NUM_FEATURES:])).index_select(0, inputs.rows[1])
    hidden.relu_()  # [P, M*32]
    by_model = hidden.unflatten(1, (num_models, NUM_HIDDEN))
    predictions = [
        (by_model[pairs] * output[:, head, :-1]).sum(dim=2) + output[:, head, -1]
        for head, pairs in enumerate(inputs.heads)
    ]
    return Activations(features, [of_state, of_next], hidden, torch.cat(predictions))


def backward(parameters: Tensor, inputs: PairInputs, seen: Activations, slope: Tensor) -> Tensor:
    """Gradient of Σ slope · predictions by the chain rule, layer by layer: slope [P, M] -> [M, 7052].

    Written out because it is half the passes over the hidden layer that automatic differentiation makes, and because
    every sum then has a fixed order.
    """
    _, hidden_weight, output = split_parameters(parameters)
    num_models = len(parameters)
    to_output, to_hidden = torch.empty_like(output), torch.empty_like(seen.hidden)
    for head, pairs in enumerate(inputs.heads):
        own = slope[pairs].unsqueeze(2)  # [p, M, 1]
        block = to_hidden[pairs].unflatten(1, (num_models, NUM_HIDDEN))
        torch.mul(own, seen.hidden[pairs].view_as(block), out=block)
        to_output[:, head, :-1] = block.sum(dim=0)
        to_output[:, head, -1] = slope[pairs].T.contiguous().sum(dim=1)  # along rows: the same order for any M
        torch.mul(own, output[:, head, :-1], out=block)
    to_hidden = torch.ops.aten.threshold_backward(to_hidden, seen.hidden, 0)  # zero where the ReLU is
    to_weight, to_image = [], []
    for image, rows in enumerate((slice(0, NUM_FEATURES), slice(NUM_FEATURES, None))):
        back = _from_row(torch.sparse.mm(inputs.incidence[image], to_hidden), num_models)  # [M, S, heads*32]
        to_weight.append(torch.bmm(seen.images[image].transpose(1, 2), back))
        to_image.append(torch.bmm(back, hidden_weight[:, rows].transpose(1, 2))[..., :NUM_FEATURES])
    by_channel = [part.unflatten(2, (NUM_CHANNELS, NUM_POSITIONS)).transpose(1, 2) for part in to_image]
    to_features = torch.stack(by_channel, dim=1).reshape(seen.features.shape)
    to_features = torch.ops.aten.threshold_backward(to_features, seen.features, 0)
    to_convolution = torch.bmm(to_features, inputs.patches.T.expand(num_models, -1, -1))  # [M, 8, 17]
    gradients = [to_convolution.transpose(1, 2), torch.cat(to_weight, dim=1), to_output]
    return torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)


def _by_row(table: Tensor) -> Tensor:
    """[M, S, heads*32] -> one row a (state, head), models side by side: [S*heads, M*32]."""
    num_models, num_states = table.shape[:2]
    by_head = table.reshape(num_models, num_states * NUM_SPEEDS, NUM_HIDDEN)
    return by_head.transpose(0, 1).reshape(num_states * NUM_SPEEDS, num_models * NUM_HIDDEN)


def _from_row(rows: Tensor, num_models: int) -> Tensor:
    """The reverse of `_by_row`: [S*heads, M*32] -> [M, S, heads*32]."""
    by_model = rows.unflatten(1, (num_models, NUM_HIDDEN)).transpose(0, 1)
    return by_model.reshape(num_models, -1, NUM_SPEEDS * NUM_HIDDEN)


class DrivingNetwork:
    """The stacked network with the familiar world's pairs as its training data (`beliefs.training.state.TrainingProblem`)."""

    name = "driving-2x2conv-32"
    num_parameters = NUM_PARAMETERS
    uses_help_bit = False
    shard_size: Mapping[str, int] = MappingProxyType(
        {"cpu": MODELS_PER_CALL, "cuda": 2048}
    )  # the latter keeps a GPU busy
    models_per_call = MODELS_PER_CALL

    def __init__(self, world: DrivingWorld, device: torch.device | None = None) -> None:
        """Take the training pairs of a familiar world."""
        self._world = world
        self.num_samples = len(world.pairs)
        self.fingerprint = fingerprint_of(world.pairs, world.pair_rewards)
        self._inputs = PairInputs(world.states, world.pairs, device)
        self._targets = torch.empty(self.num_samples, 1, device=device, dtype=torch.float32)
        self._targets[self._inputs.place, 0] = world.pair_rewards.float().to(device)  # pairs by speed

    def to(self, device: torch.device) -> DrivingNetwork:
        """The same on `device`."""
        return self if self._targets.device.type == device.type else DrivingNetwork(self._world, device)

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """PyTorch's default: every weight and bias uniform within ±1/√(inputs of its layer)."""
        return np.concatenate([rng.uniform(-1, 1, size) / np.sqrt(FAN_IN[name]) for name, size in SIZES.items()])

    @cached_property
    def train_epochs(self) -> Callable[[TrainState, TrainingSettings, int], None] | None:
        """Several epochs in one kernel, where a GPU and Triton can do it; None elsewhere."""
        device = self._targets.device
        if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0) or not triton_available():
            return None  # the kernel multiplies bfloat16 numbers, which older GPUs cannot
        from cautious.beliefs.kernels.driving.fused import FusedDrivingTraining

        return FusedDrivingTraining(self._inputs, self._targets[:, 0]).train_epochs

    def loss_and_gradient(self, parameters: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Mean squared error of each model on its own batch, and its gradient: [M, P], [M, B] -> [M], [M, P].

        A batch is a set of weights on the pairs: 1/B on those that are in it.
        """
        samples = batch.samples
        weights = parameters.new_zeros(self.num_samples, len(parameters))
        weights.scatter_(0, self._inputs.place[samples].T, 1 / samples.shape[1])  # [P, M]
        seen = forward(parameters, self._inputs)
        errors = seen.predictions - self._targets
        slope = 2 * errors * weights
        losses = (errors.square() * weights).T.contiguous().sum(dim=1)
        return losses, backward(parameters, self._inputs, seen, slope)


class DrivingEnsemble:
    """M trained reward models of driving: a belief about the reward of pairs that were never seen."""

    num_actions = len(ACTIONS)

    def __init__(
        self, parameters: Tensor, losses: Tensor, settings: dict[str, Any], world: DrivingWorld | None = None
    ) -> None:
        """Keep weights [M, 7052], final losses [M] and how they were trained."""
        self.parameters = parameters
        self.losses = losses
        self.settings = settings
        self._world = world

    @property
    def num_models(self) -> int:
        """M."""
        return len(self.parameters)

    @single_threaded
    def pair_rewards(self, world: DrivingWorld) -> Tensor:
        """What each model says about every pair of a world, [M, Q]."""
        _check_world(world)
        inputs = PairInputs(world.states, world.every_pair, self.parameters.device)
        parts = self.parameters.split(MODELS_PER_CALL)

        def predict(number: int) -> Tensor:
            block = filled_up(parts[number], MODELS_PER_CALL)
            return forward(block, inputs).predictions[:, : len(parts[number])]

        on_the_cpu = self.parameters.device.type == "cpu"
        by_speed = parallel_map(predict, len(parts)) if on_the_cpu else [predict(n) for n in range(len(parts))]
        return torch.cat(by_speed, dim=1)[inputs.place].T

    def rewards(self, world: DrivingWorld) -> Tensor:
        """Expected reward of each (state, action) under each model, [M, S, A], float64."""
        said = self.pair_rewards(world)  # checks the world, too
        return world.expected(said)

    def on(self, world: DrivingWorld) -> DrivingEnsemble:
        """The same belief about this world's states: what `rewards_for` speaks of."""
        _check_world(world)
        return DrivingEnsemble(self.parameters, self.losses, self.settings, world)

    def rewards_for(self, indices: ArrayLike) -> Tensor:
        """Rewards [N, S, A] of the models at `indices` [N] in the world given to `on`."""
        if self._world is None:
            raise InvalidInputError("rewards_for: no world is given; call it on `ensemble.on(world)`.")
        chosen = state_numbers(indices, self.num_models, "indices")
        return DrivingEnsemble(self.parameters[chosen], self.losses[chosen], self.settings).rewards(self._world)

    def save(self, folder: Path | str) -> None:
        """Write weights and settings (safetensors, JSON)."""
        save_models(as_folder(folder), {"network": DrivingNetwork.name}, self.settings, self.parameters, self.losses)

    @classmethod
    def load(cls, folder: Path | str) -> DrivingEnsemble:
        """Read what `save` wrote."""
        path = as_path(folder, "folder")
        described = load_description(path)
        if described.get("network") != DrivingNetwork.name:
            raise BadFileError(f"{path}: not a driving ensemble (expected network {DrivingNetwork.name!r}).")
        return cls(*load_models(path, described, NUM_PARAMETERS), described["settings"])


def _check_world(world: Any) -> None:
    """Raise unless it is a world of driving: what other beliefs take, states, does not say where the road leads."""
    if not isinstance(world, DrivingWorld):
        raise InvalidInputError(
            f"world is a {type(world).__name__}: a belief about driving speaks of a whole world, not of states. Pass "
            "world = cautious.driving_world(); for a policy, CautiousPolicy(belief.rewards(world), mdp=world.mdp)."
        )


def familiar_network(appearance_probability: float) -> DrivingNetwork:
    """The network on the familiar world's training pairs: the same for every p below 1, fewer at p = 1."""
    return DrivingNetwork(driving_world(novel=False, appearance_probability=appearance_probability))
