"""What a table to learn from holds: which columns are features, which rows are left out, and what its owner should know.

The rules, all of which `learn` puts into words (`Learned.notes`):

- a column is numbers if more than half of its cells are; otherwise texts, each of which becomes a column of 0 and 1;
- a row with a cell that cannot be read (a text among numbers, an infinite number) is left out;
- a row with an empty cell is left out too; with ``missing="indicator"`` it stays, and the column gets one more that says so;
- a column of texts that nearly all differ is an identifier or a note, and left out; so is a column without any cell.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.errors import Advice, Argument, BadFileError, InvalidInputError, WordedWarning
from cautious.tables.arrays import load_dataset
from cautious.tables.cells import EMPTY, BadCell, Column, Problems, Table, bad_numbers, check_column, in_order, place
from cautious.tables.files import are_tables, read_tables
from cautious.tables.frames import FrameTable, as_table, index_of, is_named
from cautious.tables.kinds import Kind, as_kind, kind_of
from cautious.tables.notes import Note, about_empty, about_features, about_names, about_rewards, names_rows
from cautious.tables.payoffs import PAYOFFS_KEPT_AS, Payoffs, about_unused, label_numbers, payoffs_for
from cautious.tables.schema import (
    ACTIONS_KEPT_AS,
    KEPT_AS,
    MOST_CATEGORIES,
    OUTCOME_KEPT_AS,
    Feature,
    OutcomeColumns,
    TableSchema,
    code_text,
    refuse_spellings,
)
from cautious.validation import as_float_tensor, as_path, check_shape, parse_choice

DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
FEW_ROWS = 20
"""From fewer rows than this, models learn little, and none can be held out to tell."""


class Missing(StrEnum):
    """What becomes of training rows with an empty cell."""

    LEAVE_OUT = "leave-out"
    """They are left out; new rows with an empty cell cannot be judged."""
    INDICATOR = "indicator"
    """They stay: the mean stands in the cell, and a further column says that it was empty. New rows may be empty there too."""


class TableWarning(WordedWarning):
    """Something about a table that its owner should know: rows or columns left out, identifiers, a value far off."""


@dataclass(frozen=True)
class TrainingData:
    """What was seen in the past and what it paid, as `fit_ensemble` learns it."""

    inputs: Any
    """States, [S, ...]."""
    rewards: Any
    """What each action paid in each state, [S, A]; NaN where it was not tried."""
    names: dict[str, Any] = field(default_factory=dict)
    """What the belief's settings keep: the columns of its states and outcomes, and the names of its actions."""
    schema: TableSchema | None = None
    """How the rows of a table became states; None for arrays."""
    notes: tuple[Note, ...] = ()
    """What the owner of the table should know."""
    labels: Tensor | None = None
    """The number of each row's label, [S]; `rewards` are then what each action pays for it."""
    payoffs: Payoffs | None = None
    """With labels: what each action pays for each of them."""

    def outcomes(self, labels: Sequence[str] | None) -> dict[str, Any]:
        """What came of the rows, as `calibrate` takes it: rewards, or the labels by their names."""
        if self.labels is None or labels is None:
            return {"rewards": self.rewards}
        return {"labels": [labels[number] for number in self.labels.tolist()]}


class Learned(NamedTuple):
    """A table as it is learned from."""

    schema: TableSchema
    states: Tensor
    """[S, D], the rows that are used."""
    rows: np.ndarray
    """Numbers of these rows in the table, [S]."""
    notes: tuple[Note, ...]
    """What its owner should know."""


