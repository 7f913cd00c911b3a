"""Labels, and what each action pays for each label: for logs that record what a row turned out to be.

    r(x, a) = Σ_l P(label l | x) · payoff[l, a]

Models learn the probabilities; the payoffs stay outside of them, and may be changed without training again. A payoff is a
number, or depends on the row: it is a column, or a number times a column (`Payoffs.of_rows`).
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.errors import Argument, BadFileError, InvalidInputError
from cautious.tables.cells import MOST_LISTED, NOT_TRIED, Table, as_cell_number, as_text, in_order
from cautious.tables.files import are_tables, read_tables
from cautious.tables.frames import as_table, index_of, is_frame
from cautious.tables.schema import MOST_CATEGORIES, TableSchema
from cautious.validation import are_counts, as_float_tensor, as_number, as_path, check_shape, check_size

SIGNED = re.compile(r"([+-]?)\s*(.*)", re.DOTALL)
FORMS = "a number, a column of numbers (amount, -amount), or a number times one (0.1*amount)"
LABELS_KEPT_AS, PAYOFFS_KEPT_AS = "labels", "payoffs"
"""Under which names a belief's settings hold its labels, with how often each occurs in training, and its payoffs."""
LARGEST = 1e18
"""Largest absolute payoff or factor."""

PayoffFunction = Callable[[Any], Any]
"""From rows to payoffs [B, L, A], or to a dictionary of [B, L] for each action. Rows of a belief that was trained on a table
are a dictionary of columns; otherwise they are the array of states."""


@dataclass(frozen=True, eq=False)
class Payoffs:
    """What each of A actions pays for each of L labels."""

    labels: tuple[str, ...]
    """In the order in which models know them."""
    actions: tuple[str, ...]
    """Their names; none where the payoffs came without."""
    table: Tensor
    """The part that is the same in all rows, [L, A], float64."""
    factors: Mapping[str, Tensor] = field(default_factory=dict)
    """For each column that payoffs depend on, what it is multiplied by, [L, A], float64."""
    function: PayoffFunction | None = None
    """Instead of both: from rows to payoffs."""

    @property
    def num_actions(self) -> int:
        """A."""
        return self.table.shape[1]

    @property
    def depend_on_rows(self) -> bool:
        """Whether rows differ in their payoffs."""
        return bool(self.factors) or self.function is not None

    def with_actions(self, names: Sequence[str]) -> Payoffs:
        """The same payoffs with their actions in another order."""
        order = [self.actions.index(name) for name in names]
        factors = {column: factor[:, order] for column, factor in self.factors.items()}
        return replace(self, actions=tuple(names), table=self.table[:, order], factors=factors)

    def of_rows(self, states: Any, columns: TableSchema | None) -> Tensor:
        """Payoffs in these rows, [B, L, A]; or [L, A] where they are the same in all.

            payoff(x)[l, a] = table[l, a] + Σ_c factors_c[l, a] · x_c

        Args:
            states: Rows as the belief was trained on them, [B, ...].
            columns: What they are made of; None for arrays without names.
        """
        if self.function is not None:
            return self._called(states, columns)
        if not self.factors:
            return self.table
        assert columns is not None
        rows = as_float_tensor(states, "states").double().cpu()
        total = self.table.expand(len(rows), -1, -1)
        for name, factor in self.factors.items():
            total = total + factor * columns.numbers(rows, name)[:, None, None]
        return total

    def _called(self, states: Any, columns: TableSchema | None) -> Tensor:
        assert self.function is not None
        found, actions = called(self.function, states, columns)
        if actions != self.actions:
            raise InvalidInputError(
                f"payoffs: the function names the actions {actions} here, and {self.actions} before."
            )
        check_shape(found, "B L A", "payoffs", B=len(states), L=len(self.labels), A=self.num_actions)
        return found

    def checked_for(self, columns: TableSchema | None) -> Payoffs:
        """The same, if these rows have every column that payoffs depend on."""
        for name in self.factors:
            if columns is None:
                raise InvalidInputError(
                    f"payoffs: {name!r} is not a number, and the states are an array without named columns; pass a table, or "
                    "a function of the states that returns payoffs [B, L, A]."
                )
            columns.check_number(name)
        return self

    def described(self) -> dict[str, Any]:
        """Plain values to keep in a belief's settings."""
        if self.function is not None:
            return {"function": getattr(self.function, "__name__", type(self.function).__name__)}
        columns = {name: factor.tolist() for name, factor in self.factors.items()}
        return {"actions": list(self.actions), "table": self.table.tolist(), "columns": columns}

    @classmethod
    def restored(cls, described: Any, labels: tuple[str, ...]) -> Payoffs:
        """The payoffs that `described` wrote.

        Raises:
            BadFileError: It is something else.
        """
        try:
            names = described["actions"]
            parts = [described["table"], *described["columns"].values()]
            tensors = [torch.tensor(part, dtype=torch.float64) for part in parts]
            sizes = {tuple(part.shape) for part in tensors}
            columns = dict(zip(described["columns"], tensors[1:], strict=True))
            good = len(sizes) == 1 and tensors[0].dim() == 2 and len(tensors[0]) == len(labels)
            good &= all(bool(part.isfinite().all()) for part in tensors) and all(
                isinstance(name, str) for name in names
            )
            if not good or len(names) not in (0, tensors[0].shape[1]):
                raise ValueError(sizes)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise BadFileError(
                "belief: what it keeps of its payoffs is no table of numbers; the file is damaged or another program's."
            ) from None
        return cls(labels, tuple(names), tensors[0], columns)


