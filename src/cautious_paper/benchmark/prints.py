"""Numbers by which a problem is recognised, so that a version cannot change without notice.

Not a checksum of bytes: sums are rounded differently by different processors. A print has, for each array, its shape and a few
sums with fixed random weights; any change that is larger than rounding moves them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from cautious.baselines.comparing import Problem
from cautious.mdp.tabular import TabularMDP
from cautious.seeding import make_rng
from cautious.types import ArrayLike

TOLERANCE = 1e-6
"""Prints of the same problem differ by less than this, relative to the root of the sum of squares of an array."""


def fingerprint(problem: Problem) -> dict[str, list[float]]:
    """Name of each array of a problem -> its sizes, and weighted sums of its entries."""
    arrays: dict[str, Any] = {"rewards": problem.rewards, "start": problem.world.initial_state_dist}
    if isinstance(problem.world, TabularMDP):
        transitions = problem.world.transitions
        arrays["transitions"] = transitions if transitions.layout == torch.strided else transitions.to_dense()
        arrays |= {"truths": problem.truths, "novelty": problem.novelty}
        arrays |= {
            name: problem.extras[name]
            for name in ("features", "logged_features", "threshold", "novelty_weight", "action")
        }
    else:
        arrays["transitions"] = problem.world.transitions
        likely = torch.arange(1, problem.world.num_actions + 1, dtype=torch.float64)
        policy = (likely / likely.sum()).expand(
            problem.world.num_states, -1
        )  # the same in every state, later actions more
        arrays["truths"] = problem.returns(policy)
    return {name: _sums(array) for name, array in arrays.items()} | {"discount": [problem.world.discount]}


def same(one: dict[str, list[float]], other: dict[str, list[float]]) -> bool:
    """Whether two prints are those of the same problem."""
    return one.keys() == other.keys() and all(
        len(one[name]) == len(other[name]) and np.allclose(one[name], other[name], rtol=TOLERANCE, atol=TOLERANCE)
        for name in one
    )


def _sums(array: ArrayLike) -> list[float]:
    values = np.asarray(torch.as_tensor(array), dtype=np.float64)
    weights = make_rng(0, "print").standard_normal((2, values.size))
    size = float(np.linalg.norm(values))
    return [*map(float, values.shape), size, *(weights @ values.flatten() / max(size, 1e-300)).tolist()]
