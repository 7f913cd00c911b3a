"""What the verbs share: the console, progress bars, and errors said plainly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cautious.errors import CautiousError

console = Console()
error_console = Console(stderr=True)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with an estimate; yields a function to be told (done, total)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=error_console) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


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
        error_console.print("interrupted; what was finished is kept.")
        sys.exit(130)
