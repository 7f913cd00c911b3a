"""Where the M reward functions come from: an array in memory, one on disk, or a source that returns a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.ops.linear import BLOCK, BatchMatrix
from cautious.ops.sums import pairwise_mean, pairwise_sum
from cautious.validation import as_device, as_float_tensor, check_shape, check_size, parse_count

FLOAT64_BYTES = 2**29
"""Float32 rewards are worked on in float64 if all of them would take at most this much; larger ones keep their type."""

BLOCK_BYTES = 2**26
"""How much of a large or streamed set of rewards is held in float64 at a time."""


class DenseRewards:
    """M reward functions as one tensor [M, S, A] on any device."""

    streamed = False

    def __init__(self, rewards: Tensor) -> None:
        """Keep checked rewards [M, S, A]."""
        self.num_models, self.num_states, self.num_actions = rewards.shape
        self.device = rewards.device
        small = 8 * rewards.numel() <= FLOAT64_BYTES
        self._dtype = torch.float64 if small else rewards.dtype
        # Small ones are copied, so that a certificate asked for later is not affected if the caller later changes the array.
        self.tensor = rewards.clone(memory_format=torch.contiguous_format) if small else rewards.contiguous()

    def rewards_for(self, indices: Tensor, states: slice = slice(None)) -> Tensor:
        """Rewards [N, s, A] of the models at `indices` [N], in the states of a slice."""
        return self.tensor[:, states].index_select(0, indices.to(self.device)).to(self._dtype)

    def returns(self, occupancy: Tensor, precise: bool = False, width: int = BLOCK) -> Tensor:
        """Return under each model, Σ_sa x(s,a) r_m(s,a): [B, S, A] -> [B, M].

        Args:
            occupancy: x(s,a), [B, S, A].
            precise: Accumulate in float64 even where the rewards are held in float32.
            width: Members of the batch per product (`ops.linear.BatchMatrix.dot`).
        """
        if precise and self._dtype != torch.float64:
            return _streamed_returns(self, occupancy)
        return self._matrix.dot(occupancy.flatten(1), width).double()

    def mixture(self, weights: Tensor, precise: bool = False) -> Tensor:
        """Reward function mixed from all models, Σ_m w_m r_m(s,a): [B, M] -> [B, S, A]."""
        if precise and self._dtype != torch.float64:
            return _streamed_mixture(self, weights)
        return self._matrix.combine(weights).double().unflatten(1, (self.num_states, self.num_actions))

    @cached_property
    def _matrix(self) -> BatchMatrix:
        return BatchMatrix(self.tensor.flatten(1).to(self._dtype))


class StreamedRewards:
    """M reward functions behind `rewards_for(indices)`; never all in memory."""

    streamed = True

    def __init__(self, source: Any, device: torch.device | None) -> None:
        """Ask `source` for its size and for one model, to learn the shape."""
        num_models = getattr(source, "num_models", None)
        if num_models is None and hasattr(source, "__len__"):
            num_models = len(source)
        if num_models is None:
            raise InvalidInputError(
                f"rewards: {type(source).__name__} offers rewards_for but no num_models; it must have both."
            )
        self.num_models = parse_count(num_models, "rewards: num_models")
        self.device = device or torch.device("cpu")
        self._source = source
        first = as_float_tensor(source.rewards_for(torch.zeros(1, dtype=torch.long)), "rewards_for([0])")
        check_shape(first, "N S A", "rewards_for([0])", N=1)
        _, self.num_states, self.num_actions = first.shape

    def rewards_for(self, indices: Tensor, states: slice = slice(None)) -> Tensor:
        """Rewards [N, s, A] of the models at `indices` [N], in the states of a slice; checked as they come, float64."""
        if isinstance(self._source, _ArrayOnDisk):  # which can read a slice of the states; others return all of them
            block = as_float_tensor(self._source.rewards_for(indices.cpu(), states), "rewards", self.device)
        else:
            block = as_float_tensor(self._source.rewards_for(indices.cpu()), "rewards_for", self.device)
            check_shape(block, "N S A", "rewards_for", N=len(indices), S=self.num_states, A=self.num_actions)
            block = block[:, states]
        check_size(block, f"rewards of models {indices.tolist()[:5]}...")
        return block.double()

    def returns(self, occupancy: Tensor, precise: bool = True, width: int = BLOCK) -> Tensor:
        """Return under each model: [B, S, A] -> [B, M]; one pass over the source."""
        return _streamed_returns(self, occupancy)

    def mixture(self, weights: Tensor, precise: bool = True) -> Tensor:
        """Reward function mixed from all models: [B, M] -> [B, S, A]; one pass over the source."""
        return _streamed_mixture(self, weights)


Rewards = DenseRewards | StreamedRewards


class _ArrayOnDisk:
    """A memory-mapped numpy array [M, S, A] as a source."""

    def __init__(self, array: np.ndarray) -> None:
        self.num_models = array.shape[0]
        self._array = array

    def rewards_for(self, indices: Tensor, states: slice = slice(None)) -> np.ndarray:
        return np.array(self._array[indices.numpy(), states])


def as_rewards(rewards: Any, device: torch.device | str | None = None) -> Rewards:
    """M reward functions in any accepted form, checked.

    A tensor, a numpy array, a memory map, or an object with `num_models` and ``rewards_for(indices) -> [N, S, A]``.
    """
    if isinstance(rewards, (DenseRewards, StreamedRewards)):
        return rewards
    if isinstance(rewards, np.memmap):
        if rewards.ndim != 3:
            raise InvalidInputError(f"rewards: expected shape [M, S, A], got {list(rewards.shape)}.")
        return StreamedRewards(_ArrayOnDisk(rewards), as_device(device or "cpu"))
    if not isinstance(rewards, (Tensor, np.ndarray)) and callable(getattr(rewards, "rewards_for", None)):
        return StreamedRewards(rewards, as_device(device or "cpu"))
    tensor = as_float_tensor(rewards, "rewards", device)
    check_shape(tensor, "M S A", "rewards")
    check_size(tensor, "rewards")
    return DenseRewards(tensor)


def mean_reward(rewards: Any) -> Tensor:
    """The mean of M reward functions, [M, S, A] -> [S, A], float64; what is on disk is read a block at a time."""
    if isinstance(rewards, Tensor):
        return pairwise_mean(rewards.double())
    source = as_rewards(rewards)
    total = torch.zeros(source.num_states, source.num_actions, dtype=torch.float64, device=source.device)
    for _, block in model_blocks(source):
        total += pairwise_sum(block)
    return total / source.num_models


def model_blocks(
    rewards: Rewards, states: slice = slice(None), num_states: int | None = None
) -> Iterator[tuple[slice, Tensor]]:
    """All models in order, a block at a time: (which, float64 rewards [m, s, A]).

    Args:
        rewards: Where they come from.
        states: Which states.
        num_states: How many of them a block of `BLOCK_BYTES` counts; if not given all, as a source returns them.
    """
    size = max(1, BLOCK_BYTES // (8 * (num_states or rewards.num_states) * rewards.num_actions))
    for first in range(0, rewards.num_models, size):
        which = slice(first, min(first + size, rewards.num_models))
        yield which, rewards.rewards_for(torch.arange(which.start, which.stop), states).double()


def _streamed_returns(rewards: Rewards, occupancy: Tensor) -> Tensor:
    # Blocks of models end where `BLOCK_BYTES` says, never where the batch does: the bits are those of any other batch.
    flat = occupancy.flatten(1)
    return torch.cat([BatchMatrix(block.flatten(1)).dot(flat) for _, block in model_blocks(rewards)], dim=1)


def _streamed_mixture(rewards: Rewards, weights: Tensor) -> Tensor:
    total = torch.zeros(
        len(weights), rewards.num_states * rewards.num_actions, dtype=torch.float64, device=weights.device
    )
    for which, block in model_blocks(rewards):
        total += BatchMatrix(block.flatten(1)).combine(weights[:, which])
    return total.unflatten(1, (rewards.num_states, rewards.num_actions))
