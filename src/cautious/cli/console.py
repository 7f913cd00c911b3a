"""What the verbs share: the console, tables, progress bars, and errors in one plain line."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
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
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from cautious.errors import CautiousError, worded
from cautious.progress import SECONDS_BETWEEN_LINES, Estimate
from cautious.progress import Progress as StepProgress

if TYPE_CHECKING:
    from cautious.tables.cells import Problems

ENVIRONMENT = {name: value for name, value in os.environ.items() if (name, value.strip("0")) != ("COLUMNS", "")}
"""Without a width of 0 columns, which some programs set where they know none, and in which nothing can be printed."""
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that move a terminal's cursor, begin its commands, or turn the direction of writing."""


def printable(text: str) -> str:
    r"""A text, names from files in it, in which nothing commands the terminal.

    >>> printable("brake\x1b[2J") == r"brake\x1b[2J"
    True
    """
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class PlainConsole(Console):
    """A console on which no text is taken for a command; colours come from styles."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Segments of what is printed, their texts printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


console = PlainConsole(_environ=ENVIRONMENT)
error_console = PlainConsole(stderr=True, _environ=ENVIRONMENT)


def say(line: str) -> None:
    """Print a line literally: a path keeps its brackets and colons, and is not wrapped."""
    console.print(line, markup=False, emoji=False, soft_wrap=True)


def warn(sentence: str, problems: Problems | None = None) -> None:
    """Print a warning; cells that cannot be used come first, each column and problem on a line of its own."""
    if problems is not None:
        listed = "".join(f"\n    {line}" for line in problems.lines)
        sentence = f"{problems.heading}:{listed}\n  {sentence.lstrip(';. ')}"
    say(f"warning: {sentence}")


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "row"), plural(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def make_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    text_columns: Collection[str] = (),
    caption: str | None = None,
    show_lines: bool = False,
) -> Table:
    """A table for the terminal, its cells printed literally.

    Args:
        title: Above it.
        headings: One per column.
        rows: One cell per column each.
        text_columns: Headings of columns that are aligned to the left; all others hold numbers.
        caption: Below it.
        show_lines: Whether to draw a line between rows.
    """
    table = Table(title=title, caption=caption, show_lines=show_lines)
    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    widths = column_widths(
        headings, ([cell.plain for cell in row] for row in cells), console.width - 3 * len(headings) - 1
    )
    for heading, width in zip(headings, widths, strict=True):
        table.add_column(heading, justify="left" if heading in text_columns else "right", width=width)
    for row in cells:
        table.add_row(*row)
    return table


def column_widths(headings: Sequence[str], rows: Iterable[Sequence[str]], available: int) -> list[int]:
    """Width of each column: as its longest cell, or less where `available` is less, but no word is broken while that can be.

    >>> column_widths(["level", "bound for every policy"], [["1-of-20", "0.25"]], 20)
    [7, 13]
    """
    columns = list(zip(headings, *rows, strict=True))
    widths = [max((len(word) for cell in column for word in cell.split()), default=1) for column in columns]
    wanted = [max(len(line) for cell in column for line in cell.splitlines() or [""]) for column in columns]
    for _ in range(max(available - sum(widths), 0)):
        lacking = [want - width for want, width in zip(wanted, widths, strict=True)]
        if max(lacking) <= 0:
            break
        widths[lacking.index(max(lacking))] += 1
    return widths


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar with an estimate per title; yields a callback (title, done, total).

    Where standard error is not a terminal, a plain line every few seconds instead.
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

        def report(title: str, done: int, total: int) -> None:
            if title not in tasks:
                tasks[title] = progress.add_task(title, total=total)
            progress.update(tasks[title], completed=done)

        yield report


def _plain_progress() -> Callable[[str, int, int], None]:
    """A line for the first and the last update of each title, and every `SECONDS_BETWEEN_LINES` in between."""
    estimates: dict[str, Estimate] = {}
    last_line: dict[str, float] = {}

    def report(title: str, done: int, total: int) -> None:
        now = time.monotonic()
        line = estimates.setdefault(title, Estimate(title)).line(done, total, now)
        if done == total or title not in last_line or now - last_line[title] >= SECONDS_BETWEEN_LINES:
            last_line[title] = now
            # One write per line, newline included: several threads may report at the same time.
            print(f"{printable(line)}\n", end="", file=sys.stderr, flush=True)

    return report


@contextmanager
def progress_bar(title: str) -> Iterator[StepProgress]:
    """One progress bar; yields a callback (done, total)."""
    with progress_bars() as report:
        yield lambda done, total: report(title, done, total)


class Stopped(KeyboardInterrupt):
    """Raised by a signal other than Ctrl-C that ends the process."""

    def __init__(self, number: int) -> None:
        """Keep the signal's number, which the exit status is made of."""
        self.number = number


@contextmanager
def _signals_stop() -> Iterator[None]:
    """Make SIGTERM and SIGHUP behave like Ctrl-C: keep finished work, then stop."""

    def stop(number: int, _: object) -> None:
        raise Stopped(number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # Only signals with their default action: nohup ignores SIGHUP, and that must stay so.
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ours = []  # Python allows handlers in the main thread only
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def memory_asked_for(error: Exception) -> str | None:
    """How much memory could not be had, in words, "" where the error does not say; None for errors about something else.

    >>> memory_asked_for(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes."))
    ': 8.0 GiB were asked for at once'
    >>> memory_asked_for(MemoryError()), memory_asked_for(RuntimeError("other"))
    ('', None)
    """
    text = str(error)
    if not isinstance(error, MemoryError) and not re.search(r"allocate memory|out of memory|std::bad_alloc", text):
        return None
    if found := re.search(r"allocate (\d+) bytes", text):
        return f": {int(found[1]) / 2**30:,.1f} GiB were asked for at once"
    if found := re.search(r"allocate ([\d.]+ [KMGTPE]?i?B)", text):
        return f": {found[1]} were asked for at once"
    return ""


@contextmanager
def _printable_warnings() -> Iterator[None]:
    """Make Python's own warnings, which name columns and actions, printable."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda *args, **kwargs: printable(before(*args, **kwargs))
    try:
        yield
    finally:
        warnings.formatwarning = before


def run_verb(run: Callable[[], None], options: Collection[str] = ()) -> None:
    """Run a verb with these options; invalid input ends in one plain line and exit status 2.

    Args:
        run: Does the work of the verb.
        options: Names of its options: a message that names one of these arguments then names the option.
    """
    try:
        with _signals_stop(), _printable_warnings():
            run()
    except (CautiousError, OSError) as error:
        line = escape(worded(error.args, options) if isinstance(error, CautiousError) else str(error))
        error_console.print(f"[bold red]error:[/] {line}", emoji=False, soft_wrap=True)
        sys.exit(2 if isinstance(error, CautiousError) else 1)
    except (MemoryError, RuntimeError) as error:
        if (asked_for := memory_asked_for(error)) is None:
            raise
        error_console.print(
            f"[bold red]error:[/] out of memory{asked_for}. What was written before is as it was. Take fewer rows, models or "
            "levels at a time, or a machine with more memory.",
            emoji=False,
            soft_wrap=True,
        )
        sys.exit(1)
    except KeyboardInterrupt as stopped:
        error_console.print(
            "interrupted. Finished work of 'train', 'evaluate' and 'reproduce' is kept: the same command resumes it."
        )
        sys.exit(128 + (stopped.number if isinstance(stopped, Stopped) else signal.SIGINT))
