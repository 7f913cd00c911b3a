"""Pieces of work side by side on the CPU, one core each."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

import torch

Result = TypeVar("Result")


def on_every_core(
    work: Callable[[int], Result], count: int, on_failure: Callable[[], None] | None = None
) -> list[Result]:
    """Results of `work(0)` ... `work(count - 1)`, each on one core.

    So they never wait for each other, as the threads of one operation would.

    Args:
        work: What to do with piece i; most of its time is spent in torch, which lets other threads run.
        count: How many pieces.
        on_failure: Called when a piece fails or the user interrupts, before waiting for those under way.
    """

    def alone(number: int) -> Result:
        torch.set_num_threads(1)
        return work(number)

    with _threads_given_back() as num_threads, ThreadPoolExecutor(max_workers=num_threads) as pool:
        futures = [pool.submit(alone, number) for number in range(count)]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)  # whichever piece fails: those before it may have hours to go
            return [future.result() for future in futures if future.done()]  # all, or it raises
        except BaseException:
            if on_failure is not None:
                on_failure()
            pool.shutdown(cancel_futures=True)
            raise


_COUNTING = threading.Lock()
_usual = _users = 0
"""Torch's number of threads before anybody began here, and how many are at work."""


@contextlib.contextmanager
def _threads_given_back() -> Iterator[int]:
    """Torch's usual number of threads, which the last to leave restores.

    Setting it in one thread sets what threads to come begin with: whoever began meanwhile would take 1 for the usual.
    """
    global _usual, _users
    with _COUNTING:
        if not _users:
            _usual = torch.get_num_threads()
        _users += 1
    try:
        yield _usual
    finally:
        with _COUNTING:
            _users -= 1
            if not _users:
                torch.set_num_threads(_usual)
