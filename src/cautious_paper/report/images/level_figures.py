"""Figures of image runs with one mark per level: violins, convergence, the full caution dial, the number of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from cautious.risk import KofN
from cautious.types import Regime, Sampling
from cautious_paper.experiments.store import Store
from cautious_paper.report.images.image_run import (
    HELP,
    INDEX,
    INDEX_HELP_AS_ZERO,
    REGIMES,
    ImageRun,
    Measured,
    as_tensor,
    bit_words,
    in_words,
)
from cautious_paper.report.plotting import COLOURS, colours_of, grid

OPTIM_COLOUR = "#555555"
SET_COLOURS = {"digits": "#555555", "fashion": COLOURS[3], "letters": COLOURS[4]}
SET_WORDS = {"digits": "digits", "fashion": "clothes", "letters": "letters"}
HELP_AXIS = "help frequency, %"
INDEX_AXIS = "mean action index"


def level_legend(figure: Figure, levels: Sequence[str], optim: bool = True) -> None:
    """One legend above all panels, in the order of the bars: cautious on the right."""
    of_levels = dict(reversed(colours_of(levels).items()))
    named = ({"optim": OPTIM_COLOUR} if optim else {}) | of_levels
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


def annotate(axes: Axes, text: str) -> None:
    """An empty panel with the reason."""
    axes.text(0.5, 0.5, text, ha="center", va="center", color="#777777", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


def tidy(axes: Axes) -> None:
    """No frame above and to the right; faint lines to read values by."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)


def from_zero(axes: Axes, least: float = 1.0) -> None:
    """An axis from 0 up to `least` or more, so that noise near 0 does not fill the panel."""
    up_to(axes, max(least, axes.get_ylim()[1]))


def up_to(axes: Axes, top: float) -> None:
    """From 0 to `top`, with room for half a marker below."""
    axes.set_ylim(-0.02 * top, top)


def action_labels(run: ImageRun) -> list[str]:
    """The labels, and help."""
    return ["help" if action == run.task.help_action else str(action) for action in range(run.task.num_actions)]


# Behaviour on novel images at each level, as in the paper's main figures

AXES = {HELP: HELP_AXIS, INDEX: INDEX_AXIS, INDEX_HELP_AS_ZERO: "mean index, help as 0"}
FACTORS = {HELP: 100.0, INDEX: 1.0, INDEX_HELP_AS_ZERO: 1.0}


def plot_levels(axes: Axes, measured: Measured, regime: Regime, name: str, left: float) -> None:
    """From `left` on: optim's mean, then a place per level, cautious on the right, with a bar, a violin and stars of runs."""
    values = FACTORS[name] * measured.runs(regime, name).numpy()  # [L, R]
    for rank, (colour, runs) in enumerate(zip(colours_of(measured.levels).values(), values, strict=True)):
        place = len(values) - rank
        known = runs[~np.isnan(runs)]
        if not len(known):
            axes.text(left + place, 0, "–", ha="center", va="bottom", color=colour)
            continue
        axes.bar(left + place, known.mean(), width=0.8, color=colour, alpha=0.3, lw=0)
        if len(known) > 1 and np.ptp(known) > 1e-9:  # a violin of equal runs is a line
            violin = axes.violinplot(known, [left + place], widths=0.8, showextrema=False)
            for body in violin["bodies"]:  # type: ignore[attr-defined]
                body.set(facecolor=colour, alpha=0.6)
        axes.plot(np.full(len(known), left + place), known, "*", color=colour, mec="black", mew=0.3, markersize=7)
    mean, half = FACTORS[name] * measured.optim(name), FACTORS[name] * measured.optim_half_width(name)
    axes.errorbar(left, mean, yerr=half, fmt="o", color=OPTIM_COLOUR, capsize=4, markersize=4)


