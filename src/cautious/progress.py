"""How far long work is: whom to tell, and in which words."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""

SECONDS_BETWEEN_LINES = 10.0
"""How often progress is told where there is no terminal to write one line over and over on."""


class Estimate:
    """Says how far something is, and about how long the rest will take, by how fast it went since it was first told of.

    >>> said = Estimate("training")
    >>> said.line(800, 1000, now=0.0), said.line(810, 1000, now=10.0)  # 800 were done before, perhaps in another process
    ('training: 80 %', 'training: 81 %, about 190 s left')
    """

    def __init__(self, title: str) -> None:
        """Start with nothing told."""
        self._title = title
        self._first: tuple[int, float] | None = None

    def line(self, done: int, total: int, now: float) -> str:
        """The line at a time in seconds."""
        first, begun = self._first = self._first or (done, now)
        rate = (done - first) / (now - begun) if now > begun else 0.0
        left = f", about {(total - done) / rate:.0f} s left" if rate > 0 and done < total else ""
        return f"{self._title}: {100 * done // max(total, 1)} %{left}"


class ProgressCounter:
    """Counts steps that several threads make, and tells one after the other how many are done."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        """Begin with none of `total` done; without `progress` nobody is told."""
        self._done, self._total, self._progress = 0, total, progress
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """So many more are done."""
        if self._progress is not None:
            with self._lock:
                self._done += count
                self._progress(self._done, self._total)


def as_progress(progress: bool | Progress | None, title: str) -> Progress | None:
    """Whom to tell: a function as it is; for True a line on standard error, in a file or a notebook one now and then."""
    from cautious.validation import parse_flag  # loads torch, which a command's --help does without

    if progress is None or callable(progress):
        return progress
    if not parse_flag(progress, "progress"):
        return None
    terminal, said, last = sys.stderr.isatty(), Estimate(title), time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        line = said.line(done, total, now)
        if terminal:  # over the line before, which may have been longer
            print(f"\r{line:<60}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif now - last >= SECONDS_BETWEEN_LINES:
            last = now
            print(line, file=sys.stderr, flush=True)

    return tell
