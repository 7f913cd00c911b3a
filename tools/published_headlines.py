"""Headline numbers of published runs beside the paper's, and a figure of every cell of the paper's tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure

from cautious.types import Regime
from cautious_paper.experiments.driving.driving_experiment import stage_name
from cautious_paper.experiments.store import Store
from cautious_paper.report.claims.data_extent import interval_of_mean, rise_by_draw
from cautious_paper.report.claims.rules import NotRunError, differences, need, trained_on
from cautious_paper.report.images.image_run import HELP, INDEX, ImageRun
from cautious_paper.report.paper import paper_table
from cautious_paper.report.plotting import COLOURS, grid
from cautious_paper.report.tables import ABSENT, Table

CORRECT = "correct_probability"
StageKey = tuple[str, str, bool | None]
"""Ensemble, set of images, and whether help is available (None where the task has no such bit)."""
Show = Callable[[Store], str]


class Headline(NamedTuple):
    """One row: what it is, what the paper says of it, the run that ours comes from, and how it is read from it."""

    what: str
    paper: str
    run: str
    ours: Show
    first: bool = False
    """Whether it belongs among the few that come first."""


def headline_table(runs: Mapping[str, Store], first: bool = False) -> Table:
    """What the paper says in numbers or words, and ours.

    Args:
        runs: By name.
        first: Only the few numbers that come first.
    """
    chosen = [row for row in HEADLINES if row.first or not first]
    rows = tuple((row.what, row.paper, _cell(runs, row), f"`{row.run}`") for row in chosen)
    note = "Ours: mean over runs at the paper's sizes, from that run in `results/`. A dash: not run yet."
    return Table("headline", "Headline numbers", ("", "the paper", "ours", "run"), rows, note)


def _cell(runs: Mapping[str, Store], row: Headline) -> str:
    if row.run not in runs:
        return ABSENT
    try:
        return row.ours(runs[row.run])
    except NotRunError:
        return ABSENT


def _by_level(store: Store, stage: StageKey, regime: Regime, name: str) -> list[float]:
    """One quantity of each level, then of optim."""
    measured = need(ImageRun(store), *stage)
    return [*measured.means(regime, name).tolist(), measured.optim(name)]


def _ends(stage: StageKey, name: str) -> Show:
    """The first level and the last, single-image; in percent unless it is an index."""

    def show(store: Store) -> str:
        values = _by_level(store, stage, Regime.SINGLE_STATE, name)
        if name == INDEX:
            return f"{values[0]:.2f} ... {values[-2]:.2f}"
        return f"{100 * values[0]:.1f} ... {100 * values[-2]:.1f} %"

    return show


def _first(*stages: StageKey, regimes: Sequence[Regime] = (Regime.SINGLE_STATE,)) -> Show:
    """Help of the first level in percent, by stage and regime."""

    def show(store: Store) -> str:
        percentages = [100 * _by_level(store, stage, regime, HELP)[0] for stage in stages for regime in regimes]
        return f"{' / '.join(f'{value:.1f}' for value in percentages)} %"

    return show


def _optim(stage: StageKey) -> Show:
    return lambda store: f"{100 * _by_level(store, stage, Regime.SINGLE_STATE, HELP)[-1]:.1f} %"


def _against_optim(stage: StageKey) -> Show:
    return lambda store: f"{_first(stage)(store)} against {_optim(stage)(store)}"


def _cells_within(tables: Sequence[str], points: float) -> Show:
    """How many cells of the paper's tables of familiar digits are so near."""

    def show(store: Store) -> str:
        apart = [cell for table in tables for cell in differences(ImageRun(store), table).values()]
        return f"{sum(abs(mean) <= points for mean, _ in apart)} of {len(apart)} cells within {points:g} points"

    return show


def _rise_over_draws(store: Store) -> str:
    """Mean rise of help with robustness over draws of the digits, with its interval."""
    return f"{interval_of_mean(rise_by_draw(ImageRun(store)))} points"


