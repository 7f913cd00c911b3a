"""Figures and the table of a driving run, from the store alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cautious.policy.decision import total_variation
from cautious.risk import KofN
from cautious_paper.experiments.driving.driving_experiment import stage_name
from cautious_paper.experiments.store import Store
from cautious_paper.report.plotting import CAUTIOUS, COLOURS, FigureEntry, colours_of, grid
from cautious_paper.report.stories import FIRST
from cautious_paper.report.tables import Table
from cautious_paper.worlds.driving_picture import as_picture
from cautious_paper.worlds.driving_rules import DrivingState

FIRST_SETS = {"digits": "digits (familiar)", "fashion": "clothes (novel)"}
PANELS = {
    "speed": "speed",
    "collisions": "collision frequency",
    "collision_speed": "collision speed",
}


def plot_statistic(axes: Axes, numbers: dict, name: str) -> None:
    """One safety statistic against k, cautious on the right: one star per run, their mean, exact sampling, two baselines."""
    levels = numbers["levels"]
    places = np.arange(len(levels))[::-1]
    runs = np.array(numbers["statistics"]["queue"][name])
    for place, own, colour in zip(places, runs, colours_of(levels).values(), strict=True):
        axes.plot(np.full(len(own), place), own, "*", color=colour, alpha=0.8, markersize=9)
    axes.plot([], [], "*", color=CAUTIOUS, label="one run")
    axes.plot(places, runs.mean(axis=1), "-", color="#888888", zorder=1, label="mean of runs")
    exact = numbers["statistics"]["exact"][name]
    axes.plot(places, exact, "o", mfc="none", color=COLOURS[3], label="exact sampling")
    optima = np.mean(numbers["statistics"]["optim"][name])
    axes.axhline(optima, color=COLOURS[4], ls="--", label="single networks' optima")
    axes.axhline(numbers["statistics"]["mean"][name], color="black", ls=":", label="optimum of the mean reward")
    axes.set_xticks(places, [str(KofN.parse(level).k) for level in levels])
    axes.set(xlabel=f"k of {levels[0].split('-')[-1]}: ordinary to cautious", title=PANELS[name])


def safety_figure(store: Store) -> Figure:
    """The paper's figure: three safety statistics against k at the default appearance probability."""
    probability = store.manifest["settings"]["default_probability"]
    numbers = store.numbers(stage_name(probability))
    figure, panels = grid(1, len(PANELS))
    for axes, name in zip(panels[0], PANELS, strict=True):
        plot_statistic(axes, numbers, name)
    panels[0][0].legend(fontsize=7)
    figure.suptitle(f"normalised discounted safety statistics in the novel world, p = {probability:g}")
    return figure


def sweep_figure(store: Store) -> Figure:
    """The same statistics for every appearance probability of the run."""
    stages = _stages(store)
    figure, panels = grid(len(stages), len(PANELS))
    for row, stage in zip(panels, stages, strict=True):
        numbers = store.numbers(stage)
        for axes, name in zip(row, PANELS, strict=True):
            plot_statistic(axes, numbers, name)
        row[0].set_ylabel(f"p = {numbers['probability']:g}")
    figure.suptitle("the sweep over the appearance probability")
    return figure


def convergence_figure(store: Store) -> Figure:
    """Value under the sampled rewards per iteration, one line per run; and the exact value with the bound above it."""
    stage = stage_name(store.manifest["settings"]["default_probability"])
    numbers, arrays = store.numbers(stage), store.arrays(stage)
    levels = numbers["levels"]
    figure, panels = grid(2, len(levels), width=2.6)
    upper = numbers["certificates"]["queue"]["best"]["upper"]
    for column, (level, colour) in enumerate(colours_of(levels).items()):
        sampled, exact = arrays["queue_sampled_value"][column], arrays["queue_exact_value"][column]
        panels[0][column].plot(sampled.T.numpy(), lw=0.6, color=colour, alpha=0.6)
        panels[0][column].set_title(level)
        panels[1][column].plot(exact.T.numpy(), lw=0.8, color=colour)
        bound = min(upper[column])
        panels[1][column].axhline(bound, color="black", ls="--", lw=1)
        gap = bound - float(exact.max())
        panels[1][column].set_title(f"gap {gap:.4f}", fontsize=9)
        panels[1][column].set_xlabel("iteration")
    panels[0][0].set_ylabel("value, sampled k worst")
    panels[1][0].set_ylabel("exact value, and bound for all policies")
    return figure


def difference_figure(store: Store) -> Figure:
    """Where the most cautious policy differs from the ordinary one: total variation in each state, by car and obstacles."""
    probability = store.manifest["settings"]["default_probability"]
    stage = stage_name(probability)
    policy, levels = store.arrays(stage)["exact_policy"], store.numbers(stage)["levels"]
    distance = total_variation(policy[0], policy[-1]).reshape(4, 4, 7, 7).numpy()  # column, speed, left, right
    names = ["-", *(f"{row},{column}" for row in range(3) for column in (0, 1))]
    right_names = ["-", *(f"{row},{column}" for row in range(3) for column in (2, 3))]
    figure, panels = grid(2, 4, width=2.7, height=2.7)
    for row, column in enumerate((1, 2)):
        for speed in range(4):
            axes = panels[row][speed]
            image = axes.imshow(distance[column, speed], vmin=0, vmax=1, cmap="magma")
            axes.set_title(f"lane {column}, speed {speed}", fontsize=9)
            axes.set_xticks(range(7), right_names, fontsize=6, rotation=90)
            axes.set_yticks(range(7), names, fontsize=6)
    panels[1][0].set(xlabel="right obstacle (row, column)", ylabel="left obstacle (row, column)")
    figure.colorbar(image, ax=panels, shrink=0.7, label="total variation distance")
    figure.suptitle(f"where {levels[0]} differs from {levels[-1]}, on the road (row 2 is the car's; - is hidden)")
    return figure


