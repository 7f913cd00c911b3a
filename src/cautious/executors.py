"""Executors: where work runs. One runs everything in this process, and one (`cautious.ray`) on a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from cautious.beliefs.training.loop import EnsembleExecutor, Training, train
from cautious.beliefs.training.state import TrainingProblem, TrainingSettings
from cautious.errors import Advice, Argument, InvalidInputError, MissingPackageError
from cautious.machine import hardware_name
from cautious.parallel import BlockExecutor, Piece, Result, Shared
from cautious.progress import Progress, TitledProgress
from cautious.validation import resolve_device

EXECUTORS = ("local", "ray")


class Executor(EnsembleExecutor, BlockExecutor, Protocol):
    """Where work runs: training, decisions about many rows, the stages of an experiment. All executors give the same bits.

    An executor of one's own needs the methods of the calls that it is passed to: `fit_ensemble` uses `device` and `train`,
    decisions and the searches of an uncertain world use `map` (docs/extend.md).
    """

    is_local: bool
    """Whether work runs in this process, which can write to the folder of a run."""

    def run_all(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        """Results of independent calls in this process, in order. Calls may run at the same time, to keep workers busy."""
        ...


class LocalExecutor:
    """Runs everything in this process: one piece of work after another, each with all cores and its own progress bar."""

    is_local = True

    def device(self, name: str) -> torch.device:
        """The device of that name; "auto" takes a GPU where there is one."""
        return resolve_device(name)

    def train(
        self,
        problem: TrainingProblem,
        settings: TrainingSettings,
        *,
        device: torch.device | str,
        checkpoint_dir: Path | None,
        progress: Progress | None = None,
    ) -> Training:
        """Train in this process."""
        started = time.perf_counter()
        models = train(problem, settings, device=device, checkpoint_dir=checkpoint_dir, progress=progress)
        return Training(models, time.perf_counter() - started, hardware_name(device))

    def map(
        self,
        work: Callable[[Shared, Piece, TitledProgress | None], Result],
        shared: Shared,
        pieces: Sequence[Piece],
        *,
        device: torch.device | str,
        title: str,
        progress: TitledProgress | None = None,
    ) -> Iterator[tuple[Piece, Result]]:
        """Yield the pieces in order."""
        for piece in pieces:
            yield piece, work(shared, piece, progress)

    def run_all(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        """One call after another."""
        return [call() for call in calls]


@contextmanager
def open_executor(name: str = "local", address: str | None = None) -> Iterator[Executor]:
    """The executor of that name, open for the duration of a ``with`` block.

    Args:
        name: "local" is this process; "ray" is a Ray cluster (extra `ray`).
        address: Address of a running Ray cluster, such as "auto" or "ray://host:10001"; by default a new one on this machine
            (`cautious.ray.connected`).

    Yields:
        An `Executor`, for `fit_ensemble(executor=...)` for example.

    Raises:
        InvalidInputError: The name is not known, or an address was given for "local".
        MissingPackageError: Ray is not installed.

    >>> with open_executor("local") as executor:
    ...     executor.device("cpu")
    device(type='cpu')
    """
    if name not in EXECUTORS:
        raise InvalidInputError(
            Argument("engine", name), f" is not known; choose one of {', '.join(map(repr, EXECUTORS))}."
        )
    if name == "local":
        if address is not None:
            raise InvalidInputError(
                Argument("address", address), " is that of a Ray cluster; it goes with ", Advice("engine", "ray"), "."
            )
        yield LocalExecutor()
        return
    try:
        import ray  # noqa: F401
    except ImportError:
        raise MissingPackageError(
            "engine='ray' needs Ray, which is not installed; get it with: pip install 'cautious[ray]'"
        ) from None
    from cautious.ray import RayExecutor, connected

    with connected(address):
        yield RayExecutor()
