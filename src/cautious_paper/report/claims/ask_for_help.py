"""Claims AH1 to AH8: learning to ask for help."""

from __future__ import annotations

from cautious.types import Regime
from cautious_paper.report.claims.rules import (
    NUMBERS,
    Claim,
    NotRunError,
    Rule,
    RuleResult,
    falls,
    format_levels,
    help_percent,
    more_reward_more_help,
    need,
    never_rises_in_print,
    within,
)
from cautious_paper.report.images.image_run import NOVEL, REGIMES, ImageRun
from cautious_paper.report.paper import paper_help

MAIN = "help-0.25"
LOOKALIKES = "osiljz"
"""Letters that look like digits (section 4)."""


def falls_with_level(run: ImageRun, images: str) -> RuleResult:
    """All-images help falls as k/N grows."""
    levels, optim = help_percent(run, images, Regime.ALL_STATES, run.main)
    return falls(levels), f"{format_levels(run.levels, levels, optim)} %"


def rare_and_not_rising(regime: Regime) -> Rule:
    """The rule "help does not rise as k/N grows", at the precision of the paper's tables, whose own cells tie."""

    def judge(run: ImageRun, images: str) -> RuleResult:
        levels, optim = help_percent(run, images, regime, run.main)
        shares = (100 * need(run, run.main, images).means(regime, "help_share")).tolist()
        by_mean, by_action = format_levels(run.levels, levels, optim, 3), format_levels(run.levels, shares, None, 3)
        return never_rises_in_print(levels), f"{by_mean} %; by most likely action {by_action} %"

    return judge


def between(low: float, high: float, first_only: bool) -> Rule:
    """The rule "all-images help between these, in percent", of the most cautious level or of all."""

    def judge(run: ImageRun, images: str) -> RuleResult:
        levels, _ = help_percent(run, images, Regime.ALL_STATES, run.main)
        judged = levels[:1] if first_only else levels
        return all(low <= value <= high for value in judged), f"{format_levels(run.levels, levels)} %"

    return judge


def rises_single_image(run: ImageRun, images: str) -> RuleResult:
    """Single-image help rises as k/N falls, from optim's upwards."""
    levels, optim = help_percent(run, images, Regime.SINGLE_STATE, run.main)
    holds = falls(levels) and levels[0] > optim
    return holds, f"{format_levels(run.levels, levels, optim)} %; {_ratio_to_optim(levels[0], optim)}"


def close_to_paper(run: ImageRun, images: str) -> RuleResult:
    """The most cautious level's help against the number in the paper's text, and against optim's."""
    levels, optim = help_percent(run, images, Regime.SINGLE_STATE, run.main)
    paper = paper_help("single-image", images, run.levels[0])
    if paper is None:
        raise NotRunError(f"the paper gives no number for {images} at {run.levels[0]}")
    near = abs(levels[0] - paper) <= 8 and levels[0] >= 20 * optim
    return near, f"{levels[0]:.2f} %, the paper {paper:g} %; {_ratio_to_optim(levels[0], optim)}"


def _ratio_to_optim(asked: float, optim: float) -> str:
    return f"{asked / optim if optim else float('inf'):.1f} times optim's {optim:.2f} %"


def optim_least(run: ImageRun, images: str) -> RuleResult:
    """Optim asks for help less often than every level, in both regimes."""
    found = [help_percent(run, images, regime, run.main) for regime in REGIMES]
    least = min(min(levels) for levels, _ in found)
    optim = found[0][1]
    return optim < least, f"optim {optim:.2f} %, the least of the levels {least:.2f} %"


def optim_rare(run: ImageRun, images: str) -> RuleResult:
    """Optim asks for help in less than 4 % of the images."""
    _, optim = help_percent(run, images, Regime.ALL_STATES, run.main)
    return optim < 4, f"optim {optim:.2f} %"


def lookalikes(run: ImageRun, images: str) -> RuleResult:
    """The most cautious level asks for help less often on letters that look like digits than on the others (single-image)."""
    need(run, run.main, images)
    arrays = run.arrays(run.main, images) or {}
    by_letter = arrays[f"{Regime.SINGLE_STATE}-by_label"][0]  # [26, A]
    there = by_letter.sum(dim=-1) > 0  # a letter without images has no frequencies
    like = [letter for letter in range(len(by_letter)) if chr(ord("a") + letter) in LOOKALIKES and there[letter]]
    other = [letter for letter in range(len(by_letter)) if chr(ord("a") + letter) not in LOOKALIKES and there[letter]]
    if not like or not other:
        raise NotRunError("too few letters")
    assert run.task.help_action is not None  # the task is about asking for help
    asked = 100 * by_letter[:, run.task.help_action]
    low, high = float(asked[like].mean()), float(asked[other].mean())
    return low < high, f"{', '.join(LOOKALIKES)}: {low:.2f} % help; the others: {high:.2f} %"


