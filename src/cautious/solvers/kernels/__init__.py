"""Games of single states on a GPU, in Triton (`state_games`): for decisions, and for the runs of `solve_bandit`.

Nothing here imports Triton until it is used: `state_games` and `state_blocks` do, and are for machines that have it.
"""

from __future__ import annotations

import torch

from cautious.validation import triton_available

MOST_REWARDS = 2**15
"""Models times actions of a state, padded to powers of two, that one program works on at a time."""
FEWEST_MODELS, FEWEST_ACTIONS = 32, 4
"""Smallest padded sizes: a model for each thread of a warp, and actions for loads of 16 bytes."""


def plays_on_gpu(device: torch.device, num_models: int, num_actions: int) -> bool:
    """Whether kernels can play games that rank that many models: an NVIDIA GPU that Triton supports, and room."""
    size = padded(num_models, FEWEST_MODELS) * padded(num_actions, FEWEST_ACTIONS)
    if device.type != "cuda" or torch.version.hip is not None or size > MOST_REWARDS:
        return False
    return triton_available() and torch.cuda.get_device_capability(device) >= (8, 0)


def padded(size: int, fewest: int) -> int:
    """The next power of two, at least `fewest`."""
    return max(fewest, 1 << (size - 1).bit_length())
