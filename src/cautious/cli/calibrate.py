"""`cautious calibrate`: how cautious a belief allows one to be where things are familiar."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.evaluation.calibration import Calibration
    from cautious.progress import Progress


@dataclass
class Calibrate:
    """Find the most cautious level that leaves familiar decisions alone, with a guarantee.

    Levels n-of-n (ordinary), (n-1)-of-n, ... 1-of-n are tried on familiar states that the belief was not trained on, up to the
    first that cannot be shown to take another action than ordinarily in at most --at-most of them. Showing 5 % takes 59 states
    at least; 40 can show 7.2 %. If all your rows are in the training, pass those as --data instead: the belief is trained again
    a few times, each time without a part of them, and decides about that part.

    Example: cautious calibrate --belief belief --states familiar.csv --at-most 0.05

    Example: cautious calibrate --belief belief --data log.csv --folds 5 --at-most 0.05

    With --fallback ACTION, an action that is known to be safe, it finds the disagreement above which to take that action.

    Example: cautious calibrate --belief belief --states familiar.csv --fallback ask --at-most 0.05
    """

    belief: Path
    """A folder that 'cautious train' wrote, or 'ask-for-help' for the one that comes with the package."""
    states: Path | None = None
    """Familiar states, and not those of the training: a file as 'cautious solve --states' takes it."""
    data: tuple[Path, ...] = ()
    """Instead: the files of the training, as 'cautious train' took them."""
    at_most: float = 0.05
    """The share of familiar decisions that may depart from what one ordinarily does."""
    confidence: float = 0.95
    """How certain to be that it stays below."""
    measure: Literal["decisions", "total-variation"] = "decisions"
    """decisions: the share that get another action. total-variation: the mean caution, for policies whose actions are drawn."""
    guarantee: Literal["confidence", "average"] = "confidence"
    """average: the share stays below --at-most on average over such files, not with a confidence; 19 states are enough for 5 %,
    and the same states allow more caution."""
    n: int = 20
    """Models that a level draws; k is what is looked for."""
    fallback: str | None = None
    """The safe action, if there is one: its name in the table of the training, or its number."""
    folds: int = 5
    """With --data: into how many parts to cut it."""

    def run(self) -> None:
        """Load, try the levels, show them."""
        import warnings

        from cautious.cli.console import console, progress_bar, say
        from cautious.cli.tables import calibration_table
        from cautious.evaluation.calibration import CalibrationWarning

        belief, familiar = self._familiar()
        with progress_bar("calibrating") as progress, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CalibrationWarning)
            found = self._found(belief, familiar, progress)
        console.print(calibration_table(found))
        for warning in caught:
            say(f"look out: {warning.message}")
        decide = f"decide with it: cautious solve --belief {self.belief} --states FILE"
        if found.threshold is not None:
            threshold = repr(found.threshold)  # all digits: rounded down, it would refer more than was shown
            say(f"threshold: {threshold}   {decide} --fallback {self.fallback} --threshold {threshold}")
            return
        if 1 < found.level.k < self.n:
            say(
                f"weaker than 1-of-{self.n}: more cautious levels depart from ordinary behaviour too often on these states, or "
                f"the states are too few to tell. If strange states worry you more, look at what 1-of-{self.n} decides."
            )
        say(f"level: {found.level}   {decide} --level {found.level}")

    def _familiar(self) -> tuple[RewardEnsemble, tuple[Any, ...]]:
        """The belief, and familiar states; with --data also what actions paid there."""
        from cautious.cli.inputs import load_asked, load_dataset_of
        from cautious.errors import InvalidInputError

        if (self.states is None) == (not self.data):
            raise InvalidInputError(
                "name familiar states: either --states FILE, which are not those of the training; or --data FILE, which are."
            )
        if self.states is not None:
            asked = load_asked(self.belief, self.states)
            return asked.belief, (asked.states,)
        belief, *experience = load_dataset_of(self.belief, self.data)
        return belief, tuple(experience)

    def _found(self, belief: RewardEnsemble, familiar: tuple[Any, ...], progress: Progress) -> Calibration:
        from cautious.evaluation.calibration import calibrate
        from cautious.ops.risk import KofN
        from cautious.policy.fallback import FallbackRule, action_names
        from cautious.policy.policy import CautiousPolicy

        policy: CautiousPolicy | FallbackRule
        if self.fallback is None:
            policy = CautiousPolicy(belief, KofN(1, self.n))
        else:
            by_number = action_names(belief) is None and self.fallback.isdecimal()
            policy = FallbackRule(belief, int(self.fallback) if by_number else self.fallback, threshold=1.0)
        return calibrate(
            policy,
            *familiar,
            at_most=self.at_most,
            confidence=self.confidence,
            measure=self.measure,
            guarantee=self.guarantee,
            folds=self.folds,
            progress=progress,
        )