def read_log(
    data: Any,
    *,
    action: str | None = None,
    reward: str | None = None,
    rewards: Sequence[str] = (),
    label: str | None = None,
    payoffs: Any = None,
    ignore: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: str = "leave-out",
) -> TrainingData:
    """What a log says about past decisions: the states, and what each action paid in them, for `fit_ensemble`.

    Args:
        data: A table: a frame (pandas, polars), a dictionary of columns, or one or several files (.csv, .parquet). Or files of
            arrays (.npz, .safetensors) with "inputs" [S, ...] and "rewards" [S, A].
        action: The column with the action of each row.
        reward: The column with the reward of that action.
        rewards: Instead of these two: one column of rewards per action, empty where the action was not tried.
        label: Instead of these: the column that says what a row turned out to be, with `payoffs`.
        payoffs: What each action pays for each label, as `fit_ensemble` takes it.
        ignore: Columns that are no part of a state, such as names and dates. All others are.
        categorical: Columns whose numbers only name kinds, as postcodes do: each number then is a text.
        missing: What becomes of rows with an empty cell: "leave-out", or "indicator": they stay, with the column's mean in
            the cell and one more column that says that it was empty.

    Returns:
        The arrays with the names of their columns. Its `notes` say what was left out and what looks odd; they are also
        `TableWarning`s.

    Raises:
        InvalidInputError: A column is not there, or none is left that says what a state is.
        BadFileError: A file cannot be read, or what it holds cannot be learned from.

    >>> log = {"x": [0.0, 1.0] * 20, "did": ["go", "wait"] * 20, "paid": [1.0, 0.5] * 20}
    >>> found = read_log(log, action="did", reward="paid")
    >>> found.schema.actions, found.inputs.shape, found.rewards[0].tolist()
    (('go', 'wait'), torch.Size([40, 1]), [1.0, nan])
    """
    rule, ignore, codes = parse_choice(Missing, missing, "missing"), tuple(ignore), as_names(categorical)
    if is_named(data):
        table: Table = as_table(data, "data")
    else:
        several = list(data) if isinstance(data, (list, tuple)) else [data]
        paths = [as_path(path, "data") for path in several]
        if not (paths and are_tables(paths)):
            if action is not None or reward is not None or rewards or ignore or codes or label is not None:
                options = [Argument(name) for name in ("action", "reward", "rewards", "label", "ignore", "categorical")]
                listed = [part for option in options for part in (option, ", ")][:-1]
                raise InvalidInputError(
                    *listed, " are columns of a table (.csv, .parquet); arrays have none. Leave them out."
                )
            return TrainingData(*load_dataset(paths))
        table = read_tables(paths)
    outcome = OutcomeColumns(action, reward, tuple(rewards), label)
    if label is not None:
        found = _learn_labelled(table, outcome, payoffs, ignore, rule, codes)
    elif payoffs is not None:
        raise InvalidInputError(Argument("payoffs"), " go with a column of labels (", Argument("label"), ").")
    else:
        learned, paid = learn_log(table, outcome, ignore, rule, codes)
        names = {KEPT_AS: learned.schema.described(), OUTCOME_KEPT_AS: outcome.described()}
        found = TrainingData(learned.states, paid, names, learned.schema, learned.notes)
    _warn(found, 3)
    return found


def _learn_labelled(
    table: Table,
    outcome: OutcomeColumns,
    payoffs: Any,
    ignore: Sequence[str],
    missing: Missing,
    categorical: Sequence[str],
) -> TrainingData:
    """The training data of a log with a column of labels."""
    for name in (*outcome.columns, *ignore):
        check_column(table, name)
    learned = learn(table, (*outcome.columns, *ignore), missing, outcome.bad_cells(table), categorical)
    cells = select(table, learned.rows).read(str(outcome.label)).texts()
    kept = {OUTCOME_KEPT_AS: outcome.described()}
    return labelled(learned.states, cells, payoffs, learned.schema, learned.notes, kept, select(table, learned.rows))


