"""`cautious reproduce`: run one of the paper's experiments, at any scale."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    import torch

    from cautious.experiments.progress import Progress
    from cautious.experiments.store import Store


@dataclass
class Reproduce:
    """Run one of the paper's experiments and judge its claims.

    Interrupted anywhere, the same command goes on where it was. At scale "paper" the exit status is 1 if a claim is not
    borne out; smaller scales print the same ledger but never fail, and at "smoke" it means nothing. Letters are used where
    they are at hand ('cautious data' says); without them everything about letters is left out.

    Example: cautious reproduce ask-for-help --scale small
    """

    task: Annotated[
        Literal["ask-for-help", "non-obvious", "help-if-available", "data-extent", "driving"], tyro.conf.Positional
    ]
    """Which experiment."""
    scale: Literal["smoke", "small", "paper"] = "small"
    """smoke: seconds, only to see that it runs; small: minutes on two cores; paper: the paper's own sizes (use a GPU)."""
    data: Path | None = None
    """Folder with image data; the embedded images if not given. Driving needs none."""
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
        from cautious.cli.tables import ledger_table, result_table
        from cautious.report.contents import ledger_of, tables_of
        from cautious.report.html import write_report
        from cautious.types import as_device

        device = as_device(("cuda" if torch.cuda.is_available() else "cpu") if self.device == "auto" else self.device)
        folder = self.out or Path("runs") / f"{self.task}-{self.scale}"
        with progress_bars() as progress:
            store = self._run_experiment(folder, device or torch.device("cpu"), progress)
            progress("drawing the report", 0, 1)
            path = write_report(store)
            progress("drawing the report", 1, 1)
        verdicts = ledger_of(store)
        for table in tables_of(store):
            if table.main:
                console.print(result_table(table))
        console.print(ledger_table(verdicts))
        console.print(f"run: {folder}   report: {path}")
        if self.scale == "paper" and any(verdict.shown is False for verdict in verdicts):
            sys.exit(1)

    def _run_experiment(self, folder: Path, device: torch.device, progress: Progress) -> Store:
        from cautious.errors import InvalidInputError
        from cautious.experiments.driving import experiment_at, run_driving
        from cautious.experiments.image_settings import image_experiment_at
        from cautious.experiments.images import run_images

        if self.task != "driving":
            experiment = image_experiment_at(self.task, self.scale, self.seed)
            return run_images(experiment, folder, data=self.data, device=device, progress=progress)
        if self.data is not None:
            raise InvalidInputError(f"data={str(self.data)!r}: driving has no image data; leave it out.")
        return run_driving(experiment_at(self.scale, self.seed), folder, device=device, progress=progress)
