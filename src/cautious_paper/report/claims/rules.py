"""How claims are judged: the result of a claim, a claim about an image run as data, and the rules that several tasks share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from cautious.risk import KofN
from cautious.types import Regime
from cautious_paper.experiments.store import Store
from cautious_paper.report.images.image_run import (
    BITS,
    HELP,
    INDEX,
    PAPER_LETTERS,
    REGIMES,
    TABLE_ROWS,
    ImageRun,
    Measured,
    in_words,
    our_cells,
)
from cautious_paper.report.paper import paper_gpu_hours, paper_table
from cautious_paper.worlds.data.editions import OFFICIAL_START, Edition

RuleResult = tuple[bool, str]
"""Whether it holds, and the numbers."""
NUMBERS = "the paper's numbers"
PRINTED = 0.01
"""The last decimal that the paper prints, in points: percentages that differ by less are equal at its precision."""
Rule = Callable[[ImageRun, str], RuleResult]
NOT_RUN, NOT_JUDGED, OBSERVATION = "not run", "not judged", "observation"
"""Why a row of the ledger has no verdict: the run lacks what it is about; it was run, but at other sizes or levels than the
rule is about; or the paper does not claim it, and the numbers are of interest beside a claim."""
RESUMED = "training was interrupted and resumed, so it was not timed as a whole"
LAST = 20
"""The mean over the last iterations is compared with that over as many before them (claim CV1)."""


@dataclass(frozen=True)
class ClaimResult:
    """One claim, judged."""

    claim: str
    says: str
    reproduced: bool | None
    """None: no verdict, for the reason that `without_verdict` names."""
    numbers: str
    without_verdict: str = NOT_RUN

    @property
    def word(self) -> str:
        """The result in words."""
        return {True: "reproduced", False: "not reproduced", None: self.without_verdict}[self.reproduced]


class NotRunError(Exception):
    """The run lacks what a claim is about. Caught where claims are judged: the claim is then "not run"."""


@dataclass(frozen=True)
class Claim:
    """One row of the ledger.

    Attributes:
        id: as in the ledger of claims; ", letters" is added where it is judged on letters too.
        says: the claim, with the rule by which it counts as reproduced.
        rule: judges it; raises NotRunError where the run lacks what it needs.
        sets: the sets of images it is judged on, one row each.
        paper_variants: where the rule compares with numbers of the paper, the ensembles (or all, if empty) that must
            have the paper's sizes for that to mean anything; None where it does not.
        part: what of the claim this row judges, where it has two.
        observation: whether the paper does not claim this: the numbers are listed, and nothing is judged.
    """

    id: str
    says: str
    rule: Rule
    sets: tuple[str, ...] = ("fashion",)
    paper_variants: tuple[str, ...] | None = None
    part: str = ""
    observation: bool = False

    def judge(self, run: ImageRun, images: str) -> ClaimResult:
        """Judge it on one set of images."""
        letters = "letters" if images == "letters" and len(self.sets) > 1 else ""
        name = in_words(self.id, letters, self.part)
        if images == "letters" and images not in run.sets:
            return ClaimResult(name, self.says, None, "not run: no letters available")
        if self.paper_variants is None and len(run.levels) < 2:
            return ClaimResult(name, self.says, None, "not judged: a single level has no order", NOT_JUDGED)
        run.read.clear()
        try:
            reproduced, numbers = self.rule(run, images)
        except NotRunError as missing:
            return ClaimResult(name, self.says, None, f"not run: {missing}")
        numbers += _letters_note(run) if images == "letters" else ""
        if self.observation:
            return ClaimResult(name, self.says, None, numbers, OBSERVATION)
        if self.paper_variants is not None and (other := run.unlike_paper(*self.paper_variants)):
            return ClaimResult(name, self.says, None, f"not judged {other}; {numbers}", NOT_JUDGED)
        return ClaimResult(name, self.says, reproduced, numbers)


def _letters_note(run: ImageRun) -> str:
    """The letters that a rule's stages were decided on, in words; empty where they are the paper's own letters."""
    described = run.num_images("letters, test")
    kinds = {(found.get("num_images", described), found.get("edition")) for found in run.read.values()}
    if all(count == PAPER_LETTERS and edition in PAPER_EDITIONS for count, edition in kinds):
        return ""
    return f" (on {', and on '.join(_letters_in_words(*kind) for kind in sorted(kinds, key=str))})"


PAPER_EDITIONS = (None, Edition.OFFICIAL)
"""Stages of runs before letters had editions name none; those with 20,800 letters decided on the official ones."""


def _letters_in_words(count: int, edition: str | None) -> str:
    if count == PAPER_LETTERS and edition in PAPER_EDITIONS:
        return f"the paper's {count:,} letters"
    if count == PAPER_LETTERS and edition == Edition.REBUILT:
        return f"{count:,} letters, {OFFICIAL_START[0]:,} of them the paper's"
    return f"{count:,} letters, not the paper's {PAPER_LETTERS:,}"


def need(run: ImageRun, variant: str, images: str, bit: bool | None = None) -> Measured:
    """A stage's behaviour; a claim that needs it is not judged without."""
    measured = run.measured(variant, images, bit)
    if measured is None:
        raise NotRunError(f"stage {run.stage(variant, images, bit)} is missing")
    return measured


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
    """Indices of the levels with k < N."""
    parsed = [KofN.parse(level) for level in levels]
    return [index for index, level in enumerate(parsed) if level.k < level.n]