def labelled(
    states: Any,
    labels: Any,
    payoffs: Any,
    schema: TableSchema | None = None,
    notes: Sequence[Note] = (),
    names: Mapping[str, Any] | None = None,
    table: Table | None = None,
) -> TrainingData:
    """The training data where the label of each row is known, and what each action pays for each label.

    Args:
        states: [S, ...].
        labels: S of them.
        payoffs: In any form that `fit_ensemble` takes.
        schema: How the rows of a table became states; None for arrays.
        notes: What is known to be odd so far.
        names: What else the belief's settings keep.
        table: The rows, for messages about them.
    """
    numbers, known = label_numbers(labels, len(states))
    found, unused = payoffs_for(payoffs, known, states, schema)
    at_stake = found.of_rows(states, schema)
    paid = at_stake[numbers] if at_stake.dim() == 2 else at_stake[torch.arange(len(numbers)), numbers]
    schema = None if schema is None else replace(schema, actions=found.actions)
    more = [Note((text,)) for text in about_unused(unused)]
    more += [] if table is None else about_rewards(found.actions, paid, table)
    kept = {**(names or {}), PAYOFFS_KEPT_AS: found.described()}
    if schema is not None:
        kept |= {KEPT_AS: schema.described()}
    elif found.actions:
        kept |= {ACTIONS_KEPT_AS: list(found.actions)}
    return TrainingData(states, paid, kept, schema, (*notes, *more), numbers, found)


def as_training_data(
    inputs: Any,
    rewards: Any,
    missing: str,
    labels: Any = None,
    payoffs: Any = None,
    categorical: Sequence[str] = (),
) -> TrainingData:
    """What `fit_ensemble` is given as arrays with names: frames and dictionaries of columns; arrays as they are.

    Args:
        inputs: Familiar states; or what `read_log` has returned, without `rewards`.
        rewards: What each action paid in them; NaN or nothing where it was not tried.
        missing: What becomes of rows with an empty cell (`Missing`).
        labels: Instead of rewards: what each row turned out to be, [S].
        payoffs: With labels: what each action pays for each of them.
        categorical: Columns whose numbers only name kinds.
    """
    rule, codes = parse_choice(Missing, missing, "missing"), as_names(categorical)
    if isinstance(inputs, TrainingData):
        for name, given in (
            ("rewards", rewards),
            ("labels", labels),
            ("payoffs", payoffs),
            ("categorical", codes or None),
        ):
            if given is not None:
                raise InvalidInputError(f"{name}: what read_log has returned holds them; leave them out.")
        return inputs
    if codes and not is_named(inputs):
        raise InvalidInputError(
            Argument("categorical"),
            ": an array has no named columns; pass a frame or a dictionary of columns as inputs.",
        )
    if labels is not None:
        if rewards is not None:
            raise InvalidInputError(
                "rewards and labels: pass one of them; with labels, payoffs say what each action pays for each label."
            )
        return _from_labels(inputs, labels, payoffs, rule, codes)
    if payoffs is not None:
        raise InvalidInputError("payoffs: they go with labels=..., which says what each row turned out to be.")
    if rewards is None:
        raise InvalidInputError(
            "rewards: missing; pass what each action paid in each row, [S, A]. Or, better where you have them, "
            "labels=... (what each row turned out to be) and payoffs=... (what each action pays for each label)."
        )
    rewards = same_rows(inputs, rewards)
    actions, paid = reward_columns(rewards) if is_named(rewards) else ((), rewards)
    if not is_named(inputs):
        return TrainingData(inputs, paid, {ACTIONS_KEPT_AS: list(actions)} if actions else {})
    table, known = as_table(inputs, "inputs"), as_float_tensor(paid, "rewards")
    if known.dim() == 2:  # `fit_ensemble` says what is wrong with another shape
        check_shape(known, "S A", "rewards", S=len(table))
    learned = learn(table, (), rule, (), codes)
    used = known[torch.from_numpy(learned.rows)] if known.dim() == 2 else known
    notes = [*learned.notes, *(about_rewards(actions, used, select(table, learned.rows)) if used.dim() == 2 else ())]
    schema = TableSchema(learned.schema.features, actions, learned.schema.others)
    found = TrainingData(learned.states, used, {KEPT_AS: schema.described()}, schema, tuple(notes))
    _warn(found, 5)  # past `fit_ensemble` and its wrapper
    return found