def frame_figure(store: Store) -> Figure:
    """A frame of the world, beside what a familiar one looks like."""
    figure, panels = grid(1, 2, width=3.4, height=2.2)
    frames = {
        "familiar: obstacles in the ditches": DrivingState(2, 2, (0, 0), (1, 3)),
        "novel: obstacles on the road": DrivingState(2, 2, (1, 1), (0, 2)),
    }
    for axes, (title, state) in zip(panels[0], frames.items(), strict=True):
        axes.imshow(as_picture(state))
        axes.set_title(title, fontsize=9)
        axes.axis("off")
    return figure


def first_figure(store: Store) -> Figure:
    """What the demo shows first: how often each level asks for help on digits, and on clothes."""
    numbers = store.numbers(FIRST)
    figure, panels = grid(1, 1, width=6, height=3)
    axes = panels[0][0]
    for place, (each, colour) in enumerate(zip(numbers["sets"], ("#aaaaaa", COLOURS[3]), strict=True)):
        shift = np.arange(len(numbers["levels"])) + 0.4 * place - 0.2
        axes.bar(shift, 100 * np.array(each["help"])[::-1], width=0.4, color=colour, label=FIRST_SETS[each["images"]])
    axes.set_xticks(range(len(numbers["levels"])), numbers["levels"][::-1])
    axes.set(xlabel="level, from ordinary to cautious", ylabel="asks for help, %", ylim=(0, 100))
    axes.legend()
    return figure


def first_table(store: Store) -> Table:
    """The same in numbers."""
    numbers, rows = store.numbers(FIRST), []
    for each in numbers["sets"]:
        for what, shares in (("names the digit", each["correct"]), ("asks for help", each["help"])):
            if shares is not None:
                where = f"{each['num_images']} images: {FIRST_SETS[each['images']]}"
                rows.append((where, what, *(f"{100 * share:.1f}" for share in shares)))
    note = "Mean probability, percent; each image by itself. No model has seen clothes; nothing marks help as the safe action."
    header = ("images", "action", *numbers["levels"])
    return Table(FIRST, "Digits and clothes", header, tuple(rows), note, num_labels=2)


def driving_figures(store: Store) -> dict[str, FigureEntry]:
    """Figure id -> (caption, how to draw it); every driving run has the same figures, the demo's one more."""
    if not store.has(FIRST):
        return FIGURES
    caption = "Digits are familiar, clothes are not: how often each level asks for help instead of naming a digit."
    return {FIRST: (caption, first_figure), **FIGURES}


def _stages(store: Store) -> list[str]:
    return [stage for p in store.manifest["settings"]["probabilities"] if store.has(stage := stage_name(p))]


FIGURES: dict[str, FigureEntry] = {
    "safety": ("The paper's figure: each star is one run (one shuffle of the queue of models).", safety_figure),
    "frame": (
        "Cyan is the car, red an obstacle, green the speedometer. The world moves down as the car drives.",
        frame_figure,
    ),
    "difference": ("Bright cells are states in which caution changes the policy.", difference_figure),
    "convergence": (
        "Queue sampling. Top: value under the sampled k worst models, one line per run. Bottom: exact value of each iterate, "
        "and an upper bound for every policy (dashed); the gap between them is certified.",
        convergence_figure,
    ),
    "sweep": (
        "The paper does not give the appearance probability p of obstacles; one row per choice of p.",
        sweep_figure,
    ),
}
"""Figure id -> (caption, how to draw it)."""


def driving_tables(store: Store) -> list[Table]:
    """The dial at the default appearance probability, if that was run; before it, in a demo, digits and clothes."""
    stage = stage_name(store.manifest["settings"]["default_probability"])
    first = [first_table(store)] if store.has(FIRST) else []
    return [*first, *([dial_table(store.numbers(stage))] if store.has(stage) else [])]


def dial_table(numbers: dict[str, Any]) -> Table:
    """One row per level: safety statistics (means over runs), then the certificate of the exact run's best policy."""
    statistics, certificate = numbers["statistics"], numbers["certificates"]["exact"]["best"]
    rows = []
    for index, level in enumerate(numbers["levels"]):
        means = [sum(statistics["queue"][name][index]) / len(statistics["queue"][name][index]) for name in PANELS]
        bounds = [certificate[part][index] for part in ("lower", "upper", "gap")]
        rows.append((level, *(f"{value:.3f}" for value in means), *(f"{value:.4f}" for value in bounds)))
    optim = [sum(statistics["optim"][name]) / len(statistics["optim"][name]) for name in PANELS]
    rows.append(("optim", *(f"{value:.3f}" for value in optim), "", "", ""))
    title = f"The caution dial: driving where obstacles were never on the road before (p = {numbers['probability']:g})"
    note = (
        "Safety: means over runs. Value, bound and gap: best policy of each level's exact run. Optim: each network's own best "
        "policy, averaged."
    )
    header = ("level", *PANELS.values(), "value", "bound for every policy", "gap")
    return Table("dial", title, header, tuple(rows), note, main=True)
