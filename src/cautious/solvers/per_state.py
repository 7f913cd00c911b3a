"""Decisions in single states on the CPU, compiled, and the recursion of their games, which the runs of `solve_bandit` use too.

In one pass over a state's rewards: the ordinary policy, whether any model prefers another action, how far the models differ,
and the game where one does. Sums over models are by halves, as those of `ops.sums`, so that they have the bits of tensors
(`policy.decision`), whose operations would take longer than a game; the tests compare them.

One iteration, for a state with rewards r(a, m) and a policy π [A]:

    v_m = Σ_a π(a) r(a, m)                    each model's value
    r̄(a) = Σ_i w_i r(a, m_i)                  the mixture that weighs the models by rank, m_1 the worst
    P(a) ← P(a) + r̄(a) - Σ_b π(b) r̄(b)        or another rule (`ops.regret`)
    π(a) ∝ max(0, P(a))

For a decision the game ends once its policy is certified: the best policy seen, or the average weighted by t, has the value
`lower`. No policy is worth more than `upper`, the largest entry of an averaged mixture: a point of the risk envelope (averaged
over all iterations, or since the last power of two; the lower bound counts). Both are close at the end. Run to its end
(`solvers.recorded_states`), it makes the draws, follows the rule and keeps the record of `solvers.cfr.minimise_regret_of_all`,
which the tests compare it with.

Sums have the order of the loops below on every CPU: no library routine is called, and the compiler may not reorder them. So
a state's bits depend on that state's rewards alone, which stay in the cache for all levels, runs and iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cautious.compiling import compiled
from cautious.parallel import parallel_map, single_threaded
from cautious.progress import Progress, ProgressTracker
from cautious.risk import RiskMeasure, is_mean, weights_by_rank
from cautious.solvers.ranking import sort_models, sorting_space
from cautious.solvers.state_runs import EXACT, REGRET, SAMPLED, StateDecisions, certified_plan

STATES_PER_TASK = 64
"""States per task of a thread; fewer where there are many models or levels, so that an interrupt does not wait for long."""
LARGEST_TASK = 2**18
"""Largest product of states, models and levels in one task."""
CHECK_AVERAGE = 10
"""The average policy is evaluated every this many iterations: often enough to stop in time, for a tenth of the work."""


@single_threaded
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
    inputs = (
        as_compiled(rewards),
        all_rank_weights(levels, num_models),
        cautious,
        *certified_plan(num_iterations),
        tolerance,
    )
    out = (policies, ordinary, gaps, variance)
    in_tasks(lambda first, last: _decide_batch(*inputs, first, last, *out), rewards.shape, levels, progress)
    spread = torch.from_numpy(variance).sqrt()  # torch's root, as of `disagreement`: libraries round it differently
    return StateDecisions(torch.from_numpy(policies), torch.from_numpy(ordinary), torch.from_numpy(gaps), spread)


@compiled
def _decide_batch(  # type: ignore[no-untyped-def]
    rewards,
    rank_weights,
    cautious,
    steps,
    weights,
    restarts,
    tolerance,
    first,
    last,
    policies,
    ordinary,
    gaps,
    variance,
):
    """Decide in states `first` to `last` of rewards [M, S, A] into the last four: `StateDecisions`, the spread squared.

    `rank_weights` are [L, M]; `cautious` [L] says which levels are not the mean.
    """
    num_models, _, num_actions = rewards.shape
    by_model, by_action = np.empty((num_models, num_actions)), np.empty((num_actions, num_models))
    terms, mean, space = np.empty((num_models, num_actions)), np.empty(num_actions), game_space(num_models, num_actions)
    draws, sums, averages, trace = nothing_drawn_or_recorded(restarts, num_actions)
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
                    by_model, by_action, draws, 0, rank_weights[level], steps, weights, restarts, True, tolerance * reach,
                    space, sums[0], sums[1], policies[level, state], averages, trace,
                )  # fmt: skip
                gaps[level, state] = upper - lower
            else:
                policies[level, state] = ordinary[state]
                gaps[level, state] = 0.0


def in_tasks(
    play: Callable[[int, int], Any], shape: Sequence[int], levels: Sequence[RiskMeasure], progress: Progress | None
) -> None:
    """Call ``play(first, last)`` on blocks of states until all are done, on all threads; rewards have the `shape` (M, S, A)."""
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
def game_space(num_models, num_actions):  # type: ignore[no-untyped-def]
    """Arrays that games overwrite: those of sorting, one number per model, and five times one per action."""
    return sorting_space(num_models), np.empty(num_models), np.empty((5, num_actions))


@compiled
def nothing_drawn_or_recorded(restarts, num_actions):  # type: ignore[no-untyped-def]
    """What a certified game needs beside its best policy: no draws, room for sums and averages, and no trace."""
    num_iterations, num_windows = restarts.shape
    draws, trace = np.empty((num_iterations, 0), np.int64), np.empty((3, 0))
    return draws, np.empty((2, num_actions)), np.empty((num_windows, num_actions)), trace


@compiled
def play_game(  # type: ignore[no-untyped-def]
    by_model, by_action, draws, k, rank_weights, steps, weights, restarts, tracked, limit, space,
    policy, policy_sum, best, mixture_sums, trace,
):  # fmt: skip
    """One run of one state's game, the recursion of all of them; returns the best policy's value and a bound on all.

    Args:
        by_model: Rewards [M, A].
        by_action: The same [A, M].
        draws: Models drawn [T, N]; [T, 0] where all models answer.
        k: How many of the models drawn count.
        rank_weights: How much a model counts by its rank among all, [M].
        steps: Of a `Plan`, as the next two.
        weights: [T].
        restarts: [T, W].
        tracked: Whether to rank all models in every iteration, for `best`, `mixture_sums` and exact values.
        limit: The game ends when the bounds are at most this apart; below zero it goes on to the end, without bounds.
        space: As `game_space` returned it.
        policy: Out: the last iterate [A].
        policy_sum: Out: the weighted sum of the iterates [A].
        best: Out: the policy of highest exact value [A].
        mixture_sums: Out: weighted sums of the exact mixtures over each window, [W, A].
        trace: [3, T], added to (values, exact values) or raised (the largest regret); [3, 0] for no trace.
    """
    num_actions = by_model.shape[1]
    num_iterations, num_drawn = draws.shape
    num_windows = restarts.shape[1]
    certifies, traces = limit >= 0.0, trace.shape[1] > 0
    (order, keys, scratch), values, rows = space
    cumulative, signed, exact_mixture, mixture, average = rows[0], rows[1], rows[2], rows[3], rows[4]
    lengths = np.zeros(num_windows)
    count = len(rank_weights)
    while rank_weights[count - 1] == 0.0:  # weights never increase, and the first is positive
        count -= 1
    rank_weights = rank_weights[:count]
    policy[:], policy_sum[:], cumulative[:], signed[:] = 1.0 / num_actions, 0.0, 0.0, 0.0
    lower, upper, value = -np.inf, np.inf, 0.0
    for t in range(num_iterations):
        weight = weights[t]
        if tracked or num_drawn == 0:
            value = evaluate(by_model, by_action, policy, rank_weights, order, values, keys, scratch, exact_mixture)
            if value >= lower:  # on ties the later iterate, as in `better_policy`
                lower = value
                best[:] = policy
            if traces:
                trace[EXACT, t] += value
            for window in range(num_windows):
                if restarts[t, window]:
                    for a in range(num_actions):
                        mixture_sums[window, a] = 0.0
                    lengths[window] = 0.0
                lengths[window] += weight
                largest = -np.inf
                for a in range(num_actions):
                    mixture_sums[window, a] += weight * exact_mixture[a]
                    largest = max(largest, mixture_sums[window, a])
                upper = min(upper, largest / lengths[window])
        if num_drawn == 0:
            mixture[:] = exact_mixture
        else:
            value = _worst_of_drawn(by_model, draws[t], policy, k, order, values, mixture)
        for a in range(num_actions):
            policy_sum[a] += weight * policy[a]
        if traces:
            trace[SAMPLED, t] += value
            value = 0.0
            for a in range(num_actions):
                value += policy[a] * mixture[a]
            largest = -np.inf
            for a in range(num_actions):
                signed[a] += mixture[a] - value
                largest = max(largest, signed[a])
            trace[REGRET, t] = max(trace[REGRET, t], largest)
        _match_regret(cumulative, mixture, value, steps, t, certifies, policy)
        if certifies:
            if (t + 1) % CHECK_AVERAGE == 0 or t + 1 == num_iterations:
                total = 0.0
                for a in range(num_actions):
                    total += policy_sum[a]
                for a in range(num_actions):
                    average[a] = policy_sum[a] / total
                value = evaluate(by_model, by_action, average, rank_weights, order, values, keys, scratch, mixture)
                if value >= lower:
                    lower = value
                    best[:] = average
            if upper - lower <= limit:
                break
    return lower, max(upper, lower)  # rounding may cross them where they meet


@compiled
def _scaled(number, positive, negative):  # type: ignore[no-untyped-def]
    """A number times one factor if it is above zero, times another if it is below."""
    return positive * max(0.0, number) + negative * min(0.0, number)


@compiled
def _match_regret(cumulative, mixture, value, steps, t, adds_first, policy):  # type: ignore[no-untyped-def]
    """Add the regret to `cumulative` by iteration t's step, and match it in `policy` (Alg. 1, lines 10 and 11); [A], in place.

    `adds_first` is the order of the sum P + r̄ - v: certified games subtract last, tensors form the regret r̄ - v first.
    """
    keep_positive, keep_negative, losses, prediction = steps[t, 0], steps[t, 1], steps[t, 2], steps[t, 3]
    total = 0.0
    for a in range(len(policy)):
        regret = mixture[a] - value
        added = cumulative[a] + mixture[a] - value if adds_first else cumulative[a] + _scaled(regret, 1.0, losses)
        cumulative[a] = _scaled(added, keep_positive, keep_negative)
        policy[a] = max(0.0, cumulative[a] + prediction * regret)
        total += policy[a]
    for a in range(len(policy)):
        policy[a] = policy[a] / total if total > 0.0 else 1.0 / len(policy)


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
    sort_models(order, values, keys, scratch)
    mixture[:], count = 0.0, len(rank_weights)
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
def _worst_of_drawn(rewards, drawn, policy, k, worst, returns, mixture):  # type: ignore[no-untyped-def]
    """Mean of the k worst of the drawn models [N] for a policy [A], into `mixture` [A]; returns its value (Alg. 1, lines 7, 8).

    `rewards` are [M, A]; `worst` and `returns` [at least N] are overwritten. Ties break by the model's number, as `drawn` is
    sorted.
    """
    num_actions, num_drawn = len(policy), len(drawn)
    for first in range(0, num_drawn - 3, 4):  # four sums at a time: each addition waits for the one before
        one, two = rewards[drawn[first]], rewards[drawn[first + 1]]
        three, four = rewards[drawn[first + 2]], rewards[drawn[first + 3]]
        of_one, of_two, of_three, of_four = 0.0, 0.0, 0.0, 0.0
        for a in range(num_actions):
            of_one += policy[a] * one[a]
            of_two += policy[a] * two[a]
            of_three += policy[a] * three[a]
            of_four += policy[a] * four[a]
        returns[first], returns[first + 1], returns[first + 2], returns[first + 3] = of_one, of_two, of_three, of_four
    for place in range(num_drawn - num_drawn % 4, num_drawn):
        own = rewards[drawn[place]]
        value = 0.0
        for a in range(num_actions):
            value += policy[a] * own[a]
        returns[place] = value
    worst[0] = 0
    for place in range(1, num_drawn):  # places in `drawn` of the worst so far, from the worst on
        value = returns[place]
        if k == num_drawn:
            worst[place] = place
        elif place < k or value < returns[worst[k - 1]]:
            i = min(place, k - 1)
            while i > 0 and returns[worst[i - 1]] > value:
                worst[i] = worst[i - 1]
                i -= 1
            worst[i] = place
    value = 0.0
    mixture[:] = 0.0
    for i in range(k):
        value += returns[worst[i]]
        own = rewards[drawn[worst[i]]]
        for a in range(num_actions):
            mixture[a] += own[a]
    if k > 1:
        for a in range(num_actions):
            mixture[a] /= k
        value /= k
    return value


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
