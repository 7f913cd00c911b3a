"""One seed, many named random streams: every draw has an address, so nothing depends on the order of drawing."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from cautious.errors import InvalidInputError


def check_seed(seed: Any) -> int:
    """`seed` as a plain whole number, zero or larger."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidInputError(f"seed={seed!r} must be a whole number, zero or larger.")
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