def _from_labels(inputs: Any, labels: Any, payoffs: Any, missing: Missing, categorical: Sequence[str]) -> TrainingData:
    """The training data of states and labels, given as arrays, frames or dictionaries of columns."""
    labels = same_rows(inputs, labels, "labels")
    if not is_named(inputs):
        states = inputs if hasattr(inputs, "shape") else as_float_tensor(inputs, "inputs")
        if not getattr(states, "ndim", 0):
            raise InvalidInputError("inputs: expected one row per state, [S, ...], got a single number.")
        found = labelled(states, labels, payoffs)
        _warn(found, 6)
        return found
    table = as_table(inputs, "inputs")
    numbers, names = label_numbers(labels, len(table))
    learned = learn(table, (), missing, (), categorical)
    kept = [names[number] for number in numbers[torch.from_numpy(learned.rows)].tolist()]
    used = select(table, learned.rows)
    found = labelled(learned.states, kept, payoffs, learned.schema, learned.notes, None, used)
    _warn(found, 6)  # past `fit_ensemble` and its wrapper
    return found


def _warn(data: TrainingData, stacklevel: int) -> None:
    for note in data.notes:
        warnings.warn(
            TableWarning(*(() if note.problems is None else (note.problems,)), *note.parts), stacklevel=stacklevel
        )


def read_log_of(belief: Any, paths: Sequence[Path]) -> tuple[TrainingData, Problems | None]:
    """The training data of a belief, read again from the files that it was trained on; and the rows that are left out.

    Args:
        belief: A `RewardEnsemble`.
        paths: Files as of `read_log`.

    Raises:
        InvalidInputError: The belief does not record how it was trained.
        BadFileError: The files hold other data.
    """
    if not are_tables(paths):
        return TrainingData(*load_dataset(paths)), None
    table, schema, outcome = read_tables(paths), TableSchema.of(belief), OutcomeColumns.of_training(belief)
    read = schema.read(table)
    cells = (*read.problems.cells, *outcome.bad_cells(table))
    problems = Problems(table, tuple(sorted(cells, key=lambda cell: cell.row)))
    learned_from = problems.usable  # as in training
    if not learned_from.any():
        raise BadFileError(f"{problems}; none is left.")
    used = select(table, np.flatnonzero(learned_from))
    states = read.states[learned_from[read.problems.usable]]
    if outcome.label is not None:
        return _labelled_again(belief, states, used.read(outcome.label).texts(), schema), problems if cells else None
    actions, paid = outcome.of(used)
    if actions != schema.actions:
        raise BadFileError(
            f"{table.origin}: its actions are {', '.join(map(repr, actions))}; those of the training were "
            f"{', '.join(map(repr, schema.actions))}. Give the training table."
        )
    return TrainingData(states, paid, schema=schema), problems if cells else None


def _labelled_again(belief: Any, states: Tensor, labels: Sequence[str], schema: TableSchema) -> TrainingData:
    """The training data of a belief about labels, whose states and labels were read again."""
    data = labelled(states, labels, replace(belief.payoffs, labels=belief.labels), schema)
    assert data.payoffs is not None
    if data.payoffs.labels != belief.labels:
        raise BadFileError(
            f"its labels are {', '.join(map(repr, data.payoffs.labels))}; those of the training were "
            f"{', '.join(map(repr, belief.labels))}. Give the training table."
        )
    return data


def as_names(columns: Any, name: str = "categorical") -> tuple[str, ...]:
    """Names of columns, checked to be several texts and not one."""
    if isinstance(columns, (str, bytes)) or not hasattr(columns, "__iter__"):
        raise InvalidInputError(
            Argument(name, columns), " must be a list of columns; write it as [...] for a single one."
        )
    return tuple(str(column) for column in columns)


