"""The paper's reward model for driving, M of them stacked: the reward of a pair of states (s, s').

    4x3x4 images of s and s' -> conv 4 @ 2x2 each -> ReLU -> 48 (+ next speed) -> 32 -> ReLU -> 1, one head per initial speed

A belief about driving is about a whole world: the reward of an action is the expectation over its next states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.errors import InvalidInputError
from cautious.ops.linear import sparse_tensor
from cautious_paper.worlds.driving import DrivingWorld
from cautious_paper.worlds.driving_rules import ACTIONS, MAX_SPEED, DrivingState, network_image

NUM_SPEEDS = MAX_SPEED + 1
NUM_CHANNELS, NUM_POSITIONS, PATCH = 4, 6, 16
NUM_FEATURES = NUM_CHANNELS * NUM_POSITIONS
NUM_HIDDEN = 32
NUM_INPUTS = 2 * NUM_FEATURES + NUM_SPEEDS  # 52

SHAPES = {
    "convolution": (PATCH + 1, 2 * NUM_CHANNELS),
    "hidden": (NUM_INPUTS + 1, NUM_SPEEDS * NUM_HIDDEN),
    "output": (NUM_SPEEDS, NUM_HIDDEN + 1),
}
"""Weights of one model; a layer's bias is its last input, which is always 1. The first half of the convolution's outputs
is for s, the second for s'; the hidden and the output layer have one head per speed."""

FAN_IN = {"convolution": PATCH, "hidden": NUM_INPUTS, "output": NUM_HIDDEN}
SIZES = {name: shape[0] * shape[1] for name, shape in SHAPES.items()}
NUM_PARAMETERS = sum(SIZES.values())


class PairInputs:
    """Inputs of the network for given states and pairs of states. Pairs are sorted by initial speed: one block per head."""

    def __init__(self, states: Sequence[DrivingState], pairs: Tensor, device: torch.device | None = None) -> None:
        """Cut the image of each state into patches.

        Args:
            states: S states.
            pairs: (state, next state) indices, [P, 2].
            device: Where to keep them.
        """
        images = torch.stack([network_image(state) for state in states])  # [S, 4, 3, 4]
        patches = torch.nn.functional.unfold(images, kernel_size=2)  # [S, 16, 6]
        self.patches = _with_ones(patches.transpose(1, 2).reshape(-1, PATCH)).T.contiguous().to(device)  # [17, S*6]
        speed = torch.tensor([state.speed for state in states])
        self.speeds = _with_ones(torch.nn.functional.one_hot(speed, NUM_SPEEDS).float()).to(device)  # [S, 5]
        self.num_states, self.num_pairs = len(states), len(pairs)
        head = speed[pairs[:, 0]]
        order = torch.argsort(head, stable=True)
        self.place = torch.argsort(order).to(device)  # where each pair stands among the pairs by speed
        last = torch.bincount(head, minlength=NUM_SPEEDS).cumsum(0).tolist()
        self.heads = [slice(first, end) for first, end in zip([0, *last], last, strict=False)]
        rows = pairs[order] * NUM_SPEEDS + head[order, None]  # row (state, head) of the hidden layer
        self.rows = [rows[:, image].to(device) for image in (0, 1)]
        self.incidence = [_incidence(row, self.num_states * NUM_SPEEDS) for row in self.rows]


def _with_ones(inputs: Tensor) -> Tensor:
    return torch.cat([inputs, torch.ones(len(inputs), 1, dtype=torch.float32)], dim=1)


def _incidence(rows: Tensor, num_rows: int) -> Tensor:
    """The sparse 0/1 matrix [rows, P] that sums over the pairs of a row: the transpose of gathering them."""
    indices = torch.stack([rows, torch.arange(len(rows), device=rows.device)])
    ones = torch.ones(len(rows), device=rows.device, dtype=torch.float32)
    return sparse_tensor(indices, ones, (num_rows, len(rows)))


def split_driving_parameters(parameters: Tensor) -> list[Tensor]:
    """[M, 7052] -> convolution [M, 17, 8], hidden [M, 53, 128], output [M, 4, 33]."""
    parts = parameters.split(list(SIZES.values()), dim=1)
    return [part.unflatten(1, shape) for part, shape in zip(parts, SHAPES.values(), strict=True)]


class DrivingActivations(NamedTuple):
    """Results of the forward pass that the backward pass needs."""

    features: Tensor
    """After the convolution, [M, 8, S*6]."""
    images: list[Tensor]
    """Inputs of the hidden layer from s [M, S, 24] and from s' (with the next speed and 1) [M, S, 29]."""
    hidden: Tensor
    """[P, M*32], pairs by speed."""
    predictions: Tensor
    """[P, M], pairs by speed."""


def forward(parameters: Tensor, inputs: PairInputs) -> DrivingActivations:
    """Every model's reward of every pair: [M, 7052] -> [P, M]."""
    convolution, hidden_weight, output = split_driving_parameters(parameters)
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
    return DrivingActivations(features, [of_state, of_next], hidden, torch.cat(predictions))


