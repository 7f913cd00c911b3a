"""Tables from files: text (CSV), whole or some rows at a time, and Parquet.

Every row keeps the number of its line, which messages about its cells name.
"""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from cautious.errors import BadFileError, InvalidInputError, MissingFileError, MissingPackageError
from cautious.progress import Progress
from cautious.tables.cells import Column, Table, check_column, text_column
from cautious.tables.frames import INSTALL, FrameTable, as_table
from cautious.validation import as_path

PARQUET = (".parquet", ".pq")
SUFFIXES = (".csv", ".tsv", *PARQUET)
ROWS_PER_BLOCK = 8192
"""Rows whose text is in memory at a time: some megabytes."""


@dataclass(frozen=True)
class TextTable:
    """A table as it stands in its file."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int | str]
    """The line of each row; with the file's name where there are several files."""
    unit: str = "line"
    columns: dict[str, Column] | None = field(default=None, compare=False, repr=False)
    """Those that were read, where they are kept: in blocks, which are asked for the same ones again and soon dropped."""

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
        if self.columns is not None and name in self.columns:
            return self.columns[name]
        check_column(self, name)
        place = self.header.index(name)
        column = text_column([row[place] for row in self.rows])
        if self.columns is not None:
            self.columns[name] = column
        return column


@dataclass(frozen=True)
class FileTable:
    """A table whose text stays in its file, for many rows: what is kept of each is the number of its line."""

    path: Path
    header: list[str]
    lines: np.ndarray
    """The line of each row, [S]."""
    version: tuple[int, int]
    """Size and time of change of the file when it was read (`version_of`)."""
    unit: str = "line"

    @property
    def origin(self) -> str:
        """What messages call it."""
        return str(self.path)

    def __len__(self) -> int:
        """How many rows."""
        return len(self.lines)

    def label(self, row: int) -> int:
        """The line of the file."""
        return int(self.lines[row])

    def read(self, name: str) -> Column:
        """The cells below a heading; reads the file."""
        check_column(self, name)
        place = self.header.index(name)
        return text_column([row[place] for block in self.blocks() for row in block.rows])

    def blocks(self) -> Iterator[TextTable]:
        """The rows again, some at a time; raises if the file has changed."""
        self.check_unchanged()
        yield from read_blocks(self.path)
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Raise if the file is not the one that was read."""
        if version_of(self.path) != self.version:
            raise BadFileError(f"{self.path}: it has changed since it was read; run the command again.")


def version_of(path: Path) -> tuple[int, int]:
    """Size of a file, and when it was changed last."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def read_table(path: Path | str) -> TextTable:
    """Read a CSV file with a line of headings, between commas, semicolons or tabs, whichever that line has most of."""
    first, *others = read_blocks(path)
    rows, lines = list(first.rows), list(first.lines)
    for block in others:
        rows += block.rows
        lines += block.lines
    return TextTable(first.path, first.header, rows, lines)


