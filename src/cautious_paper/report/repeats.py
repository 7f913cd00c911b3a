"""One ledger for several runs of an experiment: in how many of them each claim was reproduced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cautious.io.arrays import FORMAT, save_json
from cautious_paper.report.claims.rules import ClaimResult

FILE = "repeats.json"


@dataclass(frozen=True)
class Tally:
    """One claim, judged in each run."""

    claim: str
    says: str
    verdicts: Mapping[int, ClaimResult]
    """By seed."""

    @property
    def judged(self) -> int:
        """In how many runs it could be judged."""
        return sum(verdict.reproduced is not None for verdict in self.verdicts.values())

    @property
    def missed(self) -> list[int]:
        """Seeds of the runs that do not reproduce it."""
        return [seed for seed, verdict in self.verdicts.items() if verdict.reproduced is False]

    @property
    def reproduced(self) -> int:
        """In how many runs it was reproduced."""
        return self.judged - len(self.missed)

    @property
    def words(self) -> str:
        """The count in words."""
        if not self.judged:
            return next(iter(self.verdicts.values())).word
        rest = len(self.verdicts) - self.judged
        return f"{self.reproduced} of {self.judged}" + (f" ({rest} without a verdict)" if rest else "")


def tallied(ledgers: Mapping[int, Sequence[ClaimResult]]) -> list[Tally]:
    """The ledgers of several runs as one, claim by claim, in the order of the first.

    >>> held, missed = (ClaimResult("DR1", "slower", reproduced, "") for reproduced in (True, False))
    >>> [(tally.claim, tally.words, tally.missed) for tally in tallied({0: [held], 1: [missed], 2: [held]})]
    [('DR1', '2 of 3', [1])]

    Args:
        ledgers: Seed -> the verdicts of its run.
    """
    by_claim: dict[str, dict[int, ClaimResult]] = {}
    for seed, verdicts in ledgers.items():
        for verdict in verdicts:
            by_claim.setdefault(verdict.claim, {})[seed] = verdict
    return [Tally(claim, next(iter(by_seed.values())).says, by_seed) for claim, by_seed in by_claim.items()]


def write_tallies(folder: Path, experiment: str, tallies: Sequence[Tally]) -> Path:
    """Write the one ledger beside the folders of the runs."""
    claims = [
        {
            "claim": tally.claim,
            "says": tally.says,
            "shown": tally.reproduced,
            "judged": tally.judged,
            "runs": {
                str(seed): {"verdict": verdict.word, "numbers": verdict.numbers}
                for seed, verdict in tally.verdicts.items()
            },
        }
        for tally in tallies
    ]
    seeds = sorted({seed for tally in tallies for seed in tally.verdicts})
    save_json(folder / FILE, {"format": FORMAT, "experiment": experiment, "seeds": seeds, "claims": claims})
    return folder / FILE
