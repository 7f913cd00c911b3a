"""The bounds of Theorems 1 to 3, for regret matching in every state."""

from __future__ import annotations

import math

from cautious.errors import InvalidInputError


def cumulative_regret_bound(reward_bound: float, num_actions: int, num_iterations: int) -> float:
    """Most that the regret for any one action in any one state can add up to.

        C^T = 2 U √(A T)

    Section 5, before Theorem 1; also holds for regret matching+.

    Args:
        reward_bound: U, the largest |reward|.
        num_actions: A.
        num_iterations: T.
    """
    return 2 * reward_bound * math.sqrt(num_actions * num_iterations)


def cfr_regret_bound(reward_bound: float, num_actions: int, num_iterations: int, discount: float) -> float:
    """Theorem 1: full regret of CFR against any stationary policy, C^T / (1 - γ)."""
    return cumulative_regret_bound(reward_bound, num_actions, num_iterations) / (1 - discount)


def sampling_slack(reward_bound: float, num_iterations: int, failure_probability: float) -> float:
    """What drawing N models, instead of integrating over the belief, adds to the regret with probability 1 - p.

        4 U √(2 T log(1/p))

    The martingale term of Theorem 2. It is zero with exact rank weights: pass p = 1.
    """
    if not 0 < failure_probability <= 1:
        raise InvalidInputError(f"failure_probability={failure_probability} must lie in (0, 1]; 1 means no sampling.")
    return 4 * reward_bound * math.sqrt(2 * num_iterations * math.log(1 / failure_probability))


def k_of_n_regret_bound(
    reward_bound: float, num_actions: int, num_iterations: int, discount: float, failure_probability: float
) -> float:
    """Theorem 2: full regret of k-of-N CFR, C^T / (1 - γ) + 4 U √(2 T log(1/p)), with probability 1 - p."""
    return cfr_regret_bound(reward_bound, num_actions, num_iterations, discount) + sampling_slack(
        reward_bound, num_iterations, failure_probability
    )


def optimality_gap(
    reward_bound: float, num_actions: int, num_iterations: int, discount: float, failure_probability: float
) -> float:
    """Theorem 3: ε^T, by which the best policy of the sequence may miss the k-of-N optimum, with probability 1 - p.

    A policy drawn at random from the sequence misses it by at most ε^T / q with probability (1 - p)(1 - q).
    """
    bound = k_of_n_regret_bound(reward_bound, num_actions, num_iterations, discount, failure_probability)
    return bound / num_iterations
