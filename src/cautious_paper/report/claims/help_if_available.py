"""Claims HA1 to HA5: asking for help only if it is available."""

from __future__ import annotations

from cautious.types import Regime
from cautious_paper.report.claims.rules import (
    Claim,
    RuleResult,
    format_levels,
    index_order,
    more_reward_more_help,
    need,
    need_ordinary,
    robust,
    within,
)
from cautious_paper.report.images.image_run import BITS, HELP, INDEX, INDEX_HELP_AS_ZERO, NOVEL, REGIMES, ImageRun

HELP_MAIN = "help-0.05"


def far_more_help(run: ImageRun, images: str) -> RuleResult:
    """Help available: each robust level (k < N) asks at least three times as often as the last level and optim."""
    need_ordinary(run.levels)
    measured = need(run, run.main, images, True)
    optim, holds, texts = 100 * measured.optim(HELP), True, []
    for regime, words in REGIMES.items():
        levels = (100 * measured.means(regime, HELP)).tolist()
        least = min(levels[index] for index in robust(run.levels))
        holds &= least >= 3 * max(levels[-1], optim) and least > 0
        texts.append(f"{words}: {format_levels(run.levels, levels, optim)} %")
    return holds, "; ".join(texts)


def never_asks_in_vain(run: ImageRun, images: str) -> RuleResult:
    """Help unavailable: help under 0.5 % at every level, and the index in order."""
    measured = need(run, run.main, images, False)
    most = max(float(100 * measured.means(regime, HELP).max()) for regime in REGIMES)
    ordered, text = index_order(run, images, False)
    return most < 0.5 and ordered, f"help at most {most:.2f} %; index, {text}"


def _fall(run: ImageRun, images: str, bit: bool, regime: Regime, name: str) -> float:
    """How much lower the index of the most cautious level is than that of the last."""
    levels = need(run, run.main, images, bit).means(regime, name)
    return float(levels[-1] - levels[0])


def falls_more_with_help(run: ImageRun, images: str) -> RuleResult:
    """The index falls more from the last level to the first when help is available; both regimes.

    A rise is no fall, however small. The paper says why it falls: "policies switch from choosing actions with high indices to
    choosing the help action"; so help adds no index (deviation D11). Among labels alone it is printed beside.
    """
    holds, texts = True, []
    for regime, words in REGIMES.items():
        with_help, without = (_fall(run, images, bit, regime, INDEX_HELP_AS_ZERO) for bit in (True, False))
        others = [_fall(run, images, bit, regime, INDEX) for bit in (True, False)]
        holds &= with_help > max(without, 0)
        texts.append(f"{words}: falls by {with_help:.2f} with help {BITS[True]}, {without:.2f} {BITS[False]} ")
        texts[-1] += f"(among labels alone: {others[0]:.2f}, {others[1]:.2f})"
    return holds, "; ".join(texts)


def more_reward_more_help_if_there(run: ImageRun, images: str) -> RuleResult:
    """Help available: no level's help falls as help pays more, and that of the robust levels rises; both regimes."""
    return more_reward_more_help(run, images, True)


HELP_IF_AVAILABLE = (
    Claim(
        "HA1",
        "help available: robust levels (k < N) choose help far more than 10-of-10 and optim: at least 3 times",
        far_more_help,
        sets=NOVEL,
    ),
    Claim(
        "HA2",
        "help unavailable: help is never chosen (under 0.5 %), smaller indices instead (order of the index)",
        never_asks_in_vain,
        sets=NOVEL,
    ),
    Claim("HA3", "the mean action index falls more when help is available", falls_more_with_help, sets=NOVEL),
    Claim(
        "HA4",
        "familiar digits: each cell of the two tables within 2 points (their optim column is a misprint)",
        within(["bit_TEST", "bit_test"], ["correct", "help"], 2),
        sets=("digits",),
        paper_variants=(HELP_MAIN,),
    ),
    Claim(
        "HA5",
        "help pays 0.02, 0.05, 0.2: more reward, more help when available",
        more_reward_more_help_if_there,
        sets=NOVEL,
    ),
)
