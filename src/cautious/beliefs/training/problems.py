"""What networks are trained on: familiar data, and the loss."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.networks.module import MODELS_PER_CALL, ModuleNetwork
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.beliefs.training.state import MiniBatch
from cautious.errors import InvalidInputError
from cautious.io.arrays import fingerprint_of
from cautious.validation import as_float_tensor, check_finite, check_shape, check_size

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
