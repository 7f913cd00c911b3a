"""Double oracle: a small linear program over the answers found so far, and answers to its solution until none is new.

Let J_1 .. J_K be the returns [M] of policies found so far, and v_1 .. v_C weights of the risk envelope found so far. One
round:

    max_p min_c  v_c · Σ_k p_k J_k          p a distribution over policies, by HiGHS; its dual λ mixes the weights
    the adversary answers J = Σ_k p_k J_k   by a sort: weights v_{C+1}, until the value of p is known
    the policy answers v = Σ_c λ_c v_c      by an ordinary MDP solve: policy K+1, and an upper bound

(McMahan, Gordon and Blum, 2003.) Where the models' doubts are shared between states, as a rule ten MDP solves give the
optimum; where every state has doubts of its own it takes hundreds, and `solvers.learning` is quicker. Plain cutting planes
also jump from one end of the envelope to the other: after a round that lowered no bound, the policy is asked at a point
between the program's weights and the best so far (`STABILITY`; Wentges, 1997).

The distribution p over policies is one stationary policy: its occupancy is Σ_k p_k x_k, as transitions are certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from cautious.solvers.duel import Bounds, Duel

STABILITY = 0.5
"""Share of the best weights so far in the weights that the policy is asked to answer."""

MOST_RANKINGS = 10
"""Rankings that the adversary adds in one round, at most."""

EXACT = 1e-10
"""Share of the range of the rewards below which a difference is the linear program's rounding."""


@dataclass
class Found:
    """Answers of both players so far."""

    occupancies: list[Tensor] = field(default_factory=list)
    """x_k, each [S, A]."""
    returns: list[np.ndarray] = field(default_factory=list)
    """J_k, each [M]."""
    rankings: list[np.ndarray] = field(default_factory=list)
    """v_c, each [M]."""

    def add_policy(self, bounds: Bounds, occupancy: Tensor) -> None:
        """A policy, and the adversary's answer to it."""
        returns = bounds.duel.returns(occupancy)
        self.occupancies.append(occupancy)
        self.returns.append(returns)
        self.rankings.append(bounds.offer_policy(occupancy, returns))


def improve(duel: Duel, bounds: Bounds, unit: float, max_policies: int) -> Iterator[int]:
    """Add policies; yields their number after each round, until the two oracles agree.

    Args:
        duel: What is solved.
        bounds: The best known, updated in place; the search begins from its policy and weights, if it has any.
        unit: The range of the rewards; the program is solved in this unit.
        max_policies: Most rounds.
    """
    found = Found()
    weights = np.full(len(duel.rank_weights), 1 / len(duel.rank_weights)) if bounds.weights is None else bounds.weights
    if bounds.occupancy is not None:
        found.add_policy(bounds, bounds.occupancy)
    found.rankings.append(weights)
    answer = None
    for number in range(1, max_policies + 1):
        upper = bounds.upper
        answer, _ = bounds.offer_weights(weights, answer)
        occupancy = duel.evaluate(answer).occupancy[0]
        found.add_policy(bounds, occupancy)
        program_weights, value = _mix(bounds, found, unit)
        yield number
        if bounds.upper - value <= EXACT * unit:
            return
        weights = program_weights
        if bounds.upper >= upper and bounds.weights is not None:
            weights = (1 - STABILITY) * program_weights + STABILITY * bounds.weights


def _mix(bounds: Bounds, found: Found, unit: float) -> tuple[np.ndarray, float]:
    """The best distribution over the policies found: its worst weights [M] and its value; the bounds are told."""
    returns, rankings = np.stack(found.returns), found.rankings
    value = -np.inf
    for _ in range(MOST_RANKINGS):
        shares, duals, promised = _solve_program(np.stack(rankings) @ returns.T / unit)
        mixed = shares @ returns
        ranking = bounds.duel.worst(mixed)
        value = float(ranking @ mixed)
        if value > bounds.lower:
            bounds.offer_policy(_mixed(shares, found.occupancies), mixed)
        if value >= promised * unit - EXACT * unit:
            break
        rankings.append(ranking)
    weights = duals @ np.stack(rankings[: len(duals)])
    return weights, value


def _mixed(shares: np.ndarray, occupancies: list[Tensor]) -> Tensor:
    """Σ_k p_k x_k, [S, A]."""
    used = np.flatnonzero(shares)
    return torch.stack([float(shares[k]) * occupancies[k] for k in used]).sum(dim=0)


def _solve_program(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """max_p min_c Σ_k values[c, k] p_k: (p [K], the mixture of the c that attains the minimum [C], the value)."""
    num_rankings, num_policies = values.shape
    middle = values.mean()
    result = scipy.optimize.linprog(
        np.concatenate([np.zeros(num_policies), [-1.0]]),  # variables p and v: maximise v
        A_ub=np.concatenate([middle - values, np.ones((num_rankings, 1))], axis=1),  # v <= Σ_k values[c, k] p_k
        b_ub=np.zeros(num_rankings),
        A_eq=np.concatenate([np.ones(num_policies), [0.0]])[None],
        b_eq=[1.0],
        bounds=[(0, None)] * num_policies + [(None, None)],
        method="highs",
    )
    shares, duals = np.clip(result.x[:-1], 0, None), np.clip(-result.ineqlin.marginals, 0, None)
    return shares / shares.sum(), duals / duals.sum(), float(result.x[-1] + middle)
