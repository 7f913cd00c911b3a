"""The games of `solvers.per_state` on a GPU: one program per state and run plays a whole game in its registers.

The same plans, draws, rules, bounds and records, in float64; the tests compare the two. Sums have the GPU's order, so that a
policy may differ from the CPU's in its last digits, and a certified game may stop an iteration earlier or later; both are
certified by their own bounds. A state's result depends on that state alone: no program reads what another wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from cautious.progress import Progress
from cautious.risk import RiskMeasure, weights_by_rank
from cautious.solvers.cfr import CFROptions, CFRResult, Problem
from cautious.solvers.kernels import FEWEST_MODELS, padded
from cautious.solvers.kernels.state_blocks import evaluated, padded_blocks, padded_weights, program_size, ranked
from cautious.solvers.per_state import CHECK_AVERAGE
from cautious.solvers.rewards import DenseRewards
from cautious.solvers.state_runs import (
    EXACT,
    REGRET,
    SAMPLED,
    Plan,
    Record,
    StateGames,
    certified_plan,
    recorded_plan,
    runs_of_levels,
)
from cautious.types import Sampling

SAMPLED_ROW, EXACT_ROW, REGRET_ROW = tl.constexpr(SAMPLED), tl.constexpr(EXACT), tl.constexpr(REGRET)
COLUMNS = tl.constexpr(8)
"""Of a plan on the GPU: four numbers of the update rule, a weight, and whether each of up to three averages begins anew."""


def play_states_on_gpu(
    rewards: Tensor,
    levels: Sequence[RiskMeasure],
    *,
    num_iterations: int,
    tolerance: float,
    progress: Progress | None = None,
) -> StateGames:
    """Play the game of every state at every level until it is certified, on the GPU that the rewards are on.

    Args:
        rewards: What each of M models says each action pays, [M, S, A]; as many as `solvers.kernels.plays_on_gpu` allows.
        levels: L levels.
        num_iterations: Most iterations per game.
        tolerance: A game ends when its gap is at most this share of the range of the state's rewards.
        progress: Called with (states done, states in all).
    """
    num_models, num_states, num_actions = rewards.shape
    device, block_models = rewards.device, padded(num_models, FEWEST_MODELS)
    weights = [padded_weights(weights_by_rank(level, num_models)).to(device) for level in levels]
    plan = _on_gpu(certified_plan(num_iterations), device)
    # As an array: a number would reach the kernel in float32.
    share = torch.tensor([tolerance], dtype=torch.float64, device=device)
    policy = torch.empty(len(levels), num_states, num_actions, dtype=torch.float64, device=device)
    bounds = torch.empty(2, len(levels), num_states, dtype=torch.float64, device=device)
    for first, block in padded_blocks(rewards, other_bytes=8 * block_models):
        count, _, block_actions = block.shape
        scratch = torch.empty(count, block_models, dtype=torch.float64, device=device)
        for level, own in enumerate(weights):
            _play[(count,)](
                block, scratch, own, plan, share, policy[level], bounds[0, level], bounds[1, level],
                scratch, scratch, scratch, scratch, scratch,
                first, count, num_states, num_models, num_actions, 0, 0, 1, num_iterations, 1,
                CHECK_AVERAGE, True, True, True, False,
                block_models, FEWEST_MODELS, block_actions, block_models, **program_size(block_models * block_actions),
            )  # fmt: skip
        _report(progress, device, first + count, num_states)
    return StateGames(policy, *bounds)


def minimise_regret_on_gpu(problem: Problem, options: CFROptions) -> CFRResult:
    """T iterations of k-of-N CFR in every state, for a batch of levels and runs, where `plays_on_gpu`."""
    num_iterations, rewards = options.num_iterations, problem.rewards
    assert isinstance(rewards, DenseRewards)
    batch_size, num_states, num_actions = problem.shape
    num_models, num_runs, device = rewards.num_models, problem.batch.num_runs, rewards.device
    tracked = options.track_exact or options.sampling is Sampling.EXACT
    empty = torch.empty(0, dtype=torch.float64, device=device)
    policy, policy_sum, best = (empty.new_empty(problem.shape) for _ in range(3))
    best_value, upper = (empty.new_empty(batch_size, num_states) for _ in range(2))
    plan = recorded_plan(options.update, num_iterations)
    mixtures = empty.new_empty(plan.restarts.shape[1] if tracked else 0, *problem.shape)
    numbers = _on_gpu(plan, device)
    levels = [
        (members, k, draws.int().to(device), padded_weights(weights).to(device))
        for members, weights, draws, k in runs_of_levels(problem, options)
    ]
    most_ranked = max(num_models if tracked else draws.shape[2] or num_models for _, _, draws, _ in levels)
    entries = 3 * num_iterations * batch_size + num_runs * padded(most_ranked, FEWEST_MODELS)  # of traces and scratch
    sums, largest = [], []  # of the traces over the states of each block
    for first, block in padded_blocks(rewards.tensor, other_bytes=8 * entries):
        count, _, block_actions = block.shape
        traces = torch.zeros(3, num_iterations, batch_size, count, dtype=torch.float64, device=device)
        for members, k, draws, weights in levels:
            num_drawn = draws.shape[2]
            ranks_all = tracked or num_drawn == 0
            block_models = padded(num_models, FEWEST_MODELS) if ranks_all else FEWEST_MODELS
            block_drawn = padded(num_drawn, FEWEST_MODELS)
            width = max(block_models, block_drawn)
            scratch = empty.new_empty(count * num_runs, width)
            _play[(count * num_runs,)](
                block, draws, weights, numbers, scratch, best[members], best_value[members], upper[members],
                policy[members], policy_sum[members], mixtures[:, members], traces[:, :, members], scratch,
                first, count, num_states, num_models, num_actions, num_drawn, k, num_runs, num_iterations, batch_size,
                CHECK_AVERAGE, False, tracked, ranks_all, num_drawn > 0,
                block_models, block_drawn, block_actions, width, **program_size(width * block_actions),
            )  # fmt: skip
        sums.append(traces[:REGRET].sum(dim=-1))
        largest.append(traces[REGRET].amax(dim=-1))
        _report(options.progress, device, first + count, num_states)
    sampled, exact = torch.stack(sums).sum(dim=0)
    record = Record(policy, policy_sum, best, best_value, mixtures, sampled, exact, torch.stack(largest).amax(dim=0))
    return record.result(problem, num_iterations)


def _on_gpu(plan: Plan, device: torch.device) -> Tensor:
    """A plan as one array [T, `COLUMNS`]; a window that it does not have restarts with every iteration."""
    columns = np.ones((len(plan.weights), COLUMNS.value))
    columns[:, :4], columns[:, 4], columns[:, 5 : 5 + plan.restarts.shape[1]] = plan.steps, plan.weights, plan.restarts
    return torch.from_numpy(columns).to(device)


def _report(progress: Progress | None, device: torch.device, done: int, total: int) -> None:
    if progress is not None:
        torch.cuda.synchronize(device)
        progress(done, total)


@triton.jit
def _drawn(rewards, numbers, A: tl.constexpr):
    """Rewards [N, A] of the models whose numbers stand at these places [N]."""
    return tl.load(rewards + tl.load(numbers)[:, None] * A + tl.arange(0, A)[None, :])


@triton.jit
def _worst_of_drawn(rewards, num_drawn, policy, k, scratch, N: tl.constexpr):
    """Mean [A] of the k worst of the drawn models [N, A] for a policy [A], and its value (Alg. 1, lines 7 and 8)."""
    rewards = rewards.to(tl.float64)
    values = tl.sum(policy[None, :] * rewards, axis=1)  # [N]
    is_drawn = tl.arange(0, N) < num_drawn
    rank, values = ranked(tl.where(is_drawn, values, float("inf")), num_drawn, scratch, N)
    is_worst = rank < k
    value = tl.sum(tl.where(is_worst, values, 0.0), axis=0)
    return tl.sum(tl.where(is_worst[:, None], rewards, 0.0), axis=0) / k, value / k


@triton.jit
def _scaled(numbers, positive, negative):
    """Numbers above zero times one factor, those below zero times another."""
    return positive * tl.maximum(numbers, 0.0) + negative * tl.minimum(numbers, 0.0)


@triton.jit
def _windowed(mixture_sum, length, restarts, weight, mixture):
    """A window's sum of mixtures and its length, with the next mixture."""
    anew = tl.load(restarts) > 0.0
    return tl.where(anew, 0.0, mixture_sum) + weight * mixture, tl.where(anew, 0.0, length) + weight