def payoffs_for(
    payoffs: Any, labels: Sequence[str], states: Any, columns: TableSchema | None
) -> tuple[Payoffs, tuple[str, ...]]:
    """Payoffs of any form (`read_payoffs`, or a function of rows) for states like these; and labels that never occur.

    Args:
        payoffs: As of `read_payoffs`; or a function from rows to payoffs [B, L, A] (`PayoffFunction`).
        labels: The labels of the training, L.
        states: Some rows, [B, ...], on which a function is tried.
        columns: What they are made of; None for arrays without names.
    """
    if callable(payoffs) and not isinstance(payoffs, Payoffs) and not is_frame(payoffs):
        tried, actions = called(payoffs, states, columns)
        check_shape(tried, "B L A", f"payoffs for the labels {', '.join(map(repr, labels))}", L=len(labels))
        return Payoffs(tuple(labels), actions, torch.zeros(tried.shape[1:], dtype=torch.float64), {}, payoffs), ()
    found, unused = read_payoffs(payoffs, labels)
    return found.checked_for(columns), unused


def about_unused(unused: Sequence[str]) -> list[str]:
    """What the owner of a payoff table should know about labels in it that never occur in training."""
    if not unused:
        return []
    which = (
        f"label {unused[0]!r} never occurs"
        if len(unused) == 1
        else f"labels {', '.join(map(repr, unused))} never occur"
    )
    return [f"payoffs: the {which} in training: no model can expect it, and its payoffs are not used."]


def called(function: PayoffFunction, states: Any, columns: TableSchema | None) -> tuple[Tensor, tuple[str, ...]]:
    """What a function of the user's says about rows: payoffs [B, L, A], checked to be finite, and the names of the actions."""
    try:
        found = function(states if columns is None else columns.decoded(as_float_tensor(states, "states")))
    except Exception as error:  # whatever a user's function may raise
        raise InvalidInputError(f"payoffs: the function failed ({type(error).__name__}: {error}).") from error
    names: tuple[str, ...] = ()
    if isinstance(found, Mapping):
        names = tuple(map(str, found))
        found = torch.stack(
            [as_float_tensor(part, f"payoffs of {name}").double() for name, part in found.items()], dim=-1
        )
    payoffs = as_float_tensor(found, "payoffs").double().cpu()
    check_shape(payoffs, "B L A", "payoffs", B=len(states))
    check_size(payoffs, "payoffs", LARGEST)
    return payoffs, names


class KeptLabels(NamedTuple):
    """The labels that models predict."""

    names: tuple[str, ...]
    shares: Tensor
    """How often each occurs among the rows of the training, [L], float64."""
    smoothing: float
    """Weight of the shares in the targets that were learned (`beliefs.labels.smoothed`)."""


