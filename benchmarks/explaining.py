"""`CautiousPolicy.explain`: whether it names the feature that was moved, on real tables.

python -m benchmarks.explaining [--sets NAME ...] [--seeds 2]

Each row of kind "far" (`benchmarks.table_sets`) is a familiar row in which one feature was moved by five standard deviations,
up or down. The belief is that of `fit_ensemble` with its defaults, trained on up to 256 rows as arrays, so that a text is
several features. Printed per set: in which share of the rows the moved feature has the largest contribution; beside it the same
for the feature with the largest |x - mean| / deviation, which needs no models; how much of the disagreement it causes
(median); in which share of the rows its value is outside the training's range; and the milliseconds of CPU time per row.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.table_sets import DEVELOPMENT, EARLIER, LATER, REPORT, SETS, VALIDATION, Problem, load, problem
from cautious import CautiousPolicy, fit_ensemble
from cautious_paper.experiments.store import provenance_line

GROUPS = {"development": DEVELOPMENT, "validation": VALIDATION, "earlier": EARLIER, "later": LATER, "report": REPORT}


def moved_features(split: Problem) -> np.ndarray:
    """The number of the feature that was moved in each row of kind "far", [B]."""
    return np.asarray((split.novel != split.familiar[: len(split.novel)]).argmax(axis=1))


def named_first(split: Problem, seed: int, **options: Any) -> dict[str, np.ndarray]:
    """What `explain` says about each moved row, [B] each: "ours", "plain" (named first), "share", "outside", "time"."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        belief = fit_ensemble(split.rows, split.rewards(), seed=seed, progress=False, **options)
    policy, moved, every = CautiousPolicy(belief), moved_features(split), np.arange(len(split.novel))
    started = time.process_time()
    found = policy.explain(split.novel)
    taken = 1e3 * (time.process_time() - started) / len(every)
    deviation = split.rows.std(axis=0)
    plain = np.abs(split.novel - split.rows.mean(axis=0)) / np.where(deviation > 0, deviation, np.inf)
    caused = found.contribution.numpy()
    return {
        "ours": caused.argmax(axis=1) == moved,
        "plain": plain.argmax(axis=1) == moved,
        "share": caused[every, moved] / policy.decide(split.novel).disagreement.numpy(),
        "outside": found.outside.numpy()[every, moved],
        "time": np.full(len(every), taken),
    }


def main() -> None:
    """One line per set, one per group, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    print(provenance_line(), flush=True)
    print(f"{'set':<14} rows features  named first  by deviations  its share  outside  ms a row")
    per_set: dict[str, dict[str, np.ndarray]] = {}
    for name in options.sets:
        rows, labels = load(name)
        splits = [(seed, problem(rows, labels, "far", seed)) for seed in range(options.seeds)]
        found = [named_first(split, seed) for seed, split in splits if split is not None]
        if found:
            per_set[name] = {what: np.concatenate([each[what] for each in found]) for what in found[0]}
            print(_line(name, per_set[name], rows.shape[1]), flush=True)
    for group, sets in {**GROUPS, "all": SETS}.items():
        within = [per_set[name] for name in sets if name in per_set]
        if within:
            means = {what: np.array([each[what].mean() for each in within]) for what in ("ours", "plain")}
            print(
                f"{group}, mean of {len(within)} sets: {means['ours'].mean():.1%}, by deviations {means['plain'].mean():.1%}; "
                f"lowest {means['ours'].min():.1%}; sets below 90 %: {int((means['ours'] < 0.9).sum())}"
            )


def _line(name: str, found: dict[str, np.ndarray], num_features: int) -> str:
    return (
        f"{name:<14} {len(found['ours']):4d} {num_features:8d}  {found['ours'].mean():11.1%}  {found['plain'].mean():13.1%}  "
        f"{np.median(found['share']):9.2f}  {found['outside'].mean():7.1%}  {found['time'].mean():8.2f}"
    )


if __name__ == "__main__":
    main()
