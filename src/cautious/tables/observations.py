"""An environment's observations as the batch of states that a belief takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.tables.frames import is_frame, is_named, is_row


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
        single = is_row(observation) or not (is_frame(observation) or any(np.ndim(cell) for cell in cells))
        return single, observation
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
