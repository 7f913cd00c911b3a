"""What the random prior adds to models of one's own: forty bags of gradient boosting, as `cautious.RewardModels`.

    python -m benchmarks.own_models                     the development sets of docs/tables.md, a few minutes on one core

The task is that of `benchmarks.tables`. Decisions are those of 1-of-20; nothing is chosen, and every row has the same bags.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import torch

from benchmarks.table_sets import DEVELOPMENT, HELP_REWARD, KINDS, load, problem
from cautious import CautiousPolicy, RewardModels
from cautious_paper.experiments.store import provenance_line

NUM_MODELS, ROUNDS = 40, 30
WIDTHS = (0.0, 0.75)


def measured(name: str, kind: str, seed: int) -> list[list[float]] | None:
    """Per width: help on familiar and on novel rows, and the payoffs there; None where a set has no such novelty."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    split = problem(*load(name), kind, seed)
    if split is None:
        return None
    random, bags = np.random.default_rng(seed), []
    for number in range(NUM_MODELS):
        drawn = random.integers(len(split.rows), size=len(split.rows))
        boosting = HistGradientBoostingClassifier(max_iter=ROUNDS, min_samples_leaf=5, random_state=number)
        bags.append(boosting.fit(split.rows[drawn], split.labels[drawn]))
    payoffs = np.column_stack([np.eye(split.num_labels), np.full(split.num_labels, HELP_REWARD)])
    found = []
    for width in WIDTHS:
        belief = RewardModels(bags, familiar=split.rows, payoffs=payoffs, prior=width)
        policy, cells = CautiousPolicy(belief, "1-of-20"), []
        for rows, labels in ((split.familiar, split.familiar_labels), (split.novel, split.novel_labels)):
            action = policy.decide(rows).action.numpy()
            asks = action == split.num_labels
            cells.append((asks.mean(), np.where(asks, HELP_REWARD, action == labels).mean()))
        found.append([cells[0][0], cells[1][0], cells[0][1], cells[1][1]])
    return found


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(DEVELOPMENT))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(provenance_line())
    print(
        "| novel rows | prior | help familiar / novel | payoff familiar / novel | problems |",
        "|---" * 5 + "|",
        sep="\n",
    )
    for kind in KINDS:
        found = [cells for name in asked.sets if (cells := measured(name, kind, asked.seed)) is not None]
        for width, mean in zip(WIDTHS, np.mean(found, axis=0), strict=True):
            print(
                f"| {kind} | {width:g} | {mean[0]:.2f} / {mean[1]:.2f} | {mean[2]:.3f} / {mean[3]:.3f} | {len(found)} |"
            )


if __name__ == "__main__":
    main()