def learn(
    table: Table, others: Sequence[str], missing: Missing, bad: Sequence[BadCell] = (), categorical: Sequence[str] = ()
) -> Learned:
    """Find out what the columns of a table are, and which rows can be used.

    Args:
        table: What was seen.
        others: Columns that are no part of a state: outcomes, and what is to be ignored.
        missing: What to do with rows that have an empty cell.
        bad: Cells of the outcome that cannot be used: their rows are left out.
        categorical: Columns whose numbers only name kinds.
    """
    for name in (*others, *categorical):
        check_column(table, name)
    outside = next((name for name in categorical if name in others), None)
    if outside is not None:
        raise InvalidInputError(
            Argument("categorical"), f": column {outside!r} is no part of a state; leave it out there."
        )
    columns = {name: table.read(name) for name in table.header if name not in others}
    empty = [name for name, column in columns.items() if column.missing.all()]
    kinds = {name: _kind(table, name, columns[name], categorical) for name in columns if name not in empty}
    free = [name for name, kind in kinds.items() if kind is Kind.TEXT and name not in categorical]
    naming = [name for name in free if not columns[name].kind and names_rows(columns[name])]
    kinds = {name: kind for name, kind in kinds.items() if name not in naming}
    notes = [*about_empty(empty), *about_names(table, naming)]
    if not kinds:
        raise InvalidInputError(
            " ".join([f"{table.origin}: no column is left that says what a state is.", *map(str, notes)])
        )
    holes = [cell for name, kind in kinds.items() for cell in _bad_cells(columns[name], name, kind)]
    kept_holes = [cell for cell in holes if missing is Missing.INDICATOR and cell.what == EMPTY]
    left_out = sorted({*bad, *holes} - set(kept_holes))
    rows = np.setdiff1d(np.arange(len(table)), [cell.row for cell in left_out])
    notes += _what_was_left_out(table, left_out, kept_holes, len(rows), kinds)
    used = select(table, rows)
    with_holes = {cell.column for cell in kept_holes}
    features = tuple(_feature(used, name, kind, name in with_holes) for name, kind in kinds.items())
    schema = TableSchema(features, (), tuple(name for name in table.header if name not in kinds))
    notes += about_features(used, features)
    if len(rows) < FEW_ROWS:
        few = f"{len(rows)} {'row is' if len(rows) == 1 else 'rows are'} little to learn from"
        notes.append(Note((f"{few}: use at least {FEW_ROWS}, better some hundreds, and look at the diagnosis.",)))
    return Learned(schema, schema.states(used), rows, tuple(notes))


def learn_log(
    table: Table, outcome: OutcomeColumns, ignore: Sequence[str], missing: Missing, categorical: Sequence[str] = ()
) -> tuple[Learned, Tensor]:
    """What a log with its outcomes holds, and what each action paid in the rows that are used, [S, A]."""
    for name in (*outcome.columns, *ignore):
        check_column(table, name)
    learned = learn(table, (*outcome.columns, *ignore), missing, outcome.bad_cells(table), categorical)
    used = select(table, learned.rows)
    actions, rewards = outcome.of(used)
    notes = (*learned.notes, *about_rewards(actions, rewards, used))
    return learned._replace(schema=replace(learned.schema, actions=actions), notes=notes), rewards


def select(table: Table, rows: np.ndarray) -> FrameTable:
    """Some rows of a table."""
    columns = {}
    for name in table.header:
        column = table.read(name)
        cells = column.cells[rows] if isinstance(column.cells, np.ndarray) else [column.cells[row] for row in rows]
        columns[name] = Column(cells, column.numbers[rows], column.missing[rows], column.kind)
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
            f"{place(table, first)}: column {name!r} is {text!r}, which looks like a date: ignore the column (",
            Argument("ignore"),
            "), write all its cells as 2026-11-19 or 2026-11-19T08:30, or write it as a number (days since something).",
        )
    return True


def _kind(table: Table, name: str, column: Column, categorical: Sequence[str]) -> Kind:
    """What the cells of a column are."""
    found = Kind.TEXT if name in categorical else kind_of(column)
    if found is None:
        return Kind.TEXT if _is_text(table, name, column) else Kind.NUMBER
    return found


def _bad_cells(column: Column, name: str, kind: Kind) -> list[BadCell]:
    if kind is Kind.TEXT:
        return [BadCell(int(row), name, EMPTY) for row in np.flatnonzero(column.missing)]
    return bad_numbers(as_kind(column, kind), name, None, kind.words)


