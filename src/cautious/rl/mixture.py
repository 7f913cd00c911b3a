"""Which models count, and how much: rank weights of the current policy's returns, averaged over rollouts.

The gradient of the k-of-N value at a policy is the gradient of its return under one reward function, the rank-weighted mixture
of the models in the order of that policy's returns. Weights jump where two returns change order, so PPO is paid by an
exponential average of them: a point of the risk envelope, as every average of rank weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cautious.risk import RiskMeasure, ranked_weights, weights_by_rank


@dataclass(frozen=True)
class Blended:
    """A level that has come in so far, by rank weights (1 - share) / M + share w."""

    level: RiskMeasure
    share: float

    def __str__(self) -> str:
        """The level, and how far it has come in."""
        return f"{self.share:.0%} of {self.level}"

    def rank_weights(self, num_models: int) -> Tensor:
        """Weight of the i-th worst of M models, [M]."""
        return (1 - self.share) / num_models + self.share * weights_by_rank(self.level, num_models)


class Mixture:
    """Weights of M models, updated once per rollout.

    Attributes:
        weights: [M]; what PPO is paid by.
        average: [M]; the average of the rank weights of all rollouts, later ones counting more.
        returns: [M]; the estimates that the last ranking used, up to a common factor.
    """

    def __init__(self, num_models: int, smoothing: float) -> None:
        """Begin with the mean of all models."""
        self.smoothing = smoothing
        self.weights = np.full(num_models, 1 / num_models)
        self.average = self.weights.copy()
        self.num_updates = 0
        self._sums, self._visits = np.zeros(num_models), 0.0
        self._paid = np.zeros(3)  # number, sum and sum of squares of the rewards paid

    @property
    def returns(self) -> np.ndarray:
        """Normalised returns of the models, from recent rollouts, [M]."""
        return self._sums / max(self._visits, 1e-300)

    def update(self, rewards: np.ndarray, visits: np.ndarray, level: RiskMeasure) -> None:
        """Rank the models by their returns in a rollout.

        Args:
            rewards: [M, B], what each model pays for each step.
            visits: [B], the weight of each step in the discounted return.
            level: The level of caution.
        """
        # A rollout that has only late steps of long episodes says little: it adds as little as it weighs.
        keep = 1 - self.smoothing if self.num_updates else 0.0
        self._sums = keep * self._sums + rewards @ visits
        self._visits = keep * self._visits + float(visits.sum())
        by_rank = weights_by_rank(level, len(rewards))
        ranked = ranked_weights(torch.from_numpy(self._sums), by_rank).numpy()
        share = self.smoothing if self.num_updates else 1.0
        self.weights = (1 - share) * self.weights + share * ranked
        self.num_updates += 1
        self.average = self.average + 2 / (self.num_updates + 1) * (ranked - self.average)

    def pay(self, rewards: np.ndarray) -> np.ndarray:
        """The mixture's rewards [B] of steps that the models reward by [M, B]."""
        paid = self.weights @ rewards
        self._paid += len(paid), paid.sum(), (paid**2).sum()
        return paid

    def scale(self, discount: float) -> float:
        """A factor by which discounted returns of what was paid vary by one, if rewards are independent: √(1 - γ²) / s."""
        number, total, squares = self._paid
        variance = squares / number - (total / number) ** 2
        return math.sqrt((1 - discount**2) / variance) if variance > 1e-12 * squares / number else 1.0

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file holds of it, with `num_updates`."""
        return {
            "weights": self.weights,
            "average": self.average,
            "sums": self._sums,
            "visits": np.array([self._visits]),
            "paid": self._paid,
        }

    def restore(self, arrays: dict[str, np.ndarray], num_updates: int) -> None:
        """Go on from what `arrays` returned."""
        self.weights, self.average, self._sums = arrays["weights"], arrays["average"], arrays["sums"]
        self._visits, self._paid, self.num_updates = float(arrays["visits"][0]), arrays["paid"], num_updates
