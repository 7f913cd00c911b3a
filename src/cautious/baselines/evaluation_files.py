"""What `evaluate` leaves in a folder: all rows as CSV, a picture, and the summary with the verdict as JSON."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from cautious.baselines.evaluation import ORDINARY, OURS, Evaluation
from cautious.io.arrays import FORMAT, checksum_of_file, save_json
from cautious.io.atomic import write_together
from cautious.tables.files import as_cell

ROWS, PICTURE, SUMMARY = "evaluation.csv", "evaluation.png", "evaluation.json"
BLUE, ORANGE, GREY = "#2b6cd4", "#d47400", "#8a8a8a"
"""Blue is ordinary and orange is cautious, as in all figures; what others do is grey."""


def save_evaluation(found: Evaluation, folder: Path) -> None:
    """Write the three files: all of them together, or the old ones stay. The JSON has the checksums of the others."""
    checksums: dict[str, str] = {}

    def write_rows(target: Path) -> None:
        with target.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(found.rows[0]))
            writer.writeheader()
            writer.writerows({name: as_cell(str(value)) for name, value in row.items()} for row in found.rows)
        checksums[ROWS] = checksum_of_file(target)

    def write_picture(target: Path) -> None:
        picture(found).savefig(target, dpi=150, format="png", metadata={"Software": None})
        checksums[PICTURE] = checksum_of_file(target)

    def write_summary(target: Path) -> None:
        content = {
            "format": FORMAT,
            "verdict": found.verdict,
            "level": found.level,
            "at_most": found.at_most,
            "summary": list(found.summary),
            "notes": list(found.notes),
        }
        save_json(target, content, checksums)

    write_together(folder, {ROWS: write_rows, PICTURE: write_picture, SUMMARY: write_summary})


def picture(found: Evaluation) -> Any:
    """Payoff on novel rows against departures on familiar ones: k-of-N over its levels, the others beside it, as a figure."""
    from matplotlib.figure import Figure  # takes a second to load

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in found.summary:
        curves.setdefault(row["method"], []).append((100 * row["familiar_departures"], row["novel_payoff"]))
    ends = []
    for method, points in curves.items():
        first, *cautious = points  # what the method does without caution comes first
        cautious.sort()
        colour = ORANGE if method == OURS else GREY
        axes.plot(*zip(first, *cautious, strict=True), color=colour, lw=2.2 if method == OURS else 1.2, zorder=2)
        axes.plot(*zip(*cautious, strict=True), "o", color=colour, ms=5 if method == OURS else 3, zorder=3)
        axes.plot(*first, "o", color=BLUE, ms=6, zorder=4)
        ends.append((*cautious[-1], method, colour))
    low, high = axes.get_ylim()
    heights = _apart([end[1] for end in ends], 0.06 * (high - low))
    right = max(end[0] for end in ends)
    for (x, y, method, colour), height in zip(ends, heights, strict=True):
        axes.annotate(
            method, (x, y), (right * 1.04 + 0.1, height), color=colour, va="center", fontsize=9,
            fontweight="bold" if method == OURS else "normal", annotation_clip=False,
        )  # fmt: skip
    axes.set_xlim(-0.03 * right - 0.1, right * 1.28 + 1)
    ordinary = max(row["novel_payoff"] for row in found.summary if row["level"] == ORDINARY)
    axes.annotate("ordinary", (0, ordinary), (6, 6), textcoords="offset points", color=BLUE, fontsize=9)
    axes.set(xlabel="familiar rows decided otherwise than ordinarily (%)", ylabel="mean payoff of a novel row")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _apart(heights: list[float], gap: float) -> list[float]:
    """Heights for labels that do not cover each other, from the highest down, in the order of the given ones."""
    placed, free = dict.fromkeys(range(len(heights)), 0.0), float("inf")
    for number in sorted(placed, key=lambda number: -heights[number]):
        placed[number] = min(heights[number], free)
        free = placed[number] - gap
    return list(placed.values())
