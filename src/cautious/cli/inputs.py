"""A belief and the states to decide about, from the user's files: what `solve` and `calibrate` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from cautious.beliefs.datasets.cells import Table
    from cautious.beliefs.datasets.schema import TableSchema
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.policy.bad_rows import StateRows


class DecisionInputs(NamedTuple):
    """A belief and the states to decide about."""

    belief: RewardEnsemble
    states: Any
    """As the belief takes them, [S, ...]; without rows that cannot be judged."""
    rows: StateRows
    """All rows; `rows.bad` says which cannot be judged."""
    table: Table | None = None
    """The table that the states come from, if any."""
    columns: TableSchema | None = None
    """The meaning of the table's columns."""

    def without(self, too_large: Tensor) -> DecisionInputs:
        """The same, less those of the S rows whose predictions overflow, [S]; they are added to `rows.bad`."""
        from cautious.policy.bad_rows import farthest

        rows = self.rows.without(too_large, *farthest(self.belief, self.states))
        return self._replace(states=rows.states, rows=rows)


def load_belief(belief: Path) -> RewardEnsemble:
    """A belief about states that can be given in a file, so not the one about driving."""
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.beliefs.networks.driving import DrivingNetwork
    from cautious.errors import InvalidInputError

    models = RewardEnsemble.load(belief)
    if models.network.name == DrivingNetwork.name:
        raise InvalidInputError(f"belief={str(belief)!r} is about driving; see 'cautious watch driving --help'.")
    return models


def load_decision_inputs(belief: Path, states: Path) -> DecisionInputs:
    """Load both; prints a warning if a table has values that the training data had not."""
    from dataclasses import replace

    from cautious.beliefs.datasets.array_files import load_states
    from cautious.beliefs.datasets.files import are_tables, read_tables
    from cautious.beliefs.datasets.schema import TableSchema
    from cautious.cli.console import plural, say
    from cautious.policy.bad_rows import read_states, rows_of

    models = load_belief(belief)
    table = columns = None
    if are_tables([states]):
        table, columns = read_tables([states]), TableSchema.of(models)
        rows = rows_of(columns, table)
        for feature in columns.features:
            remarks = [remark for remark in feature.remarks(table.read(feature.name)) if remark]
            if remarks:
                others = f", and {plural(len(remarks) - 1, 'more row')}" if len(remarks) > 1 else ""
                say(f"warning: {remarks[0]}{others}. Outside the training data, models may be overconfident.")
    else:
        rows = read_states(models, load_states(states))
        rows = replace(rows, table=replace(rows.table, origin=str(states)))
    return DecisionInputs(models, rows.states, rows, table, columns)
