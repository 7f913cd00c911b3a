"""Checks of what a caller passes: each returns the value in the package's own form, or raises an error that names it."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from cautious.errors import Argument, InvalidInputError
from cautious.io.atomic import translate_os_errors
from cautious.types import ArrayLike

ROUNDING = 1e-12
"""Rows this close to summing to one are taken as they are, so that what is written and read again keeps its bits."""

LARGEST_SHAPE = 2**24
"""Sizes in a file from this one on are rejected as damaged."""

LARGEST_COUNT = 2**31 - 1
"""No count is larger: sizes and indices stay within 32 bits."""

Choice = TypeVar("Choice", bound=StrEnum)
Entry = TypeVar("Entry")


def parse_choice(kind: type[Choice], value: str, name: str) -> Choice:
    """The member of `kind` that `value` names; an error that lists the known names otherwise."""
    try:
        return kind(value)
    except (ValueError, TypeError):
        known = ", ".join(repr(str(member)) for member in kind)
        raise InvalidInputError(Argument(name, value), f" is not known; choose one of {known}.") from None


def look_up(table: Mapping[str, Entry], value: Any, name: str) -> Entry:
    """The entry of `table` that `value` names; an error that lists the known names otherwise."""
    if not isinstance(value, str) or value not in table:
        raise InvalidInputError(Argument(name, value), f" is not known; choose one of {', '.join(map(repr, table))}.")
    return table[value]


def check_count(value: Any, name: str, minimum: int = 1) -> None:
    """Raise unless `value` is a whole number that is at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidInputError(Argument(name, value), f" must be a whole number, at least {minimum}.")
    if value < minimum:
        raise InvalidInputError(Argument(name, int(value)), f" is too small; it must be at least {minimum}.")
    if value > LARGEST_COUNT:
        raise InvalidInputError(Argument(name), f" is too large; it must be at most {LARGEST_COUNT:,}.")


def parse_count(value: Any, name: str, minimum: int = 1) -> int:
    """`value` as a whole number that is at least `minimum`."""
    check_count(value, name, minimum)
    return int(value)


def parse_flag(value: Any, name: str) -> bool:
    """`value` as a truth value. Anything else is an error, because Python takes the text "no" for true."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidInputError(Argument(name, value), " must be True or False.")
    return bool(value)


def as_number(value: Any) -> float:
    """`value` as a float; NaN where it is not one real number (a text, a truth value, several numbers)."""
    try:
        return math.nan if isinstance(value, (str, bytes, bool, np.bool_)) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan


def check_callable(value: Any, name: str, of: str) -> None:
    """Raise unless `value` is a function, or None; `of` names its arguments."""
    if value is not None and not callable(value):
        raise InvalidInputError(Argument(name, value), f" must be a function of ({of}), or None.")


def as_path(value: Any, name: str) -> Path:
    """`value` as a path that the system can look up; it need not exist."""
    if not isinstance(value, (str, os.PathLike)) or not str(value) or "\0" in str(value):
        raise InvalidInputError(Argument(name, value), " must be a path: a text or a pathlib.Path.")
    path = Path(value)
    try:
        path.exists()
    except OSError as error:
        raise InvalidInputError(Argument(name, str(value)[:80]), f" cannot be a path ({error.strerror}).") from None
    return path


def check_folder(value: Any, name: str = "folder") -> None:
    """Raise unless `value` is a folder that exists or can be made, and that can be written in.

    Checked before long work begins, whose result could otherwise not be saved.
    """
    path = as_path(value, name)
    there = next(part for part in (path, *path.parents) if part.exists())
    if not there.is_dir():
        raise InvalidInputError(Argument(name, str(path)), f": {there} is a file; choose a folder, or a new name.")
    with translate_os_errors(path):
        tempfile.TemporaryFile(dir=there).close()


def as_folder(value: Any, name: str = "folder") -> Path:
    """`value` as a folder to write in (`check_folder`)."""
    check_folder(value, name)
    return Path(value)


def as_float_tensor(values: ArrayLike, name: str, device: torch.device | str | None = None) -> Tensor:
    """`values` as a float32 or float64 tensor (any other number type becomes float64), not yet checked."""
    if isinstance(values, (list, tuple)) and values and all(isinstance(value, Tensor) for value in values):
        values = torch.stack(list(values)) if len({value.shape for value in values}) == 1 else values
    try:
        tensor = values.detach() if isinstance(values, Tensor) else torch.from_numpy(_as_numpy(values))
        if tensor.is_complex():
            raise ValueError("complex numbers have no order")
        if tensor.is_meta:
            raise ValueError("a meta tensor holds no numbers")
        tensor = tensor.to_dense() if tensor.layout != torch.strided else tensor
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidInputError(f"{name}: cannot be read as an array of real numbers ({error}).") from None
    dtype = tensor.dtype if tensor.dtype in (torch.float32, torch.float64) else torch.float64
    return tensor.to(device=as_device(device), dtype=dtype)


def _as_numpy(values: Any) -> np.ndarray:
    """An array that torch can share: float32 stays, all other types become float64. Masked and complex arrays are refused."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError("a masked array has gaps; fill them first")
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"entries are of type {array.dtype}")
    kind = np.float32 if array.dtype == np.float32 else np.float64
    return np.require(array, dtype=kind, requirements=["C", "W", "A"])


def images_are_bytes(images: Any) -> bool:
    """Whether an array holds bytes."""
    return getattr(images, "dtype", None) in (torch.uint8, np.dtype(np.uint8)) and not getattr(images, "is_meta", False)


