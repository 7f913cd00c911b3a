"""`cautious reproduce`: run one of the paper's experiments, at any scale."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass
class Reproduce:
    """Run one of the paper's experiments and judge its claims.

    Interrupted anywhere, the same command goes on where it was. At scale "paper" the exit status is 1 if a claim is not
    borne out; smaller scales print the same ledger but never fail, and at "smoke" it means nothing.

    Example: cautious reproduce driving --scale small
    """

    task: Annotated[Literal["driving"], tyro.conf.Positional]
    """Which experiment."""
    scale: Literal["smoke", "small", "paper"] = "small"
    """smoke: seconds, only to see that it runs; small: minutes on two cores; paper: the paper's own sizes (use a GPU)."""
    seed: int = 0
    """Starts every random draw."""
    device: str = "auto"
    """Where to train: auto, cpu or cuda."""
    out: Path | None = None
    """Folder of the run; runs/<task>-<scale> if not given."""

    def run(self) -> None:
        """Train, solve, judge, report."""
        import torch

        from cautious.cli.console import console, progress_bars
        from cautious.cli.tables import dial_table, ledger_table
        from cautious.experiments.driving import experiment_at, run_driving, stage_name
        from cautious.report.html import write_report
        from cautious.report.ledger import driving_ledger
        from cautious.types import as_device

        device = as_device(("cuda" if torch.cuda.is_available() else "cpu") if self.device == "auto" else self.device)
        folder = self.out or Path("runs") / f"{self.task}-{self.scale}"
        experiment = experiment_at(self.scale, self.seed)
        with progress_bars() as progress:
            store = run_driving(experiment, folder, device=device or "cpu", progress=progress)
            progress("drawing the report", 0, 1)
            path = write_report(store)
            progress("drawing the report", 1, 1)
        verdicts = driving_ledger(store)
        console.print(dial_table(store.numbers(stage_name(experiment.default_probability))))
        console.print(ledger_table(verdicts))
        console.print(f"run: {folder}   report: {path}")
        if self.scale == "paper" and any(verdict.shown is False for verdict in verdicts):
            sys.exit(1)
