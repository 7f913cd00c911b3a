"""A Ray cluster: pieces of work go out as tasks, and come back as results; only the driver touches a folder.

A task whose worker dies is started again elsewhere by Ray. What was finished is already written down, so that a driver that
dies goes on from there.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import ray
import ray.exceptions
import torch

from cautious.beliefs.training.loop import train
from cautious.beliefs.training.sharding import TrainingJob
from cautious.beliefs.training.state import TrainingProblem, TrainingSettings, TrainState
from cautious.errors import CautiousError, ClusterError, ClusterWarning, InvalidInputError
from cautious.experiments.executors.engine import Piece, Result, Shared, Training
from cautious.experiments.executors.rounding import rounding_fingerprint
from cautious.experiments.executors.worker import Notes, Outcome, Reporter, do_piece, train_piece
from cautious.experiments.provenance import hardware_name, package_versions
from cautious.progress import Progress, TitledProgress, titled

RETRIES = 5
"""How often a piece is begun again when its worker dies."""
POLL_SECONDS = 1.0
"""How often the driver looks for results, news and a wish to stop."""
MOST_SIDE_BY_SIDE = 4
"""Trainings, or whole runs, that are begun at the same time: each keeps its data in the driver's memory."""
RESOURCE = {"cpu": "CPU", "cuda": "GPU"}
NEEDS = {"cpu": {"num_cpus": 1}, "cuda": {"num_cpus": 1, "num_gpus": 1}}


class RayEngine:
    """The Ray cluster that this process is connected to (`launch.connect.connected`)."""

    here = False

    def __init__(self) -> None:
        """Look at the cluster, and set up the notes on how far its workers are."""
        if self.num_workers(torch.device("cpu")) < 1:
            raise ClusterError(
                "the Ray cluster has no CPU to work on; add a machine with 'ray start --address=HOST:PORT'."
            )
        self._notes: Any = ray.remote(num_cpus=0, max_restarts=-1)(Notes).remote()
        self._calls = itertools.count()
        self._warned: set[tuple[str, str]] = set()
        self._first_on_gpu: Outcome | None = None
        self._stopped = threading.Event()

    def num_workers(self, device: torch.device) -> int:
        """How many tasks the cluster runs at once: one a CPU, or one a GPU."""
        return int(ray.cluster_resources().get(RESOURCE[device.type], 0))

    def device(self, name: str) -> torch.device:
        """The kind of device that tasks are given; "auto" takes GPUs where the cluster has any."""
        if name not in ("auto", *RESOURCE):
            raise InvalidInputError(f"device={name!r} cannot be used on a cluster; choose 'auto', 'cpu' or 'cuda'.")
        num_gpus = self.num_workers(torch.device("cuda"))
        if name == "cuda" and not num_gpus:
            raise InvalidInputError("device='cuda' cannot be used here: no machine of the cluster offers a GPU.")
        return torch.device("cuda" if name != "cpu" and num_gpus else "cpu")

    def train(
        self,
        network: TrainingProblem,
        settings: TrainingSettings,
        *,
        device: torch.device | str,
        checkpoint_dir: Path,
        progress: Progress | None = None,
    ) -> Training:
        """Train shards on all workers, as many at once as there are."""
        executor = _RayShardExecutor(self)
        models = train(
            network, settings, device=device, checkpoint_dir=checkpoint_dir, progress=progress, executor=executor
        )
        num_workers = self.num_workers(torch.device(device))
        workers = f"Ray cluster, {num_workers} worker{'' if num_workers == 1 else 's'}"
        return Training(models, executor.seconds, "; ".join([workers, *executor.hardware]))

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
        """All pieces at once, as far as there are workers; one bar for all of them."""
        tell = titled(progress, title) or (lambda done, total: None)
        done = itertools.count(1)
        tell(0, len(pieces))

        def take(number: int, outcome: Outcome) -> None:
            finished(pieces[number], outcome.result)
            tell(next(done), len(pieces))

        self.run_tasks(work, shared, pieces, torch.device(device), take)

    def side_by_side(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        """Each in a thread of the driver, so that their tasks fill the cluster together; one that fails stops all."""
        with ThreadPoolExecutor(max_workers=MOST_SIDE_BY_SIDE) as pool:
            futures = [pool.submit(work) for work in works]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._stopped.set()
                pool.shutdown(cancel_futures=True)
                raise
            return [future.result() for future in futures]

    def run_tasks(
        self,
        work: Callable[[Any, Any, Any], Any],
        shared: Any,
        pieces: Sequence[Any],
        device: torch.device,
        finished: Callable[[int, Outcome], None],
        report: Progress | None = None,
    ) -> None:
        """Have each piece worked on by a task.

        Where something goes wrong, or the user interrupts, tasks under way end when this process disconnects. None is
        cancelled before: to cancel a task in the moment in which it ends makes Ray (2.60) abort the driver.

        Args:
            work: A function of a module.
            shared: Sent to each machine once.
            pieces: One a task.
            device: What a task needs: a CPU, or a GPU.
            finished: Given (number of a piece, its outcome), in any order.
            report: Told (number of a piece, how far it is), about once a second.
        """
        common, call = ray.put(shared), next(self._calls)
        task = ray.remote(do_piece).options(max_retries=RETRIES, scheduling_strategy="SPREAD", **NEEDS[device.type])
        versions = package_versions()
        waiting = {}
        for number, piece in enumerate(pieces):
            tell = None if report is None else Reporter(self._notes, call, number)
            waiting[task.remote(work, common, piece, tell, device.type, versions)] = number
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=POLL_SECONDS)
            if self._stopped.is_set():
                raise KeyboardInterrupt
            for reference in ready:
                outcome = _outcome(reference)
                self._compare_rounding(outcome, device)
                finished(waiting.pop(reference), outcome)
            if report is not None:
                self._pass_on(call, set(waiting.values()), report)

    def _compare_rounding(self, outcome: Outcome, device: torch.device) -> None:
        """Warn, once for each machine, where a result was made by other rounding than this machine's.

        Tasks go to whichever worker is free, so the bits of such a run depend on which machine happened to do what. On GPUs,
        which the driver may lack, workers are compared with the first that answered.
        """
        if device.type == "cpu":
            expected, reference = rounding_fingerprint("cpu"), f"this machine ({hardware_name('cpu')})"
        else:
            first = self._first_on_gpu = self._first_on_gpu or outcome
            expected, reference = first.rounding, f"worker {first.machine} ({first.hardware})"
        machine = outcome.machine, outcome.hardware
        if outcome.rounding != expected and machine not in self._warned:
            self._warned.add(machine)
            warnings.warn(
                f"worker {outcome.machine} ({outcome.hardware}) rounds otherwise than {reference}: results from there agree "
                "with others up to rounding only, and a repetition of this run may give other last bits. For the same bits "
                "use machines with one kind of processor.",
                ClusterWarning,
                stacklevel=3,
            )

    def _pass_on(self, call: int, waiting: set[int], report: Progress) -> None:
        """Report what is noted about the pieces that are not done."""
        try:
            notes = ray.get(self._notes.read.remote(call), timeout=POLL_SECONDS)
        except ray.exceptions.RayError:  # they were on a machine that died; Ray begins new ones
            return
        for number in waiting & notes.keys():
            report(number, notes[number])