def most_robust(levels: Sequence[str]) -> list[int]:
    """Indices of the levels that average over a single model, k = 1 < N."""
    parsed = [KofN.parse(level) for level in levels]
    return [index for index, level in enumerate(parsed) if level.k == 1 < level.n]


def need_ordinary(levels: Sequence[str]) -> None:
    """Raise unless the last level is n-of-n, the ordinary one that others are compared with, and some level is robust."""
    if len(levels) - 1 in robust(levels) or not robust(levels):
        raise NotRunError("it needs a level with k < n and, to compare it with, one with k = n")


def format_levels(levels: Sequence[str], values: Sequence[float], optim: float | None = None, digits: int = 2) -> str:
    """Numbers with their levels, for a verdict."""
    parts = [f"{level} {value:.{digits}f}" for level, value in zip(levels, values, strict=True)]
    return ", ".join([*parts, f"optim {optim:.{digits}f}"] if optim is not None else parts)


def within(tables: Sequence[str], quantities: Sequence[str], points: float) -> Rule:
    """The rule "each cell of these tables within `points` points", by mean probability; misprinted columns do not count."""

    def judge(run: ImageRun, _images: str) -> RuleResult:
        apart = {
            cell: both for name in tables for cell, both in differences(run, name).items() if cell[-2] in quantities
        }
        if not apart:
            raise NotRunError("no level of the paper's tables was run")
        worst = max(apart, key=lambda cell: abs(apart[cell][0]))
        outside = sum(abs(mean) > points for mean, _ in apart.values())
        share = max(abs(share) for _, share in apart.values())
        text = f"{len(apart) - outside} of {len(apart)} cells within {points:g}; farthest {apart[worst][0]:+.2f} "
        text += f"({', '.join(worst)}); by most likely action the farthest is {share:.2f} off"
        return outside == 0, text

    return judge


def differences(run: ImageRun, name: str, without: str = "") -> dict[tuple[str, ...], tuple[float, float]]:
    """Ours minus the paper's in both readings, by cell: (table, group, quantity, column), without one of the groups."""
    paper = paper_table(name)
    apart: dict[tuple[str, ...], tuple[float, float]] = {}
    for group, table_row in TABLE_ROWS[run.task.name][name].items():
        for quantity, row in paper.cells[group].items() if group != without else ():
            ours = our_cells(run, table_row, quantity)
            if not ours:
                raise NotRunError(f"stage {run.stage(table_row.variant, 'digits', table_row.bit)} is missing")
            for column, cell in row.items():
                if column not in paper.misprinted and column in ours["probability"]:
                    mean, share = (float(cells[column].nanmean()) - cell.mean for cells in ours.values())
                    apart[(name, group, quantity, column)] = (mean, share)
    return apart


def help_percent(run: ImageRun, images: str, regime: Regime, variant: str) -> tuple[list[float], float]:
    """Help of each level, and of optim, in percent."""
    measured = need(run, variant, images)
    return (100 * measured.means(regime, HELP)).tolist(), 100 * measured.optim(HELP)


def more_reward_more_help(run: ImageRun, images: str, bit: bool | None = None) -> RuleResult:
    """No level's help falls as help pays more, and that of the robust levels rises; both regimes."""
    variants = run.variants_by("help_reward")
    if len(variants) < 2:
        raise NotRunError("a single reward of help")
    finished = [name for name in variants if run.measured(name, images, bit) is not None]
    if len(finished) < len(variants):
        missing = next(name for name in variants if name not in finished)
        seen = f"; so far {_by_reward(run, images, bit, finished)[1]}" if len(finished) > 1 else ""
        raise NotRunError(f"stage {run.stage(missing, images, bit)} is missing{seen}")
    return _by_reward(run, images, bit, variants)


def _by_reward(run: ImageRun, images: str, bit: bool | None, variants: list[str]) -> RuleResult:
    """The same for ensembles in rising order of what help pays."""
    holds, texts = True, []
    for regime, words in REGIMES.items():
        by_reward = [(100 * need(run, name, images, bit).means(regime, HELP)).tolist() for name in variants]
        by_level = list(zip(*by_reward, strict=True))
        holds &= all(list(values) == sorted(values) for values in by_level)
        holds &= all(rises(by_level[index]) for index in robust(run.levels))
        rows = zip(run.levels, by_level, strict=True)
        texts.append(f"{words}: " + ", ".join(f"{level} {' / '.join(f'{x:.2f}' for x in row)}" for level, row in rows))
    return holds, f"{' / '.join(variants)}, %; " + "; ".join(texts)


