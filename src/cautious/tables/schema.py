"""Which columns of a table a state is made of, and what they mean as numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cautious.errors import Argument, BadFileError, InvalidInputError
from cautious.tables.cells import (
    EMPTY,
    BadCell,
    Column,
    Problems,
    Table,
    as_cell_number,
    bad_numbers,
    in_order,
)
from cautious.tables.kinds import Kind, as_kind, shown

KEPT_AS, OUTCOME_KEPT_AS, ACTIONS_KEPT_AS = "columns", "outcome", "actions"
"""Under which names a belief's settings hold what the columns of its table are; and actions, where states have no columns."""
ROWS_KEPT_AS, RANGES_KEPT_AS = "num_rows", "ranges"
"""The same for the number of familiar states; and, of vectors without columns, for the range of each number."""
MOST_CATEGORIES = 100
"""A column with more different texts than this is a name or a note, and no feature."""


class Trained(Protocol):
    """A belief that records how it was trained."""

    settings: dict[str, Any]

    @property
    def num_actions(self) -> int:
        """A."""
        ...

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape of one state."""
        ...


@dataclass(frozen=True)
class OutcomeColumns:
    """Which columns of a log say what came of a row: its label; or an action with its reward; or each action's reward."""

    action: str | None = None
    reward: str | None = None
    rewards: tuple[str, ...] = ()
    label: str | None = None

    def __post_init__(self) -> None:
        """One of the three forms, and whole."""
        logged = self.action is not None and self.reward is not None
        if (logged + bool(self.rewards) + (self.label is not None) != 1) or (self.action is None) != (
            self.reward is None
        ):
            raise InvalidInputError(
                "a table needs one of these: a column of labels and what each action pays for each label (",
                Argument("label"), ", ", Argument("payoffs"), "); an action column and a reward column (", Argument("action"),
                ", ", Argument("reward"), "); or one reward column per action, empty where the action was not tried (",
                Argument("rewards"), ").",
            )  # fmt: skip
        if len(set(self.columns)) < len(self.columns):
            raise InvalidInputError(f"{', '.join(map(repr, self.columns))}: a column is named twice.")

    @classmethod
    def of_training(cls, belief: Trained) -> OutcomeColumns:
        """The columns of the table that a belief was trained on."""
        outcome = belief.settings.get(OUTCOME_KEPT_AS)
        if not isinstance(outcome, dict):
            raise InvalidInputError(
                "belief: it does not record which columns of its table were actions and rewards; train it again, or pass "
                "familiar rows that it was not trained on."
            )
        parts = outcome.get("action"), outcome.get("reward"), tuple(outcome.get("rewards") or ()), outcome.get("label")
        return cls(*parts)

    def described(self) -> dict[str, Any]:
        """Plain values to keep in a belief's settings."""
        label = {} if self.label is None else {"label": self.label}
        return {"action": self.action, "reward": self.reward, "rewards": list(self.rewards), **label}

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that hold actions and rewards, or labels."""
        if self.label is not None:
            return (self.label,)
        return self.rewards or (str(self.action), str(self.reward))

    def bad_cells(self, table: Table) -> list[BadCell]:
        """Cells from which nothing can be learned: rewards that are no numbers, and actions or labels that are not named."""
        if self.label is not None:
            empty = np.flatnonzero(table.read(self.label).missing)
            return [BadCell(int(row), self.label, EMPTY) for row in empty]
        if self.rewards:  # an empty cell is an action that was not tried
            return [cell for name in self.rewards for cell in bad_numbers(table.read(name), name) if cell.what != EMPTY]
        named = table.read(str(self.action)).missing
        unnamed = [BadCell(int(row), str(self.action), EMPTY) for row in np.flatnonzero(named)]
        return unnamed + bad_numbers(table.read(str(self.reward)), str(self.reward))

    def of(self, table: Table) -> tuple[tuple[str, ...], Tensor]:
        """The actions' names, and what each paid in each row, [S, A], NaN where it was not tried.

        Rows with `bad_cells` have to be left out first.
        """
        if self.rewards:
            paid = [table.read(name).numbers for name in self.rewards]
            return self.rewards, torch.from_numpy(np.stack(paid, axis=1))
        column, earned = table.read(str(self.action)), table.read(str(self.reward)).numbers
        done, numbers = column.texts(), [as_cell_number(cell) for cell in column.texts()]
        if None not in numbers:
            done = [f"{number:.15g}" for number in numbers]  # 1, 1.0 and 01 are one action
        names = in_order(done)
        refuse_spellings(table, str(self.action), names)
        if len(names) > MOST_CATEGORIES:
            raise BadFileError(
                f"{table.origin}: column {self.action!r} has {len(names)} different actions; at most {MOST_CATEGORIES} are "
                "taken."
            )
        number = {name: place for place, name in enumerate(names)}
        tried = torch.tensor([number[name] for name in done])
        paid_by = torch.full((len(done), len(names)), torch.nan, dtype=torch.float64)
        return names, paid_by.scatter(1, tried[:, None], torch.from_numpy(earned.copy())[:, None])


@dataclass(frozen=True)
class Feature:
    """A column that is part of a state."""

    name: str
    texts: tuple[str, ...] | None = None
    """The texts it has, each of which becomes a column of 0 and 1; None for numbers."""
    low: float = 0.0
    high: float = 0.0
    """The smallest and the largest number in the table of the training."""
    fill: float | None = None
    """Where empty cells are familiar, what stands for them (their mean), beside a column that is 1 there; or None."""
    kind: str = ""
    """Of numbers: what they stand for (`kinds.Kind`)."""

    @property
    def width(self) -> int:
        """How many numbers of a state the column becomes."""
        return (1 if self.texts is None else len(self.texts)) + (self.fill is not None)

    def encode(self, column: Column) -> tuple[Tensor, list[BadCell]]:
        """Cells as numbers [S, width], and those that cannot be used.

        A text that was never seen in training is none of the known ones: all its columns are 0.
        """
        empty = column.missing
        if self.texts is None:
            column = as_kind(column, Kind(self.kind))
            values = np.where(empty & (self.fill is not None), self.fill or 0.0, column.numbers)
            parts = [torch.from_numpy(np.nan_to_num(values))[:, None]]
            bad = bad_numbers(column, self.name, (self.low, self.high), Kind(self.kind).words)
        else:
            places = torch.tensor(self._places(column))
            parts = [torch.nn.functional.one_hot(places, len(self.texts) + 1)[:, :-1].double()]
            empty = empty & (places == len(self.texts)).numpy()  # an old belief may know the text "NA"
            bad = [BadCell(int(row), self.name, EMPTY) for row in np.flatnonzero(empty)]
        if self.fill is not None:
            parts.append(torch.from_numpy(empty.astype(np.float64))[:, None])
            bad = [cell for cell in bad if cell.what != EMPTY]
        return torch.cat(parts, dim=1), bad

    def _places(self, column: Column) -> list[int]:
        """The number of each cell among the known texts; one more where it is none of them."""
        assert self.texts is not None
        known = {text: number for number, text in enumerate(self.texts)}
        # A frame's True is a file's "true".
        folded = {text.casefold(): number for number, text in enumerate(self.texts)}
        are_codes = all(as_cell_number(text) is not None for text in self.texts)
        return [
            folded.get(str(cell).casefold(), len(known))
            if isinstance(cell, (bool, np.bool_))
            else known.get(code_text(text) if are_codes else text, known.get(text, len(known)))
            for cell, text in zip(column.cells, column.texts(), strict=True)
        ]

    def remarks(self, column: Column) -> list[str]:
        """What is new about each cell, in words; nothing where nothing is."""
        if self.texts is not None:
            unknown, texts = len(self.texts), column.texts()
            return [
                f"{self.name} {text!r} never seen" if number == unknown and not empty else ""
                for number, text, empty in zip(self._places(column), texts, column.missing, strict=True)
            ]
        kind = Kind(self.kind)
        column = as_kind(column, kind)
        outside = (column.numbers < self.low) | (column.numbers > self.high)
        known = f"{shown(self.low, kind)} to {shown(self.high, kind)}"
        return [
            f"{self.name} {column.text(row)} outside {known}" if outside[row] else "" for row in range(len(outside))
        ]


@dataclass(frozen=True)
class StateRows:
    """Rows as states, and what is wrong with the rows that no model can judge."""

    states: Any
    """The rows that can be judged, as a belief takes them, [G, ...]."""
    problems: Problems
    """What is wrong with which of all B rows."""


@dataclass(frozen=True)
class TableSchema:
    """How rows become states: learned from the table that a belief is trained on, and kept in its settings."""

    features: tuple[Feature, ...]
    actions: tuple[str, ...] = ()
    """Their names; none where they have only numbers."""
    others: tuple[str, ...] | None = None
    """Columns of the training's table that are no part of a state; None where a belief does not say."""

    @property
    def width(self) -> int:
        """How many numbers a state has, D."""
        return sum(feature.width for feature in self.features)

    def check_columns(self, table: Table, *, strict: bool) -> None:
        """Raise unless every feature has its column; with `strict`, also for columns that the training's table had not."""
        names = [feature.name for feature in self.features]
        absent = [name for name in names if name not in table.header]
        known = {*names, *(self.others or ())}
        unknown = [] if self.others is None else [name for name in table.header if name not in known]
        if absent:
            one = f"no column {absent[0]!r}" if len(absent) == 1 else f"no columns {', '.join(map(repr, absent))}"
            unused = [name for name in table.header if name not in names]
            instead = f"; there are {', '.join(map(repr, unused))} instead" if unused else ""
            raise InvalidInputError(
                f"{table.origin}: {one}{instead}. A state needs {', '.join(map(repr, names))}, in any order."
            )
        if strict and unknown:
            raise InvalidInputError(
                f"{table.origin}: {', '.join(map(repr, unknown))} {'was' if len(unknown) == 1 else 'were'} not in the "
                f"training; give the columns {', '.join(map(repr, names))} (and no others, in case a name is misspelt)."
            )

    def read(self, table: Table, *, strict: bool = False) -> StateRows:
        """Rows as states [G, D], and the cells that cannot be used."""
        self.check_columns(table, strict=strict)
        encoded = [feature.encode(table.read(feature.name)) for feature in self.features]
        bad = sorted((cell for _, cells in encoded for cell in cells), key=lambda cell: cell.row)
        problems = Problems(table, tuple(bad))
        return StateRows(torch.cat([part for part, _ in encoded], dim=1)[problems.usable], problems)

    def states(self, table: Table, *, strict: bool = False) -> Tensor:
        """Rows as states, [S, D]; raises, naming every cell that cannot be used, if there is one."""
        rows = self.read(table, strict=strict)
        if rows.problems.cells:
            raise InvalidInputError(f"{rows.problems}. Fill in what is missing, or leave these rows out.")
        return rows.states

    def remarks(self, table: Table) -> list[list[str]]:
        """What is new about each row: texts never seen in training, and numbers outside of their range there."""
        columns = [feature.remarks(table.read(feature.name)) for feature in self.features]
        return [[remark for remark in row if remark] for row in zip(*columns, strict=True)]

    def news(self, table: Table) -> dict[str, tuple[str, int]]:
        """For each column with values that training did not have: the first remark, and the number of remarks."""
        found = {}
        for feature in self.features:
            remarks = [remark for remark in feature.remarks(table.read(feature.name)) if remark]
            if remarks:
                found[feature.name] = remarks[0], len(remarks)
        return found

    def check_number(self, name: str) -> None:
        """Raise unless there is a feature of this name that is always a number: payoffs may depend on it."""
        numbers = [f.name for f in self.features if f.texts is None and not Kind(f.kind).is_time]
        if name not in numbers:
            raise InvalidInputError(
                f"payoffs: {name!r} is neither a number nor a column of numbers of the states; these are "
                f"{', '.join(map(repr, numbers)) or 'none'}. Only a column that the models see can be part of a payoff."
            )
        if next(feature for feature in self.features if feature.name == name).fill is not None:
            raise InvalidInputError(
                f"payoffs: column {name!r} has empty cells, so that a payoff which depends on it is not known there; leave "
                "these rows out (", Argument("missing", "leave-out"), ").",
            )  # fmt: skip

    def numbers(self, states: Tensor, name: str) -> Tensor:
        """A column of numbers of rows [B, D], [B]."""
        first = 0
        for feature in self.features:
            if feature.name == name:
                return states[:, first]
            first += feature.width
        raise InvalidInputError(f"there is no column {name!r}.")

    def decoded(self, states: Tensor) -> dict[str, np.ndarray]:
        """Rows [B, D] as their columns again: numbers, and texts (None where training did not have the text)."""
        columns: dict[str, np.ndarray] = {}
        first = 0
        for feature in self.features:
            part = states[:, first : first + feature.width].double().cpu().numpy()
            first += feature.width
            empty = part[:, -1] > 0 if feature.fill is not None else np.zeros(len(part), dtype=bool)
            if feature.texts is None:
                columns[feature.name] = np.where(empty, np.nan, part[:, 0])
                continue
            known = part[:, : len(feature.texts)] > 0
            texts = np.array([*feature.texts, None], dtype=object)
            columns[feature.name] = texts[np.where(known.any(axis=1), known.argmax(axis=1), len(feature.texts))]
        return columns

    def described(self) -> dict[str, Any]:
        """Plain values to keep in a belief's settings, under "columns"."""
        return asdict(self)

    @classmethod
    def of(cls, belief: Trained) -> TableSchema:
        """The columns that a belief was trained on."""
        found = belief.settings.get(KEPT_AS)
        if found is None:
            raise InvalidInputError("belief: it was not trained on a table, so pass its states as arrays.")
        try:
            features = tuple(
                Feature(
                    _text(part["name"]),
                    _all_text(part["texts"]),
                    float(part["low"]),
                    float(part["high"]),
                    _finite(part.get("fill")),
                    Kind(part.get("kind", "")),
                )
                for part in found["features"]
            )
            schema = cls(features, _all_text(found["actions"]) or (), _all_text(found.get("others")))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BadFileError(
                "belief: what it keeps of its table does not describe columns; the file is damaged or another program's."
            ) from None
        num_actions = len(schema.actions) or belief.num_actions  # they may have no names
        if (num_actions, (schema.width,)) != (belief.num_actions, belief.state_shape):
            raise BadFileError(
                f"belief: its table has {schema.width} numbers per row and {num_actions} actions, its models take states "
                f"{list(belief.state_shape)} and know {belief.num_actions} actions."
            )
        return schema


