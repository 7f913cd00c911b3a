"""The default network for vectors, M of them stacked, and the units that it learns in.

Features and rewards come as they were measured; the network sees them about as large as 1. Rewards have one unit for all
actions, or, with a prior, each action has its own mean and deviation. Each action then counts equally in the loss, and
one that always paid the same is predicted to pay that anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cautious.beliefs.fixed_shapes import aligned
from cautious.beliefs.networks.module import MODELS_PER_CALL, Loss, as_inputs, initial_weights, split_parameters
from cautious.errors import BadFileError, InvalidInputError
from cautious.validation import are_counts, is_shape

ROUNDING = torch.finfo(torch.float32).eps
"""A float32 feature whose deviation is below this share of its mean counts as constant: the rest is rounding."""
ENOUGH = 20
"""Tries from which on the deviation of an action's own rewards is trusted (`deviations`)."""
ROUNDING_FLOAT64 = 2.0**-45
"""The same for float64 features; larger than float64's own rounding, because features are often computed in several steps."""


@dataclass(frozen=True)
class Standardizer:
    """Units: features are shifted and divided, and rewards are divided or, with units for each action, shifted and divided."""

    shift: tuple[float, ...]
    """Subtracted from each feature."""
    scale: tuple[float, ...]
    """Each feature is divided by it, above zero."""
    reward: float = 1.0
    """All rewards are divided by it, above zero."""
    actions: tuple[tuple[float, float], ...] | None = None
    """Mean and deviation of each action's rewards. None: all actions share the unit `reward`, which is not used otherwise."""

    @classmethod
    def plain(cls, num_features: int) -> Standardizer:
        """Units that leave all numbers as they are."""
        return cls((0.0,) * num_features, (1.0,) * num_features)

    @classmethod
    def of(cls, states: Tensor, rewards: Tensor, *, each_action: bool = False) -> Standardizer:
        """Units of training data: mean and deviation of each feature of states [S, F], deviation of known rewards [S, A].

        With `each_action`, the mean and deviation of each action's rewards too.

        A constant feature gets scale 1, or a scale so large that its rounding noise is divided away.
        """
        rounding = ROUNDING if states.dtype == torch.float32 else ROUNDING_FLOAT64
        rows = states.double()
        mean, deviation = rows.mean(dim=0), rows.std(dim=0, correction=0)
        scale = torch.where(deviation > rounding * mean.abs(), deviation, (deviation / ROUNDING).clamp(min=1.0))
        actions = None
        if each_action:
            means, action_deviations = rewards.double().nanmean(dim=0), deviations(rewards)
            smallest = shared_deviation(rewards) / (~rewards.isnan()).sum(dim=0)
            varies = action_deviations > ROUNDING * means.abs()
            scales = torch.where(varies, action_deviations, smallest)  # of a constant, any unit will do
            actions = tuple(zip(means.tolist(), scales.tolist(), strict=True))
        return cls(tuple(mean.tolist()), tuple(scale.tolist()), shared_deviation(rewards), actions)

    @classmethod
    def read(cls, described: Any, num_features: int) -> Standardizer | None:
        """The units that `describe` wrote; None if it is something else."""
        entries = described if isinstance(described, dict) else {}
        shift, scale, reward, actions = (entries.get(name) for name in cls.__annotations__)
        lists = all(isinstance(part, list) and len(part) == num_features for part in (shift, scale))
        if not lists or not _numbers(*shift) or not _numbers(*scale, reward) or min(*scale, reward) <= 0:  # type: ignore[misc]
            return None
        if actions is not None and not _is_pairs(actions):
            return None
        pairs = None if actions is None else tuple((mean, deviation) for mean, deviation in actions)
        return cls(tuple(shift), tuple(scale), reward, pairs)  # type: ignore[arg-type]

    def describe(self) -> dict[str, Any]:
        """The units as plain values for JSON."""
        actions = {} if self.actions is None else {"actions": [list(pair) for pair in self.actions]}
        return {"shift": list(self.shift), "scale": list(self.scale), "reward": self.reward, **actions}