def described_labels(labels: Sequence[str], numbers: Tensor, smoothing: float) -> dict[str, Any]:
    """The labels and how often each occurs among the rows of the training [S], to keep in a belief's settings."""
    counts = numbers.bincount(minlength=len(labels)).tolist()
    return {"names": list(labels), "counts": counts, "smoothing": smoothing}


def kept_labels(settings: Mapping[str, Any]) -> KeptLabels:
    """What `described_labels` wrote.

    Raises:
        BadFileError: It is something else.
    """
    kept = settings.get(LABELS_KEPT_AS)
    names: Any = kept.get("names") if isinstance(kept, dict) else None
    counts: Any = kept.get("counts") if isinstance(kept, dict) else None
    smoothing = as_number(kept.get("smoothing")) if isinstance(kept, dict) else math.nan
    lists = (
        isinstance(names, list) and isinstance(counts, list) and len(names) == len(counts) > 1 and 0 <= smoothing < 1
    )
    if not lists or not all(isinstance(name, str) for name in names) or not are_counts(*counts):
        raise BadFileError("belief: what it keeps of its labels is no list of names and counts; the file is damaged.")
    tried = torch.tensor(counts, dtype=torch.float64)
    return KeptLabels(tuple(names), tried / tried.sum(), smoothing)


def label_numbers(labels: Any, num_rows: int) -> tuple[Tensor, tuple[str, ...]]:
    """Each row's label as a number [S], and the names of all labels that occur, in the order of these numbers.

    Labels are compared as texts: 1, 1.0 and "1" are the same label. Numbers are sorted by size, other labels by the alphabet.

    >>> label_numbers(["repaid", "default", "repaid"], 3)
    (tensor([1, 0, 1]), ('default', 'repaid'))
    """
    cells = labels.tolist() if hasattr(labels, "tolist") else labels
    if isinstance(cells, (str, bytes, Mapping)) or not hasattr(cells, "__iter__"):
        raise InvalidInputError("labels: expected one label per row: a list, an array or a column of a frame.")
    cells = list(cells)
    if len(cells) != num_rows:
        raise InvalidInputError(f"labels: {len(cells):,} labels for {num_rows:,} rows; give one per row.")
    odd = next((cell for cell in cells if isinstance(cell, (list, dict, set)) or not isinstance(cell, Hashable)), None)
    if odd is not None:
        raise InvalidInputError(f"labels: one of them is a {type(odd).__name__}; expected one text or number per row.")
    texts = [label_text(cell) for cell in cells]
    empty = [row for row, text in enumerate(texts) if text.lower() in (*NOT_TRIED, "nat", "none")]
    if empty:
        rows = ", ".join(map(str, empty[:6])) + (", ..." if len(empty) > 6 else "")
        raise InvalidInputError(f"labels: {len(empty):,} rows have none (rows {rows}); leave these rows out.")
    names = in_order(texts)
    check_labels(names, "labels")
    place = {name: number for number, name in enumerate(names)}
    return torch.tensor([place[text] for text in texts]), names


def numbers_of_labels(labels: Any, known: Sequence[str], num_rows: int) -> Tensor:
    """Each row's label as its number among the labels of the training, [S]."""
    numbers, names = label_numbers(labels, num_rows)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInputError(
            f"labels: {', '.join(map(repr, unknown))} did not occur in training; its labels were "
            f"{', '.join(map(repr, known))}."
        )
    return torch.tensor([known.index(name) for name in names])[numbers]


def label_text(cell: Any) -> str:
    """A label as the text by which it is compared."""
    number = None if isinstance(cell, (bool, np.bool_)) else as_cell_number(as_text(cell))
    return as_text(cell) if number is None else f"{number:.15g}"


def check_labels(names: Sequence[str], what: str) -> None:
    """Raise where labels cannot be learned: only one, more than `MOST_CATEGORIES`, or two spellings of one."""
    if len(names) < 2:
        raise InvalidInputError(
            f"{what}: every row has the label {names[0]!r}; models need rows of two labels at least."
        )
    if len(names) > MOST_CATEGORIES:
        raise InvalidInputError(
            f"{what}: {len(names):,} different labels, at most {MOST_CATEGORIES} are taken. Labels are kinds of rows; for "
            "numbers, such as what was earned, pass rewards instead."
        )
    folded: dict[str, str] = {}
    for name in names:
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            raise InvalidInputError(f"{what}: {other!r} and {name!r} differ only in capitals; use one spelling.")


