"""Curves of image runs: convergence, the full caution dial, and how few models are enough."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cautious.experiments.store import Store
from cautious.ops.risk import KofN
from cautious.report.images.image_run import HELP, INDEX, REGIMES, ImageRun, as_tensor, bit_words, in_words
from cautious.report.images.panels import SET_COLOURS, colours_of, from_zero, legend, level_legend, say, tidy
from cautious.report.images.violin_figures import AXES, FACTORS
from cautious.report.plotting import grid
from cautious.types import Regime, Sampling

STYLES = {Regime.ALL_STATES: "--", Regime.SINGLE_STATE: "-"}
SAMPLING_STYLES = {Sampling.QUEUE: ("--", "o"), Sampling.EXACT: ("-", "s")}


def convergence_figure(store: Store, variant: str, bit: bool | None = None) -> Figure:
    """Value under the sampled rewards an iteration: thin a run, bold their mean; regimes down, sets across."""
    run = ImageRun(store)
    figure, panels = grid(len(REGIMES), max(1, len(run.sets)), width=3.4, height=2.5)
    for column, images in enumerate(run.sets):
        arrays = run.arrays(variant, images, bit)
        for row, (regime, words) in enumerate(REGIMES.items()):
            axes = panels[row][column]
            if arrays is None:
                say(axes, f"{images}: not run")
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
    """[L, R, T]: a thin line a run, a bold one for their mean."""
    iterations = np.arange(1, values.shape[-1] + 1)
    for own, colour in zip(values, colours_of(levels).values(), strict=True):
        axes.plot(iterations, own.T, color=colour, lw=0.5, alpha=0.5)
        axes.plot(iterations, own.mean(axis=0), color=colour, lw=1.8)
    tidy(axes)


def quantities_of(run: ImageRun) -> list[str]:
    """What shows caution in a task: help, or a low index, or both."""
    if run.task.help_action is None:
        return [INDEX]
    return [HELP, INDEX] if run.task.help_bit else [HELP]


def dial_figure(store: Store) -> Figure:
    """Every k of N = 20, all sets on one plot, a line style a regime; quantities down, help available or not across."""
    run = ImageRun(store)
    names = quantities_of(run)
    figure, panels = grid(len(names), len(run.bits), width=5.2, height=3.4)
    for row, name in zip(panels, names, strict=True):
        for axes, bit in zip(row, run.bits, strict=True):
            studies = {images: study for images in run.sets if (study := run.study("dial", images, bit))}
            if not studies:
                say(axes, "not run")
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
                say(axes, "not run")
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
        values = (
            FACTORS[name] * as_tensor(study["behaviour"][str(regime)][str(sampling)][name]).numpy()
        )  # [sizes, parts]
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
