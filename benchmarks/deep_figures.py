"""Tables and figures of docs/deep-comparison.md, from the rows that `benchmarks/deep_comparison.py` wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

Rows = list[dict[str, Any]]
RULES = (
    "k-of-N",
    "BROIL",
    "mean - c std",
    "one-step ranking",
    "novelty, avoids",
    "novelty, stops",
    "ensemble mean",
    "one model",
)
STYLES = dict(zip(RULES, ("o-", "s--", "^-", "v:", "d-", "x-", "*", "P"), strict=True))
COLOURS = dict(
    zip(RULES, ("#0b5394", "#6fa8dc", "#cc4125", "#e69138", "#6aa84f", "#999999", "#000000", "#674ea7"), strict=True)
)
SHARES = (0.5, 0.7, 0.8, 0.9)
"""Of the ensemble mean's harm, at which rules are compared."""
NUM_RESAMPLES = 2000


def table_of(rows: Rows, setting: str, rule: str, measure: str) -> np.ndarray:
    """A measure by map and place on the dial, [maps, dial]."""
    own = [row for row in rows if row["setting"] == setting and row["rule"] == rule]
    table = np.full((1 + max(row["map"] for row in own), 1 + max(row["place"] for row in own)), np.nan)
    for row in own:
        table[row["map"], row["place"]] = row[measure]
    return table


def best_use(harm: np.ndarray, use: np.ndarray, limit: float) -> float:
    """The most use at an expected harm of `limit`, by the best mixture of two settings of the dial: [dial], [dial] -> use.

    NaN where every setting does more harm.
    """
    best = float(use[harm <= limit].max(initial=-np.inf))
    for low in np.flatnonzero(harm <= limit):
        for high in np.flatnonzero(harm > limit):
            share = (limit - harm[low]) / (harm[high] - harm[low])
            best = max(best, float((1 - share) * use[low] + share * use[high]))
    return best if np.isfinite(best) else float("nan")


def resampled(num: int, statistic: Callable[[np.ndarray], Any], seed: int = 0) -> tuple[Any, np.ndarray]:
    """A statistic of all `num` maps or seeds (their numbers), and its 95 % bootstrap interval [2, ...]."""
    rng = np.random.default_rng(seed)
    draws = [statistic(rng.integers(num, size=num)) for _ in range(NUM_RESAMPLES)]
    table = np.array(draws, dtype=float)
    table = np.where(np.isnan(table).mean(axis=0) > 0.05, 0.0, table)  # often out of reach: no interval
    return statistic(np.arange(num)), np.nanquantile(table, (0.025, 0.975), axis=0)


def interquartile_mean(values: Sequence[float] | np.ndarray) -> float:
    """The mean of the middle half, with parts of values at its ends counted in part."""
    ordered = np.sort(np.asarray(values, dtype=float))
    edges = np.arange(len(ordered) + 1) / len(ordered)
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    return float(weights @ ordered / weights.sum())


def with_interval(values: np.ndarray, digits: int = 3) -> str:
    """Interquartile mean and interval, as a cell of a table."""
    middle, (low, high) = resampled(len(values), lambda which: interquartile_mean(values[which]))
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def exact_tables(rows: Rows) -> list[str]:
    """For each setting: use at equal harm, and the best bad-truth return, with paired intervals over maps."""
    lines = []
    for setting in dict.fromkeys(row["setting"] for row in rows):
        tables = {
            rule: {name: table_of(rows, setting, rule, name) for name in ("harm", "use", "return", "bad return")}
            for rule in RULES
        }
        num = len(tables["k-of-N"]["harm"])
        lines += ["", f"**{setting}**, {num} maps:", ""]
        heads = [f"use at {share:.0%} harm" for share in SHARES]
        lines += [f"| rule | {' | '.join(heads)} | best bad-truth return | return there | k-of-N is ahead by |"]
        lines += ["|---" * (len(SHARES) + 4) + "|"]

        def summary(rule: str, which: np.ndarray, tables: dict[str, Any] = tables) -> np.ndarray:
            own = {name: table[which].mean(axis=0) for name, table in tables[rule].items()}
            if rule == "one model":  # no dial: the average over models
                own = {name: np.array([values.mean()]) for name, values in own.items()}
            ordinary = tables["ensemble mean"]["harm"][which].mean()
            uses = [best_use(own["harm"], own["use"], share * ordinary) for share in SHARES]
            best = int(own["bad return"].argmax())
            return np.array([*uses, own["bad return"][best], own["return"][best]])

        def lead_over(rule: str, which: np.ndarray, summary: Callable[..., np.ndarray] = summary) -> np.ndarray:
            return summary("k-of-N", which) - summary(rule, which)

        for rule in RULES:
            found = summary(rule, np.arange(num))
            ahead, (low, high) = resampled(num, partial(lead_over, rule))
            cells = [_cell(found[i], ahead[i], low[i], high[i]) for i in range(len(SHARES))]
            lead = "" if rule == "k-of-N" else f"{ahead[-2]:+.4f} [{low[-2]:+.4f}, {high[-2]:+.4f}]"
            lines += [f"| {rule} | {' | '.join(cells)} | {found[-2]:.4f} | {found[-1]:.4f} | {lead} |"]
    return lines