def read_payoffs(payoffs: Any, labels: Sequence[str]) -> tuple[Payoffs, tuple[str, ...]]:
    """Payoffs as a caller gives them, in the order of `labels`; and labels that have payoffs but never occur.

    Args:
        payoffs: A file (.csv, .parquet) or a frame, whose first column has the labels and whose other columns are the actions
            (a pandas frame may have the labels as its index); a dictionary {label: {action: payoff}}; or an array [L, A] in
            the order of `labels`. A payoff is a number, a column's name, or a number times a column: "-amount", "0.1*amount".
        labels: The labels of the training, L.

    Raises:
        InvalidInputError: A label or a payoff is missing, repeated, or of no known form.

    >>> at_stake = {"bad": {"lend": "-amount", "refuse": 0}, "good": {"lend": 1, "refuse": 0}}
    >>> found, unused = read_payoffs(at_stake, ["bad", "good"])
    >>> found.actions, found.table.tolist(), found.factors["amount"].tolist()
    (('lend', 'refuse'), [[0.0, 0.0], [1.0, 0.0]], [[-1.0, 0.0], [0.0, 0.0]])
    """
    if isinstance(payoffs, Payoffs):
        rows = {name: row for row, name in enumerate(payoffs.labels)}
        order, unused = _in_order_of(labels, rows)
        parts = {name: factor[order] for name, factor in payoffs.factors.items()}
        return replace(payoffs, labels=tuple(labels), table=payoffs.table[order], factors=parts), unused
    if payoffs is None:
        raise InvalidInputError(
            Argument("payoffs"),
            ": missing; say what each action pays for each label: a dictionary {label: {action: payoff}}, a frame or "
            f"a file with a row per label, or an array [L, A] for the labels {', '.join(map(repr, labels))}.",
        )
    if isinstance(payoffs, Mapping):
        return _of_cells(*_cells_of_mapping(payoffs), labels)
    if isinstance(payoffs, (str, Path)):
        path = as_path(payoffs, "payoffs")
        if not are_tables([path]):
            raise InvalidInputError(f"payoffs: {path} must end in .csv, .tsv or .parquet.")
        return _of_cells(*_cells_of_table(read_tables([path])), labels)
    if is_frame(payoffs):
        table_of = as_table(payoffs, "payoffs")
        return _of_cells(*_cells_of_table(table_of, _labels_of_index(payoffs, table_of, labels)), labels)
    table = as_float_tensor(payoffs, "payoffs").double().cpu()
    check_shape(table, "L A", f"payoffs for the labels {', '.join(map(repr, labels))}", L=len(labels))
    check_size(table, "payoffs", LARGEST)
    return Payoffs(tuple(labels), (), table), ()


def _labels_of_index(frame: Any, table: Table, labels: Sequence[str]) -> list[str] | None:
    """The labels that a pandas frame has as its index: one with a name, or one that names them where no column does.

    None for rows that are just numbered, in whatever order, and for other frames: their first column has the labels.
    """
    index = index_of(frame)
    if index is None:
        return None
    found = [label_text(label) for label in index]
    if index.name is not None:
        return found
    if list(index) == list(range(len(index))):
        return None
    in_column = set(labels) <= {label_text(text) for text in table.read(table.header[0]).texts()}
    if in_column and set(labels) <= set(found):
        raise InvalidInputError(
            f"payoffs: both the index and the column {table.header[0]!r} name all labels, in different rows perhaps; pass "
            "frame.reset_index(drop=True) for the column, or give the index a name."
        )
    return None if in_column else found


def _cells_of_mapping(payoffs: Mapping[Any, Any]) -> tuple[list[str], list[str], list[list[Any]]]:
    """Labels, actions and cells of {label: {action: payoff}}."""
    rows: dict[str, Mapping[Any, Any]] = {}
    for label, row in payoffs.items():
        text = label_text(label)
        if not isinstance(row, Mapping):
            raise InvalidInputError(
                f"payoffs: {text!r} has {row!r}; expected a dictionary of the actions, {{label: {{action: payoff}}}}."
            )
        if text in rows:
            raise InvalidInputError(f"payoffs: two rows for the label {text!r}; give one.")
        rows[text] = {str(action): cell for action, cell in row.items()}
    actions = list(dict.fromkeys(action for row in rows.values() for action in row))
    return list(rows), actions, [[row.get(action) for action in actions] for row in rows.values()]


