"""What any architecture of a reward model offers, and how one is found again from a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from cautious.beliefs.image_network import ImageNetwork
from cautious.beliefs.module_network import VectorNetwork
from cautious.errors import BadFileError

LARGEST = 2**24
"""No size in a file is taken for one from here on."""


class Network(Protocol):
    """An architecture: from states to the rewards of all actions, for any number of models at once."""

    @property
    def name(self) -> str:
        """What a file calls it."""
        ...

    @property
    def num_actions(self) -> int:
        """A."""
        ...

    @property
    def num_parameters(self) -> int:
        """P."""
        ...

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape of one state (of its image, where a help bit goes with it)."""
        ...

    @property
    def block(self) -> Mapping[str, tuple[int, int]]:
        """Models and states to predict together, by kind of device: few enough for a core's cache, enough for a GPU."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a file needs to say about it."""
        ...

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """First weights of one model, [P]."""
        ...

    def as_states(self, states: Any) -> tuple[Tensor, ...]:
        """What a caller passes as states, checked, as arrays with one row a state."""
        ...

    def predict(self, parameters: Tensor, *states: Tensor) -> Tensor:
        """[M, P] and the arrays of `as_states` -> [M, S, A]."""
        ...


def restored(found: dict[str, Any], path: Any) -> Network:
    """The network that `describe` told of; one made by a user's own function cannot be found in a file."""
    name = found.get("network")
    if name == ImageNetwork.name:
        num_actions, help_bit = found.get("num_actions"), found.get("help_bit")
        if _counts(num_actions) and type(help_bit) is bool:
            return ImageNetwork(num_actions, help_bit)  # type: ignore[arg-type]
        raise BadFileError(f"{path}: num_actions and help_bit must be a count and a truth value.")
    if name == VectorNetwork.name:
        shape, hidden = found.get("state_shape"), found.get("hidden")
        lists = all(isinstance(part, list) and part and _counts(*part) for part in (shape, hidden))
        if lists and math.prod(shape) < LARGEST and _counts(found.get("num_actions")):  # type: ignore[arg-type]
            return VectorNetwork(tuple(shape), found["num_actions"], tuple(hidden))  # type: ignore[arg-type]
        raise BadFileError(f"{path}: num_actions must be a count, and state_shape and hidden lists of them.")
    raise BadFileError(
        f"{path}: network {name!r} is not one that this version builds by itself; if it is your own, pass the function that "
        "made it: RewardEnsemble.load(folder, network=...)."
    )


def _counts(*values: Any) -> bool:
    return all(type(value) is int and 0 < value < LARGEST for value in values)
