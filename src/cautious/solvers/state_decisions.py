"""All that a decision in a single state needs beside predictions, compiled, in one pass over the state's rewards.

The ordinary policy, whether any model prefers another action, how far the models differ, and the game where one does
(`solvers.per_state`). As operations on tensors (`ordinary_policy`, `has_disagreement`, `disagreement_of` in `policy.decision`)
the first three would take longer than a game. Sums over models are by halves, as those of `ops.sums`, so that they have the
bits of the tensors; the tests compare them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cautious.compiling import compiled
from cautious.parallel import single_threaded
from cautious.progress import Progress
from cautious.risk import RiskMeasure, is_mean
from cautious.solvers.per_state import (
    all_rank_weights,
    as_compiled,
    game_space,
    in_tasks,
    lay_out,
    nothing_drawn_or_recorded,
    play_game,
)
from cautious.solvers.state_runs import StateDecisions, certified_plan


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
