"""Behaviour on novel images at each level: a violin and a star a run, as in the paper's main figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cautious.experiments.store import Store
from cautious.report.images.image_run import HELP, INDEX, INDEX_HELP_AS_ZERO, REGIMES, ImageRun, Measured, in_words
from cautious.report.images.panels import (
    HELP_AXIS,
    INDEX_AXIS,
    OPTIM_COLOUR,
    SIGNS,
    colours_of,
    from_zero,
    level_legend,
    say,
    tidy,
    up_to,
)
from cautious.report.plotting import grid
from cautious.types import Regime

AXES = {HELP: HELP_AXIS, INDEX: INDEX_AXIS, INDEX_HELP_AS_ZERO: "mean index, help as 0"}
FACTORS = {HELP: 100.0, INDEX: 1.0, INDEX_HELP_AS_ZERO: 1.0}


def plot_levels(axes: Axes, measured: Measured, regime: Regime, name: str, left: float) -> None:
    """Bars up to the mean over runs with a violin and stars, a place a level from `left` on; then optim's mean."""
    values = FACTORS[name] * measured.runs(regime, name).numpy()  # [L, R]
    for place, (colour, runs) in enumerate(zip(colours_of(measured.levels).values(), values, strict=True)):
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
    axes.errorbar(left + len(values), mean, yerr=half, fmt="o", color=OPTIM_COLOUR, capsize=4, markersize=4)


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
            names.append(SIGNS[images] + {None: "", True: "\nhelp", False: "\nno help"}[bit])
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
                say(axes, "no novel images in this run")
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
