"""The games of `solvers.per_state` on a GPU: one program per state and level plays a whole game in registers.

A prototype for `benchmarks.state_games`; the package does not use it. Triton's interpreter gives the same policies as the CPU.
On a GPU an earlier form, which compared all pairs of models in registers, gave wrong ranks; this one has not run there yet.

The same iteration, bounds and stopping rule in float64. Sums have the GPU's order, so a policy may differ from the CPU's in
its last digits, and a game may stop one iteration earlier or later; both are certified by their own bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from cautious.ops.risk import KofN
from cautious.solvers.per_state import CHECK_AVERAGE, StateGames

MOST_REWARDS = 2**14
"""Models times actions that a program keeps in registers, padded to powers of two: beyond this, they spill."""
SMALLEST_BLOCK = 16
PROGRAMS_PER_LAUNCH = 2**16
"""Each needs a row of memory of its own."""


def fits(rewards: Tensor) -> bool:
    """Whether rewards [M, S, A] are few enough per state for a program."""
    return _block(rewards.shape[0]) * _block(rewards.shape[2]) <= MOST_REWARDS


def play_states_on_gpu(
    rewards: Tensor, levels: Sequence[KofN], *, num_iterations: int, tolerance: float, num_warps: int = 1
) -> StateGames:
    """Play the game of every state at every level.

    Args:
        rewards: What each of M models says each action pays, [M, S, A], on a GPU; M and A such that it `fits`.
        levels: L levels.
        num_iterations: Iterations of a game at most.
        tolerance: A game ends when its gap is at most this share of the range of the state's rewards.
        num_warps: Warps per game.
    """
    num_models, num_states, num_actions = rewards.shape
    device = rewards.device
    weights = torch.stack([level.rank_weights(num_models) for level in levels]).double().to(device)
    policy = torch.empty(len(levels), num_states, num_actions, dtype=torch.float64, device=device)
    bounds = torch.empty(2, len(levels), num_states, dtype=torch.float64, device=device)
    block_models, block_actions = _block(num_models), _block(num_actions)
    states_per_launch = max(1, PROGRAMS_PER_LAUNCH // len(levels))
    scratch = torch.empty(states_per_launch * len(levels), block_models, dtype=torch.float64, device=device)
    for first in range(0, num_states, states_per_launch):
        _play[(min(states_per_launch, num_states - first), len(levels))](
            rewards, weights, policy, bounds, scratch, float(tolerance), num_iterations, num_states, num_actions,
            first, *rewards.stride(), num_models=num_models, CHECK=CHECK_AVERAGE, M=block_models, A=block_actions,
            num_warps=num_warps,
        )  # fmt: skip
    return StateGames(policy, *bounds)


def _block(size: int) -> int:
    return int(max(SMALLEST_BLOCK, triton.next_power_of_2(size)))


@triton.jit
def _evaluate(rewards, policy, weights, model, valid, scratch, num_models: tl.constexpr):
    """The mixture [A] that answers a policy [A], and the policy's exact k-of-N value."""
    values = tl.sum(policy[:, None] * rewards, axis=0)  # [M]
    # A model's rank is how many are worse, ties by number. Values go through memory, so that all threads compare the same
    # ones; comparing all pairs at once in registers gave wrong ranks (Triton 3.6, 128 models, float64).
    tl.debug_barrier()
    tl.store(scratch + model, values, mask=valid)
    tl.debug_barrier()
    values = tl.load(scratch + model, mask=valid, other=0.0, volatile=True)
    rank = tl.zeros_like(model)
    for other in range(0, num_models):
        value = tl.load(scratch + other, volatile=True)
        rank += ((value < values) | ((value == values) & (other < model))).to(tl.int32)
    weight = tl.load(weights + rank, mask=valid & (rank < num_models), other=0.0)
    return tl.sum(weight[None, :] * rewards, axis=1), tl.sum(weight * tl.where(valid, values, 0.0), axis=0)


@triton.jit
def _play(
    rewards, rank_weights, policies, bounds, scratch, tolerance, num_iterations, num_states, num_actions,
    first_state, model_stride, state_stride, action_stride, num_models: tl.constexpr, CHECK: tl.constexpr,
    M: tl.constexpr, A: tl.constexpr,
):  # fmt: skip
    """One game per program, [A, M] in registers: its best policy, that policy's value and the bound on all values."""
    scratch += (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)) * M
    state, level = first_state + tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    model, action = tl.arange(0, M), tl.arange(0, A)
    valid, acts = model < num_models, action < num_actions
    at = rewards + state * state_stride + model[None, :].to(tl.int64) * model_stride + action[:, None] * action_stride
    inside = valid[None, :] & acts[:, None]
    own = tl.load(at, mask=inside, other=0.0).to(tl.float64)  # [A, M]
    weights = rank_weights + level * num_models
    largest_reward = tl.max(tl.max(tl.where(inside, own, float("-inf")), axis=1), axis=0)
    smallest_reward = tl.min(tl.min(tl.where(inside, own, float("inf")), axis=1), axis=0)
    limit = tolerance * (largest_reward - smallest_reward)

    uniform = tl.where(acts, 1.0, 0.0).to(tl.float64) / num_actions
    policy, best = uniform, uniform
    regret = uniform * 0.0
    policy_sum, mixture_sum, recent_sum = regret, regret, regret
    lower = smallest_reward - 1.0
    upper = largest_reward + 1.0
    total, recent = limit * 0.0, limit * 0.0
    t = tl.program_id(0) * 0  # a number of the GPU's from the start: it changes in the loop
    restart = t + 1
    while (t < num_iterations) & (upper - lower > limit):
        mixture, value = _evaluate(own, policy, weights, model, valid, scratch, num_models)
        best = tl.where(value >= lower, policy, best)
        lower = tl.maximum(value, lower)
        # Early answers to poor policies do not loosen the bound for ever.
        keep = tl.where(t == restart, 0.0, 1.0).to(tl.float64)
        recent_sum, recent = recent_sum * keep, recent * keep
        restart = tl.where(t == restart, 2 * restart, restart)
        step = (t + 1).to(tl.float64)
        total += step
        recent += step
        policy_sum += step * policy
        mixture_sum += step * mixture
        recent_sum += step * mixture
        largest = tl.max(tl.where(acts, mixture_sum, float("-inf")), axis=0) / total
        largest_recent = tl.max(tl.where(acts, recent_sum, float("-inf")), axis=0) / recent
        upper = tl.minimum(upper, tl.minimum(largest, largest_recent))
        regret = tl.where(acts, tl.maximum(regret + mixture - value, 0.0), 0.0)
        positive = tl.sum(regret, axis=0)
        policy = tl.where(positive > 0.0, regret / tl.where(positive > 0.0, positive, 1.0), uniform)
        if ((t + 1) % CHECK == 0) | (t + 1 == num_iterations):
            average = policy_sum / tl.sum(policy_sum, axis=0)
            _, value = _evaluate(own, average, weights, model, valid, scratch, num_models)
            best = tl.where(value >= lower, average, best)
            lower = tl.maximum(value, lower)
        t += 1
    place = level * num_states + state
    tl.store(policies + place * num_actions + action, best, mask=acts)
    tl.store(bounds + place, lower)
    tl.store(bounds + num_states * tl.num_programs(1) + place, tl.maximum(upper, lower))
