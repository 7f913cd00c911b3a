"""k-of-N games of single states, compiled; each game ends when its policy is certified.

One iteration, for a state with rewards r(a, m) and a policy π [A]:

    v_m = Σ_a π(a) r(a, m)                    each model's value
    r̄(a) = Σ_i w_i r(a, m_i)                  the mixture that weighs the models by rank, m_1 the worst
    P(a) ← max(0, P(a) + r̄(a) - Σ_b π(b) r̄(b))   regret matching+ (Tammelin, 2014)
    π(a) ∝ P(a)

The best policy seen, or its average weighted by t, has the value `lower`. No policy has a higher k-of-N value than `upper`, the
largest entry of the averaged mixture: a point of the risk envelope (averaged over all iterations, or since the last power of
two; the lower bound counts). A game ends when `lower` and `upper` are close.

Sums have the order of the loops below on every CPU: no library routine is called, and the compiler may not reorder them. So
a state's bits depend on that state alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from cautious.ops.risk import KofN
from cautious.parallel import parallel_map
from cautious.progress import Progress, ProgressTracker

STATES_PER_TASK = 64
"""States per task of a thread; fewer where there are many models or levels, so that an interrupt does not wait for long."""
LARGEST_TASK = 2**18
"""Most states x models x levels per task."""

CHECK_AVERAGE = 10
"""The average policy is evaluated every this many iterations: often enough to stop in time, for a tenth of the work."""

MOST_COUNTED = 256
"""Most models that are sorted by counting, whose time grows with their square; above, by digits."""
DIGITS, DIGIT_BITS = 6, 11
"""Of the 64 bits that are sorted by."""
LOWEST = np.int64(-(2**63))


class StateGames(NamedTuple):
    """Policies and bounds of the games of S states at L levels."""

    policy: Tensor
    """The best policy of each, [L, S, A]."""
    lower: Tensor
    """Its exact k-of-N value, [L, S]."""
    upper: Tensor
    """Bound on every policy's value, [L, S]."""


