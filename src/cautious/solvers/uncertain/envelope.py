"""The matrix game between a mixture of rows and an adversary in the risk envelope, by linear programs (HiGHS).

    max over mixtures λ of K rows    min over w in the envelope    Σ_k λ_k rows[k] · w

The envelope is the convex hull of all permutations of the rank weights. Those of its corners that matter are found one after
the other: the adversary's best answer to λ is a sort.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.optimize

from cautious.errors import SolverError
from cautious.solvers.uncertain.problem import UncertainProblem

EXACT = 1e-10
"""The game counts as solved when the adversary's best answer improves on the known ones by less than this share."""


class Equilibrium(NamedTuple):
    """A solution of the game."""

    mixture: np.ndarray
    """λ, [K]."""
    weights: np.ndarray
    """The adversary's mixture of corners, w [M]."""
    value: float
    """The rank-weighted value of the mixture of rows, by sorting."""


class EnvelopeGame:
    """Rows of returns [M], and the corners of the envelope that answered so far; both only grow."""

    def __init__(self, problem: UncertainProblem, rows: np.ndarray | None = None) -> None:
        """Begin with some rows [K, M], or without."""
        self._problem = problem
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
        self._add_corner(self._problem.ranked(row))

    def _add_corner(self, corner: np.ndarray) -> None:
        if not any(np.array_equal(corner, known) for known in self._corners):
            self._corners.append(corner)

    def solve(self) -> Equilibrium:
        """The best mixture of the rows, against the whole envelope."""
        rows = self.rows
        while True:
            corners = np.array(self._corners)
            mixture, answer, promised = _solve_matrix(rows @ corners.T)
            returns = mixture @ rows
            value = self._problem.value(returns)
            before = len(self._corners)
            if promised - value > EXACT * np.abs(rows).max():
                self._add_corner(self._problem.ranked(returns))
            if len(self._corners) == before:
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
