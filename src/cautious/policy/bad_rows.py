"""Rows that no model can judge: cells that are empty or no numbers, and numbers so large that predictions overflow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.errors import InvalidInputError
from cautious.tables.cells import NOT_FINITE, TOO_LARGE, BadCell, Table
from cautious.tables.frames import FrameTable, as_table, is_named
from cautious.tables.schema import Rows, TableSchema, bad_rows
from cautious.validation import as_float_tensor
from cautious_paper.networks.image import images_are_bytes


@dataclass(frozen=True)
class StateRows:
    """States to judge, and those among them that cannot be."""

    states: Any
    """The ones that can, as a belief takes them, [G, ...]."""
    table: Any
    """All rows, for messages (`beliefs.datasets.cells.Table`)."""
    bad: tuple[BadCell, ...] = ()

    @property
    def usable(self) -> Tensor:
        """Which rows can be judged, [B]; G of them."""
        usable = torch.ones(len(self.table), dtype=torch.bool)
        usable[[cell.row for cell in self.bad]] = False
        return usable

    def reasons(self) -> tuple[str, ...]:
        """Why each row cannot be judged; nothing where it can."""
        found: dict[int, list[str]] = {}
        for cell in self.bad:
            found.setdefault(cell.row, []).append(cell.remark)
        return tuple("; ".join(found.get(row, ())) for row in range(len(self.table)))

    def sentence(self) -> str:
        """How many rows cannot be judged, and why."""
        return bad_rows(self.bad, self.table)

    def without(self, overflowing: Tensor, columns: list[str], numbers: Tensor) -> StateRows:
        """The same, less those of the G rows that overflow [G]: in which column, and its number there, [G] each."""
        rows = self.usable.nonzero().flatten()
        more = tuple(
            BadCell(int(rows[row]), columns[row], TOO_LARGE, f"{float(numbers[row]):g}")
            for row in overflowing.nonzero().flatten().tolist()
        )
        return replace(self, states=self.states[~overflowing], bad=tuple(sorted((*self.bad, *more))))


def read_states(belief: RewardEnsemble, states: Any) -> StateRows:
    """States as a belief takes them, without those that cannot be read: rows of a frame or a dictionary, or arrays [B, ...]."""
    if belief.columns is not None and is_named(states):
        table = as_table(states, "states")
        return rows_of(belief.columns, table, strict=True)
    if isinstance(states, (tuple, Mapping)) or images_are_bytes(states):  # nothing can be missing there
        return StateRows(states, FrameTable("states", {}, 0))
    inputs = as_float_tensor(states, "states")
    if inputs.dim() < 2 or not inputs.numel():
        belief.rewards(states)  # raises: these are no states
    finite = inputs.flatten(1).isfinite()
    bad = [
        BadCell(row, str(column), NOT_FINITE, f"{float(inputs.flatten(1)[row, column]):g}")
        for row, column in (~finite).nonzero().tolist()
    ]
    table = FrameTable("states", {}, len(inputs))
    return StateRows(inputs[finite.all(dim=1)], table, tuple(bad))


def rows_of(schema: TableSchema, table: Table, *, strict: bool = False) -> StateRows:
    """The rows of a table as states."""
    rows: Rows = schema.read(table, strict=strict)
    return StateRows(rows.states[rows.usable], table, tuple(rows.bad))


def joined_rows(parts: Sequence[StateRows], table: Table) -> StateRows:
    """Blocks of rows as one; `table` has all of them."""
    bad, first = [], 0
    for part in parts:
        bad += [cell._replace(row=cell.row + first) for cell in part.bad]
        first += len(part.table)
    return StateRows(torch.cat([part.states for part in parts]), table, tuple(bad))


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


def overflowing(rewards: Tensor) -> Tensor:
    """States whose rewards [M, B, A] are so large, or no numbers, that sums overflow, [B]."""
    limit = torch.finfo(rewards.dtype).max * 1e-10  # that of `check_size`
    low, high = torch.aminmax(rewards) if rewards.numel() else (0.0, 0.0)
    if -limit <= low and high <= limit:  # one pass where nothing is wrong
        return torch.zeros(rewards.shape[1], dtype=torch.bool)
    return ~(rewards.abs() <= limit).all(dim=0).all(dim=-1).cpu()


def refuse(rows: StateRows) -> None:
    """Raise, naming every row that cannot be judged and the ways out, if there is one."""
    if rows.bad:
        raise InvalidInputError(
            f"{rows.sentence()}. Name an action for such rows, CautiousPolicy(belief, level, fallback=...); or let them be "
            "marked, decide(states, allow_undecided=True)."
        )
