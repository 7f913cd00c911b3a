"""`cautious reproduce`: run one of the paper's experiments, at any scale."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    import torch

    from cautious.experiments.executors.executor import Executor
    from cautious.experiments.progress import Progress
    from cautious.experiments.store import Store


@dataclass
class Reproduce:
    """Run one of the paper's experiments and judge its claims.

    Interrupted anywhere, the same command goes on where it was. At scale "paper" the exit status is 1 if a claim is not
    borne out; smaller scales print the same ledger but never fail, and at "smoke" it means nothing. Letters are used where
    they are at hand ('cautious data' says); without them everything about letters is left out.

    With --engine ray the same work, with the same result, is done by all machines of a Ray cluster.

    Example: cautious reproduce ask-for-help --scale small
    """

    task: Annotated[
        Literal["ask-for-help", "non-obvious", "help-if-available", "data-extent", "driving"], tyro.conf.Positional
    ]
    """Which experiment."""
    scale: Literal["smoke", "small", "paper"] = "small"
    """smoke: seconds, only to see that it runs; small: minutes on two cores; paper: the paper's own sizes (use a GPU)."""
    setting: Literal["main", "as-printed", "draws"] = "main"
    """main: the one compared with the paper; as-printed: non-obvious or help-if-available with rewards as the paper prints
    them, not in tenths; draws: data-extent with six draws of 1 % of the digits."""
    data: Path | None = None
    """Folder with image data; the embedded images if not given. Driving needs none."""
    seed: int = 0
    """Starts every random draw."""
    device: str = "auto"
    """Where to train: auto, cpu or cuda."""
    out: Path | None = None
    """Folder of the run; runs/<task>-<scale> if not given, with the setting before the scale if it is not main."""
    engine: Literal["local", "ray"] = "local"
    """Who works on it: this process, or a Ray cluster (pip install 'cautious[ray]')."""
    address: str | None = None
    """HOST:PORT of a Ray cluster that this machine is part of, or auto; if not given, RAY_ADDRESS, or one started here."""
    repeats: int = 1
    """How many times, from the seeds seed, seed + 1, ...; if more than one, each in a folder seed-<n> of its own."""

    def run(self) -> None:
        """Train, solve, judge, report."""
        from cautious.cli.console import progress_bars, say
        from cautious.experiments.executors.executor import open_executor
        from cautious.experiments.runs import run_repeats
        from cautious.types import parse_count

        parse_count(self.repeats, "repeats")
        parts = (self.task, *([] if self.setting == "main" else [self.setting]), self.scale)
        folder = self.out or Path("runs") / "-".join(parts)
        with open_executor(self.engine, self.address) as executor, progress_bars() as progress:
            device = executor.device(self.device)

            def run(seed: int, place: Path, tell: Progress) -> Store:
                return self._run_experiment(seed, place, device, executor, tell)

            if self.repeats == 1:
                runs = {self.seed: run(self.seed, folder, progress)}
            else:
                runs = run_repeats(run, folder, self.seed, self.repeats, executor, progress)
        missed = self._show(runs[self.seed]) if self.repeats == 1 else self._show_repeats(runs, folder)
        if self.scale == "smoke":
            say(
                "scale smoke only shows that everything runs: its models know next to nothing, and its verdicts mean nothing."
            )
        if self.scale == "paper" and missed:
            sys.exit(1)

    def _show(self, store: Store) -> bool:
        """Report a run; whether some claim is not borne out."""
        from cautious.cli.console import console, progress_bar, say
        from cautious.cli.tables import ledger_table, result_table
        from cautious.report.html import write_report
        from cautious.report.report_spec import ledger_of, tables_of

        with progress_bar("drawing the report") as progress:
            progress(0, 1)
            path = write_report(store)
            progress(1, 1)
        verdicts = ledger_of(store)
        for table in tables_of(store):
            if table.main:
                console.print(result_table(table))
        console.print(ledger_table(verdicts))
        say(f"run: {store.folder}   report: {path}")
        return any(verdict.reproduced is False for verdict in verdicts)

    def _show_repeats(self, runs: dict[int, Store], folder: Path) -> bool:
        """Report each run, and one ledger of all; whether some claim is not borne out somewhere."""
        from cautious.cli.console import console, progress_bar, say
        from cautious.cli.tables import repeats_table
        from cautious.report.html import write_report
        from cautious.report.repeats import tallied, write_tallies
        from cautious.report.report_spec import ledger_of

        with progress_bar("drawing the reports") as progress:
            for number, store in enumerate(runs.values()):
                progress(number, len(runs))
                write_report(store)
            progress(len(runs), len(runs))
        tallies = tallied({seed: ledger_of(store) for seed, store in runs.items()})
        path = write_tallies(folder, self.task, tallies)
        console.print(repeats_table(tallies))
        say(f"runs and their reports: {folder}/seed-*   ledger: {path}")
        return any(tally.missed for tally in tallies)

    def _run_experiment(
        self, seed: int, folder: Path, device: torch.device, executor: Executor, progress: Progress
    ) -> Store:
        from cautious.errors import InvalidInputError
        from cautious.experiments.driving.experiment import experiment_at, run_driving
        from cautious.experiments.images.experiment import run_images
        from cautious.experiments.images.settings import image_experiment_at

        options: dict[str, Any] = {"device": device, "progress": progress, "executor": executor}
        if self.task != "driving":
            experiment = image_experiment_at(self.task, self.scale, seed, self.setting)
            return run_images(experiment, folder, data=self.data, **options)
        if self.setting != "main":
            raise InvalidInputError(f"setting={self.setting!r}: driving has one setting only; leave it out.")
        if self.data is not None:
            raise InvalidInputError(f"data={str(self.data)!r}: driving has no image data; leave it out.")
        return run_driving(experiment_at(self.scale, seed), folder, **options)
