"""Which columns of a table a state is made of, and what they mean as numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cautious.beliefs.datasets.csv import NOT_TRIED, TextTable, as_cell_number, in_order
from cautious.errors import BadFileError, InvalidInputError

if TYPE_CHECKING:
    from cautious.beliefs.ensemble import RewardEnsemble

KEPT_AS, OUTCOME_KEPT_AS = "columns", "outcome"
"""Under which names a belief's settings hold what the columns of its table are."""
MOST_CATEGORIES = 100
"""A column with more different texts than this is a name or a note, and no feature."""

DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}")


@dataclass(frozen=True)
class OutcomeColumns:
    """Which columns of a log hold actions and rewards: one action per row, or one column of rewards per action."""

    action: str | None = None
    reward: str | None = None
    rewards: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """One of the two forms, and whole."""
        logged = self.action is not None and self.reward is not None
        if logged == bool(self.rewards) or (self.action is None) != (self.reward is None):
            raise InvalidInputError(
                "a table needs either an action column and a reward column, or one reward column per action, empty where the "
                "action was not tried; on the command line --action COLUMN --reward COLUMN, or --rewards COLUMN COLUMN ..."
            )
        if len(set(self.columns)) < len(self.columns):
            raise InvalidInputError(f"{', '.join(map(repr, self.columns))}: a column is named twice.")

    @classmethod
    def of_training(cls, belief: RewardEnsemble) -> OutcomeColumns:
        """The columns of the table that a belief was trained on."""
        outcome = belief.settings.get(OUTCOME_KEPT_AS)
        if not isinstance(outcome, dict):
            raise InvalidInputError(
                "belief: it does not record which columns of its table were actions and rewards; train it again, or pass "
                "familiar rows that it was not trained on."
            )
        return cls(outcome.get("action"), outcome.get("reward"), tuple(outcome.get("rewards") or ()))

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names."""
        return self.rewards or (str(self.action), str(self.reward))

    def of(self, table: TextTable) -> tuple[tuple[str, ...], Tensor]:
        """The actions' names, and what each paid in each row, [S, A], NaN where it was not tried."""
        if self.rewards:
            columns = [table.numbers(name, gaps=True) for name in self.rewards]
            return self.rewards, torch.tensor(columns, dtype=torch.float64).T.contiguous()
        done, earned = table.column(str(self.action)), table.numbers(str(self.reward))
        for place, cell in zip(table.places, done, strict=True):
            if cell.lower() in NOT_TRIED:
                raise BadFileError(
                    f"{place}: column {self.action!r} is {cell!r}, which does not name an action; fill it in or remove the row."
                )
        numbers = [as_cell_number(cell) for cell in done]
        if None not in numbers:
            done = [f"{number:.15g}" for number in numbers]  # 1, 1.0 and 01 are one action
        names = in_order(done)
        _refuse_spellings(table, str(self.action), names)
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
class TableSchema:
    """How rows become states: learned from the table that a belief is trained on, and kept in its settings."""

    features: tuple[Feature, ...]
    actions: tuple[str, ...]

    @classmethod
    def learned(cls, table: TextTable, actions: tuple[str, ...], others: Sequence[str]) -> TableSchema:
        """Every column but `others`, the outcome and what is to be ignored, is a feature."""
        for name in others:
            table.check_column(name)
        names = [name for name in table.header if name not in others]
        if not names:
            raise InvalidInputError(f"{table.path}: no column is left that says what a state is.")
        return cls(tuple(_feature(table, name) for name in names), actions)

    def states(self, table: TextTable) -> Tensor:
        """Rows as states, [S, D]. A text that was never seen in training is none of the known ones: all its columns are 0."""
        parts = []
        for feature in self.features:
            if feature.texts is None:
                parts.append(torch.tensor(table.numbers(feature.name), dtype=torch.float64)[:, None])
                continue
            number, cells = {text: place for place, text in enumerate(feature.texts)}, table.column(feature.name)
            _refuse_gaps(table, feature.name, cells)
            places = torch.tensor([number.get(cell, len(number)) for cell in cells])
            parts.append(torch.nn.functional.one_hot(places, len(number) + 1)[:, :-1].double())
        return torch.cat(parts, dim=1)

    def remarks(self, table: TextTable) -> list[list[str]]:
        """What is new about each row: texts never seen in training, and numbers outside of their range there."""
        columns = [[feature.remark(cell) for cell in table.column(feature.name)] for feature in self.features]
        return [[remark for remark in row if remark] for row in zip(*columns, strict=True)]

    def described(self) -> dict[str, Any]:
        """Plain values to keep in a belief's settings, under "columns"."""
        return asdict(self)

    @classmethod
    def of(cls, belief: RewardEnsemble) -> TableSchema:
        """The columns that a belief was trained on."""
        found = belief.settings.get(KEPT_AS)
        if found is None:
            raise InvalidInputError("belief: it was not trained on a table, so pass its states as arrays.")
        try:
            features = tuple(
                Feature(_text(part["name"]), _all_text(part["texts"]), float(part["low"]), float(part["high"]))
                for part in found["features"]
            )
            actions = _all_text(found["actions"]) or ()
        except (KeyError, TypeError, ValueError):
            raise BadFileError(
                "belief: what it keeps of its table does not describe columns; the file is damaged or another program's."
            ) from None
        width = sum(1 if feature.texts is None else len(feature.texts) for feature in features)
        if (len(actions), (width,)) != (belief.num_actions, belief.state_shape):
            raise BadFileError(
                f"belief: its table has {width} numbers per row and {len(actions)} actions, its models take states "
                f"{list(belief.state_shape)} and know {belief.num_actions} actions."
            )
        return cls(features, actions)


def _feature(table: TextTable, name: str) -> Feature:
    """A column as numbers, if all cells are; or as the different texts it has."""
    cells = table.column(name)
    _refuse_gaps(table, name, cells)
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
    _refuse_spellings(table, name, found)
    if len(found) > MOST_CATEGORIES:
        raise BadFileError(
            f"{table.path}: column {name!r} has {len(found)} different texts, more than {MOST_CATEGORIES}: ignore it, or write "
            "it as numbers."
        )
    return Feature(name, found)


def _refuse_gaps(table: TextTable, name: str, cells: Sequence[str]) -> None:
    if "" in cells:
        place = table.places[cells.index("")]
        raise BadFileError(f"{place}: column {name!r} is empty. Fill it, leave the row out, or ignore the column.")


def _refuse_spellings(table: TextTable, name: str, texts: Sequence[str]) -> None:
    """Texts that differ in capitals only are the same to whoever wrote them."""
    spellings = Counter(text.casefold() for text in texts)
    alike = [text for text in texts if spellings[text.casefold()] > 1]
    if alike:
        raise BadFileError(f"{table.path}: column {name!r} has {', '.join(map(repr, alike[:4]))}: write them alike.")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _all_text(values: Any) -> tuple[str, ...] | None:
    return None if values is None else tuple(_text(value) for value in values)