def backward(parameters: Tensor, inputs: PairInputs, activations: DrivingActivations, slope: Tensor) -> Tensor:
    """Gradient of Σ slope · predictions by the chain rule, layer by layer: slope [P, M] -> [M, 7052].

    Written out because it is half the passes over the hidden layer that automatic differentiation makes, and because
    every sum then has a fixed order.
    """
    _, hidden_weight, output = split_driving_parameters(parameters)
    num_models = len(parameters)
    to_output, to_hidden = torch.empty_like(output), torch.empty_like(activations.hidden)
    for head, pairs in enumerate(inputs.heads):
        pair_slope = slope[pairs].unsqueeze(2)  # [p, M, 1]
        block = to_hidden[pairs].unflatten(1, (num_models, NUM_HIDDEN))
        torch.mul(pair_slope, activations.hidden[pairs].view_as(block), out=block)
        to_output[:, head, :-1] = block.sum(dim=0)
        to_output[:, head, -1] = slope[pairs].T.contiguous().sum(dim=1)  # along rows: the same order for any M
        torch.mul(pair_slope, output[:, head, :-1], out=block)
    to_hidden = torch.ops.aten.threshold_backward(to_hidden, activations.hidden, 0)  # zero where the ReLU is
    to_weight, to_image = [], []
    for image, rows in enumerate((slice(0, NUM_FEATURES), slice(NUM_FEATURES, None))):
        back = _from_row(torch.sparse.mm(inputs.incidence[image], to_hidden), num_models)  # [M, S, heads*32]
        to_weight.append(torch.bmm(activations.images[image].transpose(1, 2), back))
        to_image.append(torch.bmm(back, hidden_weight[:, rows].transpose(1, 2))[..., :NUM_FEATURES])
    by_channel = [part.unflatten(2, (NUM_CHANNELS, NUM_POSITIONS)).transpose(1, 2) for part in to_image]
    to_features = torch.stack(by_channel, dim=1).reshape(activations.features.shape)
    to_features = torch.ops.aten.threshold_backward(to_features, activations.features, 0)
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
    """The architecture: from a driving world to the rewards of all actions in all of its states."""

    name = "driving-2x2conv-32"
    num_actions = len(ACTIONS)
    num_parameters = NUM_PARAMETERS
    state_shape: tuple[int, ...] = ()
    reward_dtype = torch.float64
    block: Mapping[str, tuple[int, None]] = MappingProxyType({"cpu": (16, None), "cuda": (16, None)})
    rows_per_call = blocks_per_task = 1

    @classmethod
    def read(cls, described: Mapping[str, Any], path: object) -> DrivingNetwork:
        """The network; a file holds only its name, since its sizes never vary."""
        return cls()

    def describe(self) -> dict[str, Any]:
        """Nothing: the name of the network says everything."""
        return {}

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """PyTorch's default: every weight and bias uniform within ±1/√(inputs of its layer)."""
        return np.concatenate([rng.uniform(-1, 1, size) / np.sqrt(FAN_IN[name]) for name, size in SIZES.items()])

    def as_states(self, states: Any) -> tuple[WorldInputs]:
        """All states of a driving world."""
        if not isinstance(states, DrivingWorld):
            raise InvalidInputError(
                f"world is a {type(states).__name__}: a belief about driving is about a whole world, not about states. Pass "
                "world = cautious.driving_world(); for a policy, CautiousPolicy(belief.rewards(world), mdp=world.mdp)."
            )
        return (WorldInputs(states),)

    def predict(self, parameters: Tensor, *states: WorldInputs) -> Tensor:
        """Expected reward of each (state, action) under each model: [M, 7052], a world -> [M, S, A], float64."""
        (inputs,) = states
        return inputs.world.expected(self.predict_pairs(parameters, inputs))

    def predict_pairs(self, parameters: Tensor, inputs: WorldInputs) -> Tensor:
        """Reward of every pair of a world under each model: [M, 7052] -> [M, Q]."""
        return forward(parameters, inputs.pairs).predictions[inputs.pairs.place].T


class WorldInputs:
    """Inputs of the network for a whole world: all pairs of its states."""

    def __init__(self, world: DrivingWorld, device: torch.device | None = None) -> None:
        """Prepare all pairs on `device`."""
        self.world = world
        self.pairs = PairInputs(world.states, world.every_pair, device)

    def __len__(self) -> int:
        """Number of states, S."""
        return len(self.world.states)

    def to(self, device: torch.device) -> WorldInputs:
        """The same on `device`."""
        return self if self.pairs.place.device.type == device.type else WorldInputs(self.world, device)


class PairNetwork(DrivingNetwork):
    """The same network, asked about pairs of states instead of actions: one "action" in each of Q pairs."""

    num_actions = 1
    reward_dtype = torch.float32

    def as_states(self, states: Any) -> tuple[WorldInputs]:
        """Every pair of a driving world."""
        (inputs,) = super().as_states(states)
        return (WorldPairs(inputs.world),)

    def predict(self, parameters: Tensor, *states: WorldInputs) -> Tensor:
        """Reward of every pair of a world under each model: [M, 7052] -> [M, Q, 1]."""
        return self.predict_pairs(parameters, states[0])[..., None]


class WorldPairs(WorldInputs):
    """Inputs of the network for a whole world, with the pairs in the place of states."""

    def __len__(self) -> int:
        """Number of pairs, Q."""
        return self.pairs.num_pairs

    def to(self, device: torch.device) -> WorldPairs:
        """The same on `device`."""
        return self if self.pairs.place.device.type == device.type else WorldPairs(self.world, device)


def pair_rewards(belief: RewardEnsemble, world: DrivingWorld) -> Tensor:
    """Reward of every pair of states of a world under each model of a belief about driving, [M, Q], float32."""
    if belief.network.name != DrivingNetwork.name:
        raise InvalidInputError(f"pair_rewards: for beliefs about driving; this network is {belief.network.name!r}.")
    return RewardEnsemble(PairNetwork(), belief.parameters).rewards(world)[..., 0]