def check_device(device: torch.device | str) -> None:
    """Raise unless there is a device of that name that can be used."""
    try:
        named = torch.device(device)
        torch.empty(0, device=named)
        if named.type == "meta":
            raise ValueError("it holds no numbers")
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(
            Argument("device", device), f" cannot be used here ({reason}); 'cpu' always can."
        ) from None


def as_device(device: torch.device | str | None) -> torch.device | None:
    """The device of that name, checked to be usable; None stays None."""
    if device is None:
        return None
    check_device(device)
    return torch.device(device)


def resolve_device(device: torch.device | str | None) -> torch.device:
    """The device of that name, checked to be usable; "auto" means a GPU if there is one, None means the CPU."""
    if isinstance(device, str) and device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return as_device(device) or torch.device("cpu")


def triton_available() -> bool:
    """Whether Triton is installed, so that GPU kernels can be imported."""
    return find_spec("triton") is not None


def check_shape(tensor: Tensor, letters: str, name: str = "array", **sizes: int) -> None:
    """Raise unless `tensor` has one dimension per letter, each of the size that `sizes` gives for it.

    A leading ``...`` in `letters` admits any batch dimensions in front.

    >>> check_shape(torch.zeros(4, 2), "S A", "policy", A=3)
    Traceback (most recent call last):
    cautious.errors.InvalidInputError: policy: expected shape [S, A] with A=3, got [4, 2].
    """
    names, batched = _dimensions(letters)
    shape = tuple(tensor.shape)
    checked = shape[len(shape) - len(names) :] if batched else shape
    wrong_rank = len(checked) != len(names)
    if wrong_rank or any(size != sizes.get(letter, size) for letter, size in zip(names, checked, strict=True)):
        rule = "".join(f" with {letter}={sizes[letter]}" for letter in dict.fromkeys(names) if letter in sizes)
        wanted = ", ".join(letters.split())
        raise InvalidInputError(f"{name}: expected shape [{wanted}]{rule}, got {list(shape)}.")
    if 0 in checked:
        raise InvalidInputError(
            f"{name}: dimension {names[checked.index(0)]} of shape {list(shape)} is empty; it needs at least one."
        )


@lru_cache(maxsize=64)
def _dimensions(letters: str) -> tuple[tuple[str, ...], bool]:
    """The name of each dimension, and whether batch dimensions may come in front."""
    names = tuple(letters.split())
    return (names[1:], True) if names[0] == "..." else (names, False)


def check_finite(tensor: Tensor, name: str) -> None:
    """Raise, naming the first bad entry, unless every entry is a finite number."""
    if bool(torch.isfinite(tensor.sum())):  # one pass, no mask: an infinite or missing entry spoils the sum
        return
    bad = ~torch.isfinite(tensor)
    if not bool(bad.any()):
        return  # finite entries whose sum overflowed
    entry = [int(i) for i in bad.nonzero()[0]]
    raise InvalidInputError(
        f"{name}: entry {entry} is {tensor[tuple(entry)].item()}, one of {int(bad.sum())} that are not finite; "
        "every entry must be a finite number."
    )


def check_size(tensor: Tensor, name: str, largest: float | None = None) -> None:
    """Raise unless every entry is finite and at most `largest`, or else small enough for sums of its type to stay finite."""
    limit = torch.finfo(tensor.dtype).max * 1e-10 if largest is None else largest
    low, high = torch.aminmax(tensor) if tensor.numel() else (0.0, 0.0)  # one pass; a missing entry spoils both
    if not (-limit <= low and high <= limit):
        check_finite(tensor, name)
        raise InvalidInputError(
            f"{name}: numbers from {float(low):.3g} to {float(high):.3g}; beyond ±{limit:.1g} sums may overflow: scale them."
        )


def as_distribution(values: ArrayLike, name: str, device: torch.device | str | None = None) -> Tensor:
    """`values` as float64 rows that are non-negative and sum to one; rounding in the sums is divided out."""
    tensor = as_float_tensor(values, name, device).double()
    if tensor.dim() == 0:
        raise InvalidInputError(f"{name}: expected rows of probabilities, got the single number {float(tensor)}.")
    check_distribution(tensor, name)
    total = tensor.sum(dim=-1, keepdim=True)
    return torch.where((total - 1).abs() > ROUNDING, tensor / total, tensor)


def check_distribution(tensor: Tensor, name: str, tolerance: float = 1e-6) -> None:
    """Raise unless the entries along the last dimension are non-negative and sum to one."""
    check_finite(tensor, name)
    if bool((tensor < 0).any()):
        entry = [int(i) for i in (tensor < 0).nonzero()[0]]
        raise InvalidInputError(
            f"{name}: entry {entry} is {tensor[tuple(entry)].item()}; probabilities must be 0 or more."
        )
    total = tensor.sum(dim=-1)
    off = (total - 1).abs() > tolerance
    if bool(off.any()):
        row = [int(i) for i in off.nonzero()[0]] if off.dim() else []
        where = f" {row}" if row else ""
        raise InvalidInputError(f"{name}: row{where} sums to {total[tuple(row)].item():.9g}; each must sum to 1.")


def is_shape(values: Any) -> bool:
    """Whether a value of a file is the shape of an array: whole numbers above zero, with a product that is not absurd."""
    return isinstance(values, list) and len(values) > 0 and are_counts(*values) and math.prod(values) < LARGEST_SHAPE


def are_counts(*values: Any) -> bool:
    """Whether all are whole numbers above zero and none is absurdly large."""
    return all(type(value) is int and 0 < value < LARGEST_SHAPE for value in values)