@triton.jit
def _largest(numbers, acts):
    """The largest number of all actions [A] that there are."""
    return tl.max(tl.where(acts, numbers, float("-inf")), axis=0)


# Sizes that are one would be taken for constants, and each kind of game compiled again for them.
@triton.jit(
    do_not_specialize=[
        "first_state", "count", "num_states", "num_models", "num_actions", "num_drawn", "k", "num_runs", "num_iterations",
        "batch_size",
    ]
)  # fmt: skip
def _play(
    rewards, draws, rank_weights, plan, tolerance, best, lowers, uppers,
    policies, policy_sums, mixtures, traces, scratch,
    first_state, count, num_states, num_models, num_actions, num_drawn, k, num_runs, num_iterations, batch_size,
    CHECK: tl.constexpr, CERTIFIES: tl.constexpr, TRACKED: tl.constexpr, RANKS_ALL: tl.constexpr, DRAWS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, A: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One run of one state's game (`solvers.per_state.play_game`).

    `rewards` are those of the launch's states [s, num_models, A], `draws` [R, T, num_drawn], `rank_weights` [M], `plan`
    [T, COLUMNS]. Written are, from the first of the runs on, `best` [R, S, A] and its value `lowers` [R, S]; of certified
    games the bound `uppers` [R, S]; of the others `policies` and `policy_sums` [R, S, A], `mixtures` [W, B, S, A] and `traces`
    [3, T, B, s].
    """
    program = tl.program_id(0)
    run = program % num_runs  # a state's runs side by side: they share its rewards
    state = (program // num_runs).to(tl.int64)
    model, action = tl.arange(0, M), tl.arange(0, A)
    acts = action < num_actions
    rewards += state * (num_models * A)
    scratch += program.to(tl.int64) * WIDTH
    place = run * num_states.to(tl.int64) + first_state + state
    at = place * num_actions + action
    trace = traces + run * count.to(tl.int64) + state
    row = batch_size.to(tl.int64) * count  # from one iteration's trace to the next
    number = tl.minimum(tl.arange(0, N), num_drawn - 1)  # beyond the last model drawn, that one again
    draws += run.to(tl.int64) * num_iterations * num_drawn

    uniform = tl.where(acts, 1.0, 0.0).to(tl.float64) / num_actions
    policy, cumulative = uniform, uniform * 0.0
    signed, policy_sum = cumulative, cumulative
    sum_0, sum_1, sum_2 = cumulative, cumulative, cumulative
    zero = tl.sum(cumulative, axis=0)
    length_0, length_1, length_2 = zero, zero, zero
    lower, upper, limit = zero - float("inf"), zero + float("inf"), zero - float("inf")
    if CERTIFIES:
        inside = (model < num_models)[:, None] & acts[None, :]
        own = tl.load(rewards + model[:, None] * A + action[None, :], mask=inside, other=0.0)  # [M, A]
        largest_reward = tl.max(tl.max(tl.where(inside, own, float("-inf")), axis=1), axis=0).to(tl.float64)
        smallest_reward = tl.min(tl.min(tl.where(inside, own, float("inf")), axis=1), axis=0).to(tl.float64)
        limit = tl.load(tolerance) * (largest_reward - smallest_reward)
    if DRAWS:
        sampled = _drawn(rewards, draws + number, A)
    t = num_iterations * 0  # a number of the GPU's from the start, like all that changes in a loop
    while (t < num_iterations) & (upper - lower > limit):
        step = plan + t * COLUMNS
        weight = tl.load(step + 4)
        if RANKS_ALL:
            mixture, value = evaluated(rewards, num_models, policy, rank_weights, scratch, M, A)
        if TRACKED:
            if value >= lower:  # on ties the later iterate, as in `solvers.cfr.better_policy`
                tl.store(best + at, policy, mask=acts)
            lower = tl.maximum(value, lower)
            sum_0, length_0 = _windowed(sum_0, length_0, step + 5, weight, mixture)
            sum_1, length_1 = _windowed(sum_1, length_1, step + 6, weight, mixture)
            if CERTIFIES:
                upper = tl.minimum(
                    upper, tl.minimum(_largest(sum_0, acts) / length_0, _largest(sum_1, acts) / length_1)
                )
            else:
                sum_2, length_2 = _windowed(sum_2, length_2, step + 7, weight, mixture)
                tl.store(trace + (EXACT_ROW * num_iterations + t) * row, value)
        if DRAWS:
            current = sampled
            # The next iteration's models, on their way while this one is computed; after the last iteration its own again.
            following = tl.minimum(t + 1, num_iterations - 1)
            sampled = _drawn(rewards, draws + following * num_drawn + number, A)
            mixture, value = _worst_of_drawn(current, num_drawn, policy, k, scratch, N)
        policy_sum += weight * policy
        if CERTIFIES:
            regret = mixture - value
            added = cumulative + mixture - value
        else:
            tl.store(trace + (SAMPLED_ROW * num_iterations + t) * row, value)
            regret = tl.where(acts, mixture - tl.sum(policy * mixture, axis=0), 0.0)
            signed += regret
            tl.store(trace + (REGRET_ROW * num_iterations + t) * row, _largest(signed, acts))
            added = cumulative + _scaled(regret, 1.0, tl.load(step + 2))
        cumulative = tl.where(acts, _scaled(added, tl.load(step), tl.load(step + 1)), 0.0)
        matched = tl.where(acts, tl.maximum(cumulative + tl.load(step + 3) * regret, 0.0), 0.0)
        total = tl.sum(matched, axis=0)
        policy = tl.where(total > 0.0, matched / tl.where(total > 0.0, total, 1.0), uniform)
        t += 1
        if CERTIFIES:  # noqa: SIM102  # known when the kernel is compiled, unlike the next
            if (t % CHECK == 0) | (t == num_iterations):
                average = policy_sum / tl.sum(policy_sum, axis=0)
                _, value = evaluated(rewards, num_models, average, rank_weights, scratch, M, A)
                if value >= lower:
                    tl.store(best + at, average, mask=acts)
                lower = tl.maximum(value, lower)
    if TRACKED:
        tl.store(lowers + place, lower)
    if CERTIFIES:
        tl.store(uppers + place, tl.maximum(upper, lower))  # rounding may cross them
    else:
        tl.store(policies + at, policy, mask=acts)
        tl.store(policy_sums + at, policy_sum, mask=acts)
        if TRACKED:
            window = batch_size.to(tl.int64) * num_states * num_actions
            tl.store(mixtures + at, sum_0, mask=acts)
            tl.store(mixtures + window + at, sum_1, mask=acts)
            tl.store(mixtures + 2 * window + at, sum_2, mask=acts)
