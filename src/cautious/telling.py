"""How far long work is: whom to tell, and in which words."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from cautious.types import parse_flag

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""

SECONDS_BETWEEN_LINES = 10.0
"""How often progress is told where there is no terminal to write one line over and over on."""


def progress_line(title: str, done: int, total: int, seconds: float) -> str:
    """What is done, and about how long the rest will take, so many seconds after the start.

    >>> progress_line("training", 1, 4, 10.0)
    'training: 25 %, about 30 s left'
    """
    left = f", about {seconds / done * (total - done):.0f} s left" if 0 < done < total and seconds > 0 else ""
    return f"{title}: {100 * done // max(total, 1)} %{left}"


def as_progress(progress: bool | Progress | None, title: str) -> Progress | None:
    """Whom to tell: a function as it is; for True a line on standard error, in a file or a notebook one now and then."""
    if progress is None or callable(progress):
        return progress
    if not parse_flag(progress, "progress"):
        return None
    terminal, begun = sys.stderr.isatty(), time.monotonic()
    last = begun

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        line = progress_line(title, done, total, now - begun)
        if terminal:  # over the line before, which may have been longer
            print(f"\r{line:<60}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif now - last >= SECONDS_BETWEEN_LINES:
            last = now
            print(line, file=sys.stderr, flush=True)

    return tell