def read_blocks(path: Path | str, progress: Progress | None = None) -> Iterator[TextTable]:
    """The rows of a CSV file, `ROWS_PER_BLOCK` at a time, as tables with the same headings; at least one.

    Args:
        path: As of `read_table`.
        progress: Called with (characters read, bytes in all).
    """
    path = as_path(path, "path")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = next((line for line in file if line.strip()), "")
            file.seek(0)
            delimiter = max(",;\t", key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))
            lines = file if progress is None else _counted(file, version_of(path)[0], progress)
            reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
            yield from _in_blocks(path, _numbered_rows(reader))
    except FileNotFoundError:
        raise MissingFileError(f"{path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadFileError(f"{path}: not a table of text (UTF-8): {error}.") from None


def _counted(lines: Iterable[str], size: int, progress: Progress) -> Iterator[str]:
    """The same lines; says how much of `size` they are, every so many of them."""
    seen = 0
    for number, line in enumerate(lines):
        seen += len(line)
        if number % ROWS_PER_BLOCK == 0:
            progress(min(seen, size), size)
        yield line
    progress(size, size)


def _numbered_rows(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Rows with the numbers of their lines, the headings first.

    Blank lines are no rows, nor are rows of empty cells at the end, which spreadsheets write; in between they are.
    """
    empty: list[tuple[int, list[str]]] | None = None  # those that may be the last ones; None before the headings
    for line in reader:
        cells = [cell.strip() for cell in line]
        if any(cells):
            yield from empty or ()
            yield reader.line_num, cells
            empty = []
        elif len(cells) > 1 and empty is not None:
            empty.append((reader.line_num, cells))


def _in_blocks(path: Path, numbered: Iterator[tuple[int, list[str]]]) -> Iterator[TextTable]:
    """Tables of some rows each, checked."""
    header = next(numbered, None)
    some = list(islice(numbered, ROWS_PER_BLOCK))
    if header is None or not some:
        lines = "nothing is" if header is None else "1 line is"
        raise BadFileError(f"{path}: a line of headings and at least one row are needed; {lines} there.")
    names = header[1]
    if "" in names or len(set(names)) < len(names):
        raise BadFileError(f"{path}: every column needs a heading of its own; there are {', '.join(map(repr, names))}.")
    while some:
        for number, row in some:
            if len(row) != len(names):
                raise BadFileError(f"{path}, line {number}: {len(row)} cells, where the headings are {len(names)}.")
        rows = [row for _, row in some]
        yield TextTable(path, names, rows, [number for number, _ in some], columns={})
        some = list(islice(numbered, ROWS_PER_BLOCK))


def read_parquet(path: Path | str) -> FrameTable:
    """Read a Parquet file; rows are numbered from 1, as a person counts them."""
    path = as_path(path, "path")
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingPackageError(f"{path}: reading Parquet needs pyarrow: {INSTALL}.") from None
    try:
        frame = parquet.read_table(path)
    except FileNotFoundError:
        raise MissingFileError(f"{path}: there is no such file.") from None
    except (OSError, ArrowException) as error:
        raise BadFileError(f"{path}: not a Parquet file that can be read ({error}).") from None
    if not frame.num_rows:
        raise BadFileError(f"{path}: there is no row; one is needed at least.")
    return replace(as_table(frame, str(path)), index=range(1, frame.num_rows + 1))


def are_tables(paths: Sequence[Path]) -> bool:
    """Whether files are tables, all or none of them."""
    kinds = {path.suffix.lower() in SUFFIXES for path in paths}
    if len(kinds) > 1:
        raise InvalidInputError(f"data: {', '.join(map(str, paths))} are tables and arrays; pass files of one kind.")
    return kinds == {True}


def read_tables(paths: Sequence[Path]) -> Table:
    """One file, or several with the same headings as one table."""
    tables = [read_parquet(path) if path.suffix.lower() in PARQUET else read_table(path) for path in paths]
    first, *others = tables
    for other in others:
        if other.header != first.header:
            raise BadFileError(f"{other.origin}: its headings are not those of {first.origin}.")
    if not others:
        return first
    labels = [f"{table.label(row)} of {table.origin}" for table in tables for row in range(len(table))]
    if all(isinstance(table, TextTable) for table in tables):
        rows = [row for table in tables if isinstance(table, TextTable) for row in table.rows]
        return TextTable(Path(first.origin), first.header, rows, list(labels))
    columns = {name: _joined([table.read(name) for table in tables]) for name in first.header}
    return FrameTable(first.origin, columns, len(labels), labels)


def _joined(parts: Sequence[Column]) -> Column:
    cells = [cell for part in parts for cell in part.cells]
    numbers, missing = (np.concatenate([getattr(part, name) for part in parts]) for name in ("numbers", "missing"))
    return Column(cells, numbers, missing, parts[0].kind if len({part.kind for part in parts}) == 1 else "")


def as_cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula: behind an apostrophe where it begins like one and is no number.

    >>> as_cell("=1+1"), as_cell("-0.5"), as_cell("brake")
    ("'=1+1", '-0.5', 'brake')
    """
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    with contextlib.suppress(ValueError):
        float(text)
        return text
    return f"'{text}"
