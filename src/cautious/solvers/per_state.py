"""Decisions in single states, compiled: k-of-N games, each of which ends when its policy is certified.

One iteration, for a state with rewards r(a, m) and a policy π [A]:

    v_m = Σ_a π(a) r(a, m)                    each model's value
    r̄(a) = Σ_i w_i r(a, m_i)                  the mixture that weighs the models by rank, m_1 the worst
    P(a) ← max(0, P(a) + r̄(a) - Σ_b π(b) r̄(b))   regret matching+ (Tammelin, 2014)
    π(a) ∝ P(a)

The best policy seen, or its average weighted by t, has the value `lower`. No policy has a higher k-of-N value than `upper`, the
largest entry of the averaged mixture: a point of the risk envelope (averaged over all iterations, or since the last power of
two; the lower bound counts). A game ends when `lower` and `upper` are close.

`decide_states` does all that a decision needs beside predictions in one pass over a state's rewards: the ordinary policy,
whether any model prefers another action, how far the models differ, and the game where one does. As operations on tensors
(`ordinary_policy`, `has_disagreement`, `disagreement_of` in `policy.decision`) the first three would take longer than a game.

Sums have the order of the loops below on every CPU: no library routine is called, and the compiler may not reorder them. So
a state's bits depend on that state alone. Sums over models in `decide_states` are by halves, as those of `ops.sums`, so that it
has the bits of the tensors; the tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.compiling import compiled
from cautious.parallel import parallel_map
from cautious.progress import Progress, ProgressTracker
from cautious.risk import RiskMeasure, is_mean, weights_by_rank

STATES_PER_TASK = 64
"""States per task of a thread; fewer where there are many models or levels, so that an interrupt does not wait for long."""
LARGEST_TASK = 2**18
"""Most states x models x levels per task."""

CHECK_AVERAGE = 10
"""The average policy is evaluated every this many iterations: often enough to stop in time, for a tenth of the work."""

FEW_MODELS = 256
"""Most models that are sorted in buckets of their values; above, by digits, whose time is linear whatever the values are."""
BUCKETS = 256
"""So many that few of 100 models share one."""
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


class StateDecisions(NamedTuple):
    """What L levels do in S states, and how far the models differ there."""

    policies: Tensor
    """[L, S, A]; the ordinary policy where no model prefers another action, and at levels n-of-n."""
    ordinary: Tensor
    """[S, A]."""
    gaps: Tensor
    """How much better any policy could be, at most, [L, S]."""
    spread: Tensor
    """[S] (`beliefs.disagreement.disagreement`)."""


def play_states(
    rewards: Tensor,
    levels: Sequence[RiskMeasure],
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
    policy, bounds = np.empty((len(levels), num_states, num_actions)), np.empty((2, len(levels), num_states))
    inputs = (as_compiled(rewards), all_rank_weights(levels, num_models), num_iterations, float(tolerance))
    in_tasks(lambda first, last: _play_batch(*inputs, first, last, policy, bounds), rewards.shape, levels, progress)
    return StateGames(*(torch.from_numpy(part) for part in (policy, *bounds)))


def decide_states(
    rewards: Tensor,
    levels: Sequence[RiskMeasure],
    *,
    num_iterations: int,
    tolerance: float,
    progress: Progress | None = None,
) -> StateDecisions:
    """Decide in every state at every level, on all threads.

    Args:
        rewards: What each of M models says each action pays, [M, S, A], on the CPU, finite.
        levels: L levels.
        num_iterations: Most iterations per game.
        tolerance: A game ends when its gap is at most this share of the range of the state's rewards.
        progress: Called with (tasks done, tasks in all).
    """
    num_models, num_states, num_actions = rewards.shape
    policies, ordinary = np.empty((len(levels), num_states, num_actions)), np.empty((num_states, num_actions))
    gaps, variance = np.empty((len(levels), num_states)), np.empty(num_states)
    cautious = np.array([not is_mean(level, num_models) for level in levels])
    inputs = (as_compiled(rewards), all_rank_weights(levels, num_models), cautious, num_iterations, float(tolerance))
    out = (policies, ordinary, gaps, variance)
    in_tasks(lambda first, last: _decide_batch(*inputs, first, last, *out), rewards.shape, levels, progress)
    spread = torch.from_numpy(variance).sqrt()  # torch's root, as of `disagreement`: libraries round it differently
    return StateDecisions(torch.from_numpy(policies), torch.from_numpy(ordinary), torch.from_numpy(gaps), spread)


def in_tasks(
    play: Callable[[int, int], Any], shape: Sequence[int], levels: Sequence[RiskMeasure], progress: Progress | None
) -> None:
    """Call ``play(first, last)`` for all states of rewards of `shape` [M, S, A], some of them at a time, on all threads."""
    num_models, num_states, _ = shape
    size = max(1, min(STATES_PER_TASK, LARGEST_TASK // (num_models * len(levels))))
    num_tasks = -(-num_states // size)
    if num_tasks == 1 and progress is None:  # one decision at a time: nothing to divide or to report
        play(0, num_states)
        return

    def play_some(task: int) -> None:
        play(task * size, min((task + 1) * size, num_states))
        tracker.report(task)

    tracker = ProgressTracker(num_tasks, progress)
    parallel_map(play_some, num_tasks, tracker.stop if num_tasks > 1 else None)


def as_compiled(rewards: Tensor) -> np.ndarray:
    """Rewards [M, S, A] as compiled functions take them: float32 or float64, in one piece."""
    kept = rewards if rewards.dtype in (torch.float32, torch.float64) else rewards.double()
    return kept.detach().contiguous().numpy()


def all_rank_weights(levels: Sequence[RiskMeasure], num_models: int) -> np.ndarray:
    """The weights of all levels, [L, M]."""
    return np.stack([weights_by_rank(level, num_models).numpy() for level in levels])


@compiled
def _play_batch(rewards, rank_weights, num_iterations, tolerance, first, last, policy, bounds):  # type: ignore[no-untyped-def]
    """Play states `first` to `last` of [M, S, A] at all levels [L, M] into `policy` [L, S, A] and `bounds` [2, L, S]."""
    num_models, _, num_actions = rewards.shape
    by_model, by_action = np.empty((num_models, num_actions)), np.empty((num_actions, num_models))
    for state in range(first, last):
        limit = tolerance * lay_out(rewards, state, by_model, by_action)
        for level in range(rank_weights.shape[0]):
            lower, upper = play_game(
                by_model, by_action, rank_weights[level], num_iterations, limit, policy[level, state]
            )
            bounds[0, level, state] = lower
            bounds[1, level, state] = upper


@compiled
def lay_out(rewards, state, by_model, by_action):  # type: ignore[no-untyped-def]
    """One state's rewards of [M, S, A] into `by_model` [M, A] and `by_action` [A, M], in float64; returns their range."""
    low, high = np.inf, -np.inf
    for m in range(rewards.shape[0]):
        for a in range(rewards.shape[2]):
            reward = np.float64(rewards[m, state, a])
            by_model[m, a] = reward
            by_action[a, m] = reward
            low = min(low, reward)
            high = max(high, reward)
    return high - low


