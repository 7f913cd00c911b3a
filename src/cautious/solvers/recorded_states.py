"""Runs of `solve_bandit` in single states on the CPU: the games of `solvers.per_state`, to their end and with their record."""

from __future__ import annotations

import numpy as np
import torch

from cautious.compiling import compiled
from cautious.parallel import parallel_map
from cautious.progress import ProgressTracker
from cautious.solvers.cfr import CFROptions, CFRResult, Problem
from cautious.solvers.per_state import STATES_PER_TASK, game_space, play_game
from cautious.solvers.rewards import DenseRewards
from cautious.solvers.state_runs import EXACT, REGRET, SAMPLED, Record, recorded_plan, runs_of_levels
from cautious.types import Sampling

TASK_BYTES = 2**22
"""Most rewards of the states of one task of recorded runs, in float64: one cheap copy, which the cache holds."""


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
