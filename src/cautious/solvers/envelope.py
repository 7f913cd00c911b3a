"""The risk envelope: all mixtures of reward models that a level's adversary may set against a policy.

It is the convex hull of the permutations of the rank weights w_1 >= .. >= w_M, also called a permutahedron:

    W = conv { (w_p(1), .., w_p(M)) : p a permutation }

A level's value of returns J is the least Σ_m v_m J_m over v in W. The answer v is a permutation, the largest weight at the
lowest return (`worst_weights`). A player who moves in small steps needs the point of W next to any other (`project`). A
mixture of policies plays a matrix game against W (`EnvelopeGame`), whose corners are found as they are needed:

    max over mixtures p of K rows    min over w in W    Σ_k p_k rows[k] · w
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.optimize
from scipy.optimize import isotonic_regression

from cautious.errors import SolverError

EXACT = 1e-10
"""The game counts as solved when the adversary's best answer improves on the known ones by less than this share of a unit."""


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


class Equilibrium(NamedTuple):
    """A solution of the game."""

    mixture: np.ndarray
    """p, [K]."""
    weights: np.ndarray
    """The adversary's mixture of the corners known, w [M]."""
    value: float
    """The rank-weighted value of the mixture of rows, by sorting."""


class EnvelopeGame:
    """Rows of returns [M], and the points of the envelope that answered so far; both only grow."""

    def __init__(self, rank_weights: np.ndarray, rows: np.ndarray | None = None, unit: float | None = None) -> None:
        """Begin with some rows [K, M], or without.

        Args:
            rank_weights: By rank, the worst first, [M].
            rows: Returns of K policies, [K, M].
            unit: By which differences are judged (`EXACT`); if not given, the largest return.
        """
        self._rank_weights = rank_weights
        self._unit = unit
        self._rows: list[np.ndarray] = []
        self._corners: list[np.ndarray] = []
        for row in () if rows is None else rows:
            self.add(row)

    @property
    def rows(self) -> np.ndarray:
        """[K, M]."""
        return np.array(self._rows)

    def add(self, row: np.ndarray) -> None:
        """One more row, and the adversary's answer to it alone."""
        self._rows.append(row)
        self.add_corner(worst_weights(row, self._rank_weights))

    def add_corner(self, corner: np.ndarray) -> None:
        """One more point of the envelope, [M], if it is new."""
        if not any(np.array_equal(corner, known) for known in self._corners):
            self._corners.append(corner)

    def solve(self, most_corners: int | None = None) -> Equilibrium:
        """The best mixture of the rows against the whole envelope; or against what is known of it after so many new corners."""
        rows, before = self.rows, len(self._corners)
        rounding = EXACT * (np.abs(rows).max() if self._unit is None else self._unit)
        while True:
            corners = np.array(self._corners)
            mixture, answer, promised = _solve_matrix(rows @ corners.T)
            returns = mixture @ rows
            value = float(np.sort(returns) @ self._rank_weights)
            if promised - value > rounding and (most_corners is None or len(corners) < before + most_corners):
                self.add_corner(worst_weights(returns, self._rank_weights))
            if len(self._corners) == len(corners):
                return Equilibrium(mixture, answer @ corners, value)


def _solve_matrix(payoff: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Optimal mixtures (of rows, which want much; of columns, which want little) and the value of a matrix game [K, J]."""
    num_rows, num_columns = payoff.shape
    middle = payoff.mean()
    scale = max(np.abs(payoff - middle).max(), 1e-300)  # the program's tolerances are absolute
    result = scipy.optimize.linprog(
        np.r_[np.zeros(num_rows), -1.0],
        A_ub=np.c_[-(payoff.T - middle) / scale, np.ones(num_columns)],
        b_ub=np.zeros(num_columns),
        A_eq=np.r_[np.ones(num_rows), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, None)] * num_rows + [(None, None)],
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if result.status != 0:
        raise SolverError(f"solve_mdp: a linear program was not solved (HiGHS: {result.message}).")
    mixture, answer = np.clip(result.x[:num_rows], 0, None), np.clip(-result.ineqlin.marginals, 0, None)
    return mixture / mixture.sum(), answer / answer.sum(), float(result.x[-1] * scale + middle)