class _RayShardExecutor:
    """Workers of a cluster as `beliefs.training.loop.train` wants them, with a record of what they took."""

    def __init__(self, engine: RayEngine) -> None:
        """Work for that engine."""
        self._engine = engine
        self.seconds = 0.0
        self.hardware: list[str] = []

    def num_workers(self, device: torch.device) -> int:
        """One a CPU, or one a GPU."""
        return self._engine.num_workers(device)

    def train_shards(
        self,
        job: TrainingJob,
        shards: Sequence[range | TrainState],
        report: Progress,
        finished: Callable[[int, TrainState], None],
    ) -> None:
        """One shard a task."""

        def take(number: int, outcome: Outcome) -> None:
            self.seconds += outcome.seconds
            self.hardware += [] if outcome.hardware in self.hardware else [outcome.hardware]
            finished(number, outcome.result)

        self._engine.run_tasks(train_piece, job, shards, job.device, take, report)


def _outcome(reference: Any) -> Outcome:
    """What a task returned; an error of ours as it was raised there."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, CautiousError):
            raise error.cause from None
        if "failed to import on the worker" in str(error):
            why = str(error).strip().splitlines()[-1]
            raise ClusterError(
                f"a worker lacks what it needs ({why}); install the same cautious on all machines."
            ) from None
        raise
    except ray.exceptions.RayError as error:
        raise ClusterError(
            f"a worker of the Ray cluster could not finish its piece, however often it was begun again ({error}). What was "
            "finished is kept: the same command goes on from there."
        ) from error
