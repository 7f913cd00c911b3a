"""A user's data from files of arrays: familiar states "inputs" [S, ...], and what each action paid, "rewards" [S, A]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.errors import BadFileError, InvalidInputError
from cautious.io.arrays import load_array, load_npz, load_tensors, pick
from cautious.validation import as_float_tensor, check_shape, images_are_bytes


class Dataset(NamedTuple):
    """What was seen and what it paid."""

    inputs: Tensor
    """Familiar states, [S, ...]; bytes stay bytes."""
    rewards: Tensor
    """[S, A]; NaN where an action was not tried."""


def load_dataset(paths: Sequence[Path]) -> Dataset:
    """The arrays of one file or of several, whose states follow each other; runs no code from them."""
    if not paths:
        raise InvalidInputError(
            "data: no file is named; pass at least one: a table (cautious train log.csv --action COLUMN --reward COLUMN), or "
            "a file with arrays 'inputs' and 'rewards'."
        )
    parts = [_read(path) for path in paths]
    first = parts[0]
    for path, part in zip(paths[1:], parts[1:], strict=True):
        if [array.shape[1:] for array in part] != [array.shape[1:] for array in first]:
            raise BadFileError(
                f"{path}: inputs {list(part.inputs.shape)} and rewards {list(part.rewards.shape)} do not continue those of "
                f"{paths[0]}, {list(first.inputs.shape)} and {list(first.rewards.shape)}."
            )
    return Dataset(*(torch.cat(list(arrays)) for arrays in zip(*parts, strict=True)))


def load_states(path: Path) -> Tensor | np.ndarray:
    """States to decide in, [B, ...]: a .npy file, or the array "inputs" of a file as `load_dataset` takes it."""
    return load_array(path, "inputs") if path.suffix == ".npy" else _arrays(path, "inputs")[0]


def _read(path: Path) -> Dataset:
    inputs, rewards = _arrays(path, "inputs", "rewards")
    check_shape(rewards, "S A", f"{path}: rewards", S=len(inputs) if inputs.dim() else 0)
    return Dataset(inputs, rewards)


def _arrays(path: Path, *names: str) -> list[Tensor]:
    """The arrays of these names: bytes as they are, everything else as float32 or float64."""
    if path.suffix == ".npz":
        contents: Sequence[Any] = load_npz(path, names)
    elif path.suffix == ".safetensors":
        tensors = load_tensors(path)
        contents = [pick(tensors, name, path) for name in names]
    else:
        raise InvalidInputError(f"{path}: expected a file that ends in .csv, .parquet, .npz or .safetensors.")
    return [
        torch.as_tensor(array) if images_are_bytes(array) else as_float_tensor(array, f"{path}: {name}")
        for name, array in zip(names, contents, strict=True)
    ]