def play_states(
    rewards: Tensor,
    levels: Sequence[KofN],
    *,
    num_iterations: int,
    tolerance: float,
    progress: Progress | None = None,
) -> StateGames:
    """Play the game of every state at every level, on all threads.

    Args:
        rewards: What each of M models says each action pays, [M, S, A], on the CPU.
        levels: L levels.
        num_iterations: Most iterations per game.
        tolerance: A game ends when its gap is at most this share of the range of the state's rewards.
        progress: Called with (tasks done, tasks in all).
    """
    num_models, num_states, num_actions = rewards.shape
    weights = np.stack([level.rank_weights(num_models).numpy() for level in levels])
    policy = np.empty((len(levels), num_states, num_actions))
    bounds = np.empty((2, len(levels), num_states))

    size = max(1, min(STATES_PER_TASK, LARGEST_TASK // (num_models * len(levels))))

    def play(task: int) -> None:
        states = slice(task * size, (task + 1) * size)
        state_rewards = rewards[:, states].double()
        by_model, by_action = (
            np.ascontiguousarray(state_rewards.permute(order).numpy()) for order in ((1, 0, 2), (1, 2, 0))
        )  # [s, M, A] and [s, A, M]
        # Fresh arrays: a view of a larger one has another type, for which the functions would be compiled again.
        played, certified = (
            np.empty((len(levels), len(by_model), num_actions)),
            np.empty((2, len(levels), len(by_model))),
        )
        _play_batch(by_model, by_action, weights, num_iterations, float(tolerance), played, certified)
        policy[:, states], bounds[:, :, states] = played, certified
        tracker.report(task)

    num_tasks = -(-num_states // size)
    tracker = ProgressTracker(num_tasks, progress)
    parallel_map(play, num_tasks, tracker.stop if num_tasks > 1 else None)
    return StateGames(*(torch.from_numpy(part) for part in (policy, *bounds)))


def compiled(function: Callable[..., Any]) -> Any:
    """The function in machine code, compiled when it is first called; it releases the interpreter lock while it runs.

    The code is cached on disk, so that only the first process compiles, unless no folder is writable. No fast-math: sums keep
    their order.
    """
    options: Any = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # a package that cannot be written to, and no home either
        return numba.njit(function, **options)


@compiled
def _play_batch(by_model, by_action, rank_weights, num_iterations, tolerance, policy, bounds):  # type: ignore[no-untyped-def]
    """Play all states, rewards [s, M, A] and [s, A, M], at all levels [L, M] into `policy` [L, s, A] and `bounds` [2, L, s]."""
    for state in range(by_model.shape[0]):
        models, actions = by_model[state], by_action[state]  # the same rewards, [M, A] and [A, M]
        limit = tolerance * (models.max() - models.min())
        for level in range(rank_weights.shape[0]):
            lower, upper = _game(models, actions, rank_weights[level], num_iterations, limit, policy[level, state])
            bounds[0, level, state] = lower
            bounds[1, level, state] = upper


@compiled
def _game(by_model, by_action, rank_weights, num_iterations, limit, best):  # type: ignore[no-untyped-def]
    """One state's game, rewards [M, A] and [A, M]: the best policy into `best` [A]; returns its value and a bound on all."""
    num_models, num_actions = by_model.shape
    policy, regret = np.full(num_actions, 1.0 / num_actions), np.zeros(num_actions)
    policy_sum, mixture_sum, recent_sum = np.zeros(num_actions), np.zeros(num_actions), np.zeros(num_actions)
    average, mixture, values = np.empty(num_actions), np.empty(num_actions), np.empty(num_models)
    order = np.empty(num_models, np.int64)
    lower, upper, total, recent, restart = -np.inf, np.inf, 0.0, 0.0, 1
    for t in range(num_iterations):
        value = evaluate(by_model, by_action, policy, rank_weights, order, values, mixture)
        if value >= lower:
            lower = value
            best[:] = policy
        if t == restart:  # forget early answers to poor policies, which would loosen the bound
            recent_sum[:] = 0.0
            recent = 0.0
            restart *= 2
        total += t + 1.0
        recent += t + 1.0
        largest, largest_recent = -np.inf, -np.inf
        for a in range(num_actions):
            policy_sum[a] += (t + 1.0) * policy[a]
            mixture_sum[a] += (t + 1.0) * mixture[a]
            recent_sum[a] += (t + 1.0) * mixture[a]
            largest = max(largest, mixture_sum[a])
            largest_recent = max(largest_recent, recent_sum[a])
        upper = min(upper, largest / total, largest_recent / recent)
        positive = 0.0
        for a in range(num_actions):
            regret[a] = max(0.0, regret[a] + mixture[a] - value)  # value = Σ_b π(b) r̄(b)
            positive += regret[a]
        for a in range(num_actions):
            policy[a] = regret[a] / positive if positive > 0.0 else 1.0 / num_actions
        if (t + 1) % CHECK_AVERAGE == 0 or t + 1 == num_iterations:
            weight = 0.0
            for a in range(num_actions):
                weight += policy_sum[a]
            for a in range(num_actions):
                average[a] = policy_sum[a] / weight
            value = evaluate(by_model, by_action, average, rank_weights, order, values, mixture)
            if value >= lower:
                lower = value
                best[:] = average
        if upper - lower <= limit:
            break
    return lower, max(upper, lower)  # rounding may cross them where they meet


@compiled
def evaluate(by_model, by_action, policy, rank_weights, order, values, mixture):  # type: ignore[no-untyped-def]
    """The exact k-of-N value of a policy [A]; `order`, `values` [M] and `mixture` [A] are filled for it.

    The rewards come twice, [M, A] and [A, M]: models side by side for their values, actions side by side for the mixture.
    """
    num_models, num_actions = by_model.shape
    values[:] = 0.0
    for a in range(num_actions):
        if policy[a] != 0.0:
            for m in range(num_models):
                values[m] += policy[a] * by_action[a, m]
    _sort(order, values)
    mixture[:] = 0.0
    value = 0.0
    for i in range(num_models):
        weight = rank_weights[i]
        if weight == 0.0:
            break  # weights never increase
        m = order[i]
        value += weight * values[m]
        for a in range(num_actions):
            mixture[a] += weight * by_model[m, a]
    return value


@compiled
def _sort(order, values):  # type: ignore[no-untyped-def]
    """Models from the worst on, ties by number, into `order`; neither way depends on how the values were ordered before."""
    if len(values) <= MOST_COUNTED:
        _sort_by_counting(order, values)
    else:
        _sort_by_digits(order, values)


@compiled
def _sort_by_counting(order, values):  # type: ignore[no-untyped-def]
    """A model's place is the number of models that are worse: no branches, so that few models are sorted quickest."""
    num_models = len(values)
    equal = np.zeros(num_models, np.int64)  # models placed there before, with the same value
    for m in range(num_models):
        worse = 0
        for other in range(num_models):
            worse += values[other] < values[m]
        order[worse + equal[worse]] = m
        equal[worse] += 1


@compiled
def _sort_by_digits(order, values):  # type: ignore[no-untyped-def]
    """Radix sort: by each group of bits in turn, from the lowest on; time linear in the number of models."""
    num_models = len(values)
    keys, after = np.empty(num_models, np.uint64), np.empty(num_models, np.int64)
    counts = np.zeros((DIGITS, 1 << DIGIT_BITS), np.int32)
    bits = (values + 0.0).view(np.int64)  # -0.0 becomes 0.0, which is equal to it
    last = np.uint64((1 << DIGIT_BITS) - 1)
    for m in range(num_models):
        # As an unsigned whole number in the order of the values: positive ones above, negative ones from the other end.
        key = np.uint64(bits[m] ^ ((bits[m] >> 63) | LOWEST))
        keys[m] = key
        order[m] = m
        for digit in range(DIGITS):
            counts[digit, (key >> np.uint64(digit * DIGIT_BITS)) & last] += 1
    before = order
    for digit in range(DIGITS):
        shift, places = np.uint64(digit * DIGIT_BITS), counts[digit]
        if places[(keys[0] >> shift) & last] == num_models:
            continue  # all alike
        total = 0
        for i in range(len(places)):
            count = places[i]
            places[i] = total
            total += count
        for i in range(num_models):
            m = before[i]
            place = (keys[m] >> shift) & last
            after[places[place]] = m
            places[place] += 1
        before, after = after, before
    order[:] = before
