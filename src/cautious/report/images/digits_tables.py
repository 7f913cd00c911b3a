"""The paper's tables of behaviour on familiar digits, with ours beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from cautious.report.images.image_run import BITS, REGIMES, ImageRun
from cautious.report.paper import PaperTable, Printed, paper_table
from cautious.report.tables import ABSENT, Table, mean_and_spread
from cautious.types import Regime

READINGS = {"probability": "ours, mean probability", "share": "ours, most likely action"}
"""Both readings of "frequency", which the paper leaves open: suffix in the store -> heading."""
NOTE = (
    "Percent of the familiar digits: mean ± standard deviation over runs; for optim, over networks. Mean probability of "
    "the action, and share of images whose most likely action it is; difference: ours minus the paper's, by the second "
    "reading in brackets."
)
MISPRINT = " The paper's optim column repeats rows of other tables: a misprint, not compared."


class Place(NamedTuple):
    """Where a group of a table's rows is in the store."""

    variant: str
    regime: Regime
    bit: bool | None = None


def _by_regime(variant: str) -> dict[str, Place]:
    return {words: Place(variant, regime) for regime, words in REGIMES.items()}


def _by_bit(regime: Regime) -> dict[str, Place]:
    return {f"help {BITS[bit]}": Place("help-0.05", regime, bit) for bit in (True, False)}


def _by_extent(regime: Regime) -> dict[str, Place]:
    return {f"{percent} %": Place(f"extent-{percent}", regime) for percent in (1, 10, 100)}


PLACES: dict[str, dict[str, dict[str, Place]]] = {
    "ask-for-help": {
        "last_action_test": _by_regime("help-0.25"),
        "last_action_0.1": _by_regime("help-0.1"),
        "last_action_0.25": _by_regime("help-0.25"),
        "last_action_0.5": _by_regime("help-0.5"),
    },
    "help-if-available": {"bit_TEST": _by_bit(Regime.ALL_STATES), "bit_test": _by_bit(Regime.SINGLE_STATE)},
    "data-extent": {
        "last_action_std_TEST": _by_extent(Regime.ALL_STATES),
        "last_action_std_test": _by_extent(Regime.SINGLE_STATE),
    },
}
"""Task -> the paper's label of a table -> its groups of rows, in the paper's words -> where ours are."""


def digits_table(run: ImageRun, name: str) -> Table:
    """One of the paper's tables, by its label: ours in both readings, the paper's, and the difference."""
    paper, columns = paper_table(name), (*run.levels, "optim")
    rows: list[tuple[str, ...]] = []
    for group, place in PLACES[run.task.name][name].items():
        for quantity in ("correct", "help"):
            ours = our_cells(run, place, quantity)
            if ours:
                rows += _block(paper, group, quantity, columns, ours)
    header = ("images", "action", "", *columns)
    note = NOTE + (MISPRINT if paper.misprinted else "")
    return Table(name, f"{paper.title} ({name})", header, tuple(rows), note, num_labels=3)


Cells = dict[str, dict[str, Tensor]]
"""Reading -> column (a level, or "optim") -> percent, one a run (one a network)."""


def our_cells(run: ImageRun, place: Place, quantity: str) -> Cells:
    """What a table's row holds, run by run; empty if that was not run."""
    measured = run.measured(place.variant, "digits", place.bit)
    arrays = run.arrays(place.variant, "digits", place.bit)
    if measured is None or arrays is None:
        return {}
    found: Cells = {}
    for reading in READINGS:
        name = f"{quantity}_{reading}"
        cells = dict(zip(measured.levels, 100 * measured.runs(place.regime, name), strict=True))
        found[reading] = cells | {"optim": 100 * arrays[f"optim-{name}"].double()}
    return found


def _block(
    paper: PaperTable, group: str, quantity: str, columns: tuple[str, ...], ours: Cells
) -> Iterator[tuple[str, ...]]:
    """Ours, ours, the paper's, the difference."""
    for reading, heading in READINGS.items():
        yield (group, quantity, heading, *(mean_and_spread(ours[reading][column]) for column in columns))
    printed = [paper.cell(group, quantity, column) for column in columns]
    yield (group, quantity, "paper", *(_printed(cell) for cell in printed))
    yield (
        group,
        quantity,
        "difference",
        *(
            ABSENT if cell is None or column in paper.misprinted else _difference(ours, column, cell)
            for column, cell in zip(columns, printed, strict=True)
        ),
    )


def _printed(cell: Printed | None) -> str:
    return ABSENT if cell is None else f"{cell.mean:.2f} ± {cell.spread:.2f}"


def _difference(ours: Cells, column: str, cell: Printed) -> str:
    first, second = (float(ours[reading][column].nanmean()) - cell.mean for reading in READINGS)
    return f"{first:+.2f} ({second:+.2f})"


def own_digits_table(run: ImageRun) -> Table:
    """Correct labels on familiar digits where the paper prints no table ("while not shown")."""
    rows = []
    for regime, words in REGIMES.items():
        ours = our_cells(run, Place(run.main, regime), "correct")
        for reading, cells in ours.items():
            rows.append((words, "correct", READINGS[reading], *map(mean_and_spread, cells.values())))
    header = ("images", "action", "", *run.levels, "optim")
    return Table("digits", "Familiar digits, correct labels", header, tuple(rows), NOTE.split(";")[0] + ".", 3)
