"""Tables of text (CSV): which columns a state is made of, and what they mean as numbers."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cautious.beliefs.files import FORMAT, load_json, save_json
from cautious.errors import BadFileError, InvalidInputError, MissingFileError

SUFFIXES = (".csv", ".tsv")
FILE = "columns.json"
MOST_CATEGORIES = 100
"""A column with more different texts than this is a name or a note, and no feature."""

NOT_TRIED = ("", "na", "nan")
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


class Table(NamedTuple):
    """A table as it stands in its file."""

    path: Path
    header: list[str]
    rows: list[list[str]]

    def column(self, name: str) -> list[str]:
        """The cells below a heading."""
        if name not in self.header:
            raise InvalidInputError(f"{self.path}: no column {name!r}; there are {', '.join(map(repr, self.header))}.")
        place = self.header.index(name)
        return [row[place] for row in self.rows]

    def numbers(self, name: str, *, gaps: bool = False) -> list[float]:
        """The cells below a heading as finite numbers; with `gaps`, NaN where nothing is."""
        found = []
        for row, cell in enumerate(self.column(name)):
            value = math.nan if gaps and cell.lower() in NOT_TRIED else as_cell_number(cell)
            if value is None:
                raise BadFileError(f"{self.path}: column {name!r}, row {row + 1}: {cell!r} is no finite number.")
            found.append(value)
        return found


def read_table(path: Path) -> Table:
    """Read a CSV file with a line of headings, between commas, semicolons or tabs, whichever that line has most of."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            delimiter = max(",;\t", key=first.count)
            lines = [
                [cell.strip() for cell in line] for line in csv.reader(file, delimiter=delimiter, strict=True) if line
            ]
    except FileNotFoundError:
        raise MissingFileError(f"{path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadFileError(f"{path}: not a table of text (UTF-8): {error}.") from None
    if len(lines) < 2:
        raise BadFileError(f"{path}: a line of headings and at least one row are needed; {len(lines)} lines are there.")
    header, *rows = lines
    if "" in header or len(set(header)) < len(header):
        raise BadFileError(
            f"{path}: every column needs a heading of its own; there are {', '.join(map(repr, header))}."
        )
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise BadFileError(f"{path}: row {number + 1} has {len(row)} cells, the headings are {len(header)}.")
    return Table(path, header, rows)


def read_tables(paths: Sequence[Path]) -> Table:
    """Several files with the same headings as one table."""
    first, *others = (read_table(path) for path in paths)
    for other in others:
        if other.header != first.header:
            raise BadFileError(f"{other.path}: its headings are not those of {first.path}.")
    return first._replace(rows=[row for table in (first, *others) for row in table.rows])


@dataclass(frozen=True)
class Outcome:
    """Which columns of a log say what was done and what it paid: one action a row, or a column for each action."""

    action: str | None = None
    reward: str | None = None
    rewards: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """One of the two forms, and whole."""
        logged = self.action is not None and self.reward is not None
        if logged == bool(self.rewards) or (self.action is None) != (self.reward is None):
            raise InvalidInputError(
                "a table needs the columns of what was done and what it paid (action and reward), or one column for each "
                "action with what it paid, empty where it was not tried (rewards): name the one or the other."
            )
        if len(set(self.rewards)) < len(self.rewards):
            raise InvalidInputError(f"rewards={list(self.rewards)} names a column twice.")

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names."""
        return self.rewards or (str(self.action), str(self.reward))

    def of(self, table: Table) -> tuple[tuple[str, ...], Tensor]:
        """The actions' names, and what each paid in each row, [S, A], NaN where it was not tried."""
        if self.rewards:
            paid = [table.numbers(name, gaps=True) for name in self.rewards]
            return self.rewards, torch.tensor(paid, dtype=torch.float64).T.contiguous()
        done, earned = table.column(str(self.action)), table.numbers(str(self.reward))
        if "" in done:
            raise BadFileError(
                f"{table.path}: column {self.action!r}, row {done.index('') + 1}: empty; which action was it?"
            )
        names = in_order(done)
        if len(names) > MOST_CATEGORIES:
            raise BadFileError(
                f"{table.path}: column {self.action!r} has {len(names)} different actions; at most {MOST_CATEGORIES} are taken."
            )
        paid_by = torch.full((len(done), len(names)), torch.nan, dtype=torch.float64)
        tried = torch.tensor([names.index(name) for name in done])
        return names, paid_by.scatter(1, tried[:, None], torch.tensor(earned, dtype=torch.float64)[:, None])


@dataclass(frozen=True)
class Columns:
    """How rows become states: learned from the table that a belief is trained on, and kept beside it."""

    features: tuple[tuple[str, tuple[str, ...] | None], ...]
    """Each column's heading, and the texts it has (each becomes a column of 0 and 1); None for numbers."""
    actions: tuple[str, ...]

    @classmethod
    def learned(cls, table: Table, outcome: Outcome, ignore: Sequence[str] = ()) -> Columns:
        """Everything but the outcome and what is to be ignored is a feature."""
        actions, _ = outcome.of(table)
        for name in ignore:
            table.column(name)  # says so if there is none
        names = [name for name in table.header if name not in (*outcome.columns, *ignore)]
        if not names:
            raise InvalidInputError(f"{table.path}: no column is left that says what a state is.")
        return cls(tuple((name, _texts(table, name)) for name in names), actions)

    def states(self, table: Table) -> tuple[Tensor, list[str]]:
        """Rows as states [S, D], and in words what was never seen in training: such a text is none of the known ones."""
        parts, strange = [], []
        for name, texts in self.features:
            if texts is None:
                parts.append(torch.tensor(table.numbers(name), dtype=torch.float64)[:, None])
                continue
            cells = table.column(name)
            parts.append(torch.tensor([[float(cell == text) for text in texts] for cell in cells], dtype=torch.float64))
            unknown = sorted(set(cells) - set(texts))
            if unknown:
                rows = sum(cell not in texts for cell in cells)
                listed = ", ".join(map(repr, unknown[:3])) + (", ..." if len(unknown) > 3 else "")
                strange.append(f"column {name!r} has {listed} in {rows} rows, never seen in training")
        return torch.cat(parts, dim=1), strange

    def save(self, folder: Path) -> None:
        """Write them beside a belief."""
        features = [{"name": name, "texts": texts} for name, texts in self.features]
        save_json(folder / FILE, {"format": FORMAT, "features": features, "actions": self.actions})

    @classmethod
    def load(cls, folder: Path) -> Columns:
        """Read what `save` wrote."""
        path = folder / FILE
        if not path.exists():
            raise MissingFileError(
                f"{path}: not there; the belief was not trained on a table, so pass its states as arrays."
            )
        found = load_json(path, checked=True)
        try:
            features = tuple((_text(part["name"]), _all_text(part["texts"])) for part in found["features"])
            actions = _all_text(found["actions"])
        except (KeyError, TypeError, ValueError):
            raise BadFileError(f"{path}: not the columns of a table.") from None
        return cls(features, actions or ())


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


def _texts(table: Table, name: str) -> tuple[str, ...] | None:
    """The different texts of a column, or None if all are numbers."""
    cells = table.column(name)
    if "" in cells:
        raise BadFileError(
            f"{table.path}: column {name!r}, row {cells.index('') + 1}: empty. Fill it, leave the row out, or ignore the "
            "column."
        )
    if all(as_cell_number(cell) is not None for cell in cells):
        return None
    commas = [cell for cell in cells if DECIMAL_COMMA.fullmatch(cell)]
    if commas:
        raise BadFileError(f"{table.path}: column {name!r}: {commas[0]!r} is no number here; write it with a point.")
    found = in_order(cells)
    if len(found) > MOST_CATEGORIES:
        raise BadFileError(
            f"{table.path}: column {name!r} has {len(found)} different texts, more than {MOST_CATEGORIES}: ignore it, or write "
            "it as numbers."
        )
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _all_text(values: Any) -> tuple[str, ...] | None:
    return None if values is None else tuple(_text(value) for value in values)
