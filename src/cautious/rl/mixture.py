"""Which models count in the next step of learning, and how much: a place of `KofNPPO` to put a rule of one's own.

The gradient of the k-of-N value at a policy is the gradient of its return under one reward function, the rank-weighted mixture
of the models in the order of that policy's returns. Those weights jump where two returns change order, and the returns are
estimates. So a `Mixture` turns each rollout's estimates into weights that change gently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cautious.errors import InvalidInputError
from cautious.solvers.envelope import worst_weights
from cautious.validation import as_number


@runtime_checkable
class Mixture(Protocol):
    """What `KofNPPO(mixture=...)` takes: anything with a method `weights`.

    To be kept in files and checkpoints a mixture also has two methods: ``arrays()`` returns everything that its next answers
    depend on, as arrays by name (``{}`` if they depend on nothing), and ``restore(arrays)`` goes on from what a file holds.
    A mixture without them learns, but `save` and `learn(checkpoint_dir=...)` refuse it.
    """

    def weights(self, returns: np.ndarray, rank_weights: np.ndarray, last: np.ndarray | None) -> np.ndarray:
        """Weights of the M models, zero or more and of sum one, by which the newest rollout is paid.

        It is called once per rollout, before PPO learns from that rollout.

        Args:
            returns: Estimates of the models' normalised returns under the current policy, [M].
            rank_weights: The level's weight of the i-th worst model, [M], never increasing.
            last: What it returned for the last rollout, [M]; None before the first.

        Returns:
            Weights [M].
        """
        ...


@dataclass(frozen=True)
class RankedMixture:
    """The default: rank weights in the order of the returns, averaged exponentially over rollouts.

        v = (1 - c) v_last + c w_rank(returns),   c the smoothing; v = w_rank(returns) for the first rollout

    Every such average is a point of the level's risk envelope.

    >>> mixture = RankedMixture(smoothing=0.5)
    >>> first = mixture.weights(np.array([0.3, 0.1]), np.array([1.0, 0.0]), None)
    >>> first.tolist(), mixture.weights(np.array([0.1, 0.3]), np.array([1.0, 0.0]), first).tolist()
    ([0.0, 1.0], [0.5, 0.5])
    """

    smoothing: float = 0.2
    """Share of the newest ranking, in (0, 1]."""

    def __post_init__(self) -> None:
        """Check the share."""
        if not 0 < as_number(self.smoothing) <= 1:
            raise InvalidInputError(f"smoothing={self.smoothing!r} must lie in (0, 1].")

    def weights(self, returns: np.ndarray, rank_weights: np.ndarray, last: np.ndarray | None) -> np.ndarray:
        """As `Mixture.weights`."""
        ranked = worst_weights(returns, rank_weights)
        return ranked if last is None else (1 - self.smoothing) * last + self.smoothing * ranked

    def arrays(self) -> dict[str, np.ndarray]:
        """Nothing: the answer depends on the arguments alone."""
        return {}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from a file."""


def check_mixture(mixture: Any) -> Mixture:
    """The mixture, if it has the method that it needs."""
    if not callable(getattr(mixture, "weights", None)):
        raise InvalidInputError(
            f"mixture is a {type(mixture).__name__}; pass an object with weights(returns [M], rank_weights [M], last) -> [M], "
            "such as cautious.RankedMixture()."
        )
    checked: Mixture = mixture
    return checked


def can_be_saved(mixture: Mixture) -> bool:
    """Whether a file can hold where the mixture stands."""
    return callable(getattr(mixture, "arrays", None)) and callable(getattr(mixture, "restore", None))
