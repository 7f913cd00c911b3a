"""What one would do about novel rows of a table instead: an ordinary forest, and one careful action beyond a threshold.

Each rule has a score of how doubtful a row is: a forest by its own confidence, the two distances by how far a row is from the
training rows. Rows with a score above the threshold get the careful action; all others what the forest says.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cautious.errors import MissingPackageError

NUM_TREES, NUM_NEIGHBOURS = 200, 3
INSTALL = "pip install 'cautious[sklearn]'"


class Known(NamedTuple):
    """What a rule learns from, and the rows that it decides about."""

    states: np.ndarray
    """Training rows, [S, D]."""
    labels: np.ndarray
    """The number of each training row's label, [S]."""
    asked: np.ndarray
    """Rows to decide about, [B, D]."""
    num_labels: int
    """L."""
    seed: int
    """Of the forest."""


def check_installed(what: str) -> None:
    """Raise unless scikit-learn, which has the forest and the distances, can be imported.

    Raises:
        MissingPackageError: It is not installed, and `what` needs it.
    """
    if importlib.util.find_spec("sklearn") is None:
        raise MissingPackageError(f"{what} needs scikit-learn, which is not installed: {INSTALL}.")


def forest_probabilities(known: Known) -> np.ndarray:
    """How likely each label is in each row by a random forest, [B, L]; 0 for labels that training did not have."""
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(NUM_TREES, random_state=known.seed % 2**32).fit(known.states, known.labels)
    probabilities = np.zeros((len(known.asked), known.num_labels))
    probabilities[:, forest.classes_] = forest.predict_proba(known.asked)
    return probabilities


def forest_doubt(known: Known, probabilities: np.ndarray) -> np.ndarray:
    """1 less the probability of the most likely label, [B]."""
    return np.asarray(1 - probabilities.max(axis=1))


def neighbour_distance(known: Known, probabilities: np.ndarray) -> np.ndarray:
    """Mean distance to the three nearest training rows, on standardised features, [B]."""
    from sklearn.neighbors import NearestNeighbors

    states, asked = _standardised(known)
    neighbours = NearestNeighbors(n_neighbors=min(NUM_NEIGHBOURS, len(states))).fit(states)
    return np.asarray(neighbours.kneighbors(asked)[0].mean(axis=1))


def mahalanobis_distance(known: Known, probabilities: np.ndarray) -> np.ndarray:
    """Mahalanobis distance from the training rows, with the covariance of Ledoit and Wolf (2004), [B]."""
    from sklearn.covariance import LedoitWolf

    states, asked = _standardised(known)
    return np.asarray(LedoitWolf().fit(states).mahalanobis(asked))


SCORES: dict[str, Callable[[Known, np.ndarray], np.ndarray]] = {
    "random forest": forest_doubt,
    "nearest neighbours": neighbour_distance,
    "Mahalanobis": mahalanobis_distance,
}
"""The rules by name: how doubtful each row is."""


def referring(doubt: np.ndarray, ordinary: np.ndarray, careful: np.ndarray, familiar: int, allowed: int) -> np.ndarray:
    """Actions [B] of the rule at its lowest threshold at which at most `allowed` familiar decisions depart.

    Args:
        doubt: Score of each row, [B].
        ordinary: What one would do without a threshold, [B].
        careful: The action beyond the threshold, [B].
        familiar: How many rows, the first ones, are familiar; the threshold is set on these.
        allowed: How many of their decisions may differ from the ordinary ones.

    >>> referring(np.array([0.1, 0.2, 0.3, 0.9]), np.array([0, 0, 1, 1]), np.ones(4, dtype=int), 3, allowed=1).tolist()
    [0, 1, 1, 1]
    """
    own = doubt[:familiar]
    thresholds = np.append(np.unique(own)[::-1], -np.inf)
    departing = ((own > thresholds[:, None]) & (ordinary != careful)[:familiar]).sum(axis=1)
    lowest = thresholds[np.flatnonzero(departing <= allowed)[-1]]
    return np.where(doubt > lowest, careful, ordinary)


def _standardised(known: Known) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(known.states)
    return scaler.transform(known.states), scaler.transform(known.asked)