def plot_panel(axes: Axes, run: ImageRun, variant: str, regime: Regime, name: str) -> None:
    """All novel sets (with help available, and without) side by side."""
    width = len(run.levels) + 2.2
    ticks: list[float] = []
    names: list[str] = []
    for images in run.novel:
        for bit in run.bits:
            left = len(ticks) * width
            middle = left + len(run.levels) / 2
            ticks.append(middle)
            names.append(SET_WORDS[images] + {None: "", True: "\nhelp", False: "\nno help"}[bit])
            measured = run.measured(variant, images, bit)
            if measured is None:
                axes.text(middle, 0, "not run", ha="center", va="bottom", color="#777777")
            else:
                plot_levels(axes, measured, regime, name, left)
    axes.set_xticks(ticks, names)
    from_zero(axes)
    tidy(axes)


def violin_figure(store: Store, rows: Sequence[tuple[str, str]]) -> Figure:
    """One row of panels for each (variant, quantity); all-images left, single-image right."""
    run = ImageRun(store)
    width = max(3.5, 2.2 + len(run.novel) * len(run.bits))
    figure, panels = grid(len(rows), 2, width=width, height=2.7)
    for row, (variant, name) in zip(panels, rows, strict=True):
        for axes, (regime, words) in zip(row, REGIMES.items(), strict=True):
            if not run.novel:
                annotate(axes, "no novel images in this run")
                continue
            plot_panel(axes, run, variant, regime, name)
            title = in_words(run.words_for(variant), words)
            axes.set_title(title, fontsize=10)
        row[0].set_ylabel(AXES[name])
    for name in AXES:
        _same_height([axes for row, own in zip(panels, rows, strict=True) if own[1] == name for axes in row], name)
    level_legend(figure, run.levels)
    return figure


def _same_height(panels: Sequence[Axes], name: str) -> None:
    """Panels of one quantity compare only at one scale."""
    top = max((axes.get_ylim()[1] for axes in panels), default=1)
    for axes in panels:
        up_to(axes, min(top, 105) if name == HELP else top)


# Curves

STYLES = {Regime.ALL_STATES: "--", Regime.SINGLE_STATE: "-"}
SAMPLING_STYLES = {Sampling.QUEUE: ("--", "o"), Sampling.EXACT: ("-", "s")}


def convergence_figure(store: Store, variant: str, bit: bool | None = None) -> Figure:
    """Value under the sampled rewards per iteration: thin lines are runs, bold their mean; regimes down, sets across."""
    run = ImageRun(store)
    figure, panels = grid(len(REGIMES), max(1, len(run.sets)), width=3.4, height=2.5)
    for column, images in enumerate(run.sets):
        arrays = run.arrays(variant, images, bit)
        for row, (regime, words) in enumerate(REGIMES.items()):
            axes = panels[row][column]
            if arrays is None:
                annotate(axes, f"{images}: not run")
                continue
            plot_convergence(axes, arrays[f"{regime}-sampled_value"].numpy(), run.levels)
            axes.set_title(f"{images}, {words}", fontsize=10)
    for axes in panels[-1]:
        axes.set_xlabel("iteration")
    for axes in panels[:, 0]:
        axes.set_ylabel("sampled k-of-N value")
    level_legend(figure, run.levels, optim=False)
    return figure


def plot_convergence(axes: Axes, values: np.ndarray, levels: list[str]) -> None:
    """[L, R, T]: one thin line per run, a bold one for their mean."""
    iterations = np.arange(1, values.shape[-1] + 1)
    for runs, colour in zip(values, colours_of(levels).values(), strict=True):
        axes.plot(iterations, runs.T, color=colour, lw=0.5, alpha=0.5)
        axes.plot(iterations, runs.mean(axis=0), color=colour, lw=1.8)
    tidy(axes)


def quantities_of(run: ImageRun) -> list[str]:
    """What shows caution in a task: help, or a low index, or both."""
    if run.task.help_action is None:
        return [INDEX]
    return [HELP, INDEX] if run.task.help_bit else [HELP]


