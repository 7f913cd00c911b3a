"""A Ray cluster: pieces of work go out as tasks and come back as results; only the driver touches a folder.

Three parts: the driver (`RayExecutor`), the connection (`connected`), and what runs on a worker (`run_piece`). Ray starts a
task again on another worker if its worker dies. The driver writes each finished piece to the run's folder, so that a driver
that dies resumes from there.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import os
import platform
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray
import ray.exceptions
import torch
from torch.nn.grad import conv2d_input, conv2d_weight

from cautious.beliefs.training.loop import Training, train, train_shard
from cautious.beliefs.training.state import TrainingJob, TrainingProblem, TrainingSettings, TrainState
from cautious.errors import Argument, CautiousError, ClusterError, ClusterWarning, InvalidInputError
from cautious.machine import hardware_name, package_versions
from cautious.parallel import Piece, Result, Shared, single_threaded
from cautious.progress import Progress, TitledProgress, titled
from cautious.validation import check_device

RETRIES = 5
"""How often a piece is started again when its worker dies."""
POLL_SECONDS = 1.0
"""How often the driver looks for results, progress and a request to stop; and how often a worker reports its progress."""
FEWEST_WAITING = 64
"""Pieces that are given out at a time, or four per worker if these are more: what waits lies in the cluster's memory."""
MAX_CALLS = 4
"""Trainings, or whole runs, that run at the same time: each keeps its data in the driver's memory."""
CONNECT_SECONDS = 30.0
"""Seconds that a cluster may take to answer."""
RESOURCE = {"cpu": "CPU", "cuda": "GPU"}
NEEDS = {"cpu": {"num_cpus": 1}, "cuda": {"num_cpus": 1, "num_gpus": 1}}


class TaskResult(NamedTuple):
    """The result of a task, its time and its hardware."""

    value: Any
    seconds: float
    hardware: str
    machine: str
    """The worker's name in its network."""
    rounding: str
    """`rounding_fingerprint` of the device that computed it."""


class RayExecutor:
    """The Ray cluster that this process is connected to (`connected`)."""

    is_local = False

    def __init__(self) -> None:
        """Check that the cluster has workers, and start the actor that collects their progress."""
        if self.num_workers(torch.device("cpu")) < 1:
            raise ClusterError(
                "the Ray cluster has no CPU to work on; add a machine with 'ray start --address=HOST:PORT'."
            )
        self._progress_actor: Any = ray.remote(num_cpus=0, max_restarts=-1)(ProgressActor).remote()
        self._num_calls = itertools.count()
        self._warned: set[tuple[str, str]] = set()
        self._first_on_gpu: TaskResult | None = None
        self._cancelled = threading.Event()

    def num_workers(self, device: torch.device) -> int:
        """How many tasks the cluster runs at once: one per CPU, or one per GPU."""
        return int(ray.cluster_resources().get(RESOURCE[device.type], 0))

    def device(self, name: str) -> torch.device:
        """The kind of device that tasks are given; "auto" takes GPUs where the cluster has any."""
        if name not in ("auto", *RESOURCE):
            raise InvalidInputError(
                Argument("device", name), " cannot be used on a cluster; choose 'auto', 'cpu' or 'cuda'."
            )
        num_gpus = self.num_workers(torch.device("cuda"))
        if name == "cuda" and not num_gpus:
            raise InvalidInputError("device='cuda' cannot be used here: no machine of the cluster offers a GPU.")
        return torch.device("cuda" if name != "cpu" and num_gpus else "cpu")

    def train(
        self,
        problem: TrainingProblem,
        settings: TrainingSettings,
        *,
        device: torch.device | str,
        checkpoint_dir: Path | None,
        progress: Progress | None = None,
    ) -> Training:
        """Train shards on all workers, as many at once as there are workers."""
        shards = _RayShardExecutor(self)
        models = train(
            problem, settings, device=device, checkpoint_dir=checkpoint_dir, progress=progress, executor=shards
        )
        num_workers = self.num_workers(torch.device(device))
        workers = f"Ray cluster, {num_workers} worker{'' if num_workers == 1 else 's'}"
        return Training(models, shards.seconds, "; ".join([workers, *shards.hardware]))

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
        """Yield pieces as they are finished, with one progress bar for all of them."""
        show = titled(progress, title) or (lambda done, total: None)
        show(0, len(pieces))
        results = self.run_tasks(work, shared, pieces, torch.device(device))
        for done, (number, result) in enumerate(results, start=1):
            yield pieces[number], result.value
            show(done, len(pieces))

    def run_all(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        """Results of calls, each in a thread of this process: their tasks fill the cluster. A failure stops all calls."""
        with ThreadPoolExecutor(max_workers=MAX_CALLS) as pool:
            futures = [pool.submit(call) for call in calls]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._cancelled.set()  # the other threads see it in `run_tasks`
                pool.shutdown(cancel_futures=True)
                raise
            return [future.result() for future in futures]

    def run_tasks(
        self,
        work: Callable[[Any, Any, Any], Any],
        shared: Any,
        pieces: Sequence[Any],
        device: torch.device,
        report: Progress | None = None,
    ) -> Iterator[tuple[int, TaskResult]]:
        """Run one task per piece; yield (number of the piece, its result) in any order.

        After an error or an interruption, running tasks end when this process disconnects. None is cancelled earlier:
        cancelling a task at the moment in which it ends makes Ray (2.60) abort the driver.

        Args:
            work: A module-level function.
            shared: Sent to each machine once.
            pieces: One per task.
            device: What a task needs: a CPU, or a GPU.
            report: Called with (number of a piece, steps done), about once a second.
        """
        shared_reference, call = ray.put(shared), next(self._num_calls)
        task = ray.remote(run_piece).options(max_retries=RETRIES, scheduling_strategy="SPREAD", **NEEDS[device.type])
        versions = package_versions()
        waiting: dict[Any, int] = {}
        coming = iter(enumerate(pieces))
        most = max(FEWEST_WAITING, 4 * self.num_workers(device))
        while True:
            for number, piece in itertools.islice(coming, most - len(waiting)):
                piece_progress = None if report is None else PieceProgress(self._progress_actor, call, number)
                waiting[task.remote(work, shared_reference, piece, piece_progress, device.type, versions)] = number
            if not waiting:
                return
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=POLL_SECONDS)
            if self._cancelled.is_set():
                raise CancelledError
            for reference in ready:
                result = _result_of(reference)
                self._compare_rounding(result, device)
                yield waiting.pop(reference), result
            if report is not None:
                self._pass_on_progress(call, set(waiting.values()), report)

    def _compare_rounding(self, result: TaskResult, device: torch.device) -> None:
        """Warn, once per machine, where a result was computed with other rounding than this machine's.

        Tasks go to whichever worker is free, so the bits of such a run depend on which machine computed what. The driver
        may have no GPU, so that GPU workers are compared with the first that answered.
        """
        if device.type == "cpu":
            expected, reference = rounding_fingerprint("cpu"), f"this machine ({hardware_name('cpu')})"
        else:
            first = self._first_on_gpu = self._first_on_gpu or result
            expected, reference = first.rounding, f"worker {first.machine} ({first.hardware})"
        machine = result.machine, result.hardware
        if result.rounding != expected and machine not in self._warned:
            self._warned.add(machine)
            warnings.warn(
                f"worker {result.machine} ({result.hardware}) rounds differently from {reference}: its results agree with "
                "others only up to rounding, and repeating this run may change the last bits. For identical bits, use "
                "machines with one kind of processor.",
                ClusterWarning,
                stacklevel=3,
            )

    def _pass_on_progress(self, call: int, waiting: set[int], report: Progress) -> None:
        """Report how far the unfinished pieces are."""
        try:
            steps = ray.get(self._progress_actor.read.remote(call), timeout=POLL_SECONDS)
        except ray.exceptions.RayError:  # the actor was on a machine that died; Ray starts it again
            return
        for number in waiting & steps.keys():
            report(number, steps[number])


