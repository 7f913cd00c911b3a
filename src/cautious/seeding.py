"""One seed, many named random streams: every draw has an address, so nothing depends on the order of drawing."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from torch import Tensor

from cautious.errors import Argument, InvalidInputError


def check_seed(seed: Any) -> int:
    """`seed` as a plain whole number, zero or larger."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidInputError(Argument("seed", seed), " must be a whole number, zero or larger.")
    return int(seed)


def derive_seed(seed: int, *address: str | int) -> int:
    """A 63-bit seed that depends on `seed` and on every part of `address`, and on nothing else.

    >>> derive_seed(0, "queue", 3) == derive_seed(0, "queue", 3), derive_seed(0, "queue", 3) == derive_seed(0, "queue", 4)
    (True, False)
    """
    # The type is part of the text: the address "3" is not the address 3.
    text = "/".join([str(check_seed(seed)), *(f"{type(part).__name__}:{part}" for part in address)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def make_rng(seed: int, *address: str | int) -> np.random.Generator:
    """A fresh generator for the draws at `address`."""
    return np.random.Generator(np.random.Philox(derive_seed(seed, *address)))


SPLITMIX_STEP, SPLITMIX_FACTORS = 0x9E3779B97F4A7C15, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""SplitMix64's increment, and the factors of its finaliser (Steele, Lea & Flood 2014)."""


def hashed(seeds: Tensor, counters: Tensor) -> Tensor:
    """A random whole number for each seed and counter, int64: the same on every device, since integers do not round.

    SplitMix64 (Steele, Lea & Flood 2014): mix(mix(seed) + counter · step).

    Args:
        seeds: [...], int64, broadcast with the counters.
        counters: [...], int64.

    >>> import torch
    >>> hashed(torch.tensor([[1], [2]]), torch.arange(3)).shape
    torch.Size([2, 3])
    """
    return _mix(_mix(seeds) + counters * _signed(SPLITMIX_STEP))


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64, whose products wrap as unsigned ones do."""
    x = (x ^ _shift(x, 30)) * _signed(SPLITMIX_FACTORS[0])
    x = (x ^ _shift(x, 27)) * _signed(SPLITMIX_FACTORS[1])
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 (the built-in one copies the sign)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(constant: int) -> int:
    """A 64-bit constant as the int64 with the same bits."""
    return constant - (1 << 64) if constant >= 1 << 63 else constant