def rewards_and_levels(run: ImageRun, images: str) -> RuleResult:
    """The same, and at no reward help rises as k/N grows, at the precision of the paper's tables."""
    holds, text = more_reward_more_help(run, images)
    tables = [help_percent(run, images, regime, name)[0] for regime in REGIMES for name in run.variants]
    return holds and all(never_rises_in_print(levels) for levels in tables), text


def nearly_always(run: ImageRun, images: str) -> RuleResult:
    """Help of the most cautious level at 0.5, single-image, at least 95 %."""
    levels, _ = help_percent(run, images, Regime.SINGLE_STATE, "help-0.5")
    return levels[0] >= 95, f"{levels[0]:.2f} %"


ASK_FOR_HELP = (
    Claim(
        "AH1",
        "on familiar digits every policy labels 96.9 to 99.4 % correctly: each cell within 1 point",
        within(["last_action_0.25"], ["correct"], 1),
        sets=("digits",),
        paper_variants=(MAIN,),
    ),
    *(
        Claim(
            "AH2",
            "help on familiar digits does not rise as k/N grows; differences below 0.01 points, the last decimal that the "
            "paper prints, count as ties",
            rare_and_not_rising(regime),
            sets=("digits",),
            part=words,
        )
        for regime, words in REGIMES.items()
    ),
    Claim(
        "AH2",
        "at most 2.83 % (single-image) and 0.03 % (all-images): each cell within 1 point",
        within(["last_action_0.25"], ["help"], 1),
        sets=("digits",),
        paper_variants=(MAIN,),
        part=NUMBERS,
    ),
    Claim("AH3", "all-images, fashion: help rises as k/N falls", falls_with_level),
    Claim(
        "AH3",
        "up to 29 % for 1-of-20: between 20 and 40 %",
        between(20, 40, True),
        paper_variants=(MAIN,),
        part=NUMBERS,
    ),
    Claim(
        "AH4",
        "all-images, letters: help rises as k/N falls",
        falls_with_level,
        sets=("letters",),
    ),
    Claim(
        "AH4",
        "letters: muted, 3 to 6 %: every level between 1 and 12 %",
        between(1, 12, False),
        sets=("letters",),
        paper_variants=(MAIN,),
        part=NUMBERS,
    ),
    Claim(
        "AH5",
        "single-image: help rises as k/N falls, above optim",
        rises_single_image,
        sets=NOVEL,
    ),
    Claim(
        "AH5",
        "single-image, 1-of-20: 89 % fashion, 68 % letters, 46 and 69 times optim: within 8 points, at least 20 times",
        close_to_paper,
        sets=NOVEL,
        paper_variants=(MAIN,),
        part=NUMBERS,
    ),
    Claim("AH6", "optim asks for help least on each novel set", optim_least, sets=NOVEL),
    Claim(
        "AH6", "optim asks for help under 2 % on fashion: under 4 %", optim_rare, paper_variants=(MAIN,), part=NUMBERS
    ),
    Claim(
        "AH7",
        "letters that look like digits get less help than the others (1-of-20, single-image)",
        lookalikes,
        sets=("letters",),
    ),
    Claim(
        "AH8",
        "help pays 0.1, 0.25, 0.5: more reward, more help; order of the levels unchanged (both regimes; differences below "
        "0.01 points count as ties)",
        rewards_and_levels,
        sets=NOVEL,
    ),
    Claim(
        "AH8",
        "near 100 % help at 0.5 (1-of-20, single-image): at least 95 % on fashion",
        nearly_always,
        paper_variants=("help-0.5",),
        part=NUMBERS,
    ),
    Claim(
        "AH8, letters",
        "the same on letters; the paper's sentence names no set",
        nearly_always,
        sets=("letters",),
        part=NUMBERS,
        observation=True,
    ),
)
"""The orderings are judged at any size; rows that compare with the paper's numbers only at the paper's sizes."""