def action_names(belief: Any) -> tuple[str, ...] | None:
    """The actions' names, where a belief was trained on a table, or on rewards with names."""
    settings = getattr(belief, "settings", None)
    if not isinstance(settings, dict):
        given = getattr(belief, "actions", None)  # a belief of the user's may have an attribute of this name
        return given if isinstance(given, tuple) and all(isinstance(name, str) for name in given) else None
    if settings.get(KEPT_AS) is not None:
        return belief.columns.actions or None
    names = settings.get(ACTIONS_KEPT_AS)
    if not isinstance(names, list) or len(names) != belief.num_actions or not all(isinstance(n, str) for n in names):
        return None
    return tuple(names)


def with_actions(settings: Mapping[str, Any], actions: Sequence[str]) -> dict[str, Any]:
    """A belief's settings with other names of its actions."""
    found = {name: part for name, part in settings.items() if name != ACTIONS_KEPT_AS}
    if found.get(KEPT_AS) is not None:
        return found | {KEPT_AS: {**found[KEPT_AS], "actions": list(actions)}}
    return found | ({ACTIONS_KEPT_AS: list(actions)} if actions else {})


def code_text(text: str) -> str:
    """A number that names a kind as one text, however it is written: 7, 7.0 and 007 are one; other texts stay as they are."""
    number = as_cell_number(text)
    return text if number is None else f"{number:.15g}"


def refuse_spellings(table: Table, name: str, texts: Sequence[str]) -> None:
    """Raise where texts of a column differ in capitals only: whoever wrote them meant the same."""
    spellings = Counter(text.casefold() for text in texts)
    alike = [text for text in texts if spellings[text.casefold()] > 1]
    if alike:
        raise BadFileError(
            f"{table.origin}: column {name!r} has {', '.join(map(repr, alike[:4]))}, which differ only in capitals; "
            "use one spelling."
        )


def _finite(value: Any) -> float | None:
    if value is not None and not math.isfinite(value):
        raise ValueError(value)
    return None if value is None else float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _all_text(values: Any) -> tuple[str, ...] | None:
    return None if values is None else tuple(_text(value) for value in values)
