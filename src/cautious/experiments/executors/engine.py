"""What an experiment asks of those who work on it; and this process, which does one thing after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import torch

from cautious.beliefs.training.loop import TrainedModels, train
from cautious.beliefs.training.state import TrainingProblem, TrainingSettings
from cautious.errors import InvalidInputError
from cautious.experiments.provenance import hardware_name
from cautious.progress import Progress, TitledProgress
from cautious.validation import resolve_device

Shared = TypeVar("Shared")
Piece = TypeVar("Piece")
Result = TypeVar("Result")

ENGINES = ("local", "ray")


class Training(NamedTuple):
    """A trained ensemble, and what it took."""

    models: TrainedModels
    seconds: float
    """Of this process; on a cluster those of all its workers together, so what one of them would have taken."""
    hardware: str


class Engine(Protocol):
    """Who works on the pieces of an experiment. Whoever it is, the results have the same bits."""

    here: bool
    """Whether that is this process, which has the run's folder at hand."""

    def device(self, name: str) -> torch.device:
        """The kind of device that "auto", "cpu" or "cuda" stands for, checked to be there."""
        ...

    def train(
        self,
        network: TrainingProblem,
        settings: TrainingSettings,
        *,
        device: torch.device | str,
        checkpoint_dir: Path,
        progress: Progress | None = None,
    ) -> Training:
        """Train an ensemble, going on from `checkpoint_dir` (`beliefs.training.loop.train`)."""
        ...

    def each(
        self,
        work: Callable[[Shared, Piece, TitledProgress | None], Result],
        shared: Shared,
        pieces: Sequence[Piece],
        finished: Callable[[Piece, Result], None],
        *,
        device: torch.device | str,
        title: str,
        progress: TitledProgress | None = None,
    ) -> None:
        """Do `work` on each piece.

        Args:
            work: A function of a module: what the pieces share, a piece, and whom to tell how far it is.
            shared: What all pieces need.
            pieces: What is different.
            finished: Given each piece with its result as soon as there is one, in any order.
            device: What kind of device a piece needs.
            title: What to call all of them together.
            progress: Told how it goes.
        """
        ...

    def side_by_side(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        """The results of things that do not need each other, at the same time where that is of use."""
        ...


class LocalEngine:
    """This process, on one machine."""

    here = True

    def device(self, name: str) -> torch.device:
        """The named device; "auto" takes a GPU where there is one."""
        return resolve_device(name)

    def train(
        self,
        network: TrainingProblem,
        settings: TrainingSettings,
        *,
        device: torch.device | str,
        checkpoint_dir: Path,
        progress: Progress | None = None,
    ) -> Training:
        """Train here."""
        started = time.perf_counter()
        models = train(network, settings, device=device, checkpoint_dir=checkpoint_dir, progress=progress)
        return Training(models, time.perf_counter() - started, hardware_name(device))

    def each(
        self,
        work: Callable[[Shared, Piece, TitledProgress | None], Result],
        shared: Shared,
        pieces: Sequence[Piece],
        finished: Callable[[Piece, Result], None],
        *,
        device: torch.device | str,
        title: str,
        progress: TitledProgress | None = None,
    ) -> None:
        """One piece after another, each with all cores and bars of its own."""
        for piece in pieces:
            finished(piece, work(shared, piece, progress))

    def side_by_side(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        """One after another."""
        return [work() for work in works]


@contextmanager
def open_engine(name: str = "local", address: str | None = None) -> Iterator[Engine]:
    """The engine of that name, for as long as the block lasts.

    Args:
        name: "local" or "ray".
        address: Of a Ray cluster; see `launch.connect.connected`.
    """
    if name not in ENGINES:
        raise InvalidInputError(f"engine={name!r} is not known; choose one of {', '.join(map(repr, ENGINES))}.")
    if name == "local":
        if address is not None:
            raise InvalidInputError(f"address={address!r} is that of a Ray cluster; it goes with --engine ray.")
        yield LocalEngine()
        return
    from cautious.experiments.executors.ray_connection import connected, require_ray

    require_ray()
    from cautious.experiments.executors.ray_cluster import RayEngine

    with connected(address):
        yield RayEngine()
