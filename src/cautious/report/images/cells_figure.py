"""Every percentage that the paper prints of familiar digits, and how far ours are from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.figure import Figure

from cautious.experiments.store import Store
from cautious.report.claims.base import NotRunError, differences
from cautious.report.images.image_run import ImageRun
from cautious.report.paper import paper_table
from cautious.report.plotting import COLOURS, grid


class Group(NamedTuple):
    """Cells that are drawn alike: a run, the paper's tables, and the group of rows (all if empty)."""

    words: str
    run: str
    tables: tuple[str, ...]
    rows: str = ""
    filled: bool = True


_EXTENT = ("last_action_std_TEST", "last_action_std_test")
_AVAILABLE = ("bit_TEST", "bit_test")
GROUPS = (
    Group("ask for help", "ask-for-help", ("last_action_0.1", "last_action_0.25", "last_action_0.5")),
    Group("help if available, in tenths", "help-if-available", _AVAILABLE),
    Group("help if available, as printed", "help-if-available-as-printed", _AVAILABLE, filled=False),
    Group("data extent, 100 %", "data-extent", _EXTENT, "100 %"),
    Group("data extent, 10 %", "data-extent", _EXTENT, "10 %"),
    Group("data extent, 1 % (one draw)", "data-extent", _EXTENT, "1 %"),
)


class Cell(NamedTuple):
    """A percentage that the paper prints, and how far ours is from it, in points."""

    quantity: str
    paper: float
    apart: float


def cells_of(runs: Mapping[str, Store], group: Group) -> list[Cell]:
    """The cells of a group; none if that was not run."""
    if group.run not in runs:
        return []
    run, found = ImageRun(runs[group.run]), []
    try:
        for table in group.tables:
            for (_, rows, quantity, column), (apart, _share) in differences(run, table).items():
                if group.rows in ("", rows):
                    found.append(Cell(quantity, paper_table(table).cells[rows][quantity][column].mean, apart))
    except NotRunError:
        return []
    return found


PANELS = {"help": "asked for help", "correct": "named correctly"}


def cells_figure(runs: Mapping[str, Store]) -> Figure:
    """Ours minus the paper's against the paper's, a point for every cell of its tables."""
    figure, panels = grid(1, len(PANELS), width=4.2, height=3.6)
    for axes, (quantity, words) in zip(panels[0], PANELS.items(), strict=True):
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