def deviations(rewards: Tensor) -> Tensor:
    """The standard deviation of each action's own rewards, [S, A] -> [A], float64; NaN entries are left out.

    An action with few tries, n < `ENOUGH`, may have equal rewards by chance. Its deviation is at least 1/n of that of all
    rewards: about how far one more try could move its mean.
    """
    known = ~rewards.isnan()
    count = known.sum(dim=0)
    centred = torch.where(known, rewards.double() - rewards.double().nanmean(dim=0), 0.0)
    observed = (centred.square().sum(dim=0) / count).sqrt()
    return torch.maximum(observed, torch.where(count < ENOUGH, shared_deviation(rewards) / count, 0.0))


def shared_deviation(rewards: Tensor) -> float:
    """The deviation of all known rewards; 1 if all are the same except for rounding."""
    known = rewards[~rewards.isnan()].double()
    spread = float(known.std(correction=0))
    return spread if spread > ROUNDING * abs(float(known.mean())) else 1.0


def _is_pairs(actions: Any) -> bool:
    """Whether `actions` is a list of pairs of a mean and a deviation above zero."""
    return isinstance(actions, list) and all(
        isinstance(pair, list) and len(pair) == 2 and _numbers(*pair) and pair[1] > 0 for pair in actions
    )


def _numbers(*values: Any) -> bool:
    return all(type(value) is float and math.isfinite(value) for value in values)