@compiled
def play_game(by_model, by_action, rank_weights, num_iterations, limit, best):  # type: ignore[no-untyped-def]
    """One state's game, rewards [M, A] and [A, M]: the best policy into `best` [A]; returns its value and a bound on all."""
    num_models, num_actions = by_model.shape
    policy, regret = np.full(num_actions, 1.0 / num_actions), np.zeros(num_actions)
    policy_sum, mixture_sum, recent_sum = np.zeros(num_actions), np.zeros(num_actions), np.zeros(num_actions)
    average, mixture, values = np.empty(num_actions), np.empty(num_actions), np.empty(num_models)
    order, keys, scratch = sorting_space(num_models)
    lower, upper, total, recent, restart = -np.inf, np.inf, 0.0, 0.0, 1
    for t in range(num_iterations):
        value = evaluate(by_model, by_action, policy, rank_weights, order, values, keys, scratch, mixture)
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
            value = evaluate(by_model, by_action, average, rank_weights, order, values, keys, scratch, mixture)
            if value >= lower:
                lower = value
                best[:] = average
        if upper - lower <= limit:
            break
    return lower, max(upper, lower)  # rounding may cross them where they meet


@compiled
def evaluate(by_model, by_action, policy, rank_weights, order, values, keys, scratch, mixture):  # type: ignore[no-untyped-def]
    """The exact k-of-N value of a policy [A]; `order`, `values` [M] and `mixture` [A] are filled for it.

    The rewards come twice, [M, A] and [A, M]: models side by side for their values, actions side by side for the mixture.
    `keys` and `scratch` are as of `sorting_space`, and best those of the policy before.
    """
    num_models, num_actions = by_model.shape
    values[:] = 0.0
    for a in range(num_actions):
        if policy[a] != 0.0:
            for m in range(num_models):
                values[m] += policy[a] * by_action[a, m]
    _sort(order, values, keys, scratch)
    count = num_models
    while rank_weights[count - 1] == 0.0:  # weights never increase, and the first is positive
        count -= 1
    mixture[:] = 0.0
    value = 0.0
    for i in range(0, count - 3, 4):  # four at a time, added one after the other: the sums are read and written once
        first, second, third, fourth = rank_weights[i], rank_weights[i + 1], rank_weights[i + 2], rank_weights[i + 3]
        one, two, three, four = order[i], order[i + 1], order[i + 2], order[i + 3]
        value = value + first * values[one] + second * values[two] + third * values[three] + fourth * values[four]
        for a in range(num_actions):
            mixture[a] = (
                mixture[a]
                + first * by_model[one, a]
                + second * by_model[two, a]
                + third * by_model[three, a]
                + fourth * by_model[four, a]
            )
    for i in range(count - count % 4, count):
        value += rank_weights[i] * values[order[i]]
        for a in range(num_actions):
            mixture[a] += rank_weights[i] * by_model[order[i], a]
    return value


