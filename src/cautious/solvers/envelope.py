"""The risk envelope: all mixtures of reward models that a level's adversary may set against a policy.

It is the convex hull of the permutations of the rank weights w_1 >= .. >= w_M, also called a permutahedron:

    W = conv { (w_p(1), .., w_p(M)) : p a permutation }

A level's value of returns J is the least Σ_m v_m J_m over v in W. The answer v is a permutation, the largest weight at the
lowest return (`worst_weights`). A player who moves in small steps needs the point of W next to any other (`project`).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression


def worst_weights(returns: np.ndarray, rank_weights: np.ndarray) -> np.ndarray:
    """The weights of the envelope under which returns are worth least: [M], [M] -> [M].

    Args:
        returns: J_m, [M]; equal ones keep the order of the models.
        rank_weights: By rank, the worst first, [M].
    """
    weights = np.empty_like(rank_weights)
    weights[np.argsort(returns, kind="stable")] = rank_weights
    return weights


def project(point: np.ndarray, rank_weights: np.ndarray) -> np.ndarray:
    """The point of the envelope that is nearest to another, [M] -> [M].

    Sort z so that it never increases. Then the nearest point is z - d, where d is the never-increasing sequence that is
    nearest to z - w: one isotonic regression (Lim and Wright, 2016; Negrinho and Martins, 2014).

    Args:
        point: z, any numbers, [M].
        rank_weights: By rank, never increasing, [M].
    """
    order = np.argsort(-point, kind="stable")
    excess = isotonic_regression(point[order] - rank_weights, increasing=False).x
    nearest = np.empty_like(point)
    nearest[order] = point[order] - excess
    return nearest


def diameter(rank_weights: np.ndarray) -> float:
    """The largest distance between two points of the envelope: between the rank weights in order and in reverse."""
    return float(np.linalg.norm(rank_weights - rank_weights[::-1]))
