"""Claims DE1 to DE3: how caution depends on the extent of training data."""

from __future__ import annotations

from cautious.report.claims.ask_for_help import help_percent
from cautious.report.claims.base import Claim, Finding, within
from cautious.report.images.image_run import NOVEL, ImageRun
from cautious.types import Regime


def rise_of_help(run: ImageRun, images: str, variant: str) -> float:
    """How much more the first level asks for help than the last, single-image, in points."""
    levels, _ = help_percent(run, images, Regime.SINGLE_STATE, variant)
    return levels[0] - levels[-1]


def no_rise_or_a_third_of(little: float, some: float) -> bool:
    """Whether help rises not at all with robustness, or by less than a third of another rise."""
    return little <= 0 or little < some / 3


def no_caution_from_little_data(run: ImageRun, images: str) -> Finding:
    """Help's rise with robustness at 1 % of the digits none, or under a third of that at 10 %."""
    little, some = (rise_of_help(run, images, f"extent-{percent}") for percent in (1, 10))
    return no_rise_or_a_third_of(little, some), f"rise {little:+.2f} points at 1 %, {some:+.2f} at 10 %"


def stronger_at_ten(run: ImageRun, images: str) -> Finding:
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
