"""Arrays and settings on disk: safetensors and JSON, never pickle; written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
from torch import Tensor

from cautious.errors import BadFileError, MissingFileError


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary neighbour of `path`, then rename it: readers see the old file or the new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors as one safetensors file."""
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_whole(path, lambda target: safetensors.torch.save_file(own, target, dict(metadata or {})))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file; runs no code from it."""
    _require(path)
    try:
        return safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, ValueError, KeyError, OSError) as error:
        raise BadFileError(
            f"{path}: not a whole safetensors file ({error}); it may be truncated or of another kind."
        ) from None


def load_array(path: Path, name: str) -> Tensor | np.ndarray:
    """One array of a user's: the tensor `name` of a safetensors file, or a .npy file (memory-mapped, never unpickled)."""
    if path.suffix == ".npy":
        _require(path)
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise BadFileError(f"{path}: not a whole .npy file of numbers ({error}).") from None
    return pick(load_tensors(path), name, path)


def pick(tensors: Mapping[str, Tensor], name: str, path: Path) -> Tensor:
    """The tensor called `name`, or an error that lists what the file holds."""
    if name not in tensors:
        raise BadFileError(f"{path}: holds no tensor {name!r}; it holds {', '.join(sorted(tensors)) or 'nothing'}.")
    return tensors[name]


def save_json(path: Path, content: Any) -> None:
    """Write settings or results as readable JSON."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, lambda target: target.write_text(text, encoding="utf-8"))


def load_json(path: Path) -> Any:
    """Read a JSON file."""
    _require(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFileError(f"{path}: not a whole JSON file ({error}).") from None


def _require(path: Path) -> None:
    if not path.is_file():
        raise MissingFileError(f"{path}: there is no such file.")
