"""A belief and the states that it is asked about, from a user's files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from cautious.beliefs.datasets.csv import TextTable
    from cautious.beliefs.datasets.schema import TableSchema
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.policy.decision import Decision


class DecisionInputs(NamedTuple):
    """What a command is about."""

    belief: RewardEnsemble
    states: Any
    """As the belief takes them, [S, ...]."""
    table: TextTable | None = None
    """Where they come from, if from a table."""
    columns: TableSchema | None = None
    """What the table's columns mean."""


def load_asked(belief: Path, states: Path) -> DecisionInputs:
    """Read both; says so if rows of a table have what was never seen in training."""
    from cautious.beliefs.datasets.arrays import load_states
    from cautious.beliefs.datasets.csv import are_tables, read_table
    from cautious.beliefs.datasets.schema import TableSchema
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.beliefs.networks.driving import DrivingNetwork
    from cautious.cli.console import say
    from cautious.errors import InvalidInputError

    models = RewardEnsemble.load(belief)
    if models.network.name == DrivingNetwork.name:
        raise InvalidInputError(f"belief={str(belief)!r} is about driving; see 'cautious watch driving --help'.")
    if not are_tables([states]):
        return DecisionInputs(models, load_states(states))
    table, columns = read_table(states), TableSchema.of(models)
    rows = columns.states(table)
    for feature in columns.features:
        remarks = [remark for remark in map(feature.remark, table.column(feature.name)) if remark]
        if remarks:
            others = f", and {len(remarks) - 1} more row{'s' * (len(remarks) > 2)}" if len(remarks) > 1 else ""
            say(f"look out: {remarks[0]}{others}. Such rows may still be decided as usual: the models know no better.")
    return DecisionInputs(models, rows, table, columns)


def load_dataset_of(belief: Path, data: Sequence[Path]) -> tuple[RewardEnsemble, Tensor, Tensor]:
    """A belief, and experience like that of its training: states [S, ...], and what each action paid there, [S, A]."""
    from cautious.beliefs.datasets.arrays import load_dataset
    from cautious.beliefs.datasets.csv import are_tables, read_tables
    from cautious.beliefs.datasets.schema import OutcomeColumns, TableSchema
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.beliefs.networks.driving import DrivingNetwork
    from cautious.errors import BadFileError, InvalidInputError

    models = RewardEnsemble.load(belief)
    if models.network.name == DrivingNetwork.name:
        raise InvalidInputError(f"belief={str(belief)!r} is about driving; see 'cautious watch driving --help'.")
    if not are_tables(data):
        return models, *load_dataset(data)
    table, columns = read_tables(data), TableSchema.of(models)
    actions, rewards = OutcomeColumns.of_training(models).of(table)
    if actions != columns.actions:
        raise BadFileError(
            f"{table.path}: its actions are {', '.join(map(repr, actions))}; those of the training were "
            f"{', '.join(map(repr, columns.actions))}. Give the table of the training."
        )
    return models, columns.states(table), rewards


def write_decisions(
    path: Path, asked: DecisionInputs, levels: Sequence[str], decision: Decision, fallback: Decision | None = None
) -> None:
    """The table's rows, and beside each what is new about it, how far the models differ, and what is decided.

    That is: what one would ordinarily do, and each level's decision and its caution.

    Args:
        path: The file to write.
        asked: Whose rows.
        levels: L of them.
        decision: Of these levels, [L, S], or of one, [S].
        fallback: Of a rule with a safe action, [S].
    """
    import csv

    from cautious.io.atomic import atomic_write

    table, columns = asked.table, asked.columns
    assert table is not None
    assert columns is not None
    added = {"new": ["; ".join(remarks) for remarks in columns.remarks(table)]}
    ordinary = decision.ordinary.reshape(len(levels), -1, decision.ordinary.shape[-1])[0]  # the same beside every level
    added["disagreement"] = [f"{value:.3f}" for value in decision.disagreement.tolist()]
    added["ordinarily"] = [columns.actions[best] for best in ordinary.argmax(dim=1).tolist()]
    actions, caution = (part.reshape(len(levels), -1).tolist() for part in (decision.action, decision.caution))
    for level, own, departure in zip(levels, actions, caution, strict=True):
        added[f"decided {level}"] = [columns.actions[action] for action in own]
        added[f"caution {level}"] = [f"{value:.4f}" for value in departure]

    if fallback is not None:
        added["decided with fallback"] = [columns.actions[action] for action in fallback.action.tolist()]

    # A table that was decided about before has these columns: they are written anew.
    kept = [place for place, name in enumerate(table.header) if name not in added]

    def write(target: Path) -> None:
        with target.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([table.header[place] for place in kept] + list(added))
            for row, more in zip(table.rows, zip(*added.values(), strict=True), strict=True):
                writer.writerow([row[place] for place in kept] + list(more))

    atomic_write(path, write)
