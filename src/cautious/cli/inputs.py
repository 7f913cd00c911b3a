"""A belief and the states to decide about, from the user's files: what `solve` and `calibrate` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.tables.cells import Table
    from cautious.tables.csv import FileTable
    from cautious.tables.schema import StateRows, TableSchema


class DecisionInputs(NamedTuple):
    """A belief and the states to decide about."""

    belief: RewardEnsemble
    states: Any
    """As the belief takes them, [S, ...]; without rows that cannot be judged."""
    rows: StateRows
    """The same; `rows.problems` says which rows cannot be judged."""
    table: Table | None = None
    """The table that the states come from, if any."""
    columns: TableSchema | None = None
    """The meaning of the table's columns."""


def load_belief(belief: Path) -> RewardEnsemble:
    """A belief about states that can be given in a file, so not the one about driving."""
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.errors import InvalidInputError

    models = RewardEnsemble.load(belief)
    if not models.state_shape:
        raise InvalidInputError(f"belief={str(belief)!r} is about driving; see 'cautious watch driving --help'.")
    return models


def load_decision_inputs(belief: Path, states: Path) -> DecisionInputs:
    """Load both; prints a warning if a table has values that the training data had not."""
    from dataclasses import replace

    from cautious.policy.rows import read_states
    from cautious.tables.array_files import load_states
    from cautious.tables.files import are_tables, read_tables
    from cautious.tables.frames import PARQUET
    from cautious.tables.schema import TableSchema

    models = load_belief(belief)
    table: Any = None
    columns = None
    if are_tables([states]):
        remarks = _Remarks()
        if states.suffix.lower() in PARQUET:
            table, columns = read_tables([states]), TableSchema.of(models)
            rows = columns.read(table)
            remarks.add(columns, table)
        else:
            table, columns, rows = _read_text(states, models, remarks)
        remarks.say()
    else:
        rows = read_states(models, load_states(states))
        named = replace(rows.problems.table, origin=str(states))  # type: ignore[type-var]
        rows = replace(rows, problems=replace(rows.problems, table=named))
    return DecisionInputs(models, rows.states, rows, table, columns)


def _read_text(path: Path, models: RewardEnsemble, remarks: _Remarks) -> tuple[FileTable, TableSchema, StateRows]:
    """The rows of a table of text as states. Only numbers are kept of them: the text of many rows may not fit."""
    from itertools import chain

    import numpy as np
    import torch

    from cautious.cli.console import progress_bar
    from cautious.tables.cells import Problems
    from cautious.tables.csv import FileTable, read_blocks, version_of
    from cautious.tables.schema import StateRows, TableSchema

    version, header, states, lines, bad = version_of(path), [], [], [], []
    with progress_bar("reading") as progress:
        blocks = read_blocks(path, progress)
        first = next(blocks)  # a file that cannot be read is named before a belief that does not know tables
        columns, count = TableSchema.of(models), 0
        for block in chain([first], blocks):
            header = block.header
            lines.append(np.array(block.lines, dtype=np.int64))
            rows = columns.read(block)
            states.append(rows.states)
            bad += [cell._replace(row=cell.row + count) for cell in rows.problems.cells]
            count += len(block)
            remarks.add(columns, block)
    table = FileTable(path, header, np.concatenate(lines), version)
    return table, columns, StateRows(torch.cat(states), Problems(table, tuple(bad)))


class _Remarks:
    """What is new about a table's values, column by column: the first remark, and how many there are."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, int]] = {}

    def add(self, columns: TableSchema, table: Table) -> None:
        """Count the remarks about a table, or about the next rows of it."""
        for feature in columns.features:
            remarks = [remark for remark in feature.remarks(table.read(feature.name)) if remark]
            if remarks:
                first, count = self._found.get(feature.name, (remarks[0], 0))
                self._found[feature.name] = first, count + len(remarks)

    def say(self) -> None:
        """Print a warning per column."""
        from cautious.cli.console import plural, say

        for first, count in self._found.values():
            others = f", and {plural(count - 1, 'more row')}" if count > 1 else ""
            say(f"warning: {first}{others}. Outside the training data, models may be overconfident.")