def _what_was_left_out(
    table: Table, left_out: Sequence[BadCell], kept_holes: Sequence[BadCell], num_rows: int, features: Collection[str]
) -> list[Note]:
    """Which rows are not learned from and why, and which empty cells are."""
    notes = []
    if left_out:
        problems = Problems(table, tuple(left_out))
        beyond_help = {cell.row for cell in left_out if cell.what != EMPTY or cell.column not in features}
        only_holes = len({cell.row for cell in left_out} - beyond_help)
        more = (" ", Advice("missing", "indicator"), f" would keep {only_holes:,} of them.") if only_holes else ()
        if not num_rows:
            raise BadFileError(f"{problems}; none is left to learn from.", *more)
        notes.append(Note((f"; {num_rows:,} are learned from.", *more), problems))
    if kept_holes:
        holes = "; ".join(Problems(table, tuple(kept_holes)).lines)
        notes.append(Note((f"empty cells are learned as such, each in a column of its own: {holes}.",)))
    return notes


def _feature(table: Table, name: str, kind: Kind, with_holes: bool) -> Feature:
    column = as_kind(table.read(name), kind)
    if kind is not Kind.TEXT:
        known = column.numbers[~column.missing]
        if not len(known):
            raise BadFileError(
                f"{table.origin}: column {name!r} is empty in every row that can be used; ignore the column."
            )
        fill = float(known.mean()) if with_holes else None
        return Feature(name, None, float(known.min()), float(known.max()), fill, kind)
    texts = [text for text, empty in zip(column.texts(), column.missing, strict=True) if not empty]
    if not np.isnan(column.numbers[~column.missing]).any():  # numbers that only name kinds
        texts = [code_text(text) for text in texts]
    found = in_order(texts)
    refuse_spellings(table, name, found)
    if len(found) > MOST_CATEGORIES:
        raise BadFileError(
            f"{table.origin}: column {name!r} has {len(found)} different texts, more than {MOST_CATEGORIES}: ignore it, or "
            "write it as numbers."
        )
    return Feature(name, found, fill=0.0 if with_holes else None)


def reward_columns(rewards: Any, order: Sequence[str] | None = None) -> tuple[tuple[str, ...], Tensor]:
    """Rewards with a named column per action: the names, and [S, A], NaN where nothing is.

    Args:
        rewards: A frame, or a dictionary of columns.
        order: The actions of the training, in whose order they are then returned.
    """
    table = as_table(rewards, "rewards")
    if order is not None:
        if set(order) != set(table.header):
            raise InvalidInputError(
                f"rewards: columns {', '.join(map(repr, table.header))}; the actions of the training were "
                f"{', '.join(map(repr, order))}. Give these, in any order."
            )
        table = replace(table, columns={name: table.read(name) for name in order})
    bad = [cell for name in table.header for cell in bad_numbers(table.read(name), name) if cell.what != EMPTY]
    if bad:
        raise InvalidInputError(
            f"{Problems(table, tuple(bad))}. A reward is a number, or nothing where it is not known."
        )
    return tuple(table.header), torch.from_numpy(np.stack([table.read(name).numbers for name in table.header], axis=1))


def same_rows(inputs: Any, rewards: Any, name: str = "rewards") -> Any:
    """Rewards (or labels) in the order of the states, where both are of pandas: rows go together by their index."""
    ours, theirs = index_of(inputs), rewards.index if hasattr(rewards, "iloc") else None  # of a frame, or of a column
    if ours is None or theirs is None or len(ours) != len(theirs) or ours.equals(theirs):
        return rewards
    if ours.is_unique and theirs.is_unique and ours.isin(theirs).all():
        return rewards.loc[ours]
    raise InvalidInputError(
        f"{name}: its rows have other labels than the rows of inputs, or repeated labels in another order, so it is unclear "
        "which rows belong together; give both the same index, or call reset_index(drop=True) on both."
    )
