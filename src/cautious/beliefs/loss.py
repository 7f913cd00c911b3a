"""The loss that every reward model is trained on."""

from __future__ import annotations

import torch
from torch import Tensor


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
