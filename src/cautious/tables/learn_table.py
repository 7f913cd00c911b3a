"""What a table to learn from holds: which columns are features, which rows are left out, and what its owner should know.

The rules, all of which `learn` puts into words (`Learned.notes`):

- a column is numbers if more than half of its cells are; otherwise texts, each of which becomes a column of 0 and 1;
- a row with a cell that cannot be read (a text among numbers, an infinite number) is left out;
- a row with an empty cell is left out too; with ``missing="indicator"`` it stays, and the column gets one more that says so;
- a column of texts that nearly all differ is an identifier or a note, and left out; so is a column without any cell.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from torch import Tensor

from cautious.errors import BadFileError, InvalidInputError
from cautious.tables.cells import (
    EMPTY,
    BadCell,
    Column,
    Problems,
    Table,
    bad_numbers,
    check_column,
    place,
)
from cautious.tables.csv import in_order
from cautious.tables.frames import FrameTable
from cautious.tables.schema import (
    MOST_CATEGORIES,
    Feature,
    OutcomeColumns,
    TableSchema,
    refuse_spellings,
)

DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
ID_NAME = re.compile(r"(^|[^a-z])(id|nr|no|uuid|key)$", re.IGNORECASE)
FEWEST_NAMES = 10
"""So many different texts, in fewer than twice as many rows, are names of the rows and not features."""
FEW_ROWS = 20
"""From fewer rows than this, models learn little, and none can be held out to tell."""
FAR_OFF = 1e4
"""A number so many deviations of all others away from their middle is a typing error, or rules the training."""


class Missing(StrEnum):
    """What becomes of training rows with an empty cell."""

    LEAVE_OUT = "leave-out"
    """They are left out; new rows with an empty cell cannot be judged."""
    INDICATOR = "indicator"
    """They stay: the mean stands in the cell, and a further column says that it was empty. New rows may be empty there too."""


class Learned(NamedTuple):
    """A table as it is learned from."""

    schema: TableSchema
    states: Tensor
    """[S, D], the rows that are used."""
    rows: np.ndarray
    """Their numbers in the table, [S]."""
    notes: tuple[str, ...]
    """What its owner should know."""


def learn(table: Table, others: Sequence[str], missing: Missing, bad: Sequence[BadCell] = ()) -> Learned:
    """Find out what the columns of a table are, and which rows can be used.

    Args:
        table: What was seen.
        others: Columns that are no part of a state: outcomes, and what is to be ignored.
        missing: What to do with rows that have an empty cell.
        bad: Cells of the outcome that cannot be used: their rows are left out.
    """
    for name in others:
        check_column(table, name)
    names = [name for name in table.header if name not in others]
    notes: list[str] = []
    kinds: dict[str, bool] = {}
    for name in names:
        column = table.read(name)
        if column.missing.all():
            notes.append(f"column {name!r} is empty in every row: left out.")
        elif (is_text := _is_text(table, name, column)) and _names_rows(column):
            count = len(set(column.texts()))
            notes.append(
                f"column {name!r} has {count} different texts in {len(table)} rows: a name or a note of each row, and no "
                f"feature; left out. Leave it out yourself (--ignore {name}), or write what matters in it as a number or a few "
                "texts."
            )
        else:
            kinds[name] = is_text
    if not kinds:
        raise InvalidInputError(" ".join([f"{table.origin}: no column is left that says what a state is.", *notes]))
    holes = [cell for name, is_text in kinds.items() for cell in _bad_cells(table.read(name), name, is_text)]
    kept_holes = [cell for cell in holes if missing is Missing.INDICATOR and cell.what == EMPTY]
    left_out = sorted({*bad, *holes} - set(kept_holes))
    rows = np.setdiff1d(np.arange(len(table)), [cell.row for cell in left_out])
    notes += _what_was_left_out(table, left_out, kept_holes, len(rows), kinds)
    used = select(table, rows)
    with_holes = {cell.column for cell in kept_holes}
    features = tuple(_feature(used, name, is_text, name in with_holes) for name, is_text in kinds.items())
    schema = TableSchema(features, (), tuple(name for name in table.header if name not in kinds))
    notes += [note for feature in features for note in _about(used, feature)]
    if len(rows) < FEW_ROWS:
        notes.append(
            f"{len(rows)} {'row is' if len(rows) == 1 else 'rows are'} little to learn from: use at least {FEW_ROWS}, better "
            "some hundreds, and look at the diagnosis."
        )
    return Learned(schema, schema.states(used), rows, tuple(notes))


def learn_log(table: Table, outcome: OutcomeColumns, ignore: Sequence[str], missing: Missing) -> tuple[Learned, Tensor]:
    """What a log with its outcomes holds, and what each action paid in the rows that are used, [S, A]."""
    for name in (*outcome.columns, *ignore):
        check_column(table, name)
    learned = learn(table, (*outcome.columns, *ignore), missing, outcome.bad_cells(table))
    used = select(table, learned.rows)
    actions, rewards = outcome.of(used)
    notes = (*learned.notes, *about_rewards(actions, rewards, used))
    return learned._replace(schema=replace(learned.schema, actions=actions), notes=notes), rewards


def about_rewards(actions: Sequence[str], rewards: Tensor, table: Table) -> list[str]:
    """What the owner of a log should know about its rewards, [S, A]: one action only, or a reward that rules all others."""
    notes = []
    if rewards.shape[1] == 1:
        only = f"{actions[0]!r} is the only action" if actions else "there is only one action"
        notes.append(f"{only}: there is nothing to decide. Give rows, or a column, of another action too.")
    known = (~rewards.isnan()).nonzero()
    far = _far_off(rewards[~rewards.isnan()].numpy())
    if far is not None:
        row, action = known[far].tolist()
        name = actions[action] if actions else f"number {action}"
        notes.append(
            f"{place(table, row)}: the reward of {name} is {float(rewards[row, action]):g}, more than {FAR_OFF:g} times as far "
            "from the others as they are from each other: models will learn little else. Correct it, or leave the row out; if "
            "it is right, learn from its logarithm."
        )
    return notes


def select(table: Table, rows: np.ndarray) -> FrameTable:
    """Some rows of a table."""
    columns = {}
    for name in table.header:
        column = table.read(name)
        cells = column.cells[rows] if isinstance(column.cells, np.ndarray) else [column.cells[row] for row in rows]
        columns[name] = Column(cells, column.numbers[rows], column.missing[rows])
    return FrameTable(table.origin, columns, len(rows), [table.label(int(row)) for row in rows], table.unit)


def _is_text(table: Table, name: str, column: Column) -> bool:
    """Whether a column holds texts, and no numbers; a date, or numbers as Germans and French write them, are refused."""
    odd = np.flatnonzero(np.isnan(column.numbers) & ~column.missing)
    if not len(odd):
        return False
    num_numbers = len(column.numbers) - int(column.missing.sum()) - len(odd)
    first, text = int(odd[0]), column.text(int(odd[0]))
    if DECIMAL_COMMA.fullmatch(text):
        raise BadFileError(
            f"{place(table, first)}: column {name!r} is {text!r}, where a number was expected. Write it as one (with a "
            "point), leave the row out, or ignore the column."
        )
    if num_numbers > len(odd):
        return False
    if DATE.match(text):
        raise BadFileError(
            f"{place(table, first)}: column {name!r} is {text!r}, which looks like a date: ignore the column (--ignore), or "
            "write it as a number (days since something)."
        )
    return True


def _names_rows(column: Column) -> bool:
    known = [text for text, empty in zip(column.texts(), column.missing, strict=True) if not empty]
    count = len(set(known))
    return count >= FEWEST_NAMES and 2 * count > len(known)


def _bad_cells(column: Column, name: str, is_text: bool) -> list[BadCell]:
    if is_text:
        return [BadCell(int(row), name, EMPTY) for row in np.flatnonzero(column.missing)]
    return bad_numbers(column, name)


def _what_was_left_out(
    table: Table, left_out: Sequence[BadCell], kept_holes: Sequence[BadCell], num_rows: int, features: Collection[str]
) -> list[str]:
    """Which rows are not learned from and why, and which empty cells are."""
    notes = []
    if left_out:
        beyond_help = {cell.row for cell in left_out if cell.what != EMPTY or cell.column not in features}
        only_holes = len({cell.row for cell in left_out} - beyond_help)
        more = f' missing="indicator" would keep {only_holes:,} of them.' if only_holes else ""
        if not num_rows:
            raise BadFileError(f"{Problems(table, tuple(left_out))}; none is left to learn from.{more}")
        notes.append(f"{Problems(table, tuple(left_out))}; {num_rows:,} are learned from.{more}")
    if kept_holes:
        holes = "; ".join(Problems(table, tuple(kept_holes)).lines)
        notes.append(f"empty cells are learned as such, each in a column of its own: {holes}.")
    return notes


def _feature(table: Table, name: str, is_text: bool, with_holes: bool) -> Feature:
    column = table.read(name)
    if not is_text:
        known = column.numbers[~column.missing]
        if not len(known):
            raise BadFileError(
                f"{table.origin}: column {name!r} is empty in every row that can be used; ignore the column."
            )
        return Feature(name, None, float(known.min()), float(known.max()), float(known.mean()) if with_holes else None)
    found = in_order([text for text, empty in zip(column.texts(), column.missing, strict=True) if not empty])
    refuse_spellings(table, name, found)
    if len(found) > MOST_CATEGORIES:
        raise BadFileError(
            f"{table.origin}: column {name!r} has {len(found)} different texts, more than {MOST_CATEGORIES}: ignore it, or "
            "write it as numbers."
        )
    return Feature(name, found, fill=0.0 if with_holes else None)


def _about(table: Table, feature: Feature) -> list[str]:
    """What the owner of a table should know about a column."""
    column, name = table.read(feature.name), feature.name
    if len(table) == 1:
        return []  # everything is constant there
    if feature.texts is not None:
        if len(feature.texts) == 1 and feature.fill is None:
            return [_constant(name, repr(feature.texts[0]))]
        return []
    if feature.low == feature.high:
        return [_constant(name, f"{feature.low:g}")] if feature.fill is None else []
    if _counts_rows(column.numbers, name):
        return [
            f"column {name!r} has another whole number in each of {len(table)} rows, from {feature.low:.15g} to "
            f"{feature.high:.15g}: if it is an identifier or a row number, leave it out (--ignore {name}): new rows have "
            "others, and would look unusual for that alone."
        ]
    far = _far_off(column.numbers)
    if far is None:
        return []
    return [
        f"{place(table, far)}: column {name!r} is {column.text(far)}, more than {FAR_OFF:g} times as far from the others as "
        "they are from each other: correct it, or empty the cell if it stands for something unknown."
    ]


def _constant(name: str, value: str) -> str:
    return (
        f"column {name!r} is {value} in every row: nothing can be learned from it, and a row with anything else will look "
        f"unusual. Leave it out if that is not what you want (--ignore {name})."
    )


def _counts_rows(values: np.ndarray, name: str) -> bool:
    """Whether numbers look like identifiers: whole, all different, and consecutive, rising, or called so."""
    if np.isnan(values).any() or len(values) < FEWEST_NAMES or not (values == np.floor(values)).all():
        return False
    if len(np.unique(values)) < len(values):
        return False
    consecutive = values.max() - values.min() == len(values) - 1
    return bool(consecutive or (np.diff(values) > 0).all() or ID_NAME.search(name) is not None)


def _far_off(values: np.ndarray) -> int | None:
    """The number that is farthest from all others, if it is so far off that it rules what is learned; its place.

    It may be there several times, as numbers that stand for "unknown" are.
    """
    known = values[~np.isnan(values)]
    if len(known) < 3:
        return None
    distance = np.abs(values - np.median(known))
    far = int(np.nanargmax(distance))
    rest = known[known != values[far]]
    return far if len(rest) > 1 and distance[far] > FAR_OFF * float(rest.std()) > 0 else None
