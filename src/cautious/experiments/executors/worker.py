"""What happens at a worker. Nothing here knows Ray: a worker gets plain objects, and returns some."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cautious.errors import ClusterError

REPORT_SECONDS = 1.0
"""How often a worker tells how far it is."""


class Outcome(NamedTuple):
    """A result, and what it took."""

    result: Any
    seconds: float
    hardware: str
    machine: str
    """The worker's name in its network."""
    rounding: str
    """`rounding_fingerprint` of the device it was made on."""


class Notes:
    """An actor: where workers note how far they are, for the driver to read."""

    def __init__(self) -> None:
        """Begin with no notes."""
        self._done: dict[int, dict[int, int]] = {}

    def note(self, call: int, piece: int, done: int) -> None:
        """Write down how far a piece of a call is."""
        self._done.setdefault(call, {})[piece] = done

    def read(self, call: int) -> dict[int, int]:
        """How far each piece of a call is, where anything was noted."""
        return dict(self._done.get(call, {}))


class Reporter:
    """Tells the notes about one piece, not too often; nobody waits for an answer."""

    def __init__(self, notes: Any, call: int, piece: int) -> None:
        """Take the actor, and which piece it is about."""
        self._notes, self._call, self._piece = notes, call, piece
        self._told = -REPORT_SECONDS

    def __call__(self, done: int) -> None:
        """Say how far the piece is."""
        now = time.monotonic()
        if now - self._told >= REPORT_SECONDS:
            self._told = now
            self._notes.note.remote(self._call, self._piece, done)


def do_piece(
    work: Callable[[Any, Any, Any], Any],
    shared: Any,
    piece: Any,
    tell: Reporter | None,
    device: str,
    versions: Mapping[str, str],
) -> Outcome:
    """Do one piece of work on one thread.

    Args:
        work: What to do.
        shared: What all pieces have in common.
        piece: This one.
        tell: Whom to tell how far it is.
        device: What kind of device it is done on.
        versions: Of the packages at the driver; with others the bits would be others.
    """
    import torch

    from cautious.experiments.executors.rounding import rounding_fingerprint
    from cautious.experiments.provenance import hardware_name
    from cautious.validation import as_device

    _refuse_other_versions(versions)
    as_device(device)  # a machine may offer a GPU that its PyTorch cannot use
    torch.set_num_threads(1)
    started = time.perf_counter()
    result = work(shared, piece, tell)
    seconds = time.perf_counter() - started
    return Outcome(result, seconds, hardware_name(device), platform.node(), rounding_fingerprint(device))


def train_piece(job: Any, begun: Any, tell: Reporter) -> Any:
    """Train one shard (`beliefs.training.loop.train_shard`); it travels back from the CPU."""
    import torch

    from cautious.beliefs.training.loop import freed_memory_kept, train_shard

    with freed_memory_kept():
        return train_shard(job, begun, tell).to(torch.device("cpu"))


def _refuse_other_versions(versions: Mapping[str, str]) -> None:
    from cautious.experiments.provenance import package_versions

    own = {name: public(version) for name, version in package_versions().items()}
    differing = [name for name in versions if public(versions[name]) != own[name]]
    if differing:
        what = ", ".join(f"{name} {own[name]}, not {public(versions[name])}" for name in differing)
        raise ClusterError(
            f"worker {platform.node()} has {what}; results would not be the same: install the same versions on all machines."
        )


def public(version: str) -> str:
    """A version without its build: the same release for CPUs and for GPUs counts as the same.

    >>> public("2.13.0+cpu")
    '2.13.0'
    """
    return version.split("+")[0]
