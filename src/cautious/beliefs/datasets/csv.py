"""Tables of text (CSV), as they stand in their files."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cautious.errors import BadFileError, InvalidInputError, MissingFileError
from cautious.validation import as_path

SUFFIXES = (".csv", ".tsv")
NOT_TRIED = ("", "na", "nan")
"""What a cell holds, in any capitals, where nothing is known."""


class TextTable(NamedTuple):
    """A table as it stands in its file."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    places: list[str]
    """Where each row stands, in words."""

    def check_column(self, name: str) -> None:
        """Raise unless there is a column of that name."""
        if name not in self.header:
            hint = " Several names are separated by spaces." if "," in name else ""
            raise InvalidInputError(
                f"{self.path}: no column {name!r}; there are {', '.join(map(repr, self.header))}.{hint}"
            )

    def column(self, name: str) -> list[str]:
        """The cells below a heading."""
        self.check_column(name)
        index = self.header.index(name)
        return [row[index] for row in self.rows]

    def numbers(self, name: str, *, gaps: bool = False) -> list[float]:
        """The cells below a heading as finite numbers; with `gaps`, NaN where nothing is."""
        values = []
        for row, cell in enumerate(self.column(name)):
            value = math.nan if gaps and cell.lower() in NOT_TRIED else as_cell_number(cell)
            if value is None:
                what = f"is {cell!r}, no finite number" if cell else "is empty"
                raise BadFileError(
                    f"{self.places[row]}: column {name!r} {what}. Fill in a number, or leave the row out."
                )
            values.append(value)
        return values


def read_table(path: Path | str) -> TextTable:
    """Read a CSV file with a line of headings, between commas, semicolons or tabs, whichever that line has most of."""
    path = as_path(path, "path")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = next((line for line in file if line.strip()), "")
            file.seek(0)
            delimiter = max(",;\t", key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))
            reader = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=True)
            numbered = [(reader.line_num, [cell.strip() for cell in line]) for line in reader if any(line)]
    except FileNotFoundError:
        raise MissingFileError(f"{path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadFileError(f"{path}: not a table of text (UTF-8): {error}.") from None
    if len(numbered) < 2:
        lines = "1 line is" if numbered else "nothing is"
        raise BadFileError(f"{path}: a line of headings and at least one row are needed; {lines} there.")
    (_, header), *below = numbered
    if "" in header or len(set(header)) < len(header):
        raise BadFileError(
            f"{path}: every column needs a heading of its own; there are {', '.join(map(repr, header))}."
        )
    for number, row in below:
        if len(row) != len(header):
            raise BadFileError(f"{path}, line {number}: {len(row)} cells, where the headings are {len(header)}.")
    return TextTable(path, header, [row for _, row in below], [f"{path}, line {number}" for number, _ in below])


def read_tables(paths: Sequence[Path]) -> TextTable:
    """Several files with the same headings as one table."""
    tables = [read_table(path) for path in paths]
    for other in tables[1:]:
        if other.header != tables[0].header:
            raise BadFileError(f"{other.path}: its headings are not those of {tables[0].path}.")
    rows, places = ([one for table in tables for one in getattr(table, part)] for part in ("rows", "places"))
    return TextTable(tables[0].path, tables[0].header, rows, places)


def are_tables(paths: Sequence[Path]) -> bool:
    """Whether files are tables of text, all or none of them."""
    kinds = {path.suffix.lower() in SUFFIXES for path in paths}
    if len(kinds) > 1:
        raise InvalidInputError(f"data: {', '.join(map(str, paths))} are tables and arrays; pass files of one kind.")
    return kinds == {True}


def as_cell_number(cell: str) -> float | None:
    """A finite number as people write it, or None."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in cell else None


def in_order(cells: Sequence[str]) -> tuple[str, ...]:
    """Different texts, in the order of the numbers that they are, or else of the alphabet."""
    numbers = {cell: as_cell_number(cell) for cell in set(cells)}
    if None in numbers.values():
        return tuple(sorted(numbers))
    return tuple(sorted(numbers, key=lambda cell: (numbers[cell], cell)))
