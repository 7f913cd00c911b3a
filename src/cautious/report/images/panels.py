"""What the figures of image runs share: names, colours, panels without a result."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from cautious.report.images.image_run import ImageRun
from cautious.report.plotting import COLOURS

LEVEL_COLOURS = (COLOURS[0], COLOURS[5], COLOURS[3], COLOURS[1])
"""Most cautious first."""
OPTIM_COLOUR = "#555555"
SET_COLOURS = {"digits": "#555555", "fashion": COLOURS[0], "letters": COLOURS[2]}
SIGNS = {"digits": "0–9", "fashion": "f", "letters": "α"}
"""The paper's short names of the novel sets."""
HELP_AXIS = "help frequency, %"
INDEX_AXIS = "mean action index"


def colours_of(levels: Sequence[str]) -> dict[str, str]:
    """Level -> colour; further levels than the paper's four begin again."""
    return {level: LEVEL_COLOURS[place % len(LEVEL_COLOURS)] for place, level in enumerate(levels)}


def level_legend(figure: Figure, levels: Sequence[str], optim: bool = True) -> None:
    """One legend above all panels."""
    named = colours_of(levels) | ({"optim": OPTIM_COLOUR} if optim else {})
    patches = [Patch(color=colour, label=level) for level, colour in named.items()]
    legend(figure, patches)


def legend(figure: Figure, handles: Sequence[Patch | Line2D], below: bool = False) -> None:
    """One line of entries above or below all panels, close enough for a figure of one panel."""
    figure.legend(
        handles=list(handles),
        loc="outside lower center" if below else "outside upper center",
        ncols=len(handles),
        frameon=False,
        handlelength=1.4,
        handletextpad=0.5,
        columnspacing=1.2,
    )


def say(axes: Axes, text: str) -> None:
    """An empty panel that says why."""
    axes.text(0.5, 0.5, text, ha="center", va="center", color="#777777", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


def tidy(axes: Axes) -> None:
    """No frame above and to the right; faint lines to read values by."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)


def from_zero(axes: Axes, least: float = 1.0) -> None:
    """An axis from 0 up to `least` or more, so that nothing does not look like something."""
    up_to(axes, max(least, axes.get_ylim()[1]))


def up_to(axes: Axes, top: float) -> None:
    """From 0 to `top`, with room for half a marker below."""
    axes.set_ylim(-0.02 * top, top)


def action_names(run: ImageRun) -> list[str]:
    """The labels, and help."""
    return ["help" if action == run.task.help_action else str(action) for action in range(run.task.num_actions)]
