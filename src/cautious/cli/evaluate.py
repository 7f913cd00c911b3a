"""`cautious evaluate`: would caution have paid on the user's own table?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.table import Table

from cautious.cli.console import console, make_table, progress_bar, say

if TYPE_CHECKING:
    from cautious.baselines.evaluation import Evaluation

SHORT = {"random forest": "forest", "nearest neighbours": "neighbours"}
"""Names of methods in narrow columns."""


@dataclass
class Evaluate:
    """Leave one group of rows out of training at a time, and see what caution would have earned there.

    DATA is a table (.csv with a header line, or .parquet) with a column of labels: what turned out to be true of each row.
    Groups are the values of another column (--hold-out hospital) or of the label itself. k-of-N at several levels stands beside
    a random forest, nearest neighbours and a Mahalanobis distance, each with a threshold at which it departs from the ordinary
    on as many familiar rows. The last line says which method to use. After an interruption, the same command resumes.

    Example: cautious evaluate log.csv --label outcome --hold-out hospital --payoffs payoffs.csv

    Without --payoffs, actions are one answer per label and "refer": a right answer pays 1, a wrong one costs --wrong, and to
    refer pays 0.

    Example: cautious evaluate examples/penguins.csv --label species --hold-out species
    """

    data: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DATA [DATA ...]"), tyro.conf.Positional]
    """Tables with the same columns."""
    label: str
    """The column with what turned out to be true."""
    hold_out: str
    """The column whose values are left out in turn; may be the label. No method sees it: train with --ignore and its name."""
    payoffs: Path | None = None
    """A table (.csv) with a row per label and a column per action: what the action pays for that label."""
    wrong: float = 1.0
    """Without --payoffs: what a wrong answer costs."""
    level: tuple[str, ...] = ()
    """Levels to try; default: ten from 18-of-20 to 1-of-20."""
    at_most: float = 0.05
    """Methods are judged where k-of-N departs on at most this share of familiar rows."""
    ignore: tuple[str, ...] = ()
    """Columns that are not part of the state, such as names and dates."""
    categorical: tuple[str, ...] = ()
    """Columns whose numbers only name kinds, as postcodes do."""
    missing: Literal["leave-out", "indicator"] = "leave-out"
    """What becomes of rows with an empty cell; indicator: they stay, with a further column that says that it was empty."""
    num_models: int = 100
    """M; at least the n of the levels."""
    num_epochs: int | None = None
    """Passes over the data of each training; default: as for 'cautious train'."""
    max_groups: int = 50
    """Most groups that are left out in turn; the largest ones."""
    seed: int = 0
    """Seed of every random draw."""
    out: Path = Path("evaluation")
    """Folder for evaluation.csv (all rows), evaluation.png (the picture) and evaluation.json (the summary)."""

    def run(self) -> None:
        """Evaluate, print the table and the verdict."""
        import warnings

        from cautious.baselines.evaluating import LEVELS, evaluate
        from cautious.tables.learn import TableWarning

        with progress_bar("evaluating") as progress, warnings.catch_warnings():
            warnings.simplefilter("ignore", TableWarning)  # the notes are printed below
            found = evaluate(
                self.data,
                label=self.label,
                hold_out=self.hold_out,
                payoffs=self.payoffs,
                wrong=self.wrong,
                levels=self.level or LEVELS,
                at_most=self.at_most,
                ignore=self.ignore,
                categorical=self.categorical,
                missing=self.missing,
                num_models=self.num_models,
                num_epochs=self.num_epochs,
                max_groups=self.max_groups,
                seed=self.seed,
                out=self.out,
                progress=progress,
            )
        for note in found.notes:
            say(f"warning: {note}")
        for table in (group_table(found), summary_table(found)):
            console.print(table)
        say(found.verdict)
        say(f"all levels: {self.out}/evaluation.csv   picture: {self.out}/evaluation.png")


def group_table(found: Evaluation) -> Table:
    """What each method earns in each group at the level of the verdict, and how often it departs."""
    methods = list(dict.fromkeys(row["method"] for row in found.rows))
    cells: dict[tuple[str, str], list[str]] = {}
    for row in found.rows:
        if row["level"] == found.level:
            for kind in ("familiar", "novel"):
                text = f"{row[f'{kind}_payoff']:.3f}, {row[f'{kind}_departures']:.0%}"
                cells.setdefault((row["group"], kind), []).append(text)
    rows = [(*key, *texts) for key, texts in cells.items()]
    headings = ("left out", "rows", *(SHORT.get(method, method) for method in methods))
    return make_table(
        f"payoff, and share of rows that depart, at {found.level}", headings, rows, text_columns=headings[:2]
    )


def summary_table(found: Evaluation) -> Table:
    """Means over the groups, at the level of the verdict and without caution."""
    from cautious.baselines.evaluation import ORDINARY, OURS

    settings = {(row["method"], row["level"]): row for row in found.summary}
    shown = {method: settings[method, found.level] for method, _ in settings}
    shown["forest as it is"] = settings["random forest", ORDINARY]
    shown["models as they are"] = settings[OURS, ORDINARY]
    rows = [
        (
            SHORT.get(method, method),
            f"{row['familiar_payoff']:.3f}",
            f"{row['familiar_departures']:.1%}",
            f"{row['novel_payoff']:.3f}",
            f"{row['novel_departures']:.1%}",
        )
        for method, row in shown.items()
    ]
    headings = ("mean over the groups", "familiar payoff", "departs", "novel payoff", "departs there")
    return make_table(f"at {found.level}, and without caution", headings, rows, text_columns=headings[:1])