@compiled
def sorting_space(num_models):  # type: ignore[no-untyped-def]
    """Arrays for `evaluate`: `order` and `keys` [M], and `scratch`."""
    return np.empty(num_models, np.int64), np.zeros(num_models), np.empty(num_models + BUCKETS + 1, np.int32)


@compiled
def _sort(order, values, keys, scratch):  # type: ignore[no-untyped-def]
    """Models from the worst on, ties by number, into `order`; neither way depends on how the models were ordered before.

    `keys` and `scratch` are overwritten (`sorting_space`).
    """
    if len(values) <= FEW_MODELS:
        _sort_in_buckets(order, values, keys, scratch)
    else:
        _sort_by_digits(order, values)


@compiled
def _sort_in_buckets(order, values, keys, scratch):  # type: ignore[no-untyped-def]
    """Buckets of equal width, models of one in the order of their numbers; then insertion, which finds little to move.

    The buckets divide the range of what was in `keys`, the sorted values of the policy before. Other ranges leave more to
    insertion, but give the same order.
    """
    num_models = len(values)
    places, counts = scratch[:num_models], scratch[num_models : num_models + BUCKETS + 1]
    low, reach = keys[0], keys[num_models - 1] - keys[0]
    scale = BUCKETS / reach if reach > 0.0 else 0.0
    for m in range(num_models):
        place = (values[m] - low) * scale
        place = place if place > 0.0 else 0.0  # NaN, too, where a scale is infinite
        places[m] = np.int32(place if place < BUCKETS - 1.0 else BUCKETS - 1.0)
    counts[:] = 0
    for m in range(num_models):
        counts[places[m] + 1] += 1
    before = np.int32(0)
    for bucket in range(1, BUCKETS + 1):
        before += counts[bucket]
        counts[bucket] = before
    for m in range(num_models):
        following = counts[places[m]]
        counts[places[m]] = following + 1
        order[following], keys[following] = m, values[m]
    for i in range(1, num_models):
        value = keys[i]
        if keys[i - 1] > value:
            m, empty = order[i], i
            while empty > 0 and keys[empty - 1] > value:
                keys[empty], order[empty] = keys[empty - 1], order[empty - 1]
                empty -= 1
            keys[empty], order[empty] = value, m


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


