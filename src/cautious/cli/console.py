"""What the verbs share: the console, progress bars, and errors said plainly."""

from __future__ import annotations

import sys
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

console = Console()
error_console = Console(stderr=True)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar with an estimate for each title; yields a function to be told (title, done, total)."""
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


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """One bar; yields a function to be told (done, total)."""
    with progress_bars() as tell:
        yield lambda done, total: tell(title, done, total)


def run_verb(run: Callable[[], None]) -> None:
    """Run a verb; a mistake of the user's ends in one plain line and exit status 2."""
    try:
        run()
    except CautiousError as error:
        error_console.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)
    except OSError as error:
        error_console.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        error_console.print("interrupted; what was finished is kept: the same command goes on from there.")
        sys.exit(130)
