"""Which actions each policy takes on images: distributions at each level, and by label."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from cautious.experiments.store import Store
from cautious.report.images.image_run import REGIMES, ImageRun, Measured, bit_words
from cautious.report.images.panels import (
    OPTIM_COLOUR,
    action_names,
    colours_of,
    level_legend,
    say,
    tidy,
)
from cautious.report.plotting import grid
from cautious.types import Regime

FASHION = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
LABELS = {
    "digits": tuple("0123456789"),
    "fashion": FASHION,
    "letters": tuple("abcdefghijklmnopqrstuvwxyz"),
}


def distribution_figure(store: Store, variant: str, bit: bool | None = None) -> Figure:
    """How often each policy takes each action: regimes down, novel sets across; dotted: mean index where it counts."""
    run = ImageRun(store)
    sets = run.novel or run.sets
    figure, panels = grid(len(REGIMES), len(sets), width=5.6, height=2.6)
    for column, images in enumerate(sets):
        measured, arrays = run.measured(variant, images, bit), run.arrays(variant, images, bit)
        for row, (regime, words) in enumerate(REGIMES.items()):
            axes = panels[row][column]
            if measured is None or arrays is None:
                say(axes, f"{images}: not run")
                continue
            plot_distribution(axes, run, measured, arrays, regime)
            axes.set_title(f"{images}, {words}", fontsize=10)
    for axes in panels[:, 0]:
        axes.set_ylabel("frequency, %")
    for axes in panels[-1]:
        axes.set_xlabel("action")
    level_legend(figure, run.levels)
    return figure


def plot_distribution(axes: Axes, run: ImageRun, measured: Measured, arrays: dict[str, Tensor], regime: Regime) -> None:
    """Bars of each level and of optim side by side at each action."""
    levels = arrays[f"{regime}-actions"].mean(dim=1).numpy()  # [L, A], over runs
    bars = [*levels, arrays["optim-actions"].numpy()]
    indices = [*measured.means(regime, "index").tolist(), measured.optim("index")]
    colours = [*colours_of(measured.levels).values(), OPTIM_COLOUR]
    width = 0.8 / len(bars)
    for place, (bar, index, colour) in enumerate(zip(bars, indices, colours, strict=True)):
        shift = (place - (len(bars) - 1) / 2) * width
        axes.bar(np.arange(len(bar)) + shift, 100 * bar, width=width, color=colour)
        if run.task.weighted_loss and not np.isnan(index):  # the tasks whose labels differ in risk
            axes.axvline(index, color=colour, ls=":", lw=1.5)
    axes.set_xticks(range(run.task.num_actions), action_names(run))
    tidy(axes)


def heat_map_figure(store: Store, variant: str, images: str) -> Figure:
    """Frequency of each action by label: the most cautious level in both regimes, and optim; help available or not down."""
    run = ImageRun(store)
    labels = LABELS[images]
    height = 1.2 + (0.14 if images == "letters" else 0.22) * len(labels)
    figure, panels = grid(len(run.bits), 3, width=3.7, height=height)
    columns = {f"{run.levels[0]}, {words}": f"{regime}-by_label" for regime, words in REGIMES.items()}
    picture = None
    for row, bit in zip(panels, run.bits, strict=True):
        arrays = run.arrays(variant, images, bit)
        for axes, (title, name) in zip(row, (columns | {"optim": "optim-by_label"}).items(), strict=True):
            if arrays is None:
                say(axes, f"{images}: not run")
                continue
            table = arrays[name] if name.startswith("optim") else arrays[name][0]
            picture = axes.imshow(_without_missing(table), vmin=0, vmax=100, cmap="cividis", aspect="auto")
            axes.set_xticks(range(run.task.num_actions), action_names(run), fontsize=8)
            axes.set_yticks(range(len(table)), labels[: len(table)], fontsize=7 if images == "letters" else 8)
            axes.set_title("\n".join(part for part in (title, bit_words(bit)) if part), fontsize=10)
    for axes in panels[-1]:
        axes.set_xlabel("action")
    if picture is not None:
        figure.colorbar(picture, ax=panels, shrink=0.8, label="frequency, %", pad=0.01)
    return figure


def _without_missing(table: Tensor) -> np.ma.MaskedArray:
    """Percent, [labels, A]; a label without images is blank."""
    percent = 100 * table.numpy()
    return np.ma.masked_array(percent, mask=np.broadcast_to(percent.sum(axis=1, keepdims=True) == 0, percent.shape))
