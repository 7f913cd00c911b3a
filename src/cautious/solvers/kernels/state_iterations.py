"""The iterations of `solvers.cfr` in the single-state regime on a GPU: one program per state and run plays all of them.

The same draws, rules and records as those of `solvers.per_state_cfr` on the CPU, in float64; the tests compare the two. Sums
have the GPU's order. A state's result depends on that state alone: no program reads what another wrote.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from cautious.risk import RiskMeasure
from cautious.solvers.adversary import WINDOWS, ModelQueue, queued
from cautious.solvers.cfr import CFROptions, CFRResult, History, Problem, init
from cautious.solvers.kernels import FEWEST_MODELS, padded
from cautious.solvers.kernels.state_blocks import evaluated, padded_blocks, padded_weights, program_size, ranked
from cautious.solvers.per_state_cfr import EXACT, REGRET, SAMPLED, SMALLEST, UPDATE_NUMBERS
from cautious.solvers.rewards import DenseRewards
from cautious.types import Sampling

_SMALLEST = tl.constexpr(SMALLEST)
SAMPLED_ROW, EXACT_ROW, REGRET_ROW = tl.constexpr(SAMPLED), tl.constexpr(EXACT), tl.constexpr(REGRET)


def minimise_regret_on_gpu(problem: Problem, options: CFROptions) -> CFRResult:
    """T iterations of k-of-N CFR in every state, for a batch of levels and runs, where `plays_on_gpu`."""
    num_iterations, sampling, update, _, track_exact, progress = options
    rewards = problem.rewards
    assert isinstance(rewards, DenseRewards)
    batch_size, num_states, num_actions = problem.shape
    num_models, num_runs, device = rewards.num_models, problem.batch.num_runs, rewards.device
    tracked = track_exact or sampling is Sampling.EXACT
    state = init(problem)
    policy, policy_sum, best = (torch.empty_like(state.policy) for _ in range(3))
    best_value = torch.empty(batch_size, num_states, dtype=torch.float64, device=device)
    mixtures = torch.empty(len(WINDOWS) if tracked else 0, *problem.shape, dtype=torch.float64, device=device)
    windows = [int(window * num_iterations) for window in WINDOWS]
    groups = [
        (
            members,
            queued(level).k if sampling is Sampling.QUEUE else 0,  # of all models none counts more than its rank says
            _draws(problem, level, options),
            padded_weights(level, num_models).to(device),
        )
        for level, members in problem.batch.groups()
    ]
    most_ranked = max(num_models if tracked else draws.shape[2] or num_models for _, _, draws, _ in groups)
    entries = 3 * num_iterations * batch_size + num_runs * padded(most_ranked, FEWEST_MODELS)  # of traces and scratch
    sums, largest = [], []  # of the traces over the states of each block
    for first, block in padded_blocks(rewards.tensor, other_bytes=8 * entries):
        count, _, block_actions = block.shape
        traces = torch.zeros(3, num_iterations, batch_size, count, dtype=torch.float64, device=device)
        for members, k, draws, weights in groups:
            num_drawn = draws.shape[2]
            ranks_all = tracked or num_drawn == 0  # a draw of all models is exact
            block_models = padded(num_models, FEWEST_MODELS) if ranks_all else FEWEST_MODELS
            block_drawn = padded(num_drawn, FEWEST_MODELS)
            width = max(block_models, block_drawn)
            scratch = torch.empty(count * num_runs, width, dtype=torch.float64, device=device)
            _iterate[(count * num_runs,)](
                block, draws, weights, policy[members], policy_sum[members], best[members], best_value[members],
                mixtures[:, members], traces[:, :, members], scratch,
                first, count, num_states, num_models, num_actions, num_drawn, k, num_runs, num_iterations, batch_size,
                *windows, UPDATE_NUMBERS[update], tracked, ranks_all, num_drawn > 0,
                block_models, block_drawn, block_actions, width, **program_size(width * block_actions),
            )  # fmt: skip
        sums.append(traces[:REGRET].sum(dim=-1))
        largest.append(traces[REGRET].amax(dim=-1))
        if progress is not None:
            torch.cuda.synchronize(device)
            progress(first + count, num_states)
    history = History.empty(state, num_iterations)
    history.occupancy_sum = history.policy_sum = policy_sum  # with d(s) = 1 the occupancy is the policy
    history.sampled_value, history.exact_value = torch.stack(sums).sum(dim=0) / num_states
    history.largest_regret = torch.stack(largest).amax(dim=0)
    if not tracked:
        history.exact_value.fill_(torch.nan)
        return CFRResult(policy, history, None)
    history.best_policy, history.best_value = best, best_value
    counts = torch.tensor([num_iterations - start for start in windows], dtype=torch.float64, device=device)
    return CFRResult(policy, history, mixtures / counts[:, None, None, None])


def _draws(problem: Problem, level: RiskMeasure, options: CFROptions) -> Tensor:
    """Models drawn [T, R, N]; [T, R, 0] where all are weighed by rank."""
    num_models, num_runs = problem.rewards.num_models, problem.batch.num_runs
    if options.sampling is Sampling.EXACT or queued(level).n == num_models:
        draws = torch.empty(options.num_iterations, num_runs, 0, dtype=torch.int32)
    else:
        queue = ModelQueue(num_runs, num_models, options.seed)
        draws = torch.stack([queue.draw(queued(level), t) for t in range(options.num_iterations)]).int()
    return draws.to(problem.rewards.device)


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


# Sizes that are one would be taken for constants, and each kind of run compiled again for them.
@triton.jit(
    do_not_specialize=[
        "first_state", "count", "num_states", "num_models", "num_actions", "num_drawn", "k", "num_runs", "num_iterations",
        "batch_size", "window_0", "window_1", "window_2",
    ]
)  # fmt: skip
def _iterate(
    rewards, draws, weights, policies, policy_sums, best, best_values, mixtures, traces, scratch,
    first_state, count, num_states, num_models, num_actions, num_drawn, k, num_runs, num_iterations, batch_size,
    window_0, window_1, window_2, UPDATE: tl.constexpr, TRACKED: tl.constexpr, RANKS_ALL: tl.constexpr, DRAWS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, A: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """All iterations of one run in one state (`solvers.per_state_cfr._play`).

    `rewards` are those of the launch's states [s, num_models, A], `draws` [T, R, num_drawn], `weights` [M]. Written are
    `policies`, `policy_sums` and `best` [R, S, A], `best_values` [R, S], `mixtures` [W, B, S, A] and `traces` [3, T, B, s],
    from the first of the runs on.
    """
    program = tl.program_id(0)
    run = program % num_runs  # a state's runs side by side: they share its rewards
    state = (program // num_runs).to(tl.int64)
    action = tl.arange(0, A)
    acts = action < num_actions
    rewards += state * (num_models * A)
    scratch += program.to(tl.int64) * WIDTH
    place = run * num_states.to(tl.int64) + first_state + state
    at = place * num_actions + action
    trace = traces + run * count.to(tl.int64) + state
    row = batch_size.to(tl.int64) * count  # from one iteration's trace to the next
    number = tl.minimum(tl.arange(0, N), num_drawn - 1)  # beyond the last model drawn, that one again

    uniform = tl.where(acts, 1.0, 0.0).to(tl.float64) / num_actions
    policy, cumulative = uniform, uniform * 0.0
    signed, policy_sum = cumulative, cumulative
    mixture_0, mixture_1, mixture_2 = cumulative, cumulative, cumulative
    highest = tl.sum(cumulative, axis=0) - float("inf")
    if DRAWS:
        sampled = _drawn(rewards, draws + run * num_drawn + number, A)
    t = num_iterations * 0  # a number of the GPU's from the start, like all that changes in a loop
    while t < num_iterations:
        if RANKS_ALL:
            mixture, value = evaluated(rewards, num_models, policy, weights, scratch, M, A)
        if TRACKED:
            tl.store(trace + (EXACT_ROW * num_iterations + t) * row, value)
            if value >= highest:  # on ties the later iterate, as in `solvers.cfr.better_policy`
                tl.store(best + at, policy, mask=acts)
            highest = tl.maximum(highest, value)
            mixture_0 += tl.where(t >= window_0, mixture, 0.0)
            mixture_1 += tl.where(t >= window_1, mixture, 0.0)
            mixture_2 += tl.where(t >= window_2, mixture, 0.0)
        if DRAWS:
            current = sampled
            # The next iteration's models, on their way while this one is computed; after the last iteration its own again.
            following = tl.minimum(t + 1, num_iterations - 1)
            sampled = _drawn(rewards, draws + (following * num_runs + run) * num_drawn + number, A)
            mixture, value = _worst_of_drawn(current, num_drawn, policy, k, scratch, N)
        tl.store(trace + (SAMPLED_ROW * num_iterations + t) * row, value)
        policy_sum += policy
        regret = tl.where(acts, mixture - tl.sum(policy * mixture, axis=0), 0.0)
        signed += regret
        tl.store(trace + (REGRET_ROW * num_iterations + t) * row, tl.max(tl.where(acts, signed, float("-inf")), axis=0))
        if UPDATE == 2:
            cumulative += tl.maximum(regret, 0.0)
        elif UPDATE == 1:
            cumulative = tl.maximum(cumulative + regret, 0.0)
        else:
            cumulative += regret
        positive = tl.maximum(cumulative, 0.0)
        total = tl.sum(positive, axis=0)
        policy = tl.where(total > _SMALLEST, positive / tl.where(total > _SMALLEST, total, 1.0), uniform)
        t += 1
    tl.store(policies + at, policy, mask=acts)
    tl.store(policy_sums + at, policy_sum, mask=acts)
    if TRACKED:
        tl.store(best_values + place, highest)
        window = batch_size.to(tl.int64) * num_states * num_actions
        tl.store(mixtures + at, mixture_0, mask=acts)
        tl.store(mixtures + window + at, mixture_1, mask=acts)
        tl.store(mixtures + 2 * window + at, mixture_2, mask=acts)
