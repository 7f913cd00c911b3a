"""What a network offers to a `RewardEnsemble`, and how one is restored from a file.

A network of one's own is a class with the members of `Network`; `Calls` has what it may say beside them. The page
docs/extend.md adds one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.networks.module import ModuleNetwork
from cautious.errors import BadFileError, InvalidInputError
from cautious.validation import is_shape

NETWORKS: Mapping[str, str] = MappingProxyType(
    {
        "vector": "cautious.beliefs.networks.vector:VectorNetwork",
        "image": "cautious_paper.networks.image:ImageNetwork",
        "driving-2x2conv-32": "cautious_paper.networks.driving:DrivingNetwork",
    }
)
"""Networks that a file may name, with the class that reads its description (``read(described, path)``). A file names nothing
else that is imported: any other network is passed by whoever loads the file."""


class Network(Protocol):
    """An architecture: from states to the rewards of all actions, for any number of models at once."""

    @property
    def name(self) -> str:
        """The name of the network in files."""
        ...

    @property
    def num_actions(self) -> int:
        """Number of actions, A."""
        ...

    @property
    def num_parameters(self) -> int:
        """Number of weights of one model, P."""
        ...

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape of one state; () for a network that takes a whole world instead of states."""
        ...

    def describe(self) -> dict[str, Any]:
        """What restoring the network needs, as plain values for JSON."""
        ...

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Initial weights of one model, [P]."""
        ...

    def as_states(self, states: Any) -> tuple[Any, ...]:
        """The states that a caller passes, checked and converted to arrays with one row per state."""
        ...

    def predict(self, parameters: Tensor, *states: Any) -> Tensor:
        """Rewards [M, S, A] from weights [M, P] and the arrays of `as_states`."""
        ...


class Calls(NamedTuple):
    """How a `RewardEnsemble` calls a network. A network that wants something else has an attribute of the same name."""

    block: Mapping[str, tuple[int, int | None]] = MappingProxyType({"cpu": (16, 64), "cuda": (16, 1024)})
    """Models and states per call of `predict`, at most, by kind of device: enough to keep it busy.

    On the CPU a call has exactly this many models (`beliefs.fixed_shapes`). None: all states in one call.
    """
    rows_per_call: int = 64
    """On the CPU the number of states of a call is a multiple of this: how many each call of a library has."""
    fewest_rows: int = 0
    """Up to this many states may go in a shorter call, where that rounds as the usual one does; 0: never."""
    blocks_per_task: int = 16
    """Blocks that a thread predicts at a time: some milliseconds of work at least, since starting a thread takes time."""
    reward_dtype: torch.dtype = torch.float32
    """Type of the rewards that `predict` returns."""
    takes_pictures: bool = False
    """Whether states are images, made of pictures of any size as `tables.arrays` does."""

    @classmethod
    def of(cls, network: Network) -> Calls:
        """The attributes that `network` has, and the defaults for the others."""
        return cls(**{name: getattr(network, name) for name in cls._fields if hasattr(network, name)})


def checked_network(network: Any) -> Network:
    """`network`, if it has what every network needs."""
    if not all(hasattr(network, part) for part in ("num_parameters", "num_actions", "as_states", "predict")):
        raise InvalidInputError(
            f"network is a {type(network).__name__}; pass a network of cautious.beliefs, such as another ensemble's `network`, "
            "or an object with the members of cautious.Network."
        )
    return network


def named(table: Mapping[str, str], name: str) -> Any:
    """The entry of a table of "module:attribute" texts, imported when it is asked for."""
    module, attribute = table[name].split(":")
    return getattr(importlib.import_module(module), attribute)


def restored(described: dict[str, Any], path: Any, given: Any = None) -> Network:
    """The network that a file describes.

    Args:
        described: What `Network.describe` returned, and the network's name.
        path: The file, for messages.
        given: Where the network is a user's own, the function that made its module, or the network itself.
    """
    name = described.get("network")
    if callable(given) and not hasattr(given, "predict"):
        if name != ModuleNetwork.name or not is_shape(described.get("state_shape")):
            raise BadFileError(f"{path}: network {name!r} is built in; load it without `network`.")
        return _as_described(
            ModuleNetwork(given, torch.zeros(2, *described["state_shape"], dtype=torch.float32)), described, path
        )
    if given is not None:
        if checked_network(given).name != name:
            raise BadFileError(f"{path}: holds models of network {name!r}, not {given.name!r}; leave network out.")
        return _as_described(given, described, path)
    if isinstance(name, str) and name in NETWORKS:
        network: Network = named(NETWORKS, name).read(described, path)
        return network
    raise BadFileError(
        f"{path}: network {name!r} is not one that this version builds by itself; if it is your own, pass the function that "
        "made it: RewardEnsemble.load(folder, network=...)."
    )


def _as_described(network: Network, described: dict[str, Any], path: Any) -> Network:
    """`network`, checked against the description of a file.

    Without the check, other layers with as many weights would load them without an error.
    """
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
    """The entries of a value in their order: dictionaries in another order are equal, but their weights are not."""
    return list(value.items()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
