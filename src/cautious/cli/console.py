"""What the verbs share: the console, progress bars, and errors said plainly."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from cautious.errors import CautiousError
from cautious.progress import SECONDS_BETWEEN_LINES, Estimate
from cautious.progress import Progress as OneProgress

console = Console()
error_console = Console(stderr=True)


def say(line: str) -> None:
    """Print a line that holds what a user named: a path stays as it is, with brackets, colons and however long it is."""
    console.print(line, markup=False, emoji=False, soft_wrap=True)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar with an estimate for each title; yields a function to be told (title, done, total).

    Where the output is not a terminal, a plain line now and then instead.
    """
    if not error_console.is_terminal:
        yield _plain_progress()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=error_console) as progress:

        def tell(title: str, done: int, total: int) -> None:
            if title not in tasks:
                tasks[title] = progress.add_task(title, total=total)
            progress.update(tasks[title], completed=done)

        yield tell


def _plain_progress() -> Callable[[str, int, int], None]:
    """A line for the first and the last word on each title, and every `SECONDS_BETWEEN_LINES` between."""
    estimates: dict[str, Estimate] = {}
    said: dict[str, float] = {}

    def tell(title: str, done: int, total: int) -> None:
        now = time.monotonic()
        line = estimates.setdefault(title, Estimate(title)).line(done, total, now)
        if done == total or title not in said or now - said[title] >= SECONDS_BETWEEN_LINES:
            said[title] = now
            print(f"{line}\n", end="", file=sys.stderr, flush=True)  # at once: several threads may tell

    return tell


@contextmanager
def progress_bar(title: str) -> Iterator[OneProgress]:
    """One bar; yields a function to be told (done, total)."""
    with progress_bars() as tell:
        yield lambda done, total: tell(title, done, total)


class Stopped(KeyboardInterrupt):
    """Told to stop by a signal other than Ctrl-C."""

    def __init__(self, number: int) -> None:
        """Keep the signal's number."""
        self.number = number


@contextmanager
def _signals_stop() -> Iterator[None]:
    """Let the signals by which a system ends a process do what Ctrl-C does: keep what is done, then stop."""

    def stop(number: int, _: object) -> None:
        raise Stopped(number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]  # not what nohup ignores
    if threading.current_thread() is not threading.main_thread():
        ours = []
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def run_verb(run: Callable[[], None]) -> None:
    """Run a verb; a mistake of the user's ends in one plain line and exit status 2."""
    try:
        with _signals_stop():
            run()
    except CautiousError as error:
        error_console.print(f"[bold red]error:[/] {escape(str(error))}", emoji=False, soft_wrap=True)
        sys.exit(2)
    except OSError as error:
        error_console.print(f"[bold red]error:[/] {escape(str(error))}", emoji=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt as stopped:
        error_console.print(
            "interrupted. Training and reproducing keep what is finished: the same command goes on from there."
        )
        sys.exit(128 + (stopped.number if isinstance(stopped, Stopped) else signal.SIGINT))
