"""The games of `solvers.per_state` on a GPU: one program per state and level plays a whole game in its registers.

The same iteration, bounds and stopping rule, in float64. Sums have the GPU's order, so that a policy may differ from the CPU's
in its last digits, and a game may stop an iteration earlier or later; both are certified by their own bounds. A state's result
depends on that state alone: no program reads what another wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from cautious.progress import Progress
from cautious.risk import RiskMeasure
from cautious.solvers.kernels import FEWEST_MODELS, padded
from cautious.solvers.kernels.state_blocks import evaluated, padded_blocks, padded_weights, program_size
from cautious.solvers.per_state import CHECK_AVERAGE, StateGames


def play_states_on_gpu(
    rewards: Tensor,
    levels: Sequence[RiskMeasure],
    *,
    num_iterations: int,
    tolerance: float,
    progress: Progress | None = None,
) -> StateGames:
    """As `solvers.per_state.play_states`, on the GPU that the rewards are on.

    Args:
        rewards: What each of M models says each action pays, [M, S, A]; as many as `solvers.kernels.plays_on_gpu` allows.
        levels: L levels.
        num_iterations: Most iterations per game.
        tolerance: A game ends when its gap is at most this share of the range of the state's rewards.
        progress: Called with (states done, states in all).
    """
    num_models, num_states, num_actions = rewards.shape
    device, block_models = rewards.device, padded(num_models, FEWEST_MODELS)
    weights = torch.stack([padded_weights(level, num_models) for level in levels]).to(device)
    # As an array: a number would reach the kernel in float32.
    share = torch.tensor([tolerance], dtype=torch.float64, device=device)
    policy = torch.empty(len(levels), num_states, num_actions, dtype=torch.float64, device=device)
    bounds = torch.empty(2, len(levels), num_states, dtype=torch.float64, device=device)
    for first, block in padded_blocks(rewards, other_bytes=8 * len(levels) * block_models):
        count, _, block_actions = block.shape
        scratch = torch.empty(count, len(levels), block_models, dtype=torch.float64, device=device)
        _play[(count, len(levels))](
            block, weights, policy, bounds, scratch, share, first, num_states, num_iterations,
            num_models, num_actions, CHECK_AVERAGE, block_models, block_actions,
            **program_size(block_models * block_actions),
        )  # fmt: skip
        if progress is not None:
            torch.cuda.synchronize(device)
            progress(first + count, num_states)
    return StateGames(policy, *bounds)


# Sizes that are one would be taken for constants, and each kind of game compiled again for them.
@triton.jit(do_not_specialize=["first_state", "num_states", "num_iterations", "num_models", "num_actions"])
def _play(
    rewards, rank_weights, policies, bounds, scratch, tolerance, first_state, num_states, num_iterations,
    num_models, num_actions, CHECK: tl.constexpr, M: tl.constexpr, A: tl.constexpr,
):  # fmt: skip
    """One game: its best policy into `policies` [L, S, A], that policy's value and the bound on all into `bounds` [2, L, S].

    `rewards` are those of the launch's states [s, num_models, A], `rank_weights` [L, M] and `scratch` [s, L, M].
    """
    state, level, num_levels = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    model, action = tl.arange(0, M), tl.arange(0, A)
    acts = action < num_actions
    inside = (model < num_models)[:, None] & acts[None, :]
    rewards += state * (num_models * A)
    own = tl.load(rewards + model[:, None] * A + action[None, :], mask=inside, other=0.0)  # [M, A]
    weights = rank_weights + level * M
    scratch += (state * num_levels + level) * M
    place = level * num_states.to(tl.int64) + first_state + state
    best = policies + place * num_actions + action
    largest_reward = tl.max(tl.max(tl.where(inside, own, float("-inf")), axis=1), axis=0).to(tl.float64)
    smallest_reward = tl.min(tl.min(tl.where(inside, own, float("inf")), axis=1), axis=0).to(tl.float64)
    limit = tl.load(tolerance) * (largest_reward - smallest_reward)

    uniform = tl.where(acts, 1.0, 0.0).to(tl.float64) / num_actions
    policy, regret = uniform, uniform * 0.0
    policy_sum, mixture_sum, recent_sum = regret, regret, regret
    total, recent = limit * 0.0, limit * 0.0
    lower, upper = total - float("inf"), total + float("inf")
    t = first_state * 0  # numbers of the GPU's from the start: they change in the loop
    restart = t + 1
    while (t < num_iterations) & (upper - lower > limit):
        mixture, value = evaluated(rewards, num_models, policy, weights, scratch, M, A)
        if value >= lower:
            tl.store(best, policy, mask=acts)
        lower = tl.maximum(value, lower)
        # Forget early answers to poor policies, which would loosen the bound.
        forget = t == restart
        recent_sum, recent = tl.where(forget, 0.0, recent_sum), tl.where(forget, 0.0, recent)
        restart = tl.where(forget, 2 * restart, restart)
        step = (t + 1).to(tl.float64)
        total += step
        recent += step
        policy_sum += step * policy
        mixture_sum += step * mixture
        recent_sum += step * mixture
        largest = tl.max(tl.where(acts, mixture_sum, float("-inf")), axis=0)
        largest_recent = tl.max(tl.where(acts, recent_sum, float("-inf")), axis=0)
        upper = tl.minimum(upper, tl.minimum(largest / total, largest_recent / recent))
        regret = tl.where(acts, tl.maximum(regret + mixture - value, 0.0), 0.0)
        positive = tl.sum(regret, axis=0)
        policy = tl.where(positive > 0.0, regret / tl.where(positive > 0.0, positive, 1.0), uniform)
        t += 1
        if (t % CHECK == 0) | (t == num_iterations):
            average = policy_sum / tl.sum(policy_sum, axis=0)
            _, value = evaluated(rewards, num_models, average, weights, scratch, M, A)
            if value >= lower:
                tl.store(best, average, mask=acts)
            lower = tl.maximum(value, lower)
    tl.store(bounds + place, lower)
    tl.store(bounds + num_levels * num_states.to(tl.int64) + place, tl.maximum(upper, lower))  # rounding may cross them
