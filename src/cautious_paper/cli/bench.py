"""`cautious bench`: how fast this machine is, and how long each experiment takes on it; or the benchmark of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.table import Table

from cautious.cli.console import console, make_table, progress_bars, say
from cautious.errors import Argument, InvalidInputError

if TYPE_CHECKING:
    from cautious_paper.timing.measures import Comparison


@dataclass
class Bench:
    """Measure this machine in about a minute: speed-ups over plain implementations, and the time each experiment takes.

    Each row of the first table times a plain implementation (on part of the work, scaled up) and ours. The second table
    estimates the time of 'cautious reproduce TASK --scale SCALE' on this machine, without drawing the report. Other work on the
    machine makes both worse.

    With 'suite' it compares methods of acting in worlds that are partly unknown: every method of cautious.baselines on the
    versioned problems of cautious_paper.benchmark, one table per metric. One seed takes about a minute, ten are reported.

    Example: cautious bench

    The benchmark of methods: cautious bench suite --seeds 1
    """

    what: Annotated[Literal["speed", "suite"], tyro.conf.Positional] = "speed"
    """speed: of this machine; suite: how methods do on the benchmark's problems."""
    device: str = "auto"
    """Of the speed: where to train, predict and solve: auto, cpu or cuda."""
    problems: tuple[str, ...] = ()
    """Of the suite: some of its problems, such as driving-v1; default: all."""
    seeds: int = 10
    """Of the suite: how many seeds."""
    out: Path | None = None
    """Of the suite: a folder that keeps each result, from which the same command resumes, and gets the table scores.csv."""

    def run(self) -> None:
        """Measure, then print the tables."""
        if self.what == "suite":
            self._run_suite()
        else:
            self._measure_speed()

    def _run_suite(self) -> None:
        """Scores of all methods on both splits, as tables in Markdown."""
        from cautious.validation import check_count
        from cautious_paper.benchmark import IDS, scores

        check_count(self.seeds, "seeds")
        if unknown := [id for id in self.problems if id not in IDS]:
            raise InvalidInputError(
                Argument("problems", unknown[0]), f": there is none such; there are {', '.join(IDS)}."
            )
        frames = {
            split: scores.run(
                ids=self.problems or IDS, split=split, seeds=self.seeds, out=self.out and self.out / split
            )
            for split in ("novel", "familiar")
        }
        for line in scores.report(frames):
            say(line)
        if self.out is not None:
            scores.write(frames, self.out / "scores.csv")
            say(f"\nscores: {self.out / 'scores.csv'}")

    def _measure_speed(self) -> None:
        """Measure, then print both tables."""
        import platform

        import torch

        from cautious.validation import resolve_device
        from cautious_paper.timing.machine import measure_machine

        device = resolve_device(self.device)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
        console.print(f"{name}, {torch.get_num_threads()} CPU threads, torch {torch.__version__}")
        with progress_bars() as progress:
            measured = measure_machine(device, progress)
        console.print(comparison_table(measured.comparisons))
        console.print(estimate_table(measured.estimates))


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Time of each kind of work, with a plain implementation and with ours."""
    rows = []
    for one in comparisons:
        ratio = f"{one.ratio:.0f}" if one.ratio >= 10 else f"{one.ratio:.1f}"
        rows.append((one.work, one.plain_way, brief(one.plain), brief(one.ours), ratio))
    headings = ("work", "plain implementation", "plain", "ours", "speed-up")
    return make_table("speed-up over a plain implementation", headings, rows, text_columns=headings[:2])


def estimate_table(estimates: Mapping[str, Mapping[str, float]]) -> Table:
    """Estimated time of each task at each scale."""
    headings = ("task", *next(iter(estimates.values())))
    rows = [(task, *map(brief, scales.values())) for task, scales in estimates.items()]
    title = "estimated time of 'cautious reproduce TASK --scale ...' on this machine"
    return make_table(title, headings, rows, text_columns=("task",))


def brief(seconds: float) -> str:
    """A time to two digits, in the unit that suits it."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60), ("s", 1), ("ms", 1e-3)):
        if seconds >= size:
            return f"{float(f'{seconds / size:.2g}'):g} {unit}"
    return f"{float(f'{seconds * 1e6:.2g}'):g} µs"
