"""Tables from files of any kind: text (CSV) and Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cautious.errors import BadFileError, InvalidInputError
from cautious.tables.cells import Column, Table
from cautious.tables.csv import TextTable, read_table
from cautious.tables.frames import PARQUET, FrameTable, read_parquet

SUFFIXES = (".csv", ".tsv", *PARQUET)


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
    return Column(cells, *(np.concatenate([getattr(part, name) for part in parts]) for name in ("numbers", "missing")))
