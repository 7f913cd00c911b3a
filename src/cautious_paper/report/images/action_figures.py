"""Figures of image runs about actions: their distribution, overall and by label, and what is done on single images."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from torch import Tensor

from cautious.types import Regime
from cautious_paper.experiments.store import Store
from cautious_paper.report.images.image_run import REGIMES, ImageRun, Measured, bit_words
from cautious_paper.report.images.level_figures import (
    OPTIM_COLOUR,
    action_labels,
    annotate,
    legend,
    level_legend,
    tidy,
)
from cautious_paper.report.plotting import CAUTIOUS, COLOURS, ORDINARY, colours_of, grid

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
                annotate(axes, f"{images}: not run")
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
        shift = ((len(bars) - 1) / 2 - place) * width  # cautious on the right
        axes.bar(np.arange(len(bar)) + shift, 100 * bar, width=width, color=colour)
        if run.task.weighted_loss and not np.isnan(index):  # the tasks whose labels differ in risk
            axes.axvline(index, color=colour, ls=":", lw=1.5)
    axes.set_xticks(range(run.task.num_actions), action_labels(run))
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
                annotate(axes, f"{images}: not run")
                continue
            table = arrays[name] if name.startswith("optim") else arrays[name][0]
            picture = axes.imshow(_without_missing(table), vmin=0, vmax=100, cmap="cividis", aspect="auto")
            axes.set_xticks(range(run.task.num_actions), action_labels(run), fontsize=8)
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


# Images on which the cautious policy asks for help most and least, the models' predictions, and what is done

SHOWN = 4
"""Of each kind; the store has eight."""


def samples_figure(store: Store, images: str, bit: bool | None = None) -> Figure:
    """Four images of each kind: the image, the predicted rewards of each action, the two policies."""
    run = ImageRun(store)
    arrays = run.arrays(run.main, images, bit)
    if arrays is None or "samples-images" not in arrays:
        figure, panels = grid(1, 1)
        annotate(panels[0][0], f"{images}: {'not run' if arrays is None else 'images not stored'}")
        return figure
    count = min(SHOWN, arrays["samples-labels"].shape[1])
    figure, panels = grid(3, 2 * count, width=1.9, height=1.75)
    for kind in range(2):
        for number in range(count):
            sample = {name: arrays[f"samples-{name}"][kind, number] for name in SAMPLE}
            _plot_sample(panels[:, kind * count + number], run, images, sample)
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


def _plot_sample(column: np.ndarray, run: ImageRun, images: str, sample: dict[str, Tensor]) -> None:
    column[0].imshow(sample["images"].numpy(), cmap="gray_r", vmin=0, vmax=255)
    column[0].set_title(LABELS[images][int(sample["labels"])], fontsize=9)
    column[0].set_xticks([])
    column[0].set_yticks([])
    plot_predictions(column[1], sample["quantiles"].numpy())
    places = np.arange(run.task.num_actions)
    column[2].bar(places + 0.2, 100 * sample["policy"].numpy(), width=0.4, color=CAUTIOUS)
    column[2].bar(places - 0.2, 100 * sample["ordinary"].numpy(), width=0.4, color=ORDINARY)
    column[2].set_ylim(0, 105)
    names = ["H" if name == "help" else name for name in action_labels(run)]
    for axes in column[1:]:
        axes.set_xticks(places, names, fontsize=7)
        tidy(axes)


def plot_predictions(axes: Axes, quantiles: np.ndarray) -> None:
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
        Patch(color=ORDINARY, label=f"{run.levels[-1]}, single-image"),
        Patch(color=CAUTIOUS, label=f"{run.levels[0]}, single-image"),
    ]
    legend(figure, handles, below=True)