class _RayShardExecutor:
    """The cluster as `beliefs.training.loop.train` uses it, with a record of time and hardware of one training."""

    def __init__(self, executor: RayExecutor) -> None:
        self._executor = executor
        self.seconds = 0.0
        self.hardware: list[str] = []

    def num_workers(self, device: torch.device) -> int:
        """One per CPU, or one per GPU."""
        return self._executor.num_workers(device)

    def train_shards(
        self,
        job: TrainingJob,
        shards: Sequence[range | TrainState],
        report: Progress,
        finished: Callable[[int, TrainState], None],
    ) -> None:
        """One task per shard."""
        for number, result in self._executor.run_tasks(train_piece, job, shards, job.device, report):
            self.seconds += result.seconds
            self.hardware += [] if result.hardware in self.hardware else [result.hardware]
            finished(number, result.value)


def _result_of(reference: Any) -> TaskResult:
    """The result of a task; an error of this package is raised as it was raised in the task."""
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
            f"a worker of the Ray cluster could not finish its piece after {RETRIES} retries ({error}). Finished pieces are "
            "kept: the same command resumes from there."
        ) from error


# The connection

PROBE = """
import ray, sys
try:
    ray.init(address=sys.argv[1], log_to_driver=False)
except Exception as error:
    while error.__cause__ is not None:
        error = error.__cause__
    sys.exit(f"{type(error).__name__}: {error}")
"""
"""Run in a process of its own to see whether a cluster answers: `ray.init` would try for minutes, then end the process."""


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connect to a Ray cluster for the duration of the block.

    Args:
        address: "host:port" of a cluster that this machine is part of, or "auto" to find it; if None, that of the variable
            RAY_ADDRESS; if that is not set either, a cluster of this machine alone is started, and ended with the block.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"include_dashboard": False} if target == "local" else {}
    if target != "local":
        _check_answers(target)
    try:
        ray.init(address=target, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise _unreachable(target, str(error)) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise unless a Ray cluster answers at `address` within `CONNECT_SECONDS`."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise _unreachable(address, str(error)) from None
    try:
        probe = subprocess.run(
            [sys.executable, "-c", PROBE, address], capture_output=True, text=True, timeout=CONNECT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise _unreachable(address, f"no answer within {CONNECT_SECONDS:g} s; is it a Ray cluster?") from None
    if probe.returncode:
        lines = probe.stderr.strip().splitlines()
        raise _unreachable(address, lines[-1] if lines else f"exit status {probe.returncode}")


def _unreachable(address: str, why: str) -> ClusterError:
    return ClusterError(
        f"address={address!r}: no Ray cluster can be reached there ({why}). Start one with 'ray start --head', join this "
        "machine to it with 'ray start --address=HOST:PORT', and pass the same HOST:PORT."
    )


# On a worker


class ProgressActor:
    """A Ray actor: workers write how far they are, the driver reads it."""

    def __init__(self) -> None:
        """Start empty."""
        self._steps: dict[int, dict[int, int]] = {}

    def write(self, call: int, piece: int, done: int) -> None:
        """Record how far a piece of a call is."""
        self._steps.setdefault(call, {})[piece] = done

    def read(self, call: int) -> dict[int, int]:
        """Steps done of each piece of a call that has reported."""
        return dict(self._steps.get(call, {}))


class PieceProgress:
    """Sends the progress of one piece to the actor, about once a second, without waiting for an answer."""

    def __init__(self, actor: Any, call: int, piece: int) -> None:
        """Report piece number `piece` of a call."""
        self._actor, self._call, self._piece = actor, call, piece
        self._sent = -POLL_SECONDS

    def __call__(self, done: int) -> None:
        """Report `done` steps."""
        now = time.monotonic()
        if now - self._sent >= POLL_SECONDS:
            self._sent = now
            self._actor.write.remote(self._call, self._piece, done)


def run_piece(
    work: Callable[[Any, Any, Any], Any],
    shared: Any,
    piece: Any,
    progress: PieceProgress | None,
    device: str,
    versions: Mapping[str, str],
) -> TaskResult:
    """Run one piece of work on one thread.

    Args:
        work: The function to call, as ``work(shared, piece, progress)``.
        shared: What all pieces have in common.
        piece: What is particular to this piece.
        progress: Called as the piece advances.
        device: The kind of device it runs on.
        versions: Versions of the packages at the driver. Other versions would give other bits, so they are refused.
    """
    _refuse_other_versions(versions)
    check_device(device)  # a machine may offer a GPU that its PyTorch cannot use
    torch.set_num_threads(1)
    started = time.perf_counter()
    value = work(shared, piece, progress)
    seconds = time.perf_counter() - started
    return TaskResult(value, seconds, hardware_name(device), platform.node(), rounding_fingerprint(device))


def train_piece(job: TrainingJob, shard: range | TrainState, progress: PieceProgress) -> TrainState:
    """Train one shard; its state travels back from the CPU."""
    return train_shard(job, shard, progress).to(torch.device("cpu"))


def _refuse_other_versions(versions: Mapping[str, str]) -> None:
    installed = {name: release(version) for name, version in package_versions().items()}
    differing = [name for name in versions if release(versions[name]) != installed[name]]
    if differing:
        what = ", ".join(f"{name} {installed[name]}, not {release(versions[name])}" for name in differing)
        raise ClusterError(
            f"worker {platform.node()} has {what}; results would not be the same: install the same versions on all machines."
        )


def release(version: str) -> str:
    """A version without its build: builds of one release for CPUs and for GPUs count as the same.

    >>> release("2.13.0+cpu")
    '2.13.0'
    """
    return version.split("+")[0]


@functools.cache
@single_threaded
def rounding_fingerprint(device: str) -> str:
    """A digest of what a device computes in a convolution and its gradients, products, a factorisation, sums and functions.

    Libraries choose their kernels, and with them the order of their sums, by the kind of CPU; no list of CPU names says which
    kinds round alike, so it is measured. Machines with the same digest round alike in all of these. On a GPU, whose kernels
    are this package's own, the name of the GPU is enough.
    """
    if device == "cuda":
        return torch.cuda.get_device_name()
    rng = np.random.default_rng(0)
    images, kernels = (torch.from_numpy(rng.normal(size=size)).float() for size in ((64, 8, 28, 28), (32, 4, 4, 4)))
    convolved = torch.nn.functional.conv2d(images, kernels, groups=2)  # two models side by side
    matrix, rows = (torch.from_numpy(rng.normal(size=(size, 152))) for size in (152, 67))
    single = rows.float()
    results = [
        convolved,
        conv2d_weight(images, kernels.shape, convolved, groups=2),
        conv2d_input(images.shape, kernels, convolved, groups=2),
        rows @ matrix,
        single @ matrix.float(),
        torch.linalg.lu_factor(matrix).LU,
        single.sum(dim=1),
        single.sum(dim=0),
        single.tanh(),
        single.exp(),
        single.sin(),
    ]
    digest = hashlib.sha256()
    for result in results:
        digest.update(result.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
