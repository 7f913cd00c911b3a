"""Claims NO1 to NO3 (non-obvious cautious actions) and HA1 to HA5 (help only if available)."""

from __future__ import annotations

from cautious.report.claims.ask_for_help import more_reward_more_help
from cautious.report.claims.base import Claim, Finding, listed, most_robust, need, rises, robust, within
from cautious.report.images.image_run import BITS, HELP, INDEX, INDEX_HELP_AS_ZERO, NOVEL, REGIMES, ImageRun
from cautious.types import Regime

HELP_MAIN = "help-0.05"


def labels_digits(run: ImageRun, images: str) -> Finding:
    """Every level in both regimes, and optim, labels at least 97 % correctly."""
    measured = need(run, run.main, images)
    found = {words: 100 * measured.means(regime, "correct_probability") for regime, words in REGIMES.items()}
    optim = 100 * measured.optim("correct_probability")
    texts = [f"{words}: {listed(run.levels, values.tolist())} %" for words, values in found.items()]
    lowest = min(float(values.min()) for values in found.values())
    return min(lowest, optim) >= 97, "; ".join([*texts, f"optim {optim:.2f} %"])


def index_by_regime(run: ImageRun, images: str, bit: bool | None = None) -> tuple[list[list[float]], float, str]:
    """The index of the levels in each regime, optim's, and both in words."""
    measured = need(run, run.main, images, bit)
    found, optim = [measured.means(regime, INDEX).tolist() for regime in REGIMES], measured.optim(INDEX)
    parts = [f"{words}: {listed(run.levels, own, optim)}" for words, own in zip(REGIMES.values(), found, strict=True)]
    return found, optim, "; ".join(parts)


def index_order(run: ImageRun, images: str, bit: bool | None = None) -> Finding:
    """The index of the four levels never falls as k/N grows, and its ends are apart; both regimes."""
    regimes, _, text = index_by_regime(run, images, bit)
    return all(rises(levels) for levels in regimes), text


def optim_beside_levels(run: ImageRun, images: str) -> Finding:
    """Whether optim's index is as high as that of every level, both regimes. The paper does not say so."""
    measured = need(run, run.main, images)
    optim = measured.optim(INDEX)
    highest = max(float(measured.means(regime, INDEX).max()) for regime in REGIMES)
    robust_most = max(
        float(measured.means(regime, INDEX)[place]) for regime in REGIMES for place in most_robust(run.levels)
    )
    return (
        optim >= highest,
        f"optim {optim:.2f}, the highest level {highest:.2f}, the highest with k = 1 {robust_most:.2f}",
    )


def robust_below_the_rest(run: ImageRun, images: str) -> Finding:
    """Each level with k = 1 has a smaller index than both non-robust algorithms, the last level and optim; both regimes."""
    regimes, optim, text = index_by_regime(run, images)
    places = most_robust(run.levels)
    return all(levels[place] < min(levels[-1], optim) for levels in regimes for place in places), text


def far_more_help(run: ImageRun, images: str) -> Finding:
    """Help available: each robust level (k < N) asks at least three times as often as the last level and optim."""
    measured = need(run, run.main, images, True)
    optim, holds, texts = 100 * measured.optim(HELP), True, []
    for regime, words in REGIMES.items():
        levels = (100 * measured.means(regime, HELP)).tolist()
        least = min(levels[place] for place in robust(run.levels))
        holds &= least >= 3 * max(levels[-1], optim) and least > 0
        texts.append(f"{words}: {listed(run.levels, levels, optim)} %")
    return holds, "; ".join(texts)


def never_asks_in_vain(run: ImageRun, images: str) -> Finding:
    """Help unavailable: help under 0.5 % at every level, and the index in order."""
    measured = need(run, run.main, images, False)
    most = max(float(100 * measured.means(regime, HELP).max()) for regime in REGIMES)
    ordered, text = index_order(run, images, False)
    return most < 0.5 and ordered, f"help at most {most:.2f} %; index, {text}"


def _fall(run: ImageRun, images: str, bit: bool, regime: Regime, name: str) -> float:
    """How much lower the index of the most cautious level is than that of the last."""
    levels = need(run, run.main, images, bit).means(regime, name)
    return float(levels[-1] - levels[0])


def falls_more_with_help(run: ImageRun, images: str) -> Finding:
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


def more_reward_more_help_if_there(run: ImageRun, images: str) -> Finding:
    """Help available: no level's help falls as help pays more, and that of the robust levels rises; both regimes."""
    return more_reward_more_help(run, images, True)


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
