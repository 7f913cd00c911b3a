"""Tables of any origin, column by column: cells as numbers or texts, which are missing, and which cannot be used."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from cautious.errors import InvalidInputError

NOT_TRIED = ("", "na", "nan", "n/a", "#n/a", "<na>", "null")
"""What a cell holds, in any capitals, where nothing is known."""
MOST_SHOWN = 60
"""Letters of a cell that a message shows."""
MOST_LISTED = 12
"""Of more rows with the same problem, so many stretches are listed in a message."""

EMPTY, NO_NUMBER, NOT_FINITE = "is empty", "is not a number", "is not finite"
TOO_LARGE, TOO_FAR = "is too large", "is too far outside"
"""What can be wrong with a cell, as messages say it."""
LARGEST_CELL = 1e20
"""A larger number in a cell stands for something else, and predictions may overflow."""
FARTHEST_RANGES = 1000
"""A number that is so many times the training's range outside of it cannot be judged: models only extrapolate there, and their
random priors have stopped growing."""


class Column(NamedTuple):
    """The cells of a column."""

    cells: Sequence[Any]
    """As they came: texts of a file, or values of a frame."""
    numbers: np.ndarray
    """The finite numbers that they are, float64 [S]; NaN for all others."""
    missing: np.ndarray
    """Whether nothing is known there, [S]."""
    kind: str = ""
    """What a frame's type says the cells are (`kinds.Kind`); nothing where it does not say."""

    def text(self, row: int) -> str:
        """A cell as a file would have it."""
        return as_text(self.cells[row])

    def texts(self) -> list[str]:
        """All cells as a file would have them."""
        return [as_text(cell) for cell in self.cells]


class Table(Protocol):
    """Rows with named columns: `files.TextTable`, and `frames.FrameTable` for frames, dictionaries and Parquet files."""

    @property
    def header(self) -> list[str]:
        """The columns' names."""
        ...

    @property
    def origin(self) -> str:
        """What messages call it."""
        ...

    @property
    def unit(self) -> str:
        """What messages call a row: "line" of a file, "row" of a frame."""
        ...

    def __len__(self) -> int:
        """How many rows."""
        ...

    def label(self, row: int) -> int | str:
        """Which line or row of the user's it is."""
        ...

    def read(self, name: str) -> Column:
        """The cells below a heading."""
        ...


class BadCell(NamedTuple):
    """A cell that no model can use."""

    row: int
    column: str
    what: str
    """What is wrong: `EMPTY`, `NO_NUMBER`, `NOT_FINITE`, `TOO_LARGE` or `TOO_FAR`."""
    text: str = ""
    """The cell, where it is not empty."""

    @property
    def remark(self) -> str:
        """In words, without the row."""
        shown = f" ({shortened(self.text)})" if self.text else ""
        return f"{self.column} {self.what}{shown}"


def shortened(text: str) -> str:
    """A cell as a message shows it.

    >>> shortened("x" * 1000) == "x" * 57 + "..."
    True
    """
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def as_cell_number(cell: str) -> float | None:
    """A finite number as people write it, or None."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in cell else None


def as_text(cell: Any) -> str:
    """A value as a file would have it: whole numbers without a point, nothing where nothing is."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, (float, np.floating)):
        return f"{float(cell):.15g}"
    return str(cell)


def text_column(cells: Sequence[str]) -> Column:
    """Texts of a file as a column."""
    numbers = [as_cell_number(cell) for cell in cells]
    return Column(
        cells,
        np.array([math.nan if number is None else number for number in numbers], dtype=np.float64),
        np.array([cell.lower() in NOT_TRIED for cell in cells], dtype=bool),
    )


def in_order(cells: Sequence[str]) -> tuple[str, ...]:
    """Different texts, in the order of the numbers that they are, or else of the alphabet."""
    numbers = {cell: as_cell_number(cell) for cell in set(cells)}
    if None in numbers.values():
        return tuple(sorted(numbers))
    return tuple(sorted(numbers, key=lambda cell: (numbers[cell], cell)))


def check_column(table: Table, name: str) -> None:
    """Raise unless a table has a column of that name."""
    if name not in table.header:
        hint = " Several names are separated by spaces." if "," in name else ""
        raise InvalidInputError(
            f"{table.origin}: no column {name!r}; there are {', '.join(map(repr, table.header))}.{hint}"
        )


def place(table: Table, row: int) -> str:
    """Where a row stands, in words."""
    return f"{table.origin}, {table.unit} {table.label(row)}"


