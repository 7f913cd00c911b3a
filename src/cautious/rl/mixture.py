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
from cautious.solvers.envelope import diameter, project, worst_weights
from cautious.validation import as_number


@runtime_checkable
class Mixture(Protocol):
    """What `KofNPPO(mixture=...)` takes: anything with a method `weights`.

    To be kept in files and checkpoints a mixture also has two methods: ``arrays()`` returns everything that its next answers
    depend on, as arrays by name (``{}`` if they depend on nothing), and ``restore(arrays)`` goes on from what a file holds. An
    array has the shape [M], or the one that it has before the first rollout.
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


class LearnedMixture:
    """An adversary who moves by gradient steps, and expects the next returns to be like the last.

        y = Π_W(y - η J),  v = Π_W(y - η J),  η = step diam(W) / ‖J‖

    J are the models' returns less their mean, W the level's risk envelope, Π_W the projection onto it
    (`cautious.solvers.envelope`). Among many models a few that tie at the bottom keep much the same weights from rollout to
    rollout, where their ranks would jump. All steps are of one length, so where all models tie the weights go round the best
    ones, and only their average comes to rest. docs/deep.md says where this helped and where it did not.

    >>> mixture = LearnedMixture(step=0.1)
    >>> returns, worst = np.array([0.3, 0.1]), np.array([1.0, 0.0])
    >>> mixture.weights(returns, worst, None).round(3).tolist()              # y is (0.4, 0.6), and v a step ahead
    [0.3, 0.7]
    """

    def __init__(self, step: float = 1.0) -> None:
        """A step is as long as the share `step` of the envelope's diameter, before it is projected."""
        if not 0 < as_number(step) < np.inf:
            raise InvalidInputError(f"step={step!r} must be a positive number.")
        self.step = float(step)
        self.centre = np.zeros(0)

    def weights(self, returns: np.ndarray, rank_weights: np.ndarray, last: np.ndarray | None) -> np.ndarray:
        """As `Mixture.weights`."""
        if last is None:
            self.centre = np.full(len(returns), 1 / len(returns))
        centred = returns - returns.mean()
        move = self.step * diameter(rank_weights) / max(float(np.linalg.norm(centred)), 1e-300) * centred
        self.centre = project(self.centre - move, rank_weights)
        weights = np.maximum(project(self.centre - move, rank_weights), 0)  # what rounding left
        return weights / weights.sum()

    def arrays(self) -> dict[str, np.ndarray]:
        """y; and the step, since checkpoints of runs with other steps are those of other runs."""
        return {"centre": self.centre, "step": np.array([self.step])}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from a file, with one's own step."""
        self.centre = arrays["centre"]


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