def _cell(use: float, ahead: float, low: float, high: float) -> str:
    """A use, and by how much k-of-N is ahead where both dials reach that harm."""
    if np.isnan(use):
        return "–"
    return (
        f"{use:.2f}" if np.isnan(ahead) or low == high == 0 else f"{use:.2f} ({ahead:+.2f} [{low:+.2f}, {high:+.2f}])"
    )


def draw_exact(rows: Rows, path: Path) -> None:
    """Over each rule's dial, a column for each setting: use against harm, and the return in bad truths against the mean."""
    settings = list(dict.fromkeys(row["setting"] for row in rows))[:3]
    pairs = (("harm", "use"), ("return", "bad return"))
    figure, panels = plt.subplots(2, len(settings), figsize=(4.4 * len(settings), 7.4))
    for column, setting in enumerate(settings):
        for panel, names in zip(panels[:, column], pairs, strict=True):
            shown = []
            for rule in RULES:
                across, up = (table_of(rows, setting, rule, name).mean(axis=0) for name in names)
                if rule == "one model":
                    across, up = across.mean(keepdims=True), up.mean(keepdims=True)
                style = {"color": COLOURS[rule], "label": rule, "markersize": 4, "linewidth": 1.2}
                panel.plot(across, up, STYLES[rule], **style)
                if rule in ("k-of-N", "BROIL", "mean - c std", "one-step ranking", "ensemble mean"):
                    shown.append(np.stack([across, up]))
            low, high = (extreme(np.concatenate(shown, axis=1), axis=1) for extreme in (np.min, np.max))
            margin = 0.06 * (high - low)
            panel.set_xlim(low[0] - margin[0], high[0] + 5 * margin[0])  # rules far below the others are cut off
            panel.set_ylim(low[1] - margin[1], high[1] + margin[1])
        panels[0, column].set_title(setting)
        panels[0, column].set_xlabel("harm: share of time on harmful ground\nin the worst tenth of truths")
        panels[1, column].set_xlabel("true return, mean over truths")
    panels[0, 0].set_ylabel("use: parcels per 100 steps")
    panels[1, 0].set_ylabel("true return in the worst tenth of truths")
    panels[0, 0].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def learned_table(rows: Rows) -> list[str]:
    """Interquartile means over seeds, by map, rule and dial."""
    lines = [
        "| map | rule | dial | steps | seeds | share of its optimum | at least 95 % | use | harm | bad-truth return | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key in dict.fromkeys(
        (row["map"], row["rule"], row["dial"], row["steps"]) for row in sorted(rows, key=_by_rule)
    ):
        own = [row for row in rows if (row["map"], row["rule"], row["dial"], row["steps"]) == key]
        share = np.array([row["share of optimum"] for row in own])
        cells = [with_interval(np.array([row[name] for row in own])) for name in ("use", "harm", "bad return")]
        seconds = np.median([row["seconds"] for row in own])
        reached = f"{int((share >= 0.95).sum())} of {len(own)}"
        front = " | ".join([*map(str, key), str(len(own)), with_interval(share), reached])
        lines += [f"| {front} | {' | '.join(cells)} | {seconds:.0f} |"]
    return lines


def _by_rule(row: dict[str, Any]) -> tuple[int, int]:
    return row["map"], RULES.index(row["rule"])


def wide_table(rows: Rows) -> list[str]:
    """Interquartile means over seeds by level, and paired differences between levels."""
    names = ("speed", "collisions", "collision_speed")
    lines = ["| level | seeds | speed | collision frequency | collision speed | off-road | CPU s |", "|---" * 7 + "|"]
    levels = sorted({row["level"] for row in rows}, key=lambda level: int(level.split("-")[0]))
    seeds = sorted(set.intersection(*({row["seed"] for row in rows if row["level"] == level} for level in levels)))
    values = {
        (level, name): np.array(
            [row[name] for seed in seeds for row in rows if (row["level"], row["seed"]) == (level, seed)]
        )
        for level in levels
        for name in (*names, "offroad", "seconds")
    }
    for level in levels:
        cells = [with_interval(values[level, name]) for name in (*names, "offroad")]
        lines += [f"| {level} | {len(seeds)} | {' | '.join(cells)} | {np.median(values[level, 'seconds']):.0f} |"]
    lines += ["", "| difference, paired by seed | speed | collision frequency | collision speed |", "|---|---|---|---|"]
    for low, high in pairwise(levels):
        cells = [with_interval(values[high, name] - values[low, name]) for name in names]
        lines += [f"| {high} less {low} | {' | '.join(cells)} |"]
    return lines


def write(out: Path, figures: Path, rows_of: Callable[[Path], Rows]) -> Iterable[str]:
    """All tables; figures into their folder."""
    exact, wide = (rows_of(out / f"{name}.jsonl") for name in ("exact", "wide"))
    if exact:
        draw_exact(exact, figures / "deep-comparison.png")
        yield from exact_tables(exact)
    for path in sorted(out.glob("learned*.jsonl")):
        yield from ["", f"{path.stem}:", "", *learned_table(rows_of(path))]
    if wide:
        yield ""
        yield from wide_table(wide)