def index_by_regime(run: ImageRun, images: str, bit: bool | None = None) -> tuple[list[list[float]], float, str]:
    """The index of the levels in each regime, optim's, and both in words."""
    measured = need(run, run.main, images, bit)
    by_regime, optim = [measured.means(regime, INDEX).tolist() for regime in REGIMES], measured.optim(INDEX)
    parts = [
        f"{words}: {format_levels(run.levels, means, optim)}"
        for words, means in zip(REGIMES.values(), by_regime, strict=True)
    ]
    return by_regime, optim, "; ".join(parts)


def index_order(run: ImageRun, images: str, bit: bool | None = None) -> RuleResult:
    """The index of the four levels never falls as k/N grows, and its ends are apart; both regimes."""
    regimes, _, text = index_by_regime(run, images, bit)
    return all(rises(levels) for levels in regimes), text


# Claims about every run


def levels_off(sampled_values: Mapping[str, Tensor]) -> ClaimResult:
    """CV1: mean of the last 20 iterations within 5 % of the range of that of the 20 before, at every level.

    Args:
        sampled_values: ensemble, set and regime -> value under the sampled rewards, [L, R, T].
    """
    says = "the value under the sampled rewards levels off well before T = 100"
    num_iterations = min((values.shape[-1] for values in sampled_values.values()), default=0)
    if num_iterations < 3 * LAST:
        why = NOT_JUDGED if num_iterations else NOT_RUN
        return ClaimResult("CV1", says, None, f"{num_iterations} iterations are too few to tell", why)
    shares = {curve: _late_change(values) for curve, values in sampled_values.items()}
    worst = max(shares, key=lambda curve: shares[curve])
    text = f"largest change {100 * shares[worst]:.1f} % of a curve's range"
    return ClaimResult("CV1", says, shares[worst] <= 0.05, f"{text} ({worst})" if worst else text)


def _late_change(sampled_value: Tensor) -> float:
    """Largest late change of a level's curve, as a share of that curve's range."""
    curves = sampled_value.mean(dim=1)  # [L, T], over runs
    change = (curves[:, -LAST:].mean(dim=1) - curves[:, -2 * LAST : -LAST].mean(dim=1)).abs()
    reach = curves.amax(dim=1) - curves.amin(dim=1)
    return float((change / reach.clamp(min=1e-12)).max())


def trained_on(store: Store, stage: str) -> str:
    """The hardware that a belief was trained on; results/driving, ask-for-help and others name only the device."""
    numbers = store.numbers(stage)
    if "hardware" in numbers:
        return str(numbers["hardware"])
    hardware = store.manifest["hardware"]
    return str(hardware["gpu"] if str(numbers.get("device", "")).startswith("cuda") else hardware["cpu"])


def sampled_values(run: ImageRun) -> dict[str, Tensor]:
    """Value under the sampled rewards, [L, R, T], of every ensemble, set and regime that was run."""
    by_curve = {}
    for variant in run.variants:
        for images in run.sets:
            for bit in run.bits:
                arrays = run.arrays(variant, images, bit) or {}
                stage = " ".join(part for part in (variant, images, BITS[bit]) if part)
                for regime, words in REGIMES.items():
                    if f"{regime}-sampled_value" in arrays:
                        by_curve[f"{stage}, {words}"] = arrays[f"{regime}-sampled_value"]
    return by_curve


def image_cost(run: ImageRun) -> ClaimResult:
    """CO1: hours to train the main ensemble against the paper's for an experiment, at the paper's sizes."""
    says = f"{paper_gpu_hours():g} GPU-hours (V100) to train an image experiment's 2,000 models: fewer"
    stage = f"belief-{run.main}"
    if not run.store.has(stage):
        return ClaimResult("CO1", says, None, "not run: training was not timed")
    numbers = run.store.numbers(stage)
    if numbers.get("resumed"):
        return ClaimResult("CO1", says, None, RESUMED, NOT_JUDGED)
    hours = numbers["seconds"] / 3600
    training = run.settings["variants"][run.main]["training"]
    text = f"{hours:.2f} h" if hours >= 1 else f"{60 * hours:.1f} minutes"
    text += f" for {training['num_models']:,} models x {training['num_epochs']:,} epochs"
    text += f" on {trained_on(run.store, stage)}"
    judged = run.has_paper_sizes(run.main) and training["num_epochs"] >= 100
    return ClaimResult("CO1", says, hours < paper_gpu_hours() if judged else None, text, NOT_JUDGED)
