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

import numpy as np
import torch
from torch import Tensor

from cautious.solvers.duel import Bounds, Duel
from cautious.solvers.envelope import EXACT, EnvelopeGame

STABILITY = 0.5
"""Share of the best weights so far in the weights that the policy is asked to answer."""

MOST_CORNERS = 10
"""Corners of the envelope that the adversary adds in one round, at most."""


def improve(duel: Duel, bounds: Bounds, unit: float, max_policies: int) -> Iterator[int]:
    """Add policies; yields their number after each round, until the two oracles agree.

    Args:
        duel: What is solved.
        bounds: The best known, updated in place; the search begins from its policy and weights, if it has any.
        unit: The range of the rewards; the program is solved in this unit.
        max_policies: Most rounds.
    """
    game = EnvelopeGame(duel.rank_weights, unit=unit)
    occupancies: list[Tensor] = []

    def add(occupancy: Tensor) -> None:
        returns = duel.returns(occupancy)
        bounds.offer_policy(occupancy, returns)
        occupancies.append(occupancy)
        game.add(returns)

    weights = np.full(len(duel.rank_weights), 1 / len(duel.rank_weights)) if bounds.weights is None else bounds.weights
    if bounds.occupancy is not None:
        add(bounds.occupancy)
    game.add_corner(weights)
    answer = None
    for number in range(1, max_policies + 1):
        upper = bounds.upper
        answer, _ = bounds.offer_weights(weights, answer)
        add(duel.evaluate(answer).occupancy[0])
        found = game.solve(MOST_CORNERS)
        bounds.offer_policy(_mixed(found.mixture, occupancies), found.mixture @ game.rows)
        yield number
        if bounds.upper - found.value <= EXACT * unit:
            return
        weights = found.weights
        if bounds.upper >= upper and bounds.weights is not None:
            weights = (1 - STABILITY) * found.weights + STABILITY * bounds.weights


def _mixed(shares: np.ndarray, occupancies: list[Tensor]) -> Tensor:
    """Σ_k p_k x_k, [S, A]."""
    used = np.flatnonzero(shares)
    return torch.stack([float(shares[k]) * occupancies[k] for k in used]).sum(dim=0)
