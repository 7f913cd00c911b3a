"""`cautious report`: draw a finished run again, from its store alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass
class Report:
    """Redraw every figure and table of a run; needs no GPU and trains nothing.

    Example: cautious report runs/driving-small
    """

    run_folder: Annotated[Path, tyro.conf.Positional]
    """A folder that 'cautious reproduce' or 'cautious demo' wrote."""
    out: Path | None = None
    """Where to write; into the run's folder if not given."""

    def run(self) -> None:
        """Read the store, draw, judge."""
        from cautious.cli.console import console
        from cautious.cli.tables import ledger_table
        from cautious.experiments.store import Store
        from cautious.report.html import write_report
        from cautious.report.ledger import driving_ledger

        store = Store.open(self.run_folder)
        path = write_report(store, self.out)
        console.print(ledger_table(driving_ledger(store)))
        console.print(f"report: {path}")
