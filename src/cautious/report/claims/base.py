"""How claims about image runs are judged: a claim is data, its rule a function of the run and a set of images."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cautious.ops.risk import KofN
from cautious.report.claims.ledger import ClaimResult
from cautious.report.images.digits_tables import PLACES, our_cells
from cautious.report.images.image_run import PAPER_DIGITS, PAPER_LETTERS, PAPER_MODELS, ImageRun, Measured, in_words
from cautious.report.paper import paper_table

Finding = tuple[bool, str]
"""Whether it holds, and the numbers."""
NUMBERS = "the paper's numbers"
PRINTED = 0.01
"""The last decimal that the paper prints, in points: percentages that differ by less are equal at its precision."""
Rule = Callable[[ImageRun, str], Finding]


class NotRunError(Exception):
    """The run lacks what a claim is about. Never leaves the ledger: there it is a verdict."""


@dataclass(frozen=True)
class Claim:
    """One row of the ledger.

    Attributes:
        id: as in the ledger of claims; ", letters" is added where it is judged on letters too.
        says: the claim, with the rule by which it counts as shown.
        judge: the rule; raises NotRunError where the run lacks what it needs.
        sets: the sets of images it is judged on, a row each.
        paper_variants: where the rule compares with numbers of the paper, the ensembles (or all, if empty) that must
            have the paper's sizes for that to mean anything; None where it does not.
        part: what of the claim this row judges, where it has two.
        observation: whether the paper does not claim this: the numbers are shown, and nothing is judged.
    """

    id: str
    says: str
    judge: Rule
    sets: tuple[str, ...] = ("fashion",)
    paper_variants: tuple[str, ...] | None = None
    part: str = ""
    observation: bool = False

    def verdict(self, run: ImageRun, images: str) -> ClaimResult:
        """Judge it on one set of images."""
        letters = "letters" if images == "letters" and len(self.sets) > 1 else ""
        name = in_words(self.id, letters, self.part)
        if images == "letters" and images not in run.sets:
            return ClaimResult(name, self.says, None, "not run: no letters at hand")
        try:
            shown, numbers = self.judge(run, images)
        except NotRunError as missing:
            return ClaimResult(name, self.says, None, f"not run: {missing}")
        numbers += _letters_note(run) if images == "letters" else ""
        if self.observation:
            return ClaimResult(name, self.says, None, numbers, observation=True)
        if self.paper_variants is not None and not run.has_paper_sizes(*self.paper_variants):
            return ClaimResult(name, self.says, None, f"{_size_note(run, self.paper_variants)}; {numbers}")
        return ClaimResult(name, self.says, shown, numbers)


def _letters_note(run: ImageRun) -> str:
    found = run.num_images("letters, test")
    return "" if found == PAPER_LETTERS else f" (on {found:,} letters, not the paper's {PAPER_LETTERS:,})"


def _size_note(run: ImageRun, variants: Sequence[str]) -> str:
    models = min(run.num_models(name) for name in variants or run.variants)
    digits = run.num_images("digits, train")
    return f"not judged at {models:,} models and {digits:,} digits (the paper: {PAPER_MODELS:,} and {PAPER_DIGITS:,})"


def need(run: ImageRun, variant: str, images: str, bit: bool | None = None) -> Measured:
    """A stage's behaviour; a claim that needs it is not judged without."""
    found = run.measured(variant, images, bit)
    if found is None:
        raise NotRunError(f"stage {run.stage(variant, images, bit)} is missing")
    return found


def rises(values: Sequence[float]) -> bool:
    """No step goes down, by however little, and the last is above the first.

    >>> rises([0.1, 0.1, 0.3]), rises([0.1, 0.1, 0.1]), rises([0.1, 0.3, 0.29])
    (True, False, False)
    """
    return all(before <= after for before, after in itertools.pairwise(values)) and values[0] < values[-1]


def falls(values: Sequence[float]) -> bool:
    """The same downwards."""
    return rises(list(values)[::-1])


def never_rises_in_print(percentages: Sequence[float]) -> bool:
    """No value is above an earlier one at the precision of the paper's tables.

    >>> never_rises_in_print([0.025, 0.027, 0.02]), never_rises_in_print([0.02, 0.031])
    (True, False)
    """
    return all(after - before < PRINTED for before, after in itertools.combinations(percentages, 2))


def robust(levels: Sequence[str]) -> list[int]:
    """Places of the levels with k < N."""
    parsed = [KofN.parse(level) for level in levels]
    return [place for place, level in enumerate(parsed) if level.k < level.n]


def most_robust(levels: Sequence[str]) -> list[int]:
    """Places of the levels that heed a single model, k = 1 < N."""
    parsed = [KofN.parse(level) for level in levels]
    return [place for place, level in enumerate(parsed) if level.k == 1 < level.n]


def listed(levels: Sequence[str], values: Sequence[float], optim: float | None = None, digits: int = 2) -> str:
    """Numbers with their levels, for a verdict."""
    parts = [f"{level} {value:.{digits}f}" for level, value in zip(levels, values, strict=True)]
    return ", ".join([*parts, f"optim {optim:.{digits}f}"] if optim is not None else parts)


def within(tables: Sequence[str], quantities: Sequence[str], points: float) -> Rule:
    """The rule "each cell of these tables within so many points", by mean probability; misprinted columns do not count."""

    def judge(run: ImageRun, _images: str) -> Finding:
        apart = {
            cell: both for name in tables for cell, both in differences(run, name).items() if cell[-2] in quantities
        }
        worst = max(apart, key=lambda cell: abs(apart[cell][0]))
        outside = sum(abs(mean) > points for mean, _ in apart.values())
        share = max(abs(share) for _, share in apart.values())
        text = f"{len(apart) - outside} of {len(apart)} cells within {points:g}; farthest {apart[worst][0]:+.2f} "
        text += f"({', '.join(worst)}); by most likely action the farthest is {share:.2f} off"
        return outside == 0, text

    return judge


def differences(run: ImageRun, name: str) -> dict[tuple[str, ...], tuple[float, float]]:
    """Ours minus the paper's in both readings, by cell: (table, group, quantity, column)."""
    paper = paper_table(name)
    found: dict[tuple[str, ...], tuple[float, float]] = {}
    for group, place in PLACES[run.task.name][name].items():
        for quantity, row in paper.cells[group].items():
            ours = our_cells(run, place, quantity)
            if not ours:
                raise NotRunError(f"stage {run.stage(place.variant, 'digits', place.bit)} is missing")
            for column, cell in row.items():
                if column not in paper.misprinted:
                    mean, share = (float(cells[column].nanmean()) - cell.mean for cells in ours.values())
                    found[(name, group, quantity, column)] = (mean, share)
    return found