def _cells_of_table(table: Table, labels: list[str] | None = None) -> tuple[list[str], list[str], list[list[Any]]]:
    """Labels, actions and cells of a table whose first column has the labels, unless they are given."""
    actions = table.header if labels is not None else table.header[1:]
    if labels is None:
        labels = [label_text(text) for text in table.read(table.header[0]).texts()]
    columns = [list(table.read(name).cells) for name in actions]
    return labels, list(actions), [[column[row] for column in columns] for row in range(len(table))]


def _of_cells(
    names: list[str], actions: list[str], cells: list[list[Any]], labels: Sequence[str]
) -> tuple[Payoffs, tuple[str, ...]]:
    if not actions:
        raise InvalidInputError(
            "payoffs: no action; give a column of payoffs for each action, beside that of the labels."
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(f"payoffs: two rows for the label {twice!r}; give one.")
    order, unused = _in_order_of(labels, {name: row for row, name in enumerate(names)})
    table = torch.zeros(len(labels), len(actions), dtype=torch.float64)
    factors: dict[str, Tensor] = {}
    for place, row in enumerate(order):
        for number, action in enumerate(actions):
            where = f"payoffs: label {labels[place]!r}, action {action!r}"
            value, column = _term(cells[row][number], where)
            part = table if column is None else factors.setdefault(column, torch.zeros_like(table))
            part[place, number] = value
    return Payoffs(tuple(labels), tuple(actions), table, factors), unused


def _in_order_of(labels: Sequence[str], rows: Mapping[str, int]) -> tuple[list[int], tuple[str, ...]]:
    """The number of each label's row, and labels of rows that never occur."""
    missing = [label for label in labels if label not in rows]
    unused = tuple(name for name in rows if name not in labels)
    if missing:
        near = [name for name in unused if name.casefold() == missing[0].casefold()]
        there = ", ".join(map(repr, list(rows)[:MOST_LISTED])) + (", ..." if len(rows) > MOST_LISTED else "")
        instead = f" (there is {near[0]!r}: use one spelling)" if near else f"; there are {there}"
        raise InvalidInputError(
            f"payoffs: none for the label{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}{instead}. Each "
            "label of the training needs a row."
        )
    return [rows[label] for label in labels], unused


def _term(cell: Any, where: str) -> tuple[float, str | None]:
    """A payoff as (number, None), or as (factor, column).

    >>> _term("2.5", ""), _term("-amount", ""), _term("0.1 * loan size", "")
    ((2.5, None), (-1.0, 'amount'), (0.1, 'loan size'))
    """
    if isinstance(cell, numbers.Real) and math.isfinite(cell):
        return _checked(float(cell), where, as_text(cell)), None  # as it is: a text would have 15 digits of it
    text = as_text(cell).strip()
    if text.lower() in NOT_TRIED or text == "None":
        raise InvalidInputError(f"{where}: no payoff; give {FORMS}.")
    number = as_cell_number(text)
    if number is not None:
        return _checked(number, where, text), None
    match = SIGNED.fullmatch(text)
    assert match is not None  # the second group takes any text
    sign, rest = -1.0 if match[1] == "-" else 1.0, match[2].strip()
    left, star, right = rest.partition("*")
    factor = as_cell_number(left.strip()) if star else 1.0
    column = right.strip() if star else rest
    if factor is None or (star and left.strip()[:1] in "+-") or not column or _is_odd(column):
        raise InvalidInputError(f"{where}: {text!r} is not known; a payoff is {FORMS}.")
    return _checked(sign * factor, where, text), column


def _is_odd(column: str) -> bool:
    """Whether a text cannot be meant as a column: another sign, or a number that is not finite."""
    return column[0] in "+-*/" or column.lower() in ("inf", "infinity", "nan")


def _checked(value: float, where: str, text: str) -> float:
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise InvalidInputError(f"{where}: {text!r} is too large; at most ±{LARGEST:g}.")
    return value
