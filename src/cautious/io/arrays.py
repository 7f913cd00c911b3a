"""Arrays and settings on disk: safetensors and JSON, never pickle; written whole or not at all, checked when read.

Every file carries a checksum of its content, and a JSON file those of the files that belong to it: a file that is damaged, or
comes from another save, raises `BadFileError`. Other people's files carry none and are read as they are. A checksum detects
damage, not forgery.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import lzma
import math
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from cautious.errors import BadFileError, CautiousError, MissingFileError
from cautious.io.atomic import atomic_write

FORMAT = 2
"""The entry "format" of a JSON file."""
CHECKSUM, FILES = "checksum", "files"
"""Entries that are not content: a file's own checksum, and those of the files that belong to it."""
KIND = "cautious-sha256:"
FORM, LENGTH = re.compile(".{15}:[0-9a-f]{64}"), 80
"""What a checksum starts with, and what it still looks like if that is damaged."""
UNREADABLE = (
    ValueError, TypeError, AttributeError, KeyError, OSError, EOFError, RuntimeError, MemoryError, OverflowError, SyntaxError,
    TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, safetensors.SafetensorError,
)  # fmt: skip
"""What the readers raise on a file that is not what it should be: most of them on headers that claim what cannot be."""


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write named tensors as one safetensors file; returns their checksum."""
    content = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    checksum = _checksum_of_tensors(content)

    def write(target: Path) -> None:
        try:
            safetensors.torch.save_file(content, target, {CHECKSUM: checksum})
        except safetensors.SafetensorError as error:
            number = re.search(r"os error (\d+)", str(error))  # of a full disk and the like; it is said nowhere else
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error

    atomic_write(path, write)
    return checksum


def load_tensors(path: Path, expected: str | None = None, *, checked: bool = False) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file; runs no code from it.

    Args:
        path: The file.
        expected: The checksum that another file has for it (`recorded_checksum`).
        checked: Whether it must have a checksum of its own.
    """
    with _whole(path, "safetensors file"):
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            claims = _claims({name: text for name, text in (file.metadata() or {}).items() if len(text) == LENGTH})
        if claims or checked or expected is not None:
            _compare(path, _checksum_of_tensors(tensors), claims, checked, expected)
    return tensors


def load_array(path: Path, name: str) -> Tensor | np.ndarray:
    """One array of a user's: the tensor `name` of a safetensors file, or a .npy file (memory-mapped, never unpickled)."""
    if path.suffix == ".npy":
        with _whole(path, ".npy file of numbers"):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            if not isinstance(array, np.ndarray):
                array.close()
                raise ValueError("it holds several arrays, as a .npz file does")
            return array
    return pick(load_tensors(path), name, path)


