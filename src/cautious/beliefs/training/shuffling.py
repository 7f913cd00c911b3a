"""Each model's own order of the samples in each epoch, by integer arithmetic: the same on every device."""

from __future__ import annotations

import torch
from torch import Tensor


def shuffles(model_seeds: Tensor, epoch: int, num_samples: int) -> Tensor:
    """Each model's order of the samples in one epoch, [M, samples]: sorted by a hash of (model's seed, epoch, sample).

    Integer arithmetic only, so that it is the same on every device, and vectorised over the models.

    Args:
        model_seeds: [M], int64.
        epoch: Which pass over the data.
        num_samples: How many samples there are.
    """
    return torch.argsort(_hashes(model_seeds, epoch, num_samples), dim=1, stable=True)


def draw_help_bits(model_seeds: Tensor, epoch: int, num_samples: int) -> Tensor:
    """Each model's fair coin for each sample in one epoch, [M, samples], 0 or 1; as `shuffles`, with seeds of its own."""
    return _hashes(model_seeds, epoch, num_samples) & 1


def _hashes(model_seeds: Tensor, epoch: int, num_samples: int) -> Tensor:
    """A random whole number for each (model's seed, epoch, sample), [M, samples]."""
    counter = epoch * num_samples + torch.arange(num_samples, device=model_seeds.device)
    return _mix(_mix(model_seeds)[:, None] + counter * _signed(0x9E3779B97F4A7C15))


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser (Steele, Lea & Flood 2014) on int64, whose products wrap as unsigned ones do."""
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 (the built-in one copies the sign)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(constant: int) -> int:
    """A 64-bit constant as the int64 with the same bits."""
    return constant - (1 << 64) if constant >= 1 << 63 else constant
