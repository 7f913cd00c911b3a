"""The iterations of `solvers.cfr` in the single-state regime, compiled: each state is played from beginning to end by itself.

The same draws, rules and records as `solvers.cfr.minimise_regret_of_all`, which the tests compare it with. Sums have the order
of the loops below on every CPU (`solvers.per_state`), so that a state's bits depend on that state's rewards alone. A state's
rewards [M, A] stay in the cache for all levels, runs and iterations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from cautious.compiling import compiled
from cautious.parallel import parallel_map
from cautious.progress import ProgressTracker
from cautious.risk import weights_by_rank
from cautious.solvers.adversary import WINDOWS, ModelQueue, queued
from cautious.solvers.cfr import CFROptions, CFRResult, CFRState, History, Problem, init
from cautious.solvers.per_state import evaluate, sorting_space
from cautious.solvers.rewards import DenseRewards
from cautious.types import Sampling, Update

TASK_BYTES = 2**22
"""Rewards of the states of one task in float64: enough states for one cheap copy, few enough for the cache."""

UPDATE_NUMBERS = {Update.REGRET_MATCHING: 0, Update.REGRET_MATCHING_PLUS: 1, Update.AS_PRINTED: 2}
"""Compiled code takes numbers: the order of `_next_policy`."""

SMALLEST = 1e-300
"""Positive regret below this is none: the quotient would lose its digits (`ops.regret.regret_matching`)."""

SAMPLED, EXACT, REGRET = 0, 1, 2
"""Rows of a trace."""


class _Group(NamedTuple):
    """The runs of one level, which are played by one call."""

    members: slice
    """Which of the batch."""
    k: int
    """How many of the drawn models count; 0 with exact weights."""
    rank_weights: np.ndarray
    """Exact weights [M]."""
    draws: np.ndarray
    """Models drawn [T, R, N]; [T, R, 0] with exact weights."""


def minimise_regret_in_states(problem: Problem, options: CFROptions) -> CFRResult:
    """T iterations of k-of-N CFR in every state, for a batch of levels and runs."""
    num_iterations, sampling, update, seed, track_exact, progress = options
    rewards = problem.rewards
    assert isinstance(rewards, DenseRewards)
    batch_size, num_states, num_actions = problem.shape
    tracked = track_exact or sampling is Sampling.EXACT
    groups = _groups(problem, num_iterations, sampling, seed)
    size = max(1, min(64, TASK_BYTES // (8 * rewards.num_models * num_actions)))
    num_tasks = -(-num_states // size)
    policy, policy_sum, best = (np.empty(problem.shape) for _ in range(3))
    best_value = np.full((batch_size, num_states), -np.inf)
    windows = [int(window * num_iterations) for window in WINDOWS]
    mixtures = np.zeros((len(WINDOWS) if tracked else 0, *problem.shape))
    traces = np.empty((num_tasks, 3, num_iterations, batch_size))

    def play(task: int) -> None:
        states = slice(task * size, min((task + 1) * size, num_states))
        own = rewards.tensor[:, states].double()  # before transposing: copying runs of a few numbers is quicker then
        by_model = np.ascontiguousarray(own.permute(1, 0, 2).numpy())  # [s, M, A]
        # Exact weights also need the rewards of all models side by side; [s, A, M].
        by_action = np.ascontiguousarray(own.permute(1, 2, 0).numpy()) if tracked or _any_exact(groups) else by_model
        for group in groups:
            runs = group.members.stop - group.members.start
            shape = (runs, len(by_model), num_actions)
            # Fresh arrays: a view of a larger one has another type, for which the functions would be compiled again.
            last, total, highest = (np.zeros(shape) for _ in range(3))
            value, mixed = np.full(shape[:2], -np.inf), np.zeros((len(WINDOWS), *shape))
            trace = np.zeros((3, num_iterations, runs))
            how = (group.k, UPDATE_NUMBERS[update], tracked, np.array(windows))
            out = (last, total, highest, value, mixed, trace)
            _play(by_model, by_action, group.draws, group.rank_weights, *how, *out)
            policy[group.members, states], policy_sum[group.members, states] = last, total
            best[group.members, states], best_value[group.members, states] = highest, value
            mixtures[:, group.members, states] = mixed[: len(mixtures)]
            traces[task, :, :, group.members] = trace
        tracker.report(task)

    tracker = ProgressTracker(num_tasks, progress)
    parallel_map(play, num_tasks, tracker.stop if num_tasks > 1 else None)
    history = _history(problem, init(problem), traces, policy_sum, num_iterations)
    if tracked:
        history.best_policy, history.best_value = torch.from_numpy(best), torch.from_numpy(best_value)
    else:
        history.exact_value.fill_(torch.nan)
    counts = torch.tensor([num_iterations - first for first in windows]).double()[:, None, None, None]
    average = torch.from_numpy(mixtures) / counts if tracked else None
    return CFRResult(torch.from_numpy(policy), history, average)


def _groups(problem: Problem, num_iterations: int, sampling: Sampling, seed: int) -> list[_Group]:
    num_models, num_runs = problem.rewards.num_models, problem.batch.num_runs
    queue, groups = ModelQueue(num_runs, num_models, seed), []
    for level, members in problem.batch.groups():
        draws = np.empty((num_iterations, num_runs, 0), dtype=np.int64)
        weights, k = weights_by_rank(level, num_models).numpy(), 0
        if sampling is Sampling.QUEUE and queued(level).n < num_models:  # a draw of all models is exact
            draws, k = (
                torch.stack([queue.draw(queued(level), t) for t in range(num_iterations)]).numpy(),
                queued(level).k,
            )
        groups.append(_Group(members, k, weights, np.ascontiguousarray(draws)))
    return groups


def _any_exact(groups: list[_Group]) -> bool:
    return any(group.draws.shape[2] == 0 for group in groups)


def _history(
    problem: Problem, state: CFRState, traces: np.ndarray, policy_sum: np.ndarray, num_iterations: int
) -> History:
    """The record of all iterations; sums over tasks in their order, which is that of the states."""
    history = History.empty(state, num_iterations)
    history.occupancy_sum = history.policy_sum = torch.from_numpy(
        policy_sum
    )  # with d(s) = 1 the occupancy is the policy
    num_states = problem.rewards.num_states
    history.sampled_value, history.exact_value = (
        torch.from_numpy(traces[:, row].cumsum(axis=0)[-1]) / num_states for row in (SAMPLED, EXACT)
    )
    history.largest_regret = torch.from_numpy(traces[:, REGRET].max(axis=0))
    return history


@compiled
def _play(  # type: ignore[no-untyped-def]
    by_model, by_action, draws, rank_weights, k, update, tracked, windows,
    policy_out, policy_sum, best, best_value, mixture_sums, trace,
):  # fmt: skip
    """Play all runs of a level in all states [s, M, A] into the arrays of the second row (`minimise_regret_in_states`)."""
    num_states, num_models, num_actions = by_model.shape
    num_iterations, num_runs, num_drawn = draws.shape
    trace[REGRET] = -np.inf
    returns, worst = np.empty(num_models), np.empty(num_models, np.int64)
    order, keys, scratch = sorting_space(num_models)
    mixture, exact_mixture = np.empty(num_actions), np.empty(num_actions)
    policy, cumulative, signed = np.empty(num_actions), np.empty(num_actions), np.empty(num_actions)
    for state in range(num_states):
        for run in range(num_runs):
            policy[:], cumulative[:], signed[:] = 1.0 / num_actions, 0.0, 0.0
            total, highest = policy_sum[run, state], -np.inf
            for t in range(num_iterations):
                value = 0.0
                if tracked or num_drawn == 0:
                    value = evaluate(
                        by_model[state], by_action[state], policy, rank_weights, order, returns, keys, scratch,
                        exact_mixture,
                    )  # fmt: skip
                if tracked:
                    trace[EXACT, t, run] += value
                    if value >= highest:  # on ties the later iterate, as in `better_policy`
                        highest = value
                        best[run, state] = policy
                    for window in range(len(windows)):
                        if t >= windows[window]:
                            mixture_sums[window, run, state] += exact_mixture
                if num_drawn == 0:
                    mixture[:] = exact_mixture
                else:
                    value = _worst_of_drawn(by_model[state], draws[t, run], policy, k, worst, returns, mixture)
                trace[SAMPLED, t, run] += value
                expected = 0.0
                for a in range(num_actions):
                    total[a] += policy[a]
                    expected += policy[a] * mixture[a]
                largest = -np.inf
                for a in range(num_actions):
                    signed[a] += mixture[a] - expected
                    largest = max(largest, signed[a])
                trace[REGRET, t, run] = max(trace[REGRET, t, run], largest)
                _next_policy(cumulative, mixture, expected, update, policy)
            policy_out[run, state] = policy
            best_value[run, state] = highest


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
def _next_policy(cumulative, mixture, expected, update, policy):  # type: ignore[no-untyped-def]
    """Add the regret to `cumulative` by one of `UPDATE_NUMBERS`, and match it (Alg. 1, lines 10 and 11); all [A], in place."""
    num_actions = len(policy)
    positive = 0.0
    for a in range(num_actions):
        regret = mixture[a] - expected
        if update == 2:
            cumulative[a] += max(0.0, regret)
        elif update == 1:
            cumulative[a] = max(0.0, cumulative[a] + regret)
        else:
            cumulative[a] += regret
        positive += max(0.0, cumulative[a])
    for a in range(num_actions):
        policy[a] = max(0.0, cumulative[a]) / positive if positive > SMALLEST else 1.0 / num_actions
