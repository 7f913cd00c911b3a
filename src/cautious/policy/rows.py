"""States to decide about, from memory or from a file; and rows that no model can judge.

No model can judge cells that are empty or no numbers, and numbers so large that predictions overflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.errors import InvalidInputError
from cautious.policy.states import predict
from cautious.progress import Progress
from cautious.tables.arrays import load_states
from cautious.tables.cells import NOT_FINITE, TOO_LARGE, BadCell, Problems
from cautious.tables.files import PARQUET, FileTable, read_blocks, read_tables, version_of
from cautious.tables.frames import FrameTable, as_table, is_named, is_rows
from cautious.tables.schema import StateRows, TableSchema
from cautious.validation import as_float_tensor, images_are_bytes


def reads_rows(belief: Any) -> bool:
    """Whether a belief says which rows it cannot judge."""
    return isinstance(belief, RewardEnsemble) or callable(getattr(belief, "read", None))


def read_states(belief: Any, states: Any) -> StateRows:
    """States as a belief takes them, without those that cannot be read: rows of a frame or a dictionary, or arrays [B, ...].

    In a list of rows, a cell is empty where a row does not name its column, whatever the others name.
    """
    columns = getattr(belief, "columns", None)
    if is_rows(states) and columns is not None:
        names = dict.fromkeys(
            [*(feature.name for feature in columns.features), *(name for row in states for name in row)]
        )
        states = {name: [row.get(name) for row in states] for name in names}
    if not isinstance(belief, RewardEnsemble):
        found: StateRows = belief.read(states)
        return found
    if belief.columns is not None and is_named(states):
        return belief.columns.read(as_table(states, "states"), strict=True)
    if isinstance(states, (tuple, Mapping)) or images_are_bytes(states):  # nothing can be missing there
        return StateRows(states, Problems(FrameTable("states", {}, 0)))
    inputs = as_float_tensor(states, "states")
    if inputs.dim() < 2 or not inputs.numel():
        belief.rewards(states)  # raises: these are no states
    finite = inputs.flatten(1).isfinite()
    bad = [
        BadCell(row, str(column), NOT_FINITE, f"{float(inputs.flatten(1)[row, column]):g}")
        for row, column in (~finite).nonzero().tolist()
    ]
    table = FrameTable("states", {}, len(inputs))
    return StateRows(inputs[finite.all(dim=1)], Problems(table, tuple(bad)))


def farthest(belief: Any, states: Any) -> tuple[list[str], Tensor]:
    """In which column each state is farthest from the training, and its number there: [G] each."""
    inputs = as_float_tensor(states, "states").flatten(1)
    network = belief.network
    distance = inputs.abs()
    if isinstance(network, VectorNetwork):
        distance = network.as_states(inputs.unflatten(1, network.state_shape))[0].abs()
    columns = distance.nan_to_num(math.inf).argmax(dim=1)
    names = [str(number) for number in range(inputs.shape[1])]
    if belief.columns is not None:
        names = [feature.name for feature in belief.columns.features for _ in range(feature.width)]
    return [names[column] for column in columns.tolist()], inputs.gather(1, columns[:, None])[:, 0]


def read_array_file(belief: RewardEnsemble, path: Path) -> StateRows:
    """States of a file of arrays (.npz, .npy, .safetensors), as `read_states` does."""
    rows = read_states(belief, load_states(path))
    table = FrameTable(str(path), {}, len(rows.problems.table))
    return StateRows(rows.states, replace(rows.problems, table=table))


def read_table_file(
    belief: RewardEnsemble, path: Path, progress: Progress | None = None
) -> tuple[StateRows, dict[str, tuple[str, int]]]:
    """The rows of a table as states. Of text only numbers are kept: the text of many rows may not fit.

    Args:
        belief: The belief that will judge the rows.
        path: A file (.csv, .parquet).
        progress: Called with (characters read, characters in all).

    Returns:
        The rows; and what is new in each column: the first value that training had not, and how many there are.
    """
    is_text, version = path.suffix.lower() not in PARQUET, version_of(path)
    blocks: Iterator[Any] = read_blocks(path, progress) if is_text else iter([read_tables([path])])
    block = first = next(blocks)  # a file that cannot be read is named before a belief that does not know tables
    columns, states, bad = TableSchema.of(belief), [], []
    lines: list[np.ndarray] = []
    news: dict[str, tuple[str, int]] = {}
    count = 0
    for block in chain([first], blocks):
        rows = columns.read(block)
        states.append(rows.states)
        bad += [cell._replace(row=cell.row + count) for cell in rows.problems.cells]
        for name, (example, number) in columns.news(block).items():
            earlier = news.get(name, (example, 0))
            news[name] = earlier[0], earlier[1] + number
        if is_text:
            lines.append(np.array(block.lines, dtype=np.int64))
        count += len(block)
    table = FileTable(path, block.header, np.concatenate(lines), version) if is_text else block
    return StateRows(torch.cat(states), Problems(table, tuple(bad))), news


def judge(belief: RewardEnsemble, rows: StateRows) -> tuple[Tensor, StateRows]:
    """What the models say each action pays in the rows that they can judge, [M, G, A]; and all rows with what is wrong."""
    rewards, too_large = predict(belief, rows.states)
    return rewards, less_overflowing(belief, rows, too_large)


def less_overflowing(belief: RewardEnsemble, rows: StateRows, too_large: Tensor) -> StateRows:
    """The same rows, with those whose predictions overflow [G] among the rows that no model can judge."""
    if not bool(too_large.any()):
        return rows
    columns, numbers = farthest(belief, rows.states)
    places = rows.problems.usable.nonzero()[0]
    more = [
        BadCell(int(places[row]), columns[row], TOO_LARGE, f"{float(numbers[row]):g}")
        for row in too_large.nonzero().flatten().tolist()
    ]
    problems = replace(rows.problems, cells=tuple(sorted((*rows.problems.cells, *more))))
    return StateRows(rows.states[~too_large], problems)


def refuse(rows: StateRows) -> None:
    """Raise, naming every row that cannot be judged and the ways out, if there is one."""
    if rows.problems.cells:
        raise InvalidInputError(
            f"{rows.problems}. Name an action for such rows, CautiousPolicy(belief, level, bad_rows_action=...); or let them "
            "be marked, decide(states, allow_undecided=True)."
        )
