"""CPU threads: independent tasks run in parallel, and no operation is divided among threads.

Where threads share one small operation, each waits for the slowest, for long where another process occupies a core; and a
library may sum in another order when it has more threads. So every public computation runs its operations on one thread
(`single_threaded`), and work that is large enough is divided into tasks of a fixed size (`parallel_map`). The bits of a result
then do not depend on the number of threads.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import ParamSpec, Protocol, TypeVar

import torch

from cautious.progress import TitledProgress

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Shared = TypeVar("Shared")
Piece = TypeVar("Piece")


def parallel_map(
    task: Callable[[int], Result], count: int, on_failure: Callable[[], None] | None = None
) -> list[Result]:
    """Results of ``task(0)`` ... ``task(count - 1)``, run in parallel on as many threads as torch uses.

    Args:
        task: Most of its time is spent in torch, which lets other threads run.
        count: Number of tasks.
        on_failure: Called when a task fails or the user interrupts, before waiting for those that are running.
    """
    with single_thread() as num_threads:
        # A task that divides its own work keeps the one core that it runs on: its siblings have the others. Tasks that can be
        # stopped stay off the main thread otherwise: an interrupt would end them in the middle of a step there.
        in_task = getattr(_own, "in_task", False)
        if in_task or (on_failure is None and min(num_threads, count) == 1):
            return [task(number) for number in range(count)]

        def alone(number: int) -> Result:
            _own.in_task = True
            with single_thread():
                return task(number)

        with ThreadPoolExecutor(max_workers=min(num_threads, count)) as pool:
            futures = [pool.submit(alone, number) for number in range(count)]
            try:
                # Not in order: tasks before the one that fails may have hours to go.
                wait(futures, return_when=FIRST_EXCEPTION)
                return [future.result() for future in futures if future.done()]  # all, or it raises
            except BaseException:
                if on_failure is not None:
                    on_failure()
                pool.shutdown(cancel_futures=True)
                raise


class BlockExecutor(Protocol):
    """What gives out pieces of work, in this process or elsewhere (`cautious.executors`)."""

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
        """Yield each piece with ``work(shared, piece, progress)`` as soon as it is finished, in any order.

        Args:
            work: A module-level function.
            shared: The argument that is the same for all pieces.
            pieces: The argument that differs.
            device: The kind of device that a piece needs.
            title: What `progress` calls the pieces together.
            progress: Called as the work advances.
        """
        ...


def single_threaded(compute: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, with the operations of torch on one thread while it runs."""

    @functools.wraps(compute)
    def guarded(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with single_thread():
            return compute(*args, **kwargs)

    return guarded


_lock = threading.Lock()
_usual = _users = 0
"""Torch's number of threads outside of `single_thread`, and how many threads are inside."""
_own = threading.local()
"""What each thread knows about itself: how many calls of `single_thread` it is inside of, whether they left it with one torch
thread, and whether it is running a task of `parallel_map`."""


_process = os.getpid()


def is_forked() -> bool:
    """Whether this process was forked from one that had loaded the package: torch may wait for threads that it lacks."""
    return os.getpid() != _process


def _forget_threads() -> None:
    """In a forked child: another thread of the parent may have held the lock, or been inside of `single_thread`."""
    global _lock, _users
    _lock, _users = threading.Lock(), int(bool(getattr(_own, "depth", 0)))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


@contextlib.contextmanager
def single_thread() -> Iterator[int]:
    """Run this thread's torch operations on one thread; yields the number that torch would have used.

    Torch keeps one number for each thread, one that new threads begin with, and one of the matrix library for all; setting
    the first sets the others, too. So only the last thread to leave restores it: another one in the middle of a factorisation
    would otherwise get more threads, and sum in another order. A thread that left before the last keeps 1 until it leaves
    as the last itself; until then its 1 is not taken for the usual number. A forked child keeps 1 for good: with more its torch
    would wait for threads that only the parent has.
    """
    global _usual, _users
    if getattr(_own, "depth", 0):
        yield _usual
        return
    entered = False
    try:
        with _lock:
            if _users == 0 and not (getattr(_own, "lowered", False) and torch.get_num_threads() == 1):
                _usual = torch.get_num_threads()
            _users += 1
            entered = True
        _own.depth = 1
        torch.set_num_threads(1)
        yield _usual
    finally:
        _own.depth = 0
        if entered:
            with _lock:
                _users -= 1
                _own.lowered = _users > 0 or is_forked()
                if not _own.lowered:
                    torch.set_num_threads(_usual)
