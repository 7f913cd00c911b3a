"""States as arrays: files of arrays, pictures, and the observations of environments.

Pictures in bytes [S, H, W, C], as Gymnasium's environments show them, become the grey images [S, 28, 28] of the image network:

    grey = 0.299 R + 0.587 G + 0.114 B;   each of 28 x 28 parts of the picture becomes the mean of its pixels, rounded

Only bytes (uint8) of at least 16 x 16 pixels are pictures: smaller arrays, such as MiniGrid's 7 x 7 x 3, hold codes and no
colours, and are taken as vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.errors import BadFileError, InvalidInputError
from cautious.io.arrays import load_array, load_npz, load_tensors, pick
from cautious.tables.frames import is_frame, is_named, is_row, is_rows
from cautious.validation import as_float_tensor, check_shape, images_are_bytes

PICTURES_KEPT_AS = "picture_shape"
"""Under which name the settings of a belief hold the shape of the pictures that its images were made of."""
SIDE = 28
"""Pixels along each side of an image."""
SMALLEST = 16
"""Pixels along each side of a picture, at least."""
MOST_CHANNELS = 12
"""A first or last dimension up to this one counts channels, or frames."""
GREY = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in brightness (ITU-R BT.601)."""
BLOCK = 64
"""Pictures that are converted at a time, in float64."""


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
            "data: no file is named; pass at least one: a table (.csv, .parquet), or a file with arrays 'inputs' and 'rewards'."
        )
    parts = [_read(path) for path in paths]
    first = parts[0]
    for path, part in zip(paths[1:], parts[1:], strict=True):
        if [array.shape[1:] for array in part] != [array.shape[1:] for array in first]:
            raise BadFileError(
                f"{path}: inputs {list(part.inputs.shape)} and rewards {list(part.rewards.shape)} differ in shape from "
                f"those of {paths[0]}, {list(first.inputs.shape)} and {list(first.rewards.shape)}."
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


def picture_shape(states: Any) -> tuple[int, int, int] | None:
    """Height, width and channels, if these are pictures in bytes [S, H, W], [S, H, W, C] or [S, C, H, W]; else None."""
    shape = tuple(states.shape)[1:] if images_are_bytes(states) else ()
    if len(shape) == 2:
        shape = (*shape, 1)
    if len(shape) != 3:
        return None
    height, width, channels = shape if shape[2] <= MOST_CHANNELS else (*shape[1:], shape[0])
    if min(height, width) < SMALLEST or channels > MOST_CHANNELS:
        return None
    if channels not in (1, 3):
        raise InvalidInputError(
            f"inputs: pictures [{height}, {width}] with {channels} channels: transparency, or frames of a film? Pass 3 "
            "channels (colours) or 1 (grey); or network='vector' for plain numbers, or a network of your own."
        )
    return height, width, channels


def as_grey(states: Any) -> Tensor:
    """Pictures, of which `picture_shape` knows the shape, as images [S, 28, 28] in bytes."""
    pictures = states if isinstance(states, Tensor) else torch.from_numpy(np.require(states, requirements=["C", "W"]))
    if pictures.dim() == 4 and pictures.shape[3] > MOST_CHANNELS:
        pictures = pictures.movedim(1, 3)
    return torch.cat([_block_as_grey(block) for block in pictures.split(BLOCK)])


def _block_as_grey(pictures: Tensor) -> Tensor:
    numbers = pictures.double()
    if numbers.dim() == 4:
        shares = torch.tensor(GREY if numbers.shape[3] == 3 else (1.0,), dtype=torch.float64, device=numbers.device)
        numbers = (numbers * shares).sum(dim=3)
    return torch.nn.functional.adaptive_avg_pool2d(numbers[:, None], SIDE)[:, 0].round().to(torch.uint8)


def as_batch(observation: Any, state_shape: tuple[int, ...] | None, *, by_name: bool = False) -> tuple[bool, Any]:
    """Whether it is one state, and a batch of states in any case.

    Args:
        observation: One state or a batch with one row each; or parts of states by name, as Gymnasium's Dict spaces have them,
            in whatever order.
        state_shape: Shape of one state (of its largest part); None where the belief does not say: a vector then.
        by_name: Whether the belief was trained on a table: a dictionary's parts are then its columns, with one value for one
            state; so is a row of a pandas frame.
    """
    if by_name and is_named(observation):
        cells = observation.values() if isinstance(observation, Mapping) else ()
        several = is_frame(observation) or is_rows(observation) or any(np.ndim(cell) for cell in cells)
        return is_row(observation) or not several, observation
    if isinstance(observation, Mapping):
        parts = {name: _as_array(part) for name, part in observation.items()}
        if not parts:
            raise InvalidInputError("observation: an empty dictionary says nothing about the state.")
        single = max(part.ndim for part in parts.values()) == len(state_shape or ())
        return single, {name: part[None] if single else part for name, part in parts.items()}
    array = observation if isinstance(observation, Tensor) else _as_array(observation)
    single = array.ndim <= 1 if state_shape is None else array.ndim == len(state_shape)
    if len(state_shape or ()) == 2 and tuple(array.shape) == (*(state_shape or ()), 1):
        single = True  # a grey image with its one channel
    return single, (array[None] if single else array)


def _as_array(values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # the last from torch: a tensor with a gradient
        raise InvalidInputError(f"observation: cannot be read as an array ({error}).") from None
