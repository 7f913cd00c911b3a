"""Pictures on which the cautious policy asks for help most and least, what the models think of them, what is done."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from torch import Tensor

from cautious.experiments.store import Store
from cautious.report.images.action_figures import LABELS
from cautious.report.images.image_run import ImageRun
from cautious.report.images.panels import LEVEL_COLOURS, action_names, legend, say, tidy
from cautious.report.plotting import COLOURS, grid

SHOWN = 4
"""Of each kind; the store has eight."""
CAUTIOUS, ORDINARY = LEVEL_COLOURS[0], LEVEL_COLOURS[-1]


def samples_figure(store: Store, images: str, bit: bool | None = None) -> Figure:
    """Four pictures of each kind: picture, the models' opinions of each action, what the two policies do."""
    run = ImageRun(store)
    arrays = run.arrays(run.main, images, bit)
    if arrays is None or "samples-images" not in arrays:
        figure, panels = grid(1, 1)
        say(panels[0][0], f"{images}: {'not run' if arrays is None else 'pictures not kept'}")
        return figure
    count = min(SHOWN, arrays["samples-labels"].shape[1])
    figure, panels = grid(3, 2 * count, width=1.9, height=1.75)
    for kind in range(2):
        for number in range(count):
            own = {name: arrays[f"samples-{name}"][kind, number] for name in SAMPLE}
            _plot_sample(panels[:, kind * count + number], run, images, own)
    words = "asks for help" if run.task.help_action is not None else "departs from ordinary"
    for kind, much in enumerate(("most", "least")):
        first = panels[0][kind * count]
        heading = first.text(0, 1.28, f"{run.levels[0]} {words} {much}", transform=first.transAxes, fontsize=11)
        heading.set_in_layout(False)  # or its panel would grow to its width
    figure.suptitle(" ", fontsize=15)  # room for the headings
    panels[1][0].set_ylabel("predicted reward")
    panels[2][0].set_ylabel("probability, %")
    for axes in panels[1:, 1:].flat:
        axes.tick_params(labelleft=False)
    _share_scale(panels[1])
    _legend(figure, run)
    return figure


SAMPLE = ("images", "labels", "policy", "ordinary", "quantiles")


def _plot_sample(column: np.ndarray, run: ImageRun, images: str, own: dict[str, Tensor]) -> None:
    column[0].imshow(own["images"].numpy(), cmap="gray_r", vmin=0, vmax=255)
    column[0].set_title(LABELS[images][int(own["labels"])], fontsize=9)
    column[0].set_xticks([])
    column[0].set_yticks([])
    plot_opinions(column[1], own["quantiles"].numpy())
    places = np.arange(run.task.num_actions)
    column[2].bar(places - 0.2, 100 * own["policy"].numpy(), width=0.4, color=CAUTIOUS)
    column[2].bar(places + 0.2, 100 * own["ordinary"].numpy(), width=0.4, color=ORDINARY)
    column[2].set_ylim(0, 105)
    names = ["H" if name == "help" else name for name in action_names(run)]
    for axes in column[1:]:
        axes.set_xticks(places, names, fontsize=7)
        tidy(axes)


def plot_opinions(axes: Axes, quantiles: np.ndarray) -> None:
    """Predicted rewards of each action over the models, [5, A]: least to most, the middle 80 %, the median."""
    lowest, low, median, high, highest = quantiles
    places = np.arange(len(median))
    axes.vlines(places, lowest, highest, color=COLOURS[4], lw=1)
    axes.vlines(places, low, high, color=COLOURS[4], lw=4)
    axes.plot(places, median, "o", color="black", markersize=2.5)
    axes.axhline(0, color="#999999", lw=0.6)


def _share_scale(row: np.ndarray) -> None:
    low, high = min(axes.get_ylim()[0] for axes in row), max(axes.get_ylim()[1] for axes in row)
    for axes in row:
        axes.set_ylim(low, high)


def _legend(figure: Figure, run: ImageRun) -> None:
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=COLOURS[4], lw=1, label="all models"),
        Line2D([], [], color=COLOURS[4], lw=4, label="middle 80 %"),
        Line2D([], [], color="black", marker="o", ls="", markersize=3, label="median"),
        Patch(color=CAUTIOUS, label=f"{run.levels[0]}, single-image"),
        Patch(color=ORDINARY, label=f"{run.levels[-1]}, single-image"),
    ]
    legend(figure, handles, below=True)
