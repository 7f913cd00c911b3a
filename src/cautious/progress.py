"""Progress reporting: the callback that long work calls, one counter for work in pieces, and the line that a user sees.

Whatever takes long accepts a `Progress`, called with (steps done, steps in all). An experiment does several things one after
the other and accepts a `TitledProgress`, which is also told what is being done; `titled` turns it into a `Progress`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""

TitledProgress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""

SECONDS_BETWEEN_LINES = 10.0
"""How often a line is printed where the output is not a terminal, so that one line cannot be overwritten."""


def titled(progress: TitledProgress | None, title: str) -> Progress | None:
    """A progress function for one titled part of an experiment."""
    return None if progress is None else lambda done, total: progress(title, done, total)


class ProgressTracker:
    """One progress for several pieces of work of equal length: threads, shards, or calls that follow each other.

    It also carries the request to stop. Threads cannot be interrupted from outside, so a piece learns of it when it reports
    next, by a `CancelledError`.

    >>> tracker = ProgressTracker(2, lambda done, total: print(f"{done} of {total}"))
    >>> tracker.report(1, 3, 10)
    3 of 20
    >>> tracker.report(0, 10, 10)
    13 of 20
    """

    def __init__(self, num_pieces: int, progress: Progress | None) -> None:
        """Begin with no step done; without `progress` nothing is reported, but pieces can still be stopped."""
        self._steps = [0] * num_pieces
        self._done = 0
        self._begun = 0
        self._progress = progress
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Make every piece that reports from now on stop there."""
        self._stopped.set()

    def report(self, piece: int, done: int = 1, total: int = 1) -> None:
        """Say that `done` of a piece's `total` steps are done; raises `CancelledError` after `stop`."""
        self.report_all({piece: done}, total)

    def report_all(self, steps: Mapping[int, int], total: int) -> None:
        """Say how many of their `total` steps several pieces have done, by the number of the piece."""
        if self._stopped.is_set():
            raise CancelledError
        if self._progress is None:
            return
        with self._lock:  # callbacks are called one at a time, and never with fewer steps than before
            for piece, done in steps.items():
                self._done += done - self._steps[piece]
                self._steps[piece] = done
            self._progress(self._done, total * len(self._steps))

    def next_call(self) -> Progress | None:
        """The progress of the next of several calls that follow each other; a call that was skipped counts as done."""
        number, self._begun = self._begun, self._begun + 1
        if self._progress is None:
            return None
        return lambda done, total: self.report_all({**dict.fromkeys(range(number), total), number: done}, total)


class Estimate:
    """One line that says how much is done and about how long the rest takes, by the speed since the first call.

    >>> estimate = Estimate("training")
    >>> estimate.line(800, 1000, now=0.0), estimate.line(810, 1000, now=10.0)  # 800 were done before this process
    ('training: 80 %', 'training: 81 %, about 190 s left')
    """

    def __init__(self, title: str) -> None:
        """Start without a speed."""
        self._title = title
        self._first: tuple[int, float] | None = None

    def line(self, done: int, total: int, now: float) -> str:
        """The line at a time in seconds."""
        first, begun = self._first = self._first or (done, now)
        rate = (done - first) / (now - begun) if now > begun else 0.0
        left = f", about {(total - done) / rate:.0f} s left" if rate > 0 and done < total else ""
        return f"{self._title}: {100 * done // max(total, 1)} %{left}"


def as_progress(progress: bool | Progress | None, title: str) -> Progress | None:
    """A callback as it is; for True one that prints a line on standard error; None for False.

    On a terminal the line is overwritten; in a file or a notebook one is printed every `SECONDS_BETWEEN_LINES`.
    """
    from cautious.validation import parse_flag  # loads torch, which a command's --help does without

    if progress is None or callable(progress):
        return progress
    if not parse_flag(progress, "progress"):
        return None
    terminal, estimate, last = sys.stderr.isatty(), Estimate(title), time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        line = estimate.line(done, total, now)
        if terminal:  # padded: the line before may have been longer
            print(f"\r{line:<60}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif now - last >= SECONDS_BETWEEN_LINES:
            last = now
            print(line, file=sys.stderr, flush=True)

    return show