class VectorNetwork:
    """The default network for vectors: two hidden layers with ReLU, on standardised features and rewards (`Standardizer`).

    States come in and rewards go out in the caller's units.
    """

    name = "vector"
    block: Mapping[str, tuple[int, int]] = MappingProxyType(
        {"cpu": (MODELS_PER_CALL, 64), "cuda": (MODELS_PER_CALL, 1024)}
    )
    rows_per_call = 64
    fewest_rows = 8
    blocks_per_task = 16

    def __init__(
        self,
        state_shape: tuple[int, ...],
        num_actions: int,
        hidden: tuple[int, ...] = (64, 64),
        units: Standardizer | None = None,
    ) -> None:
        """Layers from the numbers of a state through `hidden` to `num_actions`. Without `units` nothing is standardised."""
        self.state_shape, self.num_actions = state_shape, num_actions
        self._hidden = hidden
        self._layers = list(pairwise((math.prod(state_shape), *hidden, num_actions)))  # numbers in and out of each
        self._shapes = [shape for size, following in self._layers for shape in ((following, size), (following,))]
        self.num_parameters = sum(math.prod(shape) for shape in self._shapes)
        self.units = Standardizer.plain(math.prod(state_shape)) if units is None else units
        self._shift, self._scale = (
            torch.tensor(part, dtype=torch.float64) for part in (self.units.shift, self.units.scale)
        )
        self.reward_scale = self.units.reward
        """What all rewards are divided by, where they have one unit."""
        action_units = self.units.actions
        self.action_units = None if action_units is None else torch.tensor(action_units, dtype=torch.float32).T
        """Mean and deviation of each action's rewards, [2, A], where each has its own."""
        rewards_in = self.reward_scale if action_units is None else action_units
        self.constants = (self._shift, self._scale, torch.tensor(rewards_in, dtype=torch.float64))
        """Numbers beside weights and data that training depends on."""

    @classmethod
    def read(cls, described: Mapping[str, Any], path: object) -> VectorNetwork:
        """The network that `describe` described in a file."""
        shape: Any = described.get("state_shape")
        hidden: Any = described.get("hidden")
        if not is_shape(shape) or not is_shape(hidden) or not are_counts(described.get("num_actions")):
            raise BadFileError(f"{path}: num_actions must be a count, and state_shape and hidden lists of them.")
        units = Standardizer.read(described.get("units"), math.prod(shape))
        if units is None:
            raise BadFileError(
                f"{path}: units must be shift and scale, {math.prod(shape)} numbers each, and reward (or a mean and a "
                "deviation for each action); no scale is 0 or less."
            )
        if units.actions is not None and len(units.actions) != described["num_actions"]:
            raise BadFileError(
                f"{path}: units of {len(units.actions)} actions, where there are {described['num_actions']}."
            )
        return cls(tuple(shape), described["num_actions"], tuple(hidden), units)

    def module(self) -> nn.Module:
        """The layers as a PyTorch module, with initial weights of its own."""
        layers: list[nn.Module] = []
        for size, following in self._layers:
            layers += [nn.Linear(size, following), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    @property
    def title(self) -> str:
        """A name for the architecture in folders of unfinished work."""
        return self.name if self.action_units is None else f"{self.name}, each action in units of its own"

    def describe(self) -> dict[str, Any]:
        """Shape of a state, sizes of the layers, and units."""
        return {
            "state_shape": list(self.state_shape),
            "num_actions": self.num_actions,
            "hidden": list(self._hidden),
            "units": self.units.describe(),
        }

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Initial weights as PyTorch draws them, [P]."""
        return initial_weights(self.module, rng)

    def as_states(self, states: Any) -> tuple[Tensor, ...]:
        """States as standardised rows [S, F], checked for the shape that the network was made for.

        Shifted in float64: a feature such as a time varies by less than float32 resolves.
        """
        if isinstance(states, Mapping):
            raise InvalidInputError(
                "states: columns by name, but the belief was trained on arrays without names; pass an array in the order of "
                "the training, or train on a frame or a dictionary."
            )
        rows = as_inputs(states, self.state_shape).flatten(1).double()
        return (((rows - self._shift.to(rows.device)) / self._scale.to(rows.device)).float(),)

    def predict(self, parameters: Tensor, *states: Tensor) -> Tensor:
        """Every model's rewards, in the caller's units: [M, P], rows of `as_states` -> [M, S, A].

        Layers are as wide as whole cache lines, with units of weight 0 beside their own: narrower ones may round a row by its
        position among the others.
        """
        return self.predict_by(self.layers_of(parameters), *states)

    def layers_of(self, parameters: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each layer's bias [M, 1, out] and kernel [M, in, out], as wide as whole cache lines, from weights [M, P]."""
        part = split_parameters(parameters, self._shapes)
        return [
            (aligned(bias, 1).unsqueeze(1), aligned(kernel, 1, 2).transpose(1, 2))
            for kernel, bias in zip(part[::2], part[1::2], strict=True)
        ]

    def predict_by(self, layers: list[tuple[Tensor, Tensor]], *states: Tensor) -> Tensor:
        """`predict` with the result of `layers_of`, which can be kept: it takes longer than the prediction of a single row."""
        activations = aligned(states[0], 1).expand(len(layers[0][0]), -1, -1)
        for number, (bias, kernel) in enumerate(layers, start=1):
            activations = torch.baddbmm(bias, activations, kernel)
            activations = activations.relu_() if number < len(layers) else activations
        predictions = activations[..., : self.num_actions]
        if self.action_units is None:
            return predictions * self.reward_scale
        mean, deviation = self.action_units.to(predictions.device)
        return predictions * deviation + mean

    def gradient(self, parameters: Tensor, inputs: Tensor, targets: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
        """Loss of each model on its own batch, and its gradient: [M, P], [M, B, F], [M, B, A] -> [M], [M, P].

        The chain rule, written out: several times as fast as `torch.func` at this size. `loss` is given predictions in the
        network's units.
        """
        part = split_parameters(parameters, self._shapes)
        kernels, biases = part[::2], part[1::2]  # [M, out, in], [M, out]
        activations = [inputs]
        for number, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
            following = torch.baddbmm(bias.unsqueeze(1), activations[-1], kernel.transpose(1, 2))
            activations.append(following.relu_() if number < len(kernels) - 1 else following)
        losses, slope = loss(activations.pop(), targets)
        gradients: list[Tensor] = []
        for kernel in reversed(kernels):
            before = activations.pop()
            gradients[:0] = [torch.bmm(slope.transpose(1, 2), before).flatten(1), slope.sum(dim=1)]
            slope = torch.ops.aten.threshold_backward(torch.bmm(slope, kernel), before, 0)  # zero where the ReLU is
        return losses, torch.cat(gradients, dim=1)
