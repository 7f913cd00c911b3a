"""The loss that every reward model is trained on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cautious.errors import InvalidInputError
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
