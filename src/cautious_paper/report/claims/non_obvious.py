"""Claims NO1 to NO3: cautious actions that are not marked as such."""

from __future__ import annotations

import math

from cautious_paper.report.claims.rules import (
    Claim,
    NotRunError,
    RuleResult,
    format_levels,
    index_by_regime,
    index_order,
    most_robust,
    need,
    need_ordinary,
)
from cautious_paper.report.images.image_run import INDEX, REGIMES, ImageRun


def labels_digits(run: ImageRun, images: str) -> RuleResult:
    """Every level in both regimes, and optim, labels at least 97 % correctly."""
    measured = need(run, run.main, images)
    by_regime = {words: 100 * measured.means(regime, "correct_probability") for regime, words in REGIMES.items()}
    optim = 100 * measured.optim("correct_probability")
    texts = [f"{words}: {format_levels(run.levels, values.tolist())} %" for words, values in by_regime.items()]
    lowest = min(float(values.min()) for values in by_regime.values())
    return min(lowest, optim) >= 97, "; ".join([*texts, f"optim {optim:.2f} %"])


def optim_beside_levels(run: ImageRun, images: str) -> RuleResult:
    """Whether optim's index is as high as that of every level, both regimes. The paper does not say so."""
    measured = need(run, run.main, images)
    optim = measured.optim(INDEX)
    highest = max(float(measured.means(regime, INDEX).max()) for regime in REGIMES)
    robust_most = max(
        (float(measured.means(regime, INDEX)[place]) for regime in REGIMES for place in most_robust(run.levels)),
        default=math.nan,
    )
    return (
        optim >= highest,
        f"optim {optim:.2f}, the highest level {highest:.2f}, the highest with k = 1 {robust_most:.2f}",
    )


def robust_below_the_rest(run: ImageRun, images: str) -> RuleResult:
    """Each level with k = 1 has a smaller index than both non-robust algorithms, the last level and optim; both regimes."""
    need_ordinary(run.levels)
    regimes, optim, text = index_by_regime(run, images)
    places = most_robust(run.levels)
    if not places:
        raise NotRunError("no level with k = 1 < n")
    return all(levels[place] < min(levels[-1], optim) for levels in regimes for place in places), text


NON_OBVIOUS = (
    Claim(
        "NO1",
        "familiar digits almost all labelled correctly by every policy: at least 97 %",
        labels_digits,
        sets=("digits",),
        paper_variants=(),
    ),
    Claim("NO2", "fashion, both regimes: the mean action index falls as k/N falls", index_order),
    Claim(
        "NO2",
        "1-of-20 and 1-of-10 choose smaller indices than the non-robust algorithms (10-of-10 and optim), both regimes",
        robust_below_the_rest,
        part="the paper's sentence",
    ),
    Claim("NO2", "where optim's index lies beside the levels'", optim_beside_levels, part="optim", observation=True),
    Claim("NO3", "letters: smaller differences, same order, both regimes: the order", index_order, sets=("letters",)),
    Claim(
        "NO3",
        "where optim's index lies beside the levels'",
        optim_beside_levels,
        sets=("letters",),
        part="optim",
        observation=True,
    ),
)
