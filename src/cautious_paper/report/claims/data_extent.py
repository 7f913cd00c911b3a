"""Claims DE1 to DE3: how caution depends on the extent of training data.

DE1 and DE3 are also judged over several draws of 1 % of the digits, with the interval over draws: which 600 digits a belief is
trained on changes its behaviour by more than the tolerance of DE3. The paper shows one draw, and does not say which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import scipy.stats
import torch
from torch import Tensor

from cautious.types import Regime
from cautious_paper.report.claims.rules import (
    Claim,
    ClaimResult,
    NotRunError,
    RuleResult,
    differences,
    help_percent,
    within,
)
from cautious_paper.report.images.image_run import NOVEL, REGIMES, ImageRun, TableRow, our_cells
from cautious_paper.report.paper import paper_table


def rise_of_help(run: ImageRun, images: str, variant: str) -> float:
    """How much more the first level asks for help than the last, single-image, in points."""
    levels, _ = help_percent(run, images, Regime.SINGLE_STATE, variant)
    return levels[0] - levels[-1]


def no_rise_or_a_third_of(little: float, some: float) -> bool:
    """Whether help rises not at all with robustness, or by less than a third of another rise."""
    return little <= 0 or little < some / 3


def no_caution_from_little_data(run: ImageRun, images: str) -> RuleResult:
    """Help's rise with robustness at 1 % of the digits none, or under a third of that at 10 %."""
    little, some = (rise_of_help(run, images, f"extent-{percent}") for percent in (1, 10))
    return no_rise_or_a_third_of(little, some), f"rise {little:+.2f} points at 1 %, {some:+.2f} at 10 %"


def stronger_at_ten(run: ImageRun, images: str) -> RuleResult:
    """Help's rise with robustness larger at 10 % of the digits than at 100 %."""
    some, full = (rise_of_help(run, images, f"extent-{percent}") for percent in (10, 100))
    return some > full, f"rise {some:+.2f} points at 10 %, {full:+.2f} at 100 %"


DATA_EXTENT = (
    Claim(
        "DE1",
        "1 % of the data: lowering k/N does not bring caution; rise of help (1-of-20 minus 10-of-10, fashion, "
        "single-image) none, or under a third of that at 10 %",
        no_caution_from_little_data,
    ),
    Claim(
        "DE2",
        "10 % of the data: the link between robustness and help is stronger than at 100 %; larger rise, single-image",
        stronger_at_ten,
        sets=NOVEL,
    ),
    Claim(
        "DE3",
        "familiar digits: each cell of the two tables within 2 points",
        within(["last_action_std_TEST", "last_action_std_test"], ["correct", "help"], 2),
        sets=("digits",),
        paper_variants=(),
    ),
)


# Over draws of 1 % of the digits

TABLES = {"last_action_std_TEST": Regime.ALL_STATES, "last_action_std_test": Regime.SINGLE_STATE}
GROUP = "1 %"
"""The rows of those tables that the draws are about."""
POINTS = 2.0
"""Tolerance of claim DE3."""
CONFIDENCE = 0.95


class Interval(NamedTuple):
    """The mean over draws, and half the width of a 95 % interval."""

    mean: float
    half_width: float

    @property
    def low(self) -> float:
        """Lower end."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end."""
        return self.mean + self.half_width

    def __str__(self) -> str:
        """With two decimals."""
        return f"{self.mean:.2f} ± {self.half_width:.2f}"


def interval_of_mean(values: Tensor) -> Interval:
    """Student's 95 % interval of the mean over draws.

    >>> str(interval_of_mean(torch.tensor([1.0, 2.0, 3.0])))
    '2.00 ± 2.48'
    """
    return _interval(values, 0)


def interval_of_another(values: Tensor) -> Interval:
    """Student's 95 % interval for one more draw: where the paper's own draw should lie, were it made as ours are."""
    return _interval(values, 1)


def _interval(values: Tensor, own: int) -> Interval:
    """Of a mean over draws that is known from `values`, and of `own` more draws' own variance."""
    count = len(values)
    if count < 2:
        raise NotRunError(f"{count} draw{'' if count == 1 else 's'} gives no interval")
    quantile = float(scipy.stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1))
    return Interval(float(values.mean()), quantile * float(values.std()) * (own + 1 / count) ** 0.5)


def finished_draws(run: ImageRun, images: str) -> list[str]:
    """The draws whose behaviour on a set is in the store."""
    return [name for name in run.variants if run.measured(name, images) is not None]


def draws_claims(run: ImageRun, whole: ImageRun | None) -> list[ClaimResult]:
    """DE1 and DE3 over draws.

    Args:
        run: The draws.
        whole: The run of data-extent at 1 %, 10 % and 100 %; without it, DE3 is judged at 1 % alone, and DE1 only if help does
            not rise at all.
    """
    return [_judged(_little_data, DE1, run, whole), _judged(_digits, DE3, run, whole)]


