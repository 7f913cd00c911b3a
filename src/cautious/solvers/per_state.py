"""Games of single states on the CPU, compiled: one recursion, for decisions and for the runs of `solve_bandit`.

One iteration, for a state with rewards r(a, m) and a policy π [A]:

    v_m = Σ_a π(a) r(a, m)                    each model's value
    r̄(a) = Σ_i w_i r(a, m_i)                  the mixture that weighs the models by rank, m_1 the worst
    P(a) ← P(a) + r̄(a) - Σ_b π(b) r̄(b)        or another rule (`ops.regret`)
    π(a) ∝ max(0, P(a))

Run to its end, the game makes the draws, follows the rule and keeps the record of `solvers.cfr.minimise_regret_of_all`, which
the tests compare it with. For a decision it ends once its policy is certified: the best policy seen, or the average weighted
by t, has the value `lower`. No policy is worth more than `upper`, the largest entry of an averaged mixture: a point of the risk
envelope (averaged over all iterations, or since the last power of two; the lower bound counts). Both are close at the end.

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
from cautious.parallel import parallel_map
from cautious.progress import Progress, ProgressTracker
from cautious.risk import RiskMeasure, weights_by_rank
from cautious.solvers.cfr import CFROptions, CFRResult, Problem
from cautious.solvers.ranking import sort_models, sorting_space
from cautious.solvers.rewards import DenseRewards
from cautious.solvers.state_runs import (
    EXACT,
    REGRET,
    SAMPLED,
    Record,
    recorded_plan,
    runs_of_levels,
)
from cautious.types import Sampling

STATES_PER_TASK = 64
"""States per task of a thread; fewer where there are many models or levels, so that an interrupt does not wait for long."""
LARGEST_TASK = 2**18
"""Largest product of states, models and levels in one task."""
TASK_BYTES = 2**22
"""Most rewards of the states of one task of recorded runs, in float64: one cheap copy, which the cache holds."""

CHECK_AVERAGE = 10
"""The average policy is evaluated every this many iterations: often enough to stop in time, for a tenth of the work."""


def minimise_regret_in_states(problem: Problem, options: CFROptions) -> CFRResult:
    """T iterations of k-of-N CFR in every state, for a batch of levels and runs, on all threads."""
    num_iterations, rewards = options.num_iterations, problem.rewards
    assert isinstance(rewards, DenseRewards)
    batch_size, num_states, num_actions = problem.shape
    tracked = options.track_exact or options.sampling is Sampling.EXACT
    levels = [
        (runs.members, runs.draws.numpy(), runs.k, runs.rank_weights.numpy())
        for runs in runs_of_levels(problem, options)
    ]
    plan = recorded_plan(options.update, num_iterations)
    num_windows = plan.restarts.shape[1]
    size = max(1, min(STATES_PER_TASK, TASK_BYTES // (8 * rewards.num_models * num_actions)))
    num_tasks = -(-num_states // size)
    policy, policy_sum, best = (np.empty(problem.shape) for _ in range(3))
    best_value = np.empty((batch_size, num_states))
    mixtures = np.empty((num_windows if tracked else 0, *problem.shape))
    traces = np.empty((num_tasks, batch_size, 3, num_iterations))

    def play(task: int) -> None:
        states = slice(task * size, min((task + 1) * size, num_states))
        own = rewards.tensor[:, states].double()  # before transposing: copying runs of a few numbers is quicker then
        by_model = np.ascontiguousarray(own.permute(1, 0, 2).numpy())  # [s, M, A]
        # Exact weights also need the rewards of all models side by side; [s, A, M].
        ranks_all = tracked or any(draws.shape[2] == 0 for _, draws, _, _ in levels)
        by_action = np.ascontiguousarray(own.permute(1, 2, 0).numpy()) if ranks_all else by_model
        for members, draws, k, rank_weights in levels:
            shape = (len(draws), len(by_model), num_actions)
            # Fresh arrays: a view of a larger one has another type, for which the functions would be compiled again.
            last, total, highest = (np.empty(shape) for _ in range(3))
            value, mixed = np.empty(shape[:2]), np.empty((*shape[:2], num_windows, num_actions))
            trace = np.zeros((len(draws), 3, num_iterations))
            trace[:, REGRET] = -np.inf
            inputs = (by_model, by_action, draws, k, rank_weights, *plan, tracked)
            _record_batch(*inputs, last, total, highest, value, mixed, trace)
            policy[members, states], policy_sum[members, states] = last, total
            best[members, states], best_value[members, states] = highest, value
            mixtures[:, members, states] = mixed.transpose(2, 0, 1, 3)[: len(mixtures)]
            traces[task, members] = trace
        tracker.report(task)

    tracker = ProgressTracker(num_tasks, options.progress)
    parallel_map(play, num_tasks, tracker.stop if num_tasks > 1 else None)
    # Sums over tasks in their order, which is that of the states; [T, B].
    sampled, exact = (traces[:, :, row].cumsum(axis=0)[-1].T for row in (SAMPLED, EXACT))
    largest = traces[:, :, REGRET].max(axis=0).T
    found = (policy, policy_sum, best, best_value, mixtures, *map(np.ascontiguousarray, (sampled, exact, largest)))
    return Record(*map(torch.from_numpy, found)).result(problem, num_iterations)


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
def _record_batch(  # type: ignore[no-untyped-def]
    by_model, by_action, draws, k, rank_weights, steps, weights, restarts, tracked,
    policy, policy_sum, best, best_value, mixture_sums, trace,
):  # fmt: skip
    """Play all runs of a level in all states [s, M, A] into the arrays of the second row (`minimise_regret_in_states`)."""
    num_states, num_models, num_actions = by_model.shape
    space = game_space(num_models, num_actions)
    for state in range(num_states):
        for run in range(len(draws)):
            best_value[run, state], _ = play_game(
                by_model[state], by_action[state], draws[run], k, rank_weights, steps, weights, restarts, tracked, -np.inf,
                space, policy[run, state], policy_sum[run, state], best[run, state], mixture_sums[run, state], trace[run],
            )  # fmt: skip


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
