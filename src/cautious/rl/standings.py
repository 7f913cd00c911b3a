"""Where the M models stand after some rollouts: estimates of their returns, and their weights in what is learned from."""

from __future__ import annotations

import math

import numpy as np

from cautious.rl.belief import checked
from cautious.rl.mixture import Mixture
from cautious.validation import check_distribution


class Standings:
    """Returns and weights of M models, updated once per rollout.

    Attributes:
        weights: Weight of each model in what PPO learns from, [M].
        average: Their average over all rollouts, later ones counting more (the t-th counts t times), [M].
        num_rollouts: How many rollouts were counted.
    """

    def __init__(self, num_models: int, smoothing: float) -> None:
        """Begin with equal weights.

        Args:
            num_models: M.
            smoothing: Earlier rollouts count in the returns with weights that fall by the factor 1 - smoothing.
        """
        self.smoothing = smoothing
        self.weights = np.full(num_models, 1 / num_models)
        self.average = self.weights.copy()
        self.num_rollouts = 0
        self._sums, self._visits = np.zeros(num_models), np.zeros(num_models)
        self._paid = np.zeros(3)  # number, sum and sum of squares of the rewards paid

    @property
    def returns(self) -> np.ndarray:
        """Normalised returns of the models, from recent rollouts, [M]; 0 where a model has not been tried."""
        return self._sums / np.maximum(self._visits, 1e-300)

    def count(self, sums: np.ndarray, visits: np.ndarray) -> None:
        """Add what a rollout says about the returns.

        Args:
            sums: Discounted rewards, summed over what counts for each model, [M].
            visits: What each sum is to be divided by, [M]. A rollout that has only late steps of long episodes says little:
                it adds as little as it weighs.
        """
        keep = 1 - self.smoothing if self.num_rollouts else 0.0
        self._sums = keep * self._sums + sums
        self._visits = keep * self._visits + visits

    def weigh(self, mixture: Mixture, rank_weights: np.ndarray) -> None:
        """Ask a mixture for new weights."""
        last = self.weights if self.num_rollouts else None
        name = f"{type(mixture).__name__}.weights"
        given = checked(mixture.weights(self.returns, rank_weights, last), "M", name, M=len(self.weights))
        check_distribution(given, name)
        weights = given.double().numpy()
        self.weights = weights
        self.num_rollouts += 1
        self.average = self.average + 2 / (self.num_rollouts + 1) * (weights - self.average)

    def note_paid(self, paid: np.ndarray) -> None:
        """Count rewards [B] for `scale`."""
        self._paid += len(paid), paid.sum(), (paid**2).sum()

    def scale(self, discount: float) -> float:
        """A factor by which discounted returns of what was paid vary by one, if rewards are independent: √(1 - γ²) / s."""
        number, total, squares = self._paid
        variance = squares / number - (total / number) ** 2
        return math.sqrt((1 - discount**2) / variance) if variance > 1e-12 * squares / number else 1.0

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file holds of it, with `num_rollouts`; one number of visits where all models judge the same steps."""
        return {
            "weights": self.weights,
            "average": self.average,
            "sums": self._sums,
            "visits": self._visits if np.ptp(self._visits) else self._visits[:1],
            "paid": self._paid,
        }

    def restore(self, arrays: dict[str, np.ndarray], num_rollouts: int) -> None:
        """Go on from what `arrays` returned."""
        self.weights, self.average, self._sums = arrays["weights"], arrays["average"], arrays["sums"]
        self._visits = np.broadcast_to(arrays["visits"], self._sums.shape).copy()
        self._paid, self.num_rollouts = arrays["paid"], num_rollouts
