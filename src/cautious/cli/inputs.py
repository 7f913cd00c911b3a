"""A belief and the states to decide about, from the user's files: what `solve` and `calibrate` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cautious.errors import Argument, InvalidInputError

if TYPE_CHECKING:
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.tables.cells import Table
    from cautious.tables.schema import StateRows


class DecisionInputs(NamedTuple):
    """A belief and the states to decide about."""

    belief: RewardEnsemble
    rows: StateRows
    """The states that a model can judge, and what is wrong with the other rows."""
    table: Table | None = None
    """The table that the states come from, if any."""

    @property
    def states(self) -> Any:
        """The rows that can be judged, as the belief takes them, [S, ...]."""
        return self.rows.states


def load_belief(belief: Path) -> RewardEnsemble:
    """A belief about states that can be given in a file, so not the one about driving."""
    from cautious.beliefs.ensemble import RewardEnsemble

    models = RewardEnsemble.load(belief)
    if not models.state_shape:
        raise InvalidInputError(
            Argument("belief", str(belief)), " is about driving; see 'cautious watch driving --help'."
        )
    return models


def load_decision_inputs(belief: Path, states: Path) -> DecisionInputs:
    """Load both; prints a warning for each column with values that the training data had not."""
    from cautious.cli.console import plural, progress_bar, say
    from cautious.policy.rows import read_array_file, read_table_file
    from cautious.tables.files import are_tables

    models = load_belief(belief)
    if not are_tables([states]):
        return DecisionInputs(models, read_array_file(models, states))
    with progress_bar("reading") as progress:
        rows, news = read_table_file(models, states, progress)
    for first, count in news.values():
        others = f", and {plural(count - 1, 'more row')}" if count > 1 else ""
        say(f"warning: {first}{others}. Outside the training data, models may be overconfident.")
    return DecisionInputs(models, rows, rows.problems.table)