def dial_figure(store: Store) -> Figure:
    """Every k of N = 20, all sets on one plot, one line style per regime; quantities down, help available or not across."""
    run = ImageRun(store)
    names = quantities_of(run)
    figure, panels = grid(len(names), len(run.bits), width=5.2, height=3.4)
    for row, name in zip(panels, names, strict=True):
        for axes, bit in zip(row, run.bits, strict=True):
            studies = {images: study for images in run.sets if (study := run.study("dial", images, bit))}
            if not studies:
                annotate(axes, "not run")
                continue
            for images, study in studies.items():
                _plot_dial(axes, study, images, name)
            axes.set(xlabel="k of 20 (left is cautious)", title=bit_words(bit))
            from_zero(axes)
        row[0].set_ylabel(AXES[name])
    _style_legend(figure, run.sets, {REGIMES[regime]: style for regime, style in STYLES.items()})
    return figure


def _plot_dial(axes: Axes, study: dict[str, Any], images: str, name: str) -> None:
    ks = [KofN.parse(level).k for level in study["levels"]]
    for regime, style in STYLES.items():
        values = FACTORS[name] * as_tensor(study["behaviour"][str(regime)][name])
        axes.plot(ks, values.numpy(), style, color=SET_COLOURS[images], marker="o", markersize=3)
    axes.set_xticks([1, 5, 10, 15, 20])
    tidy(axes)


def models_figure(store: Store) -> Figure:
    """The most cautious level against the number of models: mean and range over random parts, queue and exact."""
    run = ImageRun(store)
    rows = [(name, bit) for name in quantities_of(run) for bit in run.bits]
    figure, panels = grid(len(rows), len(REGIMES), width=4.6, height=2.9)
    for row, (name, bit) in zip(panels, rows, strict=True):
        studies = {images: study for images in run.sets if (study := run.study("models", images, bit))}
        for axes, (regime, words) in zip(row, REGIMES.items(), strict=True):
            if not studies:
                annotate(axes, "not run")
                continue
            for images, study in studies.items():
                _plot_models(axes, study, images, regime, name)
            axes.set(title=in_words(words, bit_words(bit)), xlabel="number of models")
            from_zero(axes)
        row[0].set_ylabel(AXES[name])
    styles = {f"{sampling} sampling": line for sampling, (line, _) in SAMPLING_STYLES.items()}
    _style_legend(figure, run.sets, styles)
    return figure


def _plot_models(axes: Axes, study: dict[str, Any], images: str, regime: Regime, name: str) -> None:
    sizes = np.array(study["sizes"], dtype=float)
    for place, (sampling, (line, marker)) in enumerate(SAMPLING_STYLES.items()):
        # [sizes, parts]
        values = FACTORS[name] * as_tensor(study["behaviour"][str(regime)][str(sampling)][name]).numpy()
        apart = max(1.5, sizes.max() / sizes.min()) ** 0.008  # side by side, so that both ranges can be read
        shifted = sizes * (apart if place else 1 / apart)
        mean, low, high = values.mean(axis=1), values.min(axis=1), values.max(axis=1)
        axes.errorbar(
            shifted,
            mean,
            yerr=np.clip(np.stack([mean - low, high - mean]), 0, None),
            ls=line,
            marker=marker,
            markersize=4,
            capsize=2,
            lw=1.2,
            color=SET_COLOURS[images],
        )
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,g}" for size in sizes], minor=False, rotation=45, fontsize=8)
    axes.set_xticks([], minor=True)
    tidy(axes)


def _style_legend(figure: Figure, sets: list[str], styles: dict[str, str]) -> None:
    lines = [Line2D([], [], color=SET_COLOURS[images], label=images) for images in sets]
    lines += [Line2D([], [], color="black", ls=style, label=words) for words, style in styles.items()]
    legend(figure, lines)
