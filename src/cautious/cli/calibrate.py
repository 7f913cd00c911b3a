"""`cautious calibrate`: how cautious a belief allows one to be where things are familiar."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Calibrate:
    """Find the most cautious level that leaves familiar behaviour alone, with a guarantee.

    Levels n-of-n (ordinary), (n-1)-of-n, ... 1-of-n are tried on familiar states that the belief was not trained on, up to the
    first whose mean caution there cannot be shown to stay below --at-most.

    Example: cautious calibrate --belief belief --states familiar.csv --at-most 0.05
    """

    belief: Path
    """A folder that 'cautious train' wrote, or 'ask-for-help' for the one that comes with the package."""
    states: Path
    """Familiar states, and not those of the training: a file as 'cautious solve --states' takes it."""
    at_most: float = 0.02
    """The mean caution on familiar states that is allowed."""
    confidence: float = 0.95
    """How certain to be that it stays below."""
    n: int = 20
    """Models that a level draws; k is what is looked for."""

    def run(self) -> None:
        """Load, try the levels, show them."""
        import warnings

        from cautious.cli.asked import load_asked
        from cautious.cli.console import console, progress_bar, say
        from cautious.cli.tables import calibration_table
        from cautious.evaluation.calibration import CalibrationWarning, calibrate
        from cautious.ops.risk import KofN
        from cautious.policy import NUM_ITERATIONS, CautiousPolicy

        asked = load_asked(self.belief, self.states)
        policy = CautiousPolicy(asked.belief, KofN(1, self.n))
        with progress_bar("calibrating") as progress, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CalibrationWarning)
            found = calibrate(policy, asked.states, at_most=self.at_most, confidence=self.confidence, progress=progress)
        console.print(calibration_table(found))
        for warning in caught:
            say(f"look out: {warning.message}")
        if 1 < found.level.k < self.n:
            say(
                f"weaker than 1-of-{self.n}: more cautious levels depart from ordinary behaviour too often on these states, or "
                f"the states are too few to tell. If strange states worry you more, look at what 1-of-{self.n} decides."
            )
        say(
            f"level: {found.level}   decide with it: cautious solve --belief {self.belief} --states FILE --level {found.level} "
            f"--iterations {NUM_ITERATIONS}"
        )
