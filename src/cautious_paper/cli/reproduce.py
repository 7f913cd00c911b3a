"""`cautious reproduce`: run one of the paper's experiments, at any scale."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.table import Table
from rich.text import Text

from cautious.cli.console import console, make_table, progress_bar, progress_bars, say, warn
from cautious.errors import Argument, InvalidInputError
from cautious_paper.cli.report import ledger_table, result_table

if TYPE_CHECKING:
    import torch

    from cautious.executors import Executor
    from cautious.progress import TitledProgress
    from cautious_paper.experiments.changes import Experiment
    from cautious_paper.experiments.store import Store
    from cautious_paper.report.repeats import Tally


@dataclass
class Reproduce:
    """Run one of the paper's experiments and judge its claims.

    A claim is a statement of the paper about the experiment, with a rule by which it counts as reproduced; the command prints
    a ledger of them and writes a report. After an interruption, the same command resumes the run. At scale "paper" the exit
    status is 1 if a claim is not reproduced; smaller scales print the same ledger but never fail, and at "smoke" the verdicts
    are meaningless. Letters are used if they are available (see 'cautious data'); otherwise all about letters is skipped.

    With --engine ray all machines of a Ray cluster share the work; the result is the same.

    Example: cautious reproduce ask-for-help --scale small

    Another experiment: cautious reproduce ask-for-help --set levels=1-of-30,15-of-30 --set help_reward=0.3
    """

    task: Annotated[
        Literal["ask-for-help", "non-obvious", "help-if-available", "data-extent", "driving"], tyro.conf.Positional
    ]
    """Which experiment."""
    scale: Literal["smoke", "small", "paper"] = "small"
    """smoke: seconds, to check that everything runs; small: minutes on two cores; paper: the paper's sizes (use a GPU)."""
    setting: Literal["main", "as-printed", "draws"] = "main"
    """main: the setting that is compared with the paper; as-printed: non-obvious or help-if-available with the rewards that the
    paper prints, not a tenth of them; draws: data-extent with six draws of 1 % of the digits."""
    data: Path | None = None
    """Folder with image data; default: the images in the package. Driving needs none."""
    seed: int = 0
    """Seed of every random draw."""
    device: str = "auto"
    """Where to train: auto, cpu or cuda."""
    out: Path | None = None
    """Folder of the run; default: runs/<task>-<scale>, with the setting before the scale unless it is main."""
    engine: Literal["local", "ray"] = "local"
    """What runs the work: this process, or a Ray cluster (pip install 'cautious[ray]')."""
    address: str | None = None
    """HOST:PORT of a Ray cluster that this machine is part of, or auto; default: RAY_ADDRESS, or a new one on this machine."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Another value of a setting, such as levels=1-of-30,15-of-30 or num_iterations=200; may be given several times. An unknown
    name lists the known ones. The paper's claims are then judged as far as they apply."""
    repeats: int = 1
    """How many runs, with the seeds seed, seed + 1, ...; if more than one, each has its own folder seed-<n>."""

    def run(self) -> None:
        """Train, solve, judge, report."""
        from cautious.executors import open_executor
        from cautious.validation import check_count
        from cautious_paper.experiments.changes import folder_suffix, parse_changes
        from cautious_paper.experiments.runs import run_repeats

        check_count(self.repeats, "repeats")
        parts = (self.task, *([] if self.setting == "main" else [self.setting]), self.scale)
        changes = parse_changes(self.set)
        self._experiment(self.seed, changes)  # raises at once, before anything is written
        folder = self.out or Path("runs") / ("-".join(parts) + folder_suffix(changes))
        with open_executor(self.engine, self.address) as executor, progress_bars() as progress:
            run = partial(self._run_experiment, changes=changes, device=executor.device(self.device), executor=executor)
            if self.repeats == 1:
                runs = {self.seed: run(self.seed, folder, progress)}
            else:
                runs = run_repeats(run, folder, self.seed, self.repeats, executor, progress)
        missed = self._show(runs[self.seed]) if self.repeats == 1 else self._show_repeats(runs, folder)
        if self.scale == "smoke":
            say(
                "scale smoke only checks that everything runs: its models are barely trained, and its verdicts are meaningless."
            )
        if self.scale == "paper" and missed and not changes:
            sys.exit(1)

    def _show(self, store: Store) -> bool:
        """Report a run; True if some claim is not reproduced."""
        from cautious_paper.report.html import write_report
        from cautious_paper.report.report_spec import ledger_of, tables_of
        from cautious_paper.report.stories import poor_fits

        with progress_bar("drawing the report") as progress:
            progress(0, 1)
            path = write_report(store)
            progress(1, 1)
        verdicts = ledger_of(store)
        for sentence in poor_fits(store):
            warn(sentence)
        for table in tables_of(store):
            if table.main:
                console.print(result_table(table))
        console.print(ledger_table(verdicts))
        say(f"run: {store.folder}   report: {path}")
        return any(verdict.reproduced is False for verdict in verdicts)

    def _show_repeats(self, runs: dict[int, Store], folder: Path) -> bool:
        """Report each run, and one ledger of all; True if some run does not reproduce some claim."""
        from cautious_paper.report.html import write_report
        from cautious_paper.report.repeats import tallied, write_tallies
        from cautious_paper.report.report_spec import ledger_of
        from cautious_paper.report.stories import poor_fits

        with progress_bar("drawing the reports") as progress:
            for number, store in enumerate(runs.values()):
                progress(number, len(runs))
                write_report(store)
            progress(len(runs), len(runs))
        tallies = tallied({seed: ledger_of(store) for seed, store in runs.items()})
        path = write_tallies(folder, self.task, tallies)
        for seed, store in runs.items():
            for sentence in poor_fits(store):
                warn(f"seed {seed}: {sentence}")
        console.print(repeats_table(tallies))
        say(f"runs and their reports: {folder}/seed-*   ledger: {path}")
        return any(tally.missed for tally in tallies)

    def _experiment(self, seed: int, changes: Mapping[str, str]) -> Experiment:
        """What to run from a seed."""
        from cautious_paper.experiments.changes import changed, check_setting
        from cautious_paper.experiments.driving.driving_experiment import experiment_at
        from cautious_paper.experiments.images.settings import image_experiment_at

        if self.task != "driving":
            check_setting(self.setting, changes)
            return changed(image_experiment_at(self.task, self.scale, seed, self.setting), changes)
        if self.setting != "main":
            raise InvalidInputError(
                Argument("setting", self.setting), ": driving has a single setting; leave --setting out."
            )
        if self.data is not None:
            raise InvalidInputError(Argument("data", str(self.data)), ": driving uses no image data; leave --data out.")
        return changed(experiment_at(self.scale, seed), changes)

    def _run_experiment(
        self,
        seed: int,
        folder: Path,
        progress: TitledProgress,
        *,
        changes: Mapping[str, str],
        device: torch.device,
        executor: Executor,
    ) -> Store:
        from cautious_paper.experiments.driving.driving_experiment import DrivingExperiment, run_driving
        from cautious_paper.experiments.images.image_experiment import run_images

        experiment = self._experiment(seed, changes)
        options: dict[str, Any] = {"device": device, "progress": progress, "executor": executor}
        if isinstance(experiment, DrivingExperiment):
            return run_driving(experiment, folder, **options)
        return run_images(experiment, folder, data=self.data, **options)


def repeats_table(tallies: Sequence[Tally]) -> Table:
    """One ledger of several runs."""
    rows = []
    for tally in tallies:
        colour = "dim" if not tally.judged else "green" if not tally.missed else "yellow" if tally.reproduced else "red"
        rows.append((tally.claim, tally.says, Text(tally.words, colour), ", ".join(map(str, tally.missed))))
    headings = ("claim", "the paper", "reproduced in", "not reproduced with seed")
    title = "the paper's claims, and how many runs reproduce them"
    return make_table(title, headings, rows, text_columns=headings, show_lines=True)
