"""Tables of text (CSV): which columns a state is made of, and what they mean as numbers."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}")


class Table(NamedTuple):
    """A table as it stands in its file."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    places: list[str]
    """Where each row stands, in words."""

    def column(self, name: str) -> list[str]:
        """The cells below a heading."""
        if name not in self.header:
            hint = " Several names are separated by spaces." if "," in name else ""
            raise InvalidInputError(
                f"{self.path}: no column {name!r}; there are {', '.join(map(repr, self.header))}.{hint}"
            )
        place = self.header.index(name)
        return [row[place] for row in self.rows]

    def numbers(self, name: str, *, gaps: bool = False) -> list[float]:
        """The cells below a heading as finite numbers; with `gaps`, NaN where nothing is."""
        found = []
        for row, cell in enumerate(self.column(name)):
            value = math.nan if gaps and cell.lower() in NOT_TRIED else as_cell_number(cell)
            if value is None:
                what = f"is {cell!r}, no finite number" if cell else "is empty"
                raise BadFileError(
                    f"{self.places[row]}: column {name!r} {what}. Fill in a number, or leave the row out."
                )
            found.append(value)
        return found


def read_table(path: Path) -> Table:
    """Read a CSV file with a line of headings, between commas, semicolons or tabs, whichever that line has most of."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=first.count), strict=True)
            numbered = [(reader.line_num, [cell.strip() for cell in line]) for line in reader if line]
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
    return Table(path, header, [row for _, row in below], [f"{path}, line {number}" for number, _ in below])


def read_tables(paths: Sequence[Path]) -> Table:
    """Several files with the same headings as one table."""
    tables = [read_table(path) for path in paths]
    for other in tables[1:]:
        if other.header != tables[0].header:
            raise BadFileError(f"{other.path}: its headings are not those of {tables[0].path}.")
    rows, places = ([one for table in tables for one in getattr(table, part)] for part in ("rows", "places"))
    return Table(tables[0].path, tables[0].header, rows, places)


def are_tables(paths: Sequence[Path]) -> bool:
    """Whether files are tables of text, all or none of them."""
    kinds = {path.suffix.lower() in SUFFIXES for path in paths}
    if len(kinds) > 1:
        raise InvalidInputError(f"data: {', '.join(map(str, paths))} are tables and arrays; pass files of one kind.")
    return kinds == {True}


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
        if len(set(self.columns)) < len(self.columns):
            raise InvalidInputError(f"{', '.join(map(repr, self.columns))}: a column is named twice.")

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
            place = table.places[done.index("")]
            raise BadFileError(f"{place}: column {self.action!r} is empty: which action was it?")
        names = in_order(done)
        spellings = Counter(name.casefold() for name in names)
        alike = [name for name in names if spellings[name.casefold()] > 1]
        if alike:
            raise BadFileError(
                f"{table.path}: column {self.action!r} has {', '.join(map(repr, alike))}: write them alike."
            )
        if len(names) > MOST_CATEGORIES:
            raise BadFileError(
                f"{table.path}: column {self.action!r} has {len(names)} different actions; at most {MOST_CATEGORIES} are taken."
            )
        number = {name: place for place, name in enumerate(names)}
        tried = torch.tensor([number[name] for name in done])
        paid_by = torch.full((len(done), len(names)), torch.nan, dtype=torch.float64)
        return names, paid_by.scatter(1, tried[:, None], torch.tensor(earned, dtype=torch.float64)[:, None])


@dataclass(frozen=True)
class Feature:
    """A column that is part of a state."""

    name: str
    texts: tuple[str, ...] | None = None
    """The texts it has, each of which becomes a column of 0 and 1; None for numbers."""
    low: float = 0.0
    high: float = 0.0
    """The smallest and the largest number in the table of the training."""

    def remark(self, cell: str) -> str:
        """What is new about a cell, in words; nothing if nothing is."""
        if self.texts is not None:
            return "" if cell in self.texts else f"{self.name} {cell!r} never seen"
        value = as_cell_number(cell)
        if value is None or self.low <= value <= self.high:
            return ""
        return f"{self.name} {cell} outside {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Columns:
    """How rows become states: learned from the table that a belief is trained on, and kept beside it."""

    features: tuple[Feature, ...]
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
        return cls(tuple(_feature(table, name) for name in names), actions)

    def states(self, table: Table) -> Tensor:
        """Rows as states, [S, D]. A text that was never seen in training is none of the known ones: all its columns are 0."""
        parts = []
        for feature in self.features:
            if feature.texts is None:
                parts.append(torch.tensor(table.numbers(feature.name), dtype=torch.float64)[:, None])
                continue
            number = {text: place for place, text in enumerate(feature.texts)}
            places = torch.tensor([number.get(cell, len(number)) for cell in table.column(feature.name)])
            parts.append(torch.nn.functional.one_hot(places, len(number) + 1)[:, :-1].double())
        return torch.cat(parts, dim=1)

    def remarks(self, table: Table) -> list[list[str]]:
        """What is new about each row: texts never seen in training, and numbers outside of their range there."""
        columns = [[feature.remark(cell) for cell in table.column(feature.name)] for feature in self.features]
        return [[remark for remark in row if remark] for row in zip(*columns, strict=True)]

    def save(self, folder: Path) -> None:
        """Write them beside a belief."""
        features = [asdict(feature) for feature in self.features]
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
            features = tuple(
                Feature(_text(part["name"]), _all_text(part["texts"]), float(part["low"]), float(part["high"]))
                for part in found["features"]
            )
            actions = _all_text(found["actions"])
        except (KeyError, TypeError, ValueError):
            raise BadFileError(f"{path}: not the columns of a table.") from None
        return cls(features, actions or ())


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


def _feature(table: Table, name: str) -> Feature:
    """A column as numbers, if all cells are; or as the different texts it has."""
    cells = table.column(name)
    if "" in cells:
        place = table.places[cells.index("")]
        raise BadFileError(f"{place}: column {name!r} is empty. Fill it, leave the row out, or ignore the column.")
    numbers = [as_cell_number(cell) for cell in cells]
    known = [number for number in numbers if number is not None]
    if len(known) == len(cells):
        return Feature(name, None, min(known), max(known))
    odd = numbers.index(None)
    if 2 * len(known) > len(cells) or DECIMAL_COMMA.fullmatch(cells[odd]):
        raise BadFileError(
            f"{table.places[odd]}: column {name!r} is {cells[odd]!r}, where a number was expected. Write it as one (with a "
            "point), leave the row out, or ignore the column."
        )
    if DATE.match(cells[odd]):
        raise BadFileError(
            f"{table.places[odd]}: column {name!r} is {cells[odd]!r}, which looks like a date: ignore the column, or write it "
            "as a number (days since something)."
        )
    found = in_order(cells)
    if len(found) > MOST_CATEGORIES:
        raise BadFileError(
            f"{table.path}: column {name!r} has {len(found)} different texts, more than {MOST_CATEGORIES}: ignore it, or write "
            "it as numbers."
        )
    return Feature(name, found)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _all_text(values: Any) -> tuple[str, ...] | None:
    return None if values is None else tuple(_text(value) for value in values)
