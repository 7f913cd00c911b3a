"""The referee of games on a GPU and of decisions: every state's game, to its end, with both bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cautious.compiling import compiled
from cautious.risk import RiskMeasure
from cautious.solvers.per_state import (
    all_rank_weights,
    as_compiled,
    game_space,
    in_tasks,
    lay_out,
    nothing_drawn_or_recorded,
    play_game,
)
from cautious.solvers.state_runs import StateGames, certified_plan


def play_states(
    rewards: Tensor,
    levels: Sequence[RiskMeasure],
    *,
    num_iterations: int,
    tolerance: float,
) -> StateGames:
    """Play the game of every state at every level until it is certified, on all threads.

    Args:
        rewards: What each of M models says each action pays, [M, S, A], on the CPU.
        levels: L levels.
        num_iterations: Most iterations per game.
        tolerance: A game ends when its gap is at most this share of the range of the state's rewards.
    """
    num_models, num_states, num_actions = rewards.shape
    policy, bounds = np.empty((len(levels), num_states, num_actions)), np.empty((2, len(levels), num_states))
    inputs = (as_compiled(rewards), all_rank_weights(levels, num_models), *certified_plan(num_iterations), tolerance)
    in_tasks(lambda first, last: _play_batch(*inputs, first, last, policy, bounds), rewards.shape, levels, None)
    return StateGames(*(torch.from_numpy(part) for part in (policy, *bounds)))


@compiled
def _play_batch(  # type: ignore[no-untyped-def]
    rewards, rank_weights, steps, weights, restarts, tolerance, first, last, policy, bounds
):
    """Play states `first` to `last` of [M, S, A] at all levels [L, M] into `policy` [L, S, A] and `bounds` [2, L, S]."""
    num_models, _, num_actions = rewards.shape
    by_model, by_action = np.empty((num_models, num_actions)), np.empty((num_actions, num_models))
    space = game_space(num_models, num_actions)
    draws, sums, averages, trace = nothing_drawn_or_recorded(restarts, num_actions)
    for state in range(first, last):
        limit = tolerance * lay_out(rewards, state, by_model, by_action)
        for level in range(rank_weights.shape[0]):
            lower, upper = play_game(
                by_model, by_action, draws, 0, rank_weights[level], steps, weights, restarts, True, limit, space,
                sums[0], sums[1], policy[level, state], averages, trace,
            )  # fmt: skip
            bounds[0, level, state] = lower
            bounds[1, level, state] = upper
