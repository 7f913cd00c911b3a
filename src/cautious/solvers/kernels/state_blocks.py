"""What both kernels do with a state's rewards: lay them out for a program, and rank models by value.

A program works on one state's rewards [M, A], models and actions padded to powers of two. With actions side by side in memory,
each thread of a warp reads four actions of a model at once, and those of every eighth model: sums over actions and sums over
models then both take a few exchanges between threads.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from cautious.solvers.kernels import FEWEST_ACTIONS, FEWEST_MODELS, padded

BLOCK_BYTES = 2**30
"""Padded rewards of the states that are played by one launch, and as much again for what else it needs."""
REWARDS_PER_WARP = 2**11
"""64 numbers per thread; more would not fit its registers beside what the game needs."""
MOST_WARPS = 16
FEW_REGISTERS, MORE_REGISTERS = 96, 128
"""Of each thread. With fewer, some numbers wait in memory, but a multiprocessor plays more games at a time: one goes on while
another waits. Of 80, 96, 128 and the 254 that the compiler would take, 96 was the quickest for 100 models on an H200."""

WIDTH = tl.constexpr(4)
"""Models that each thread compares its own with at a time; four threads share the comparisons of a model."""


def padded_blocks(rewards: Tensor, other_bytes: int) -> Iterator[tuple[int, Tensor]]:
    """Rewards [M, S, A] as pieces (first state, [s, M, A padded with zeros]), in float32 or float64.

    Args:
        rewards: On any device.
        other_bytes: What else a launch needs per state.
    """
    num_models, num_states, num_actions = rewards.shape
    dtype = torch.float64 if rewards.dtype == torch.float64 else torch.float32
    width = padded(num_actions, FEWEST_ACTIONS)
    size = max(1, BLOCK_BYTES // max(other_bytes, dtype.itemsize * num_models * width))
    for first in range(0, num_states, size):
        states = rewards[:, first : first + size].permute(1, 0, 2)  # [s, M, A]
        block = torch.zeros(*states.shape[:2], width, dtype=dtype, device=rewards.device)
        block[..., :num_actions] = states
        yield first, block


def padded_weights(rank_weights: Tensor) -> Tensor:
    """Weights by rank [M], followed by zeros, [M padded]."""
    return torch.nn.functional.pad(rank_weights, (0, padded(len(rank_weights), FEWEST_MODELS) - len(rank_weights)))


def program_size(num_rewards: int) -> dict[str, int]:
    """Warps and registers of a program that works on this many rewards at a time, a power of two, as options of a launch."""
    num_warps = max(1, min(MOST_WARPS, num_rewards // REWARDS_PER_WARP))
    # With eight warps or more, a multiprocessor plays no more games at a time if each uses fewer registers.
    return {"num_warps": num_warps, "maxnreg": FEW_REGISTERS if num_warps < 8 else MORE_REGISTERS}


@triton.jit
def ranked(values, count, scratch, M: tl.constexpr):
    """Rank of each of M models, 0 for the worst, ties by number; and the values [M] themselves, as they were compared.

    Only the first `count` are models; the others must have the value +∞. The values go through `scratch` [M], and all
    comparisons read them there: the compiler may compute a sum twice, in two orders, where two arrangements of it are needed,
    and values that differ in their last bits from one comparison to the next give two models the same rank.
    """
    model = tl.arange(0, M)
    tl.debug_barrier()  # the last call has been read
    tl.store(scratch + model, values)
    tl.debug_barrier()
    values = tl.load(scratch + model)
    mine = values[:, None]
    worse = tl.zeros([M, WIDTH], tl.int32)
    first = count * 0  # a number of the GPU's from the start, like all that changes in a loop
    while first < count:
        for _ in tl.static_range(2):  # two loads on their way at a time; M is a multiple of both
            theirs = tl.load(scratch + first + tl.arange(0, WIDTH))[None, :]
            worse += (theirs < mine).to(tl.int32)
            first += WIDTH
    rank = tl.sum(worse, axis=1)
    # Ranks without ties are 0 to count - 1. Only where their sum is lower have equal values to be told apart.
    if tl.sum(tl.where(model < count, rank, 0), axis=0) < count * (count - 1) // 2:
        equal = tl.zeros([M, WIDTH], tl.int32)
        first = count * 0
        while first < count:
            other = first + tl.arange(0, WIDTH)
            theirs = tl.load(scratch + other)[None, :]
            equal += ((theirs == mine) & (other[None, :] < model[:, None])).to(tl.int32)
            first += WIDTH
        rank += tl.sum(equal, axis=1)
    return rank, values


@triton.jit
def evaluated(rewards, num_models, policy, weights, scratch, M: tl.constexpr, A: tl.constexpr):
    """The mixture [A] of all models' rewards [num_models, A] that answers a policy [A], and the policy's exact k-of-N value."""
    model = tl.arange(0, M)
    is_model = model < num_models
    row = tl.minimum(model, num_models - 1)  # beyond the last model its rewards again: a load without a mask is quicker
    at = rewards + row[:, None] * A + tl.arange(0, A)[None, :]
    # Read again in each call, from the cache: in registers for the whole game they would leave room for few games at a time.
    own = tl.load(at).to(tl.float64)
    values = tl.sum(policy[None, :] * own, axis=1)  # [M]
    rank, values = ranked(tl.where(is_model, values, float("inf")), num_models, scratch, M)
    weight = tl.load(weights + rank)
    value = tl.sum(weight * tl.where(is_model, values, 0.0), axis=0)
    own = tl.load(at).to(tl.float64)
    return tl.sum(weight[:, None] * own, axis=0), value