def load_npz(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """The arrays of these names of a user's .npz file, never unpickled."""
    with _whole(path, ".npz file of numbers"), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        for name in names:
            if name not in arrays.files:
                there = ", ".join(arrays.files) or "nothing"
                raise BadFileError(f"{path}: holds no array {name!r}; it holds {there}.")
        return [arrays[name] for name in names]


def pick(tensors: Mapping[str, Tensor], name: str, path: Path) -> Tensor:
    """The tensor called `name`, or an error that lists what the file holds."""
    if name not in tensors:
        raise BadFileError(f"{path}: holds no tensor {name!r}; it holds {', '.join(sorted(tensors)) or 'nothing'}.")
    return tensors[name]


def save_json(path: Path, content: Mapping[str, Any], files: Mapping[str, str] | None = None) -> str:
    """Write settings or results as readable JSON; returns their checksum.

    Args:
        path: The file.
        content: What to keep.
        files: Checksums of files that belong to it, by name. Those are written first: this one marks them as finished.
    """
    plain = _plain({**content, FILES: files} if files else content)
    checksum = checksum_of(plain)
    text = json.dumps({**plain, CHECKSUM: checksum}, indent=2, ensure_ascii=False) + "\n"
    atomic_write(path, lambda target: target.write_text(text, encoding="utf-8"))
    return checksum


def load_json(path: Path, expected: str | None = None, *, checked: bool = False) -> Any:
    """Read a JSON file: its content with the list of its files, without its checksum.

    Args:
        path: The file.
        expected: The checksum that another file has for it (`recorded_checksum`).
        checked: As in `load_tensors`; a file that says it is of a format with checksums must have one in any case.
    """
    with _whole(path, "JSON file"):
        text = path.read_text(encoding="utf-8")
        everything = json.loads(
            text, parse_constant=_finite, parse_float=_finite, parse_int=_whole_number, object_pairs_hook=_unique
        )
        entries = everything if isinstance(everything, dict) else {}
        claims = _claims(entries)
        checked = checked or entries.get("format") == FORMAT
        content = {name: value for name, value in entries.items() if name != CHECKSUM} if claims else everything
        if claims or checked or expected is not None:
            _compare(path, checksum_of(content), claims, checked, expected)
    return content


def check_json(path: Path, expected: str | None) -> None:
    """Raise unless a JSON file is whole and has the checksum that another file has for it (`recorded_checksum`)."""
    load_json(path, expected)


def recorded_checksum(described: Any, name: str) -> str | None:
    """The checksum that a JSON file's content has for a file that belongs to it; None if it has none."""
    files = described.get(FILES) if isinstance(described, dict) else None
    return files.get(name) if isinstance(files, dict) else None


def checksum_of(content: Any) -> str:
    """The checksum of what a JSON file holds, however it is laid out."""
    text = json.dumps(_plain(content), sort_keys=True, separators=(",", ":"))
    return KIND + hashlib.sha256(text.encode()).hexdigest()


def checksum_of_file(path: Path) -> str:
    """The checksum of a file of another kind than these, by its bytes."""
    with path.open("rb") as file:
        return KIND + hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint_of(*arrays: Tensor) -> str:
    """A short hash of some arrays' types, shapes and content."""
    digest = hashlib.sha256()
    for array in arrays:
        _add_to(digest, array)
    return digest.hexdigest()[:16]


def _add_to(digest: hashlib._Hash, array: Tensor) -> None:
    """Add an array's type, shape and bytes to a hash."""
    digest.update(str((array.dtype, tuple(array.shape))).encode())
    flat = array.detach().cpu().contiguous().reshape(-1)
    digest.update(flat.view(torch.uint8).numpy().data)


def _checksum_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(json.dumps(name).encode())
        _add_to(digest, tensors[name])
    return KIND + digest.hexdigest()


def _plain(content: Any) -> Any:
    """As JSON will have it: lists for tuples, texts as keys, no number that is none."""
    return json.loads(json.dumps(content, allow_nan=False))


def _claims(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entry that is a checksum; also one whose name or text is damaged, or the file would pass as one without."""
    return {name: value for name, value in entries.items() if name == CHECKSUM or _resembles_checksum(value)}


def _resembles_checksum(value: Any) -> bool:
    return isinstance(value, str) and (value.startswith(KIND) or FORM.fullmatch(value) is not None)


def _compare(path: Path, actual: str, claims: Mapping[str, Any], checked: bool, expected: str | None) -> None:
    if (claims or checked) and claims != {CHECKSUM: actual}:
        raise BadFileError(
            f"{path}: damaged, or changed since it was written: its checksum {'does not fit' if claims else 'is gone'}. "
            "Restore it from a copy, or delete it and make it again."
        )
    if expected not in (None, actual):
        raise BadFileError(
            f"{path}: not the file that was saved with the others: a save was interrupted, or a file was replaced. Restore "
            "all of them from one copy, or make them again."
        )


@contextlib.contextmanager
def _whole(path: Path, kind: str) -> Iterator[None]:
    """What goes wrong in reading, as an error that names the file."""
    try:
        if not path.is_file():
            raise MissingFileError(f"{path}: there is no such file.")
        with path.open("rb"):  # whether it can be read at all
            pass
        yield
    except CautiousError:
        raise
    except FileNotFoundError:  # gone since it was looked for
        raise MissingFileError(f"{path}: there is no such file.") from None
    except UNREADABLE as error:
        if isinstance(error, OSError) and error.errno:
            raise BadFileError(
                f"{path}: could not be read ({error.strerror}); make it readable, or restore it from a copy."
            ) from None
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        too_large = ", or larger than memory" if isinstance(error, MemoryError) else ""
        raise BadFileError(
            f"{path}: not a complete {kind} ({what}); it may be truncated or of another kind{too_large}."
        ) from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _whole_number(text: str) -> int:
    _finite(text)  # one of 400 digits cannot be made a float, which may happen to any number later
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("an entry is there twice")
    return entries
