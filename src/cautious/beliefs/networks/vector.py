"""The default network for vectors, M of them stacked."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from cautious.beliefs.fixed_shapes import aligned
from cautious.beliefs.networks.module import ModuleNetwork, as_inputs
from cautious.beliefs.standardizer import Standardizer
from cautious.beliefs.training.loss import squared_error


class VectorNetwork(ModuleNetwork):
    """The default for vectors: two hidden layers with ReLU, between numbers in units of their own (`Standardizer`).

    States come in and rewards go out in the caller's units; losses are in those of the rewards, squared.
    """

    name = "vector"

    def __init__(
        self,
        state_shape: tuple[int, ...],
        num_actions: int,
        hidden: tuple[int, ...] = (64, 64),
        units: Standardizer | None = None,
    ) -> None:
        """Layers from all numbers of a state over `hidden` to `num_actions`; without `units`, numbers as they are."""
        num_inputs = math.prod(state_shape)
        own = Standardizer.plain(num_inputs) if units is None else units
        self._shift, self._scale = (torch.tensor(part, dtype=torch.float64) for part in (own.shift, own.scale))
        self._reward = own.reward
        self._actions = None if own.actions is None else torch.tensor(own.actions, dtype=torch.float32).T  # [2, A]
        rewards_in = own.reward if own.actions is None else own.actions
        self.constants = (self._shift, self._scale, torch.tensor(rewards_in, dtype=torch.float64))
        self._described = {
            "state_shape": list(state_shape),
            "num_actions": num_actions,
            "hidden": list(hidden),
            "units": own.describe(),
        }

        def make() -> nn.Module:
            layers: list[nn.Module] = []
            for size, following in zip((num_inputs, *hidden), (*hidden, num_actions), strict=True):
                layers += [nn.Linear(size, following), nn.ReLU()]
            return nn.Sequential(*layers[:-1])

        super().__init__(make, torch.zeros(2, num_inputs, dtype=torch.float32))
        self.state_shape = state_shape

    @property
    def title(self) -> str:
        """Sizes follow from the data, and the rest is always the same, but for the rewards' units."""
        return self.name if self._actions is None else f"{self.name}, each action in units of its own"

    def describe(self) -> dict[str, Any]:
        """Shape of a state, sizes of the layers, and units."""
        return dict(self._described)

    def as_states(self, states: Any) -> tuple[Tensor, ...]:
        """States of the shape that the network was made for, each as one row, in the network's units.

        Shifted in float64: a feature such as a time varies by less than float32 tells apart.
        """
        rows = as_inputs(states, self.state_shape).flatten(1).double()
        return (((rows - self._shift.to(rows.device)) / self._scale.to(rows.device)).float(),)

    def predict(self, parameters: Tensor, *states: Tensor) -> Tensor:
        """Every model's rewards, in the caller's units: [M, P], rows of `as_states` -> [M, S, A]."""
        predictions = self._forward(parameters, states[0])
        if self._actions is None:
            return predictions * self._reward
        mean, deviation = self._actions.to(predictions.device)
        return predictions * deviation + mean

    def _forward(self, parameters: Tensor, rows: Tensor) -> Tensor:
        """Predictions in the network's units: [M, P], [S, F] -> [M, S, A].

        Layers are as wide as whole cache lines, with units of weight 0 beside their own: narrower ones may round a row by its
        position among the others.
        """
        part = list(self.split(parameters).values())
        seen = aligned(rows, 1).expand(len(parameters), -1, -1)
        for number, (kernel, bias) in enumerate(zip(part[::2], part[1::2], strict=True)):
            seen = torch.baddbmm(aligned(bias, 1).unsqueeze(1), seen, aligned(kernel, 1, 2).transpose(1, 2))
            seen = seen.relu_() if 2 * number + 2 < len(part) else seen
        return seen[..., : part[-1].shape[1]]

    def _block_step(
        self, parameters: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """By the chain rule, written out: several times as fast as `torch.func` at this size.

        The gradient is that of the loss in the network's units, so that a learning rate means the same in any.
        """
        part = list(self.split(parameters).values())
        kernels, biases = part[::2], part[1::2]  # [W, out, in], [W, out]
        seen = [inputs]
        for number, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
            following = torch.baddbmm(bias.unsqueeze(1), seen[-1], kernel.transpose(1, 2))
            seen.append(following.relu_() if number < len(kernels) - 1 else following)
        losses, slope = self._loss_and_slope(seen.pop(), targets, weights)
        gradients: list[Tensor] = []
        for kernel in reversed(kernels):
            before = seen.pop()
            gradients[:0] = [torch.bmm(slope.transpose(1, 2), before).flatten(1), slope.sum(dim=1)]
            slope = torch.ops.aten.threshold_backward(torch.bmm(slope, kernel), before, 0)  # zero where the ReLU is
        return losses, torch.cat(gradients, dim=1)

    def _loss_and_slope(self, predictions: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Losses in the rewards' units, squared [W], and the slope in the network's units, [W, B, A]."""
        size = targets.shape[1]
        if self._actions is None:
            losses, slope = squared_error(predictions, targets / self._reward, weights, size)
            return losses * self._reward**2, slope
        mean, deviation = self._actions.to(targets.device)
        centred = targets - mean
        losses, _ = squared_error(predictions * deviation, centred, weights, size)
        _, slope = squared_error(predictions, centred / deviation, weights, size)
        return losses, slope
