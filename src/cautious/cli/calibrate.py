"""`cautious calibrate`: the most cautious level that leaves familiar decisions unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from cautious.cli.console import console, make_table, plural, progress_bar, say, warn
from cautious.errors import BadFileError, InvalidInputError, worded

if TYPE_CHECKING:
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.policy.calibration import Calibration
    from cautious.progress import Progress


@dataclass
class Calibrate:
    """Find the most cautious level that leaves familiar decisions unchanged, with a guarantee.

    Tests the levels n-of-n (ordinary), (n-1)-of-n, ... 1-of-n on familiar states that were not used for training. A level
    passes if it is shown to change at most a share --at-most of the decisions; the search stops at the first level that
    fails. A share of 5 % needs at least 59 states; 40 states can show 7.2 %. If all your rows were used for training, pass
    them as --data: the belief is retrained a few times, each time without a part of the rows, and decides about that part.

    Example: cautious calibrate --belief belief --states fresh.csv --at-most 0.05

    Example: cautious calibrate --belief belief --data log.csv --folds 5 --at-most 0.05

    With --fallback ACTION, an action known to be safe, it finds the disagreement above which to take that action.

    Example: cautious calibrate --belief belief --states fresh.csv --fallback ask --at-most 0.05
    """

    belief: Path
    """A folder written by 'cautious train', or 'ask-for-help' for the belief in the package."""
    states: Path | None = None
    """Familiar states that were not used for training; a file as for 'cautious solve --states'."""
    data: tuple[Path, ...] = ()
    """Instead: the training files, as passed to 'cautious train'."""
    payoffs: Path | None = None
    """With a belief that was trained on labels: other payoffs than those of its training, as for 'cautious solve --payoffs'."""
    at_most: float = 0.05
    """The largest share of familiar decisions that may differ from the ordinary ones."""
    confidence: float = 0.95
    """Confidence of the bound."""
    measure: Literal["decisions", "total-variation"] = "decisions"
    """decisions: the share with another action. total-variation: the mean caution, for policies that sample their actions."""
    guarantee: Literal["confidence", "average"] = "confidence"
    """average: the share is at most --at-most on average over such files instead of with a confidence; 19 states are enough for
    5 %, and the same states allow more caution."""
    n: int = 20
    """Number of models that a level samples; calibration finds k."""
    fallback: str | None = None
    """The safe action, if there is one: its name in the training table, or its number."""
    folds: int = 5
    """With --data: number of cross-fitting folds."""

    def run(self) -> None:
        """Load the belief, test the levels, print the result."""
        import warnings

        from cautious.policy.calibration import CalibrationWarning
        from cautious.risk import KofN

        belief, familiar = self._familiar()
        with progress_bar("calibrating") as progress, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CalibrationWarning)
            found = self._calibrate(belief, familiar, progress)
        console.print(calibration_table(found))
        for warning in caught:
            say(f"warning: {worded(getattr(warning.message, 'args', ()), vars(self))}")
        with_payoffs = "" if self.payoffs is None else f" --payoffs {self.payoffs}"
        decide = f"decide with it: cautious solve --belief {self.belief} --states FILE{with_payoffs}"
        if found.threshold is not None:
            threshold = repr(found.threshold)  # all digits: rounded down, it would refer more states than allowed
            say(f"threshold: {threshold}   {decide} --fallback {self.fallback} --threshold {threshold}")
            return
        if isinstance(found.level, KofN) and 1 < found.level.k < self.n:
            say(
                f"less cautious than 1-of-{self.n}: more cautious levels change too many decisions on these states, or "
                f"there are too few states to tell. If novel states matter more to you, see what 1-of-{self.n} decides."
            )
        if found.more_states and isinstance(found.level, KofN):
            say(
                f"{plural(found.more_states, 'more familiar state')} would allow {found.level.k - 1}-of-{self.n}, if it "
                "departs in them as often as in these."
            )
        say(f"level: {found.level}   {decide} --level {found.level}")

    def _familiar(self) -> tuple[RewardEnsemble, dict[str, Any]]:
        """The belief, and familiar states; with --data also the rewards or labels there."""
        from cautious.cli.inputs import load_belief, load_decision_inputs
        from cautious.tables.learn import read_log_of

        if (self.states is None) == (not self.data):
            raise InvalidInputError(
                "give familiar states: either --states FILE with states that were not used for training, or --data FILE with "
                "the training data."
            )
        if self.states is None:
            belief = load_belief(self.belief, self.payoffs)
            data, problems = read_log_of(belief, self.data)
            if problems is not None:
                warn("; they are left out, as they were in training.", problems)
            return belief, {"familiar_states": data.inputs, **data.outcomes(belief.labels)}
        inputs = load_decision_inputs(self.belief, self.states, self.payoffs)
        problems = inputs.rows.problems
        if problems.cells and not len(inputs.states):
            raise BadFileError(f"{problems}. No row is left.")
        if problems.cells:
            warn(". They are left out: no level decides about them.", problems)
        return inputs.belief, {"familiar_states": inputs.states}

    def _calibrate(self, belief: RewardEnsemble, familiar: dict[str, Any], progress: Progress) -> Calibration:
        from cautious.policy.calibration import calibrate
        from cautious.policy.fallback import FallbackRule
        from cautious.policy.policy import CautiousPolicy
        from cautious.risk import KofN

        policy: CautiousPolicy | FallbackRule
        if self.fallback is None:
            policy = CautiousPolicy(belief, KofN(1, self.n))
        else:
            by_number = belief.actions is None and self.fallback.isdecimal()
            policy = FallbackRule(belief, int(self.fallback) if by_number else self.fallback, threshold=1.0)
        return calibrate(
            policy,
            **familiar,
            at_most=self.at_most,
            confidence=self.confidence,
            measure=self.measure,
            guarantee=self.guarantee,
            folds=self.folds,
            progress=progress,
        )


def calibration_table(found: Calibration) -> Table:
    """The levels that were tested, from ordinary to cautious; or the threshold of a fallback rule."""
    what = "mean caution" if found.measure == "total-variation" else "share of decisions that depart"
    average = found.guarantee == "average"
    certain = "on average" if average else f"with confidence {found.confidence:g}"
    largest_p = found.at_most if average else 1 - found.confidence
    rows = [
        (level, f"{rate:.4f}", f"{p_value:.3g}", "allowed" if p_value <= largest_p else "too high, or too few states")
        for level, rate, p_value in found.tried
    ]
    return make_table(
        f"{what} on {plural(found.num_states, 'familiar state')}: at most {found.at_most:g} {certain}",
        ("level" if found.threshold is None else "threshold", "rate", "expected" if average else "p-value", ""),
        rows,
        text_columns=("level",),
    )
