"""Dimension letters, shape checks and the choices that have names.

Letters: M models, N sampled models, S states, A actions, T iterations, R runs, B batch (levels x runs).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from cautious.errors import InvalidInputError

ArrayLike: TypeAlias = Tensor | np.ndarray | Sequence[Any]
"""What is accepted wherever an array comes in; tensors come out."""


class Regime(StrEnum):
    """Over which states a model's value is averaged before the worst k are picked."""

    ALL_STATES = "all-states"
    SINGLE_STATE = "single-state"


class Sampling(StrEnum):
    """How each iteration meets the belief: the paper's shuffled queue, or all M models by exact rank weights."""

    QUEUE = "queue"
    EXACT = "exact"


class Update(StrEnum):
    """How this iteration's regret joins the cumulative regret (``ops.regret``)."""

    REGRET_MATCHING = "regret-matching"
    REGRET_MATCHING_PLUS = "regret-matching+"
    AS_PRINTED = "as-printed"


Choice = TypeVar("Choice", bound=StrEnum)


def parse_choice(kind: type[Choice], value: str, name: str) -> Choice:
    """The member of `kind` that `value` names; an error that lists the known names otherwise."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(str(member)) for member in kind)
        raise InvalidInputError(f"{name}={value!r} is not known; choose one of {known}.") from None


def parse_count(value: Any, name: str, minimum: int = 1) -> int:
    """`value` as a whole number that is at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidInputError(f"{name}={value!r} must be a whole number, at least {minimum}.")
    if value < minimum:
        raise InvalidInputError(f"{name}={value} is too small; it must be at least {minimum}.")
    return int(value)


def as_float_tensor(values: ArrayLike, name: str, device: torch.device | str | None = None) -> Tensor:
    """`values` as a float32 or float64 tensor (any other number type becomes float64), not yet checked."""
    try:
        if isinstance(values, np.ndarray) and not values.flags.writeable:
            values = values.copy()  # torch cannot share memory it is not allowed to write to
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(f"{name}: cannot be read as an array of numbers ({error}).") from None
    if tensor.is_complex():
        raise InvalidInputError(f"{name}: complex numbers have no order; pass real ones.")
    dtype = tensor.dtype if tensor.dtype in (torch.float32, torch.float64) else torch.float64
    return tensor.to(device=device, dtype=dtype)


def check_shape(tensor: Tensor, letters: str, name: str = "array", **sizes: int) -> None:
    """Raise unless `tensor` has one dimension a letter, each of the size that `sizes` gives for it.

    A leading ``...`` in `letters` admits any batch dimensions in front.

    >>> check_shape(torch.zeros(4, 2), "S A", "policy", A=3)
    Traceback (most recent call last):
    cautious.errors.InvalidInputError: policy: expected shape [S, A] with A=3, got [4, 2].
    """
    names = letters.split()
    batched = names[0] == "..."
    names = names[1:] if batched else names
    shape = tuple(tensor.shape)
    own = shape[len(shape) - len(names) :] if batched else shape
    wrong_rank = len(own) != len(names)
    if wrong_rank or any(size != sizes.get(letter, size) for letter, size in zip(names, own, strict=True)):
        rule = "".join(f" with {letter}={sizes[letter]}" for letter in names if letter in sizes)
        wanted = ", ".join(letters.split())
        raise InvalidInputError(f"{name}: expected shape [{wanted}]{rule}, got {list(shape)}.")
    for letter, size in zip(names, own, strict=True):
        if size == 0:
            raise InvalidInputError(
                f"{name}: dimension {letter} of shape {list(shape)} is empty; it needs one at least."
            )


def check_finite(tensor: Tensor, name: str) -> None:
    """Raise, naming the first place, unless every entry is a finite number."""
    if bool(torch.isfinite(tensor.sum())):  # one pass, no mask: an infinite or missing entry spoils the sum
        return
    bad = ~torch.isfinite(tensor)
    if not bool(bad.any()):
        return  # finite entries whose sum overflowed
    place = [int(i) for i in bad.nonzero()[0]]
    raise InvalidInputError(
        f"{name}: entry {place} is {tensor[tuple(place)].item()}, one of {int(bad.sum())} that are not finite; "
        "every entry must be a finite number."
    )


def check_distribution(tensor: Tensor, name: str, tolerance: float = 1e-6) -> None:
    """Raise unless the entries along the last dimension are non-negative and sum to one."""
    check_finite(tensor, name)
    if bool((tensor < 0).any()):
        place = [int(i) for i in (tensor < 0).nonzero()[0]]
        raise InvalidInputError(
            f"{name}: entry {place} is {tensor[tuple(place)].item()}; probabilities are not negative."
        )
    total = tensor.sum(dim=-1)
    off = (total - 1).abs() > tolerance
    if bool(off.any()):
        place = [int(i) for i in off.nonzero()[0]] if off.dim() else []
        where = f" {place}" if place else ""
        raise InvalidInputError(f"{name}: row{where} sums to {total[tuple(place)].item():.9g}; each must sum to 1.")