def bad_numbers(
    column: Column, name: str, within: tuple[float, float] | None = None, wanted: str = "number"
) -> list[BadCell]:
    """The cells of a column of numbers that are none, or too large.

    Args:
        column: The cells.
        name: The column's.
        within: The smallest and the largest number of the training, once they are known.
        wanted: What the cells are in training.
    """
    found = []
    for row in map(int, np.flatnonzero(np.isnan(column.numbers))):
        if column.missing[row]:
            found.append(BadCell(row, name, EMPTY))
            continue
        text = column.text(row)
        found.append(BadCell(row, name, NOT_FINITE if _overflows(text) else f"is not a {wanted}", repr(text)))
    too_large = np.abs(column.numbers) > LARGEST_CELL
    found += [BadCell(row, name, TOO_LARGE, column.text(row)) for row in map(int, np.flatnonzero(too_large))]
    if within is None or within[0] == within[1]:
        return found
    low, high = within
    reach = FARTHEST_RANGES * (high - low)
    outside = ~too_large & ((column.numbers > high + reach) | (column.numbers < low - reach))
    known = f"{low:g} to {high:g} in training"
    return found + [
        BadCell(row, name, TOO_FAR, f"{column.text(row)}; {known}") for row in map(int, np.flatnonzero(outside))
    ]


def _overflows(text: str) -> bool:
    try:
        return math.isinf(float(text))
    except ValueError:
        return False


@dataclass(frozen=True)
class Problems:
    """The cells of a table that cannot be used; put into words only where they are shown.

    >>> from cautious.tables.frames import as_table
    >>> table = as_table({"x": [1.0, None, 3.0, None, None, None, "?"]}, "states")
    >>> problems = Problems(table, tuple(bad_numbers(table.read("x"), "x")))
    >>> problems.heading, problems.lines
    ('states: 5 of 7 rows cannot be used', ["column 'x' is empty in rows 1, 3-5", "column 'x' is not a number in row 6 ('?')"])
    """

    table: Table
    """All rows."""
    cells: tuple[BadCell, ...] = ()

    @property
    def usable(self) -> np.ndarray:
        """Rows without such a cell, [S]."""
        usable = np.ones(len(self.table), dtype=bool)
        usable[[cell.row for cell in self.cells]] = False
        return usable

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why each row cannot be used, S texts; empty where it can."""
        found: dict[int, list[str]] = {}
        for cell in self.cells:
            found.setdefault(cell.row, []).append(cell.remark)
        return tuple("; ".join(found.get(row, ())) for row in range(len(self.table)))

    @property
    def heading(self) -> str:
        """How many rows cannot be used."""
        count = len({cell.row for cell in self.cells})
        rows = f"{count:,} of {len(self.table):,} rows" if len(self.table) > 1 else "the row"
        return f"{self.table.origin}: {rows} cannot be used"

    @property
    def lines(self) -> list[str]:
        """One line per column and problem, with all rows that have it."""
        rows: dict[tuple[str, str], list[BadCell]] = {}
        for cell in self.cells:
            rows.setdefault((cell.column, cell.what), []).append(cell)
        return [
            f"column {column!r} {what} in {_listed(cells, self.table.unit, self.table.label)}"
            for (column, what), cells in rows.items()
        ]

    def __str__(self) -> str:
        """All of it in one sentence, without its full stop."""
        return f"{self.heading}: {'; '.join(self.lines)}"


def _listed(cells: Sequence[BadCell], unit: str, label: Callable[[int], int | str]) -> str:
    """Rows in words, those that follow each other as a stretch: "rows 3, 5-9 (1e+30)"."""
    labels = [label(cell.row) for cell in cells]
    stretches: list[list[int | str]] = []
    for value in labels:
        follows = stretches and isinstance(value, int) and stretches[-1][-1] == value - 1
        if follows:
            stretches[-1].append(value)
        else:
            stretches.append([value])
    shown = [f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in stretches]
    listed = ", ".join(shown[:MOST_LISTED])
    if len(shown) > MOST_LISTED:
        listed += f" and {sum(map(len, stretches[MOST_LISTED:]))} more"
    texts = list(dict.fromkeys(shortened(cell.text) for cell in cells if cell.text))
    quoted = f" ({', '.join(texts[:3])}{', ...' if len(texts) > 3 else ''})" if texts else ""
    return f"{unit}{'s' if len(labels) > 1 else ''} {listed}{quoted}"
