"""`cautious report`: draw a finished run again, from its store alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from cautious.experiments.store import Store


@dataclass
class Report:
    """Redraw every figure and table of a run; needs no GPU and trains nothing.

    Example: cautious report runs/driving-small
    """

    run_folder: Annotated[Path, tyro.conf.Positional]
    """A folder that 'cautious reproduce' or 'cautious demo' wrote."""
    out: Path | None = None
    """Where to write; into the run's folder if not given."""
    only: tuple[str, ...] = ()
    """Ids of tables to print and figures to draw, instead of everything; a wrong one lists those there are."""

    def run(self) -> None:
        """Read the store, draw, judge."""
        from cautious.cli.console import console, say
        from cautious.cli.tables import ledger_table
        from cautious.experiments.store import Store
        from cautious.report.html import write_report
        from cautious.report.report_spec import ledger_of
        from cautious.validation import as_folder

        if self.out is not None:
            as_folder(self.out, "out")
        store = Store.open(self.run_folder)
        if self.only:
            self._draw_only(store)
            return
        path = write_report(store, self.out)
        console.print(ledger_table(ledger_of(store)))
        say(f"report: {path}")

    def _draw_only(self, store: Store) -> None:
        from cautious.cli.console import console, say
        from cautious.cli.tables import result_table
        from cautious.report.html import draw_figure
        from cautious.report.report_spec import chosen_of

        tables, figures = chosen_of(store, self.only)
        for table in tables:
            console.print(result_table(table))
        for name, entry in figures.items():
            say(f"figure: {draw_figure(store, name, entry, self.out or store.folder)}")