def _numbers(store: Store, stage: str) -> dict[str, Any]:
    if not store.has(stage):
        raise NotRunError(f"stage {stage} is missing")
    return store.numbers(stage)


def _training_time(stage: str) -> Show:
    return lambda store: f"{_numbers(store, stage)['seconds'] / 60:.1f} minutes, one {trained_on(store, stage)}"


def _driving(name: str, digits: int) -> Show:
    def show(store: Store) -> str:
        numbers = _numbers(store, stage_name(store.manifest["settings"]["default_probability"]))
        means = torch.tensor(numbers["statistics"]["queue"][name], dtype=torch.float64).mean(dim=1)
        return f"{float(means[0]):.{digits}f} ... {float(means[-1]):.{digits}f}"

    return show


_HELP, _FAMILIAR = ("help-0.25", "fashion", None), ("help-0.25", "digits", None)
HEADLINES = (
    Headline(
        "ask for help: 1-of-20 asks on clothes, single-image / all-images",
        "89 / 29 %",
        "ask-for-help",
        _first(_HELP, regimes=(Regime.SINGLE_STATE, Regime.ALL_STATES)),
        first=True,
    ),
    Headline(
        "ask for help: 1-of-20 asks on letters, single-image",
        "68 % (20,800 letters)",
        "ask-for-help",
        _first(("help-0.25", "letters", None)),
    ),
    Headline("ask for help: a single network (optim) asks on clothes", "under 2 %", "ask-for-help", _optim(_HELP)),
    Headline(
        "ask for help: digits named correctly, 1-of-20 ... 10-of-10, single-image",
        "96.9 ... 99.4 %",
        "ask-for-help",
        _ends(_FAMILIAR, CORRECT),
    ),
    Headline(
        "ask for help that pays 0.5: 1-of-20 asks on clothes, single-image",
        '"almost 100 %"',
        "ask-for-help",
        _first(("help-0.5", "fashion", None)),
    ),
    Headline(
        "non-obvious: mean index on clothes, 1-of-20 ... 10-of-10, single-image",
        "smaller with smaller k/N",
        "non-obvious",
        _ends(("non-obvious", "fashion", None), INDEX),
        first=True,
    ),
    Headline(
        "help if available: both tables of familiar digits",
        "32 cells",
        "help-if-available",
        _cells_within(("bit_TEST", "bit_test"), 2),
        first=True,
    ),
    Headline(
        "the same from another seed",
        "32 cells",
        "help-if-available-seed-1",
        _cells_within(("bit_TEST", "bit_test"), 2),
    ),
    Headline(
        "help if available: digits named correctly, 1-of-20 ... 10-of-10, single-image",
        "84.1 ... 99.3 %",
        "help-if-available",
        _ends(("help-0.05", "digits", True), CORRECT),
    ),
    Headline(
        "help if available: 1-of-20 asks on digits, single-image",
        "10.4 %",
        "help-if-available",
        _first(("help-0.05", "digits", True)),
    ),
    Headline(
        "help if available: 1-of-20 asks on clothes, against optim, single-image",
        '"much more"',
        "help-if-available",
        _against_optim(("help-0.05", "fashion", True)),
    ),
    Headline(
        "help if available that pays 0.02 / 0.05 / 0.2: 1-of-20 asks on clothes, single-image",
        "more with more reward",
        "help-if-available",
        _first(*((f"help-{pays}", "fashion", True) for pays in ("0.02", "0.05", "0.2"))),
    ),
    Headline(
        "10 % of the digits: named correctly, 1-of-20 ... 10-of-10, single-image",
        "88.8 ... 98.7 %",
        "data-extent",
        _ends(("extent-10", "digits", None), CORRECT),
    ),
    Headline(
        "1 % of the digits: help on clothes, 1-of-20 ... 10-of-10, single-image",
        "no more with smaller k/N",
        "data-extent",
        _ends(("extent-1", "fashion", None), HELP),
    ),
    Headline(
        "1 % of the digits, over draws: rise of help on clothes from 10-of-10 to 1-of-20, single-image (mean, 95 % interval)",
        "no more with smaller k/N",
        "data-extent-draws",
        _rise_over_draws,
        first=True,
    ),
    Headline(
        "driving: speed, 1-of-20 ... 20-of-20", "slower with smaller k", "driving", _driving("speed", 2), first=True
    ),
    Headline(
        "driving: collision frequency, 1-of-20 ... 20-of-20",
        "fewer with smaller k",
        "driving",
        _driving("collisions", 3),
    ),
    Headline(
        "training 2,000 image networks, 100 epochs",
        "50 V100-hours",
        "ask-for-help",
        _training_time("belief-help-0.25"),
        first=True,
    ),
    Headline(
        "training 2,000 driving networks, 51,200 epochs",
        "833 CPU-hours",
        "driving",
        _training_time("belief"),
    ),
)


