"""What every architecture of a reward model offers, and how one is restored from a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.networks.module import ModuleNetwork
from cautious.beliefs.networks.vector import Standardizer, VectorNetwork
from cautious.errors import BadFileError, InvalidInputError
from cautious_paper.networks.driving import DrivingNetwork
from cautious_paper.networks.image import ImageNetwork

LARGEST = 2**24
"""Sizes in a file from this one on are rejected as damaged."""


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
    def block(self) -> Mapping[str, tuple[int, int | None]]:
        """Models and states per call of `predict`, at most, by kind of device: enough to keep it busy.

        On the CPU a call has exactly this many models (`beliefs.fixed_shapes`). None: all states in one call.
        """
        ...

    @property
    def blocks_per_task(self) -> int:
        """Blocks that a thread predicts at a time, some milliseconds at least: for less, starting it takes longer."""
        ...

    @property
    def rows_per_call(self) -> int:
        """On the CPU the states of `predict` are a multiple of this number, which is how many each call of a library has."""
        ...

    def describe(self) -> dict[str, Any]:
        """What `restored` needs, as plain values for JSON."""
        ...

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Initial weights of one model, [P]."""
        ...

    def as_states(self, states: Any) -> tuple[Any, ...]:
        """What a caller passes as states, checked, as arrays with one row per state (for driving, a prepared world)."""
        ...

    def predict(self, parameters: Tensor, *states: Any) -> Tensor:
        """[M, P] and the arrays of `as_states` -> [M, S, A]."""
        ...


def checked_network(network: Any) -> Network:
    """`network`, if it is one."""
    if not all(hasattr(network, part) for part in ("num_parameters", "num_actions", "as_states", "predict")):
        raise InvalidInputError(
            f"network is a {type(network).__name__}; pass a network of cautious.beliefs, such as another ensemble's `network`."
        )
    return network


def restored(described: dict[str, Any], path: Any, given: Any = None) -> Network:
    """The network that `describe` described; one made by a user's own function needs that function (or is given itself)."""
    name = described.get("network")
    if callable(given) and not hasattr(given, "predict"):
        if name != ModuleNetwork.name or not _shape(described.get("state_shape")):
            raise BadFileError(f"{path}: network {name!r} is built in; load it without `network`.")
        return _as_described(
            ModuleNetwork(given, torch.zeros(2, *described["state_shape"], dtype=torch.float32)), described, path
        )
    if given is not None:
        if checked_network(given).name != name:
            raise BadFileError(f"{path}: holds models of network {name!r}, not {given.name!r}; leave network out.")
        return _as_described(given, described, path)
    if name == ImageNetwork.name:
        num_actions, help_bit = described.get("num_actions"), described.get("help_bit")
        if _counts(num_actions) and type(help_bit) is bool:
            return ImageNetwork(num_actions, help_bit)  # type: ignore[arg-type]
        raise BadFileError(f"{path}: num_actions and help_bit must be a count and a truth value.")
    if name == DrivingNetwork.name:
        return DrivingNetwork()
    if name == VectorNetwork.name:
        shape: Any = described.get("state_shape")
        hidden: Any = described.get("hidden")
        if not _shape(shape) or not _shape(hidden) or not _counts(described.get("num_actions")):
            raise BadFileError(f"{path}: num_actions must be a count, and state_shape and hidden lists of them.")
        units = Standardizer.read(described.get("units"), math.prod(shape))
        if units is None:
            raise BadFileError(
                f"{path}: units must be shift and scale, {math.prod(shape)} numbers each, and reward (or a mean and a "
                "deviation for each action); no scale is 0 or less."
            )
        if units.actions is not None and len(units.actions) != described["num_actions"]:
            raise BadFileError(
                f"{path}: units of {len(units.actions)} actions, where there are {described['num_actions']}."
            )
        return VectorNetwork(tuple(shape), described["num_actions"], tuple(hidden), units)
    raise BadFileError(
        f"{path}: network {name!r} is not one that this version builds by itself; if it is your own, pass the function that "
        "made it: RewardEnsemble.load(folder, network=...)."
    )


def _as_described(network: Network, described: dict[str, Any], path: Any) -> Network:
    """`network`, if the file describes it. Other layers with equally many weights would load them without an error."""
    for name, here in network.describe().items():
        there = described.get(name)
        if _entries(there) != _entries(here):
            first = next(
                (pair for pair in zip(_entries(there), _entries(here), strict=False) if pair[0] != pair[1]), None
            )
            which = f"; the first that differs is {first[0]!r} there and {first[1]!r} here" if first else ""
            raise BadFileError(
                f"{path}: the entry {name!r} of its network differs from that of the given network{which}. Give the network "
                "that the models were trained with."
            )
    return network


def _entries(value: Any) -> list[Any]:
    """In their order: weights lie in that of their names, and dictionaries in another order are equal."""
    return list(value.items()) if isinstance(value, dict) else value if isinstance(value, list) else [value]


def _shape(values: Any) -> bool:
    return isinstance(values, list) and len(values) > 0 and _counts(*values) and math.prod(values) < LARGEST


def _counts(*values: Any) -> bool:
    return all(type(value) is int and 0 < value < LARGEST for value in values)
