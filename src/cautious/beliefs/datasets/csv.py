"""Tables of text (CSV), as they stand in their files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cautious.beliefs.datasets.cells import Column, as_cell_number, check_column, text_column
from cautious.errors import BadFileError, MissingFileError
from cautious.validation import as_path


@dataclass(frozen=True)
class TextTable:
    """A table as it stands in its file."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int | str]
    """The line of each row; with the file's name where there are several files."""
    unit: str = "line"

    @property
    def origin(self) -> str:
        """What messages call it."""
        return str(self.path)

    def __len__(self) -> int:
        """How many rows."""
        return len(self.rows)

    def label(self, row: int) -> int | str:
        """The line of the file."""
        return self.lines[row]

    def read(self, name: str) -> Column:
        """The cells below a heading."""
        check_column(self, name)
        place = self.header.index(name)
        return text_column([row[place] for row in self.rows])


def read_table(path: Path | str) -> TextTable:
    """Read a CSV file with a line of headings, between commas, semicolons or tabs, whichever that line has most of."""
    path = as_path(path, "path")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = next((line for line in file if line.strip()), "")
            file.seek(0)
            delimiter = max(",;\t", key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))
            reader = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=True)
            numbered = [(reader.line_num, [cell.strip() for cell in line]) for line in reader]
    except FileNotFoundError:
        raise MissingFileError(f"{path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadFileError(f"{path}: not a table of text (UTF-8): {error}.") from None
    # Blank lines are no rows, nor are rows of empty cells at the end, which spreadsheets write; in between they are.
    numbered = [(number, cells) for number, cells in numbered if any(cells) or len(cells) > 1]
    while numbered and not any(numbered[-1][1]):
        numbered.pop()
    while numbered and not any(numbered[0][1]):
        numbered.pop(0)
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
    return TextTable(path, header, [row for _, row in below], [number for number, _ in below])


def in_order(cells: Sequence[str]) -> tuple[str, ...]:
    """Different texts, in the order of the numbers that they are, or else of the alphabet."""
    numbers = {cell: as_cell_number(cell) for cell in set(cells)}
    if None in numbers.values():
        return tuple(sorted(numbers))
    return tuple(sorted(numbers, key=lambda cell: (numbers[cell], cell)))
