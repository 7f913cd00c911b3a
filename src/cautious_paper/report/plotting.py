"""Drawing: arrays in, figures out. Nothing here computes a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure

from cautious.io.atomic import atomic_write
from cautious_paper.experiments.store import Store

COLOURS = ("#0072b2", "#e69f00", "#d55e00", "#009e73", "#cc79a7", "#56b4e9")
"""Okabe & Ito's palette, told apart by colour-blind readers too."""

ORDINARY, CAUTIOUS = "#2b6cd4", "#d47400"
"""Blue is ordinary and orange is cautious: in figures, in the playground, in the documentation and in the terminal."""

LEVEL_COLOURS = (CAUTIOUS, "#efb468", "#8fb6ee", ORDINARY)
"""Most cautious first."""

FigureEntry = tuple[str, Callable[[Store], Figure]]
"""A caption, and how to draw it."""


def grid(num_rows: int, num_columns: int, width: float = 3.6, height: float = 3.2) -> tuple[Figure, np.ndarray]:
    """A figure with a grid of panels, [rows, columns], always two-dimensional."""
    # A figure of its own, not one of pyplot's: those live until they are closed, and choose a backend for the process.
    figure = Figure(figsize=(width * num_columns, height * num_rows), layout="constrained")
    return figure, figure.subplots(num_rows, num_columns, squeeze=False)


def colours_of(levels: Sequence[str]) -> dict[str, str]:
    """Level -> colour, from orange (cautious, the first) to blue (ordinary, the last)."""
    shades = LinearSegmentedColormap.from_list("levels", LEVEL_COLOURS)(np.linspace(0, 1, len(levels)))
    return {level: to_hex(shade) for level, shade in zip(levels, shades, strict=True)}


def plot_shares(axes: Axes, levels: Sequence[str], shares: Mapping[str, Sequence[float]]) -> None:
    """Stacked bars: how often each choice is made at each level of caution."""
    bottom = [0.0] * len(levels)
    for (name, share), colour in zip(shares.items(), COLOURS, strict=False):
        axes.bar(levels, share, bottom=bottom, label=name, color=colour)
        bottom = [low + part for low, part in zip(bottom, share, strict=True)]
    axes.set(xlabel="level, from ordinary to cautious", ylabel="share of choices")
    axes.tick_params(axis="x", rotation=45)
    axes.legend(loc="lower left", framealpha=0.9)


def plot_certificates(axes: Axes, levels: Sequence[str], lower: Sequence[float], upper: Sequence[float]) -> None:
    """Value of each policy with the bound above it that no policy passes."""
    axes.plot(levels, lower, marker="o", color=COLOURS[0], label="value of the policy")
    axes.plot(levels, upper, marker="_", markersize=12, linestyle="none", color="black", label="bound for every policy")
    axes.set(xlabel="level, from ordinary to cautious", ylabel="k-of-N value")
    axes.tick_params(axis="x", rotation=45)
    axes.legend()


def plot_dial(
    levels: Sequence[str], shares: Mapping[str, Sequence[float]], lower: Sequence[float], upper: Sequence[float]
) -> Figure:
    """The caution dial: what is chosen, and what it is worth, at each level."""
    figure, panels = grid(1, 2, width=5, height=4)
    plot_shares(panels[0][0], levels, shares)
    plot_certificates(panels[0][1], levels, lower, upper)
    return figure


def save_figure(figure: Figure, *paths: Path) -> None:
    """Write a figure atomically, in the format of each file's ending, with the same bytes each time."""
    with matplotlib.rc_context({"svg.hashsalt": "cautious"}):  # names inside an SVG: random without it
        for path in paths:
            kind = path.suffix.removeprefix(".")
            atomic_write(path, partial(figure.savefig, dpi=150, format=kind, metadata=_NO_DATE.get(kind)))


_NO_DATE: dict[str, dict[str, str | None]] = {"svg": {"Date": None}, "png": {"Software": None}}
"""Metadata that would make two drawings of one result differ."""
