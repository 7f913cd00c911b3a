"""A belief and the states to decide about, from the user's files: what `solve` and `calibrate` share."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cautious.cli.console import say
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


def load_belief(belief: Path, payoffs: Path | None = None) -> RewardEnsemble:
    """A belief about states that can be given in a file, so not the one about driving; with other payoffs if they are given."""
    from cautious.beliefs.ensemble import RewardEnsemble

    models = RewardEnsemble.load(belief)
    if not models.state_shape:
        raise InvalidInputError(
            Argument("belief", str(belief)), " is about driving; see 'cautious watch driving --help'."
        )
    if payoffs is None:
        return models
    if models.payoffs is None:
        raise InvalidInputError(
            Argument("payoffs", str(payoffs)),
            " need a belief about labels (cautious train --label COLUMN --payoffs FILE); this one learned rewards.",
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        models = models.with_payoffs(payoffs)
    for warning in caught:
        say(f"warning: {warning.message}")
    return models


def load_decision_inputs(belief: Path, states: Path, payoffs: Path | None = None) -> DecisionInputs:
    """Load both; prints a warning for each column with values that the training data had not."""
    from cautious.cli.console import plural, progress_bar
    from cautious.policy.rows import read_array_file, read_table_file
    from cautious.tables.files import are_tables

    models = load_belief(belief, payoffs)
    if not are_tables([states]):
        return DecisionInputs(models, read_array_file(models, states))
    with progress_bar("reading") as progress:
        rows, news = read_table_file(models, states, progress)
    for first, count in news.values():
        others = f", and {plural(count - 1, 'more row')}" if count > 1 else ""
        say(f"warning: {first}{others}. Outside the training data, models may be overconfident.")
    return DecisionInputs(models, rows, rows.problems.table)