@compiled
def _decide_batch(  # type: ignore[no-untyped-def]
    rewards, rank_weights, cautious, num_iterations, tolerance, first, last, policies, ordinary, gaps, variance
):
    """Decide in states `first` to `last` of rewards [M, S, A] into the last four: `StateDecisions`, the spread squared.

    `rank_weights` are [L, M]; `cautious` [L] says which levels are not the mean.
    """
    num_models, _, num_actions = rewards.shape
    by_model, by_action = np.empty((num_models, num_actions)), np.empty((num_actions, num_models))
    terms, mean = np.empty((num_models, num_actions)), np.empty(num_actions)
    for state in range(first, last):
        reach = lay_out(rewards, state, by_model, by_action)
        terms[:] = by_model
        _mean_over_models(terms, mean)
        _greedy(mean, ordinary[state])
        variance[state] = _mean_variance(by_model, mean, terms)
        objects = _some_model_objects(by_model, ordinary[state])
        for level in range(len(cautious)):
            if objects and cautious[level]:
                lower, upper = play_game(
                    by_model, by_action, rank_weights[level], num_iterations, tolerance * reach, policies[level, state]
                )
                gaps[level, state] = upper - lower
            else:
                policies[level, state] = ordinary[state]
                gaps[level, state] = 0.0


@compiled
def _mean_over_models(terms, mean):  # type: ignore[no-untyped-def]
    """Mean of `terms` [M, A] by halves into `mean` [A]; overwrites `terms` (`ops.sums.pairwise_mean`)."""
    num_models, num_actions = terms.shape
    count = num_models
    while count > 1:
        half = (count + 1) // 2
        for m in range(count - half):
            for a in range(num_actions):
                terms[m, a] += terms[half + m, a]
        count = half
    for a in range(num_actions):
        mean[a] = terms[0, a] / num_models


@compiled
def _greedy(mean, policy):  # type: ignore[no-untyped-def]
    """The actions that pay most on average, evenly, into `policy` [A] (`policy.decision.greedy`)."""
    highest, count = mean.max(), 0.0
    for a in range(len(mean)):
        count += mean[a] == highest
    for a in range(len(mean)):
        policy[a] = 1.0 / count if mean[a] == highest else 0.0


@compiled
def _some_model_objects(by_model, ordinary):  # type: ignore[no-untyped-def]
    """Whether one of the actions of the ordinary policy [A] is not the best for some model (`policy.decision`)."""
    num_models, num_actions = by_model.shape
    for m in range(num_models):
        highest, taken = -np.inf, np.inf  # of all actions, and the least of those that are taken
        for a in range(num_actions):
            highest = max(highest, by_model[m, a])
            if ordinary[a] > 0.0:
                taken = min(taken, by_model[m, a])
        if taken < highest:
            return True
    return False


@compiled
def _mean_variance(by_model, mean, terms):  # type: ignore[no-untyped-def]
    """(1/A) Σ_a Var_m[ r_m(a) ] of rewards [M, A] with `mean` [A]; overwrites `terms` [M, A]."""
    num_models, num_actions = by_model.shape
    for m in range(num_models):
        for a in range(num_actions):
            apart = by_model[m, a] - mean[a]
            terms[m, a] = apart * apart
    variance = np.empty(num_actions)
    _mean_over_models(terms, variance)
    count = num_actions
    while count > 1:  # over actions by halves, too
        half = (count + 1) // 2
        for a in range(count - half):
            variance[a] += variance[half + a]
        count = half
    return variance[0] / num_actions
