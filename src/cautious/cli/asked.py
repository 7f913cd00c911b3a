"""A belief and the states that it is asked about, from a user's files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cautious.beliefs.columns import Table
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.solvers.decision import Decision


class Asked(NamedTuple):
    """What a command is about."""

    belief: RewardEnsemble
    states: Any
    """As the belief takes them, [S, ...]."""
    table: Table | None
    """Where they come from, if from a table."""
    actions: tuple[str, ...]
    """The actions' names there."""


def load_asked(belief: Path, states: Path) -> Asked:
    """Read both; says so if a table has texts that were never seen in training."""
    from cautious.beliefs.columns import Columns, are_tables, read_table
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.beliefs.experience import load_states
    from cautious.cli.console import say
    from cautious.errors import InvalidInputError

    models = RewardEnsemble.load(belief)
    if not isinstance(models, RewardEnsemble):
        raise InvalidInputError(f"belief={str(belief)!r} is about driving; see 'cautious watch driving --help'.")
    if not are_tables([states]):
        return Asked(models, load_states(states), None, ())
    table, columns = read_table(states), Columns.load(belief)
    rows, strange = columns.states(table)
    for sentence in strange:
        say(f"look out: {sentence}")
    return Asked(models, rows, table, columns.actions)


def write_decisions(path: Path, asked: Asked, levels: Sequence[str], decision: Decision) -> None:
    """The table's rows, and for each level what is decided, how cautious that is, and what one would ordinarily do.

    Args:
        path: The file to write.
        asked: Whose rows.
        levels: L of them.
        decision: Of these levels, [L, S], or of one, [S].
    """
    import csv

    from cautious.writing import write_whole

    table = asked.table
    assert table is not None
    actions, caution = (part.reshape(len(levels), -1) for part in (decision.action, decision.caution))
    heading, columns = ["ordinarily"], [[asked.actions[best] for best in decision.ordinary.argmax(dim=1).tolist()]]
    for number, level in enumerate(levels):
        heading += [f"decided {level}", f"caution {level}"]
        columns += [[asked.actions[action] for action in actions[number].tolist()]]
        columns += [[f"{value:.4f}" for value in caution[number].tolist()]]

    def write(target: Path) -> None:
        with target.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*table.header, *heading])
            writer.writerows([*row, *own] for row, own in zip(table.rows, zip(*columns, strict=True), strict=True))

    write_whole(path, write)
