"""`cautious report`: redraw a finished run from its store. Its tables also serve `reproduce` and `demo`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from cautious.cli.console import column_widths, console, make_table, plural, say

if TYPE_CHECKING:
    from cautious_paper.experiments.store import Store
    from cautious_paper.report.claims.rules import ClaimResult
    from cautious_paper.report.tables import Table as ReportTable


@dataclass
class Report:
    """Redraw every figure and table of a run, without a GPU and without training.

    Example: cautious report runs/driving-small
    """

    run_folder: Annotated[Path, tyro.conf.Positional]
    """A folder written by 'cautious reproduce' or 'cautious demo'."""
    out: Path | None = None
    """Where to write; default: the run's folder, or runs/NAME-report where git tracks files of that folder."""
    only: tuple[str, ...] = ()
    """Ids of tables to print and figures to draw instead of all; an unknown id lists the valid ones."""
    csv: bool = False
    """Also write numbers.csv, one row per measured value (as load_run(folder).to_frame() in Python), and each table to
    tables/<id>.csv."""

    def run(self) -> None:
        """Read the store, draw, judge."""
        from cautious.validation import check_folder
        from cautious_paper.experiments.store import Store
        from cautious_paper.report.html import write_report
        from cautious_paper.report.report_spec import ledger_of

        if self.out is not None:
            check_folder(self.out, "out")
        store = Store.open(self.run_folder)
        if self.csv:
            self._write_csv(store)
        if self.only:
            self._draw_only(store)
            return
        path = write_report(store, self._target(store))
        console.print(ledger_table(ledger_of(store)))
        say(f"report: {path}")

    def _target(self, store: Store) -> Path:
        """Where to write."""
        if self.out is not None:
            return self.out
        return Path("runs") / f"{store.folder.resolve().name}-report" if _is_tracked(store.folder) else store.folder

    def _write_csv(self, store: Store) -> None:
        from cautious_paper.experiments.run_frames import Run
        from cautious_paper.report.report_spec import chosen_of, tables_of
        from cautious_paper.report.tables import write_csv

        tables = chosen_of(store, self.only)[0] if self.only else tables_of(store)
        target = self._target(store)
        Run(store).to_csv(target / "numbers.csv")
        written = write_csv(tables, target / "tables")
        say(f"numbers: {target / 'numbers.csv'}   {plural(len(written), 'table')}: {target / 'tables'}")

    def _draw_only(self, store: Store) -> None:
        from cautious_paper.report.html import draw_figure
        from cautious_paper.report.report_spec import chosen_of

        tables, figures = chosen_of(store, self.only)
        for table in tables:
            console.print(result_table(table))
        for name, entry in figures.items():
            say(f"figure: {draw_figure(store, name, entry, self._target(store))}")


def _is_tracked(folder: Path) -> bool:
    """Whether git keeps files of a folder: a redrawn report would change them."""
    command = ["git", "-C", str(folder), "ls-files", "."]
    try:
        return bool(subprocess.run(command, capture_output=True, check=False, timeout=10).stdout)
    except (OSError, subprocess.TimeoutExpired):
        return False  # without git nothing is tracked


def result_table(results: ReportTable) -> Table:
    """A table of the report, narrow enough for 80 columns: one column of labels, a line above each group of rows."""
    groups = results.num_labels - 1
    headings = results.header[groups:]
    widths = column_widths(headings, [row[groups:] for row in results.rows], console.width - 2 * len(headings))
    between = 1 if sum(widths) + 2 * len(headings) <= console.width else 0
    table = Table(
        title=results.title, caption=results.note, box=SIMPLE_HEAD, padding=(0, between), collapse_padding=True
    )
    table.pad_edge = False
    for place, (heading, width) in enumerate(zip(headings, widths, strict=True)):
        table.add_column(heading, justify="right" if place else "left", width=width)
    before: tuple[str, ...] = ()
    for row in results.rows:
        if row[:groups] != before:
            table.add_section()
            before = row[:groups]
            table.add_row(Text(", ".join(before), style="bold"))
        table.add_row(*(Text(cell.replace(" ± ", "±")) for cell in row[groups:]))
    return table


def ledger_table(results: Sequence[ClaimResult]) -> Table:
    """The claims ledger."""
    colours = {True: "green", False: "red", None: "dim"}
    headings = ("claim", "the paper", "verdict", "numbers")
    rows = [(one.claim, one.says, Text(one.word, colours[one.reproduced]), one.numbers) for one in results]
    title = "the paper's claims, and what this run shows"
    return make_table(title, headings, rows, text_columns=headings, show_lines=True)