DE1 = (
    "DE1, over draws",
    "1 % of the data: lowering k/N does not bring caution; rise of help (1-of-20 minus 10-of-10, fashion, single-image): the "
    "upper end of the 95 % interval of its mean over draws is not above 0, or under a third of the rise at 10 %",
)
DE3 = (
    "DE3, over draws",
    "familiar digits: each cell at 1 % within 2 points of the mean over draws, or inside the 95 % interval of one more draw; "
    "each cell at 10 and 100 % within 2 points",
)


DrawsRule = Callable[[ImageRun, ImageRun | None], RuleResult]


def _judged(rule: DrawsRule, claim: tuple[str, str], run: ImageRun, whole: ImageRun | None) -> ClaimResult:
    try:
        return ClaimResult(*claim, *rule(run, whole))
    except NotRunError as missing:
        return ClaimResult(*claim, None, f"not run: {missing}")


def rise_by_draw(run: ImageRun) -> Tensor:
    """Rise of help with robustness on fashion, single-image, in points: one value per draw."""
    return torch.tensor([rise_of_help(run, "fashion", name) for name in finished_draws(run, "fashion")]).double()


def _little_data(run: ImageRun, whole: ImageRun | None) -> RuleResult:
    rises = rise_by_draw(run)
    rise = interval_of_mean(rises)
    text = f"rise {rise} points over {len(rises)} draws of {run.num_models(run.main):,} networks "
    text += f"({', '.join(f'{rise:+.2f}' for rise in rises.tolist())})"
    if whole is None:
        if rise.high > 0:
            raise NotRunError(f"{text}; the rise at 10 % is in another run")
        return True, text
    some = rise_of_help(whole, "fashion", "extent-10")
    beside = rise_of_help(whole, "fashion", "extent-1")
    text += f"; at 10 % {some:+.2f}; one draw of {whole.num_models('extent-1'):,} networks {beside:+.2f}"
    return no_rise_or_a_third_of(rise.high, some), text


def _digits(run: ImageRun, whole: ImageRun | None) -> RuleResult:
    near = inside = either = 0
    cells = list(_cells(run))
    if not cells:
        raise NotRunError("no draw has its digits")
    farthest = max(cells, key=lambda cell: abs(cell.mean_apart))
    for cell in cells:
        is_near, is_inside = abs(cell.mean_apart) <= POINTS, cell.another.low <= cell.paper <= cell.another.high
        near, inside, either = near + is_near, inside + is_inside, either + (is_near or is_inside)
    text = f"1 %: {near} of {len(cells)} cells within {POINTS:g} points of the mean over draws, {inside} inside the interval "
    text += f"of one more draw, {either} either way; farthest {farthest.mean_apart:+.2f} ({farthest.name})"
    others, outside = (0, 0) if whole is None else _other_extents(whole)
    if others:
        text += f"; 10 and 100 %: {others - outside} of {others} within {POINTS:g}"
    return either == len(cells) and outside == 0, text


class DrawsCell(NamedTuple):
    """One cell of the paper's tables at 1 %, and ours over draws."""

    name: str
    draws: Tensor
    another: Interval
    paper: float

    @property
    def mean_apart(self) -> float:
        """Mean over draws minus the paper's."""
        return float(self.draws.mean()) - self.paper


def _cells(run: ImageRun) -> Iterator[DrawsCell]:
    for table, regime in TABLES.items():
        for quantity, row in paper_table(table).cells[GROUP].items():
            for column, printed in row.items():
                if column not in (*run.levels, "optim"):
                    continue
                draws = percent_of_draws(run, regime, quantity, column)
                if len(draws):
                    name = f"{REGIMES[regime]}, {quantity}, {column}"
                    yield DrawsCell(name, draws, interval_of_another(draws), printed.mean)


def percent_of_draws(run: ImageRun, regime: Regime, quantity: str, column: str) -> Tensor:
    """Percent of the digits by mean probability, one value per draw."""
    names = finished_draws(run, "digits")
    return torch.tensor([_percent(run, name, regime, quantity, column) for name in names]).double()


def _percent(run: ImageRun, variant: str, regime: Regime, quantity: str, column: str) -> float:
    return float(our_cells(run, TableRow(variant, regime), quantity)["probability"][column].nanmean())


def _other_extents(whole: ImageRun) -> tuple[int, int]:
    """How many cells the tables have at 10 and 100 %, and how many of ours are farther off than the tolerance."""
    apart = [abs(mean) for table in TABLES for mean, _ in differences(whole, table, without=GROUP).values()]
    return len(apart), sum(each > POINTS for each in apart)
