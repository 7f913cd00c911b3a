"""What `evaluate` found: rows by group, their means with intervals over groups, and the sentence that says what to use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cautious.seeding import make_rng
from cautious.tables.frames import pandas_for

ORDINARY, OURS = "ordinary", "k-of-N"
"""In place of a level: what a method does without caution. And the name of our method."""
VALUES = ("familiar_payoff", "novel_payoff", "familiar_departures", "novel_departures")
DRAWS, CONFIDENCE = 2000, 0.95
"""Of the bootstrap over groups."""
FEW_GROUPS = 10
"""With fewer, an interval over groups is a rough one."""


@dataclass(frozen=True)
class Evaluation:
    """What each method would have earned, group by group, and which one to use."""

    rows: tuple[dict[str, Any], ...]
    """One per group, method and level: mean payoff and share of departing decisions, on familiar and on novel rows."""
    summary: tuple[dict[str, Any], ...]
    """One per method and level: means over the groups. With them the payoff on novel rows less that of k-of-N at the same
    level, and its interval: a bootstrap over groups."""
    level: str
    """The level at which methods are judged: the most cautious one that departs on at most `at_most` of familiar rows."""
    at_most: float
    verdict: str
    """Which method to use, in words."""
    notes: tuple[str, ...] = ()
    """What was left out, and what looks odd."""

    def to_frame(self) -> Any:
        """The rows as a pandas frame, one per group, method and level."""
        return pandas_for("to_frame").DataFrame(list(self.rows))

    def __str__(self) -> str:
        """The verdict."""
        return self.verdict


def judge(rows: Sequence[dict[str, Any]], at_most: float, notes: Sequence[str] = ()) -> Evaluation:
    """Means over groups with their intervals, the level to compare at, and the verdict, from one row per group and setting."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["method"], row["level"]), []).append(row)
    summary = []
    for (method, level), found in cells.items():
        means = {name: float(np.mean([row[name] for row in found])) for name in VALUES}
        ahead = _difference(cells[OURS, level], found)
        entry = {"method": method, "level": level, **means, "groups": len(found)}
        summary.append(entry | dict(zip(("k_of_n_ahead", "ahead_low", "ahead_high"), ahead, strict=True)))
    level = _level(summary, at_most)
    return Evaluation(tuple(rows), tuple(summary), level, at_most, _verdict(cells, level, at_most), tuple(notes))


def _level(summary: Sequence[dict[str, Any]], at_most: float) -> str:
    """The level of k-of-N with most familiar departures within the budget; the one with fewest where none is within."""
    shares = {
        row["level"]: row["familiar_departures"]
        for row in summary
        if row["method"] == OURS and row["level"] != ORDINARY
    }
    within = {level: share for level, share in shares.items() if share <= at_most}
    # Levels come from ordinary to cautious: of several with the same share the last one is the most cautious.
    return max(reversed(within), key=within.__getitem__) if within else min(shares, key=shares.__getitem__)


def _difference(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> tuple[float, float, float]:
    """Mean difference of the payoff on novel rows, group by group, with its interval: groups are drawn again and again."""
    differences = np.array([a["novel_payoff"] - b["novel_payoff"] for a, b in zip(ours, theirs, strict=True)])
    draws = make_rng(0, "bootstrap").integers(len(differences), size=(DRAWS, len(differences)))
    low, high = np.quantile(differences[draws].mean(axis=1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(differences.mean()), float(low), float(high)


def _verdict(cells: dict[tuple[str, str], list[dict[str, Any]]], level: str, at_most: float) -> str:
    """Which method to use by its payoff on novel rows, with the interval of its lead over k-of-N, or over the next one."""
    settings = {_described(method, level): cells[method, level] for method, _ in cells}
    settings |= {
        "no caution (the forest as it is)": cells["random forest", ORDINARY],
        "no caution (the mean of the models)": cells[OURS, ORDINARY],
    }
    novel, familiar = (
        {name: float(np.mean([row[f"{kind}_payoff"] for row in rows])) for name, rows in settings.items()}
        for kind in ("novel", "familiar")
    )
    best, second = sorted(novel, key=lambda name: -novel[name])[:2]
    ours = _described(OURS, level)
    rival = ours if best != ours else second
    lead, low, high = _difference(settings[best], settings[rival])
    groups = len(settings[best])
    share = float(np.mean([row["familiar_departures"] for row in settings[ours]]))
    if low > 0:
        advice = f"Use {best}"
    else:
        choice = max(
            (best, rival), key=lambda name: round(familiar[name], 3)
        )  # with the same, the one ahead on novel rows
        other = best if choice == rival else rival
        advice = f"Use {choice}, although {other} cannot be told from it on novel rows"
    over = "" if share <= at_most else f" No level stays within the {at_most:.1%} asked for: this one departs least."
    few = "; so few groups make it a rough one" if groups < FEW_GROUPS else ""
    return (
        f"{advice}. On groups that training did not have, {best} pays {novel[best]:.3f} a row, {lead:.3f} [{low:.3f}, "
        f"{high:.3f}] more than {rival} ({novel[rival]:.3f}); on familiar rows they pay {familiar[best]:.3f} and "
        f"{familiar[rival]:.3f}. At {level} k-of-N departs from the ordinary on {share:.1%} of familiar rows, the thresholds "
        f"on no more.{over} (Brackets: {CONFIDENCE:.0%} interval over {groups} groups{few}.)"
    )


def _described(method: str, level: str) -> str:
    what = {
        OURS: f"k-of-N at {level}",
        "random forest": "a random forest",
        "nearest neighbours": "the distance to neighbours",
    }
    return what.get(method, f"the {method} distance") + ("" if method == OURS else " with a threshold")