# Every percentage that the paper prints of familiar digits, and how far ours are from it


class CellGroup(NamedTuple):
    """Cells that are drawn alike: a run, the paper's tables, and the group of rows (all if empty)."""

    words: str
    run: str
    tables: tuple[str, ...]
    rows: str = ""
    filled: bool = True


_EXTENT = ("last_action_std_TEST", "last_action_std_test")
_AVAILABLE = ("bit_TEST", "bit_test")
GROUPS = (
    CellGroup("ask for help", "ask-for-help", ("last_action_0.1", "last_action_0.25", "last_action_0.5")),
    CellGroup("help if available, in tenths", "help-if-available", _AVAILABLE),
    CellGroup("help if available, as printed", "help-if-available-as-printed", _AVAILABLE, filled=False),
    CellGroup("data extent, 100 %", "data-extent", _EXTENT, "100 %"),
    CellGroup("data extent, 10 %", "data-extent", _EXTENT, "10 %"),
    CellGroup("data extent, 1 % (one draw)", "data-extent", _EXTENT, "1 %"),
)


class CellDifference(NamedTuple):
    """A percentage that the paper prints, and how far ours is from it, in points."""

    quantity: str
    paper: float
    apart: float


def cells_of(runs: Mapping[str, Store], group: CellGroup) -> list[CellDifference]:
    """The cells of a group; none if that was not run."""
    if group.run not in runs:
        return []
    run, found = ImageRun(runs[group.run]), []
    try:
        for table in group.tables:
            for (_, rows, quantity, column), (apart, _share) in differences(run, table).items():
                if group.rows in ("", rows):
                    found.append(CellDifference(quantity, paper_table(table).cells[rows][quantity][column].mean, apart))
    except NotRunError:
        return []
    return found


CELL_PANELS = {"help": "asked for help", "correct": "named correctly"}


def cells_figure(runs: Mapping[str, Store]) -> Figure:
    """Ours minus the paper's against the paper's, a point for every cell of its tables."""
    figure, panels = grid(1, len(CELL_PANELS), width=4.2, height=3.6)
    for axes, (quantity, words) in zip(panels[0], CELL_PANELS.items(), strict=True):
        axes.axhspan(-2, 2, color="#eeeeee")
        axes.axhline(0, color="#888888", linewidth=0.8)
        for group, colour in zip(GROUPS, COLOURS, strict=True):
            cells = cells_of(runs, group)
            own = [(cell.paper, cell.apart) for cell in cells if cell.quantity == quantity]
            if own:
                face = colour if group.filled else "none"
                label = f"{group.words}: {len(cells)} cells"
                axes.scatter(*zip(*own, strict=True), s=24, edgecolors=colour, facecolors=face, label=label)
        axes.set(xlabel=f"the paper: {words}, % of the test digits")
    panels[0][0].set_ylabel("ours minus the paper's, points")
    figure.legend(
        *panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9, frameon=False
    )
    return figure
