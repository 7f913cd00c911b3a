"""Worlds with 1, 3, 6 and 12 independent novelties: k-of-N beside mean - c std, with c tuned for the latter afterwards.

    python -m benchmarks.novelties --out results/novelties     about a quarter of an hour; goes on where it stopped

Each world is a map of terrains (`cautious_paper.worlds.terrains`) with that many kinds of ground that no reward was ever logged
for. Half of them are harmful in truth, half good, and every way in which that can be is a truth. The belief is the default one
(`fit_ensemble`), trained on one-hot kinds of known ground. Every method has a dial. The table has each method at the place of
its dial that turned out best on these very maps, which favours the method with more places, and k-of-N at two levels that were
chosen beforehand.

Expected, written before the first run: with one novelty both dials find the same policies, so no difference. With three or
more, k-of-N at its best is ahead of mean - c std at its best in the worst tenth of the truths, by little (less than 0.05 a
step), and level with it in the mean. 1-of-20 is more careful than the worst tenth rewards: half of the kinds are good.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cautious import BeliefWarning, baselines, compare, fit_ensemble
from cautious.baselines import Problem
from cautious_paper.experiments.store import provenance_line
from cautious_paper.worlds.terrains import GOOD, HARMFUL, KNOWN, logged_terrain_rewards, possible_truths, terrain_world

NOVELTIES = (1, 3, 6, 12)
NUM_MAPS = 20
LEVELS = tuple(f"{k}-of-20" for k in (20, 19, 17, 15, 12, 10, 7, 5, 3, 2, 1))
DEVIATIONS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0)
BEFOREHAND = ("k-of-N 10-of-20", "k-of-N 1-of-20")
METRICS = {"return": "mean over truths", "worst_tenth": "worst tenth of truths"}


def make(num_unseen: int, layout: int) -> Problem:
    """One map with a belief of its own, and all that may be true there."""
    world = terrain_world(layout, num_unseen)
    kinds, rewards = logged_terrain_rewards(num_unseen, seed=layout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeliefWarning)
        belief = fit_ensemble(kinds, rewards, num_epochs=30, batch_size=32, seed=layout, progress=False)
    believed = belief.rewards(np.eye(world.num_kinds, dtype=np.float32))[..., 0]  # [M, K]
    harmful = torch.from_numpy(possible_truths(num_unseen))
    known = torch.tensor(list(KNOWN.values())).expand(len(harmful), -1)
    truths = torch.cat([known, torch.where(harmful, HARMFUL, GOOD)], dim=1)  # [T, K]
    return Problem(world.mdp, world.state_rewards(believed), truths=world.state_rewards(truths))


def methods() -> dict[str, Any]:
    """Both dials."""
    dials: dict[str, Any] = {f"k-of-N {level}": partial(baselines.k_of_n, level=level) for level in LEVELS}
    return dials | {f"mean - {c:g} std": partial(baselines.mean_minus_std, deviations=c) for c in DEVIATIONS}


def table(frame: Any) -> list[str]:
    """Best places of both dials, and the levels chosen beforehand, by metric and number of novelties."""
    lines = [
        "| novelties | metric | k-of-N at its best | mean - c std at its best | difference [95 %] | 10-of-20 | 1-of-20 |"
    ]
    lines += ["|---" * 7 + "|"]
    for name in frame.problem.unique():
        for metric, title in METRICS.items():
            found = frame[(frame.problem == name) & (frame.metric == metric)].set_index("method")["mean"]
            ours, theirs = (found[found.index.str.startswith(start)].idxmax() for start in ("k-of-N", "mean"))
            cells = [f"{found[best]:.3f} ({best.removeprefix('k-of-N ')})" for best in (ours, theirs)]
            chosen = [f"{found[level]:.3f}" for level in BEFOREHAND]
            lines.append(
                f"| {name} | {title} | {' | '.join(cells)} | {difference(name, metric, ours, theirs)} | {' | '.join(chosen)} |"
            )
    return lines


def difference(problem: str, metric: str, ours: str, theirs: str) -> str:
    """Ours less theirs over the same maps, with its interval, from the rows that are there already."""
    count = int(problem.split()[0])
    two = {name: methods()[name] for name in (theirs, ours)}
    frame = compare({problem: partial(make, count)}, two, NUM_MAPS, out=OUT, progress=False)
    row = frame[(frame.metric == metric) & (frame.method == ours)].iloc[0]
    return f"{row.difference:+.3f} [{row.difference_low:+.3f}, {row.difference_high:+.3f}]"


OUT = Path("results/novelties")


def main() -> None:
    """Run what is missing, print the table."""
    global OUT
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    OUT = parser.parse_args().out
    torch.set_num_threads(1)
    print(provenance_line(), flush=True)
    names = {f"{count} {'novelty' if count == 1 else 'novelties'}": partial(make, count) for count in NOVELTIES}
    frame = compare(names, methods(), NUM_MAPS, level="10-of-20", out=OUT)
    print("\n".join(table(frame)))


if __name__ == "__main__":
    main()
