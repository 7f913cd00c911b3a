"""How models of labels are trained best: novel payoff at equal familiar payoff, beside models of the rewards alone.

    python -m benchmarks.label_training --workers 2                       the development sets
    python -m benchmarks.label_training --sets development validation --seeds 2 --workers 16 --out label-training.jsonl

Two tasks on each table. "refer": an action per class (1 where it is right, 0 elsewhere) and one that pays .4 always. "lender":
half of the classes are bad; to accept pays 1 or costs 4, to accept in part pays .5 or costs 1, to reject costs .1 or nothing.
Novel rows are of a class that was held out, which pays nothing but .4 when referred, and is bad in half of the cases for the
lender; or they are familiar rows with one feature moved by five deviations. Needs the extra `benchmarks`.

A way of training is judged by its most cautious level whose familiar payoff is at most a given share of the payoffs' range
below that of the best way's ordinary policy: nobody gets ahead by being careless.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.table_sets import DEVELOPMENT, EARLIER, LATER, VALIDATION, Problem, load, problem
from cautious import KofN, fit_ensemble
from cautious.beliefs import fit
from cautious.policy.decision import has_disagreement, ordinary_policy
from cautious.solvers.per_state import decide_states
from cautious.solvers.solve import STATE_GAME_ITERATIONS, STATE_GAME_TOLERANCE
from cautious_paper.experiments.store import provenance_line

GROUPS = {"development": DEVELOPMENT, "validation": VALIDATION, "earlier": EARLIER, "later": LATER}
LEVELS = [
    *(KofN(k, 100) for k in (98, 92, 85, 75, 60, 50, 40, 30, 20, 14, 10, 7)),
    KofN(1, 20),
    KofN(3, 100),
    KofN(1, 100),
]
SHARES = (0.0, 0.01, 0.02, 0.05)
"""How far below the best ordinary familiar payoff a way may stay, in the payoffs' range."""
WAYS: dict[str, dict[str, Any]] = {
    "cross-entropy": {},
    "smoothed .1": {"smoothing": 0.1},
    "smoothed .1, undone": {"smoothing": 0.1, "undone": True},
    "30 epochs": {"num_epochs": 30},
    "smoothed .1, 30 epochs": {"smoothing": 0.1, "num_epochs": 30},
    "smoothed .1, undone, 30 epochs": {"smoothing": 0.1, "undone": True, "num_epochs": 30},
}


def tasks(split: Problem, seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Payoffs [L, A], labels of training rows, and what each action pays in fresh rows, familiar ones first, [B, A]."""
    count = split.num_labels
    payoffs = np.column_stack([np.eye(count), np.full(count, 0.4)])
    novel = np.tile(np.r_[np.zeros(count), 0.4], (len(split.novel), 1))
    yield "refer", payoffs, split.labels, np.concatenate([payoffs[split.familiar_labels], novel])
    good = np.zeros(count, dtype=int)
    good[np.random.default_rng([seed, 7]).permutation(count)[: max(1, count // 2)]] = 1
    if 0 < good.sum() < count:
        payoffs = np.array([[-4, -1, 0], [1, 0.5, -0.1]])
        novel = np.tile(payoffs.mean(axis=0), (len(split.novel), 1))
        yield "lender", payoffs, good[split.labels], np.concatenate([payoffs[good[split.familiar_labels]], novel])


def rewards_of(
    way: str, split: Problem, payoffs: np.ndarray, labels: np.ndarray, rows: np.ndarray, seed: int
) -> Tensor:
    """What 100 models say each action pays in rows [B, F]: [M, B, A]."""
    options: dict[str, Any] = {"seed": seed, "progress": False, "validation_fraction": 0}
    if way == "rewards":
        return fit_ensemble(split.rows, payoffs[labels], **options).rewards(rows, bounded=False).double()
    chosen = {"num_epochs": 100, **WAYS[way]}
    fit.SMOOTHING, undone = chosen.pop("smoothing", 0.0), chosen.pop("undone", False)
    belief = fit_ensemble(split.rows, labels=labels, payoffs=payoffs, **chosen, **options)
    if not undone:
        belief.settings["labels"]["smoothing"] = 0.0
    return belief.rewards(rows, bounded=False).double()


def payoffs_of_levels(rewards: Tensor, truth: np.ndarray, familiar: int) -> list[list[float]]:
    """Mean familiar and novel payoff of each level, and last of the ordinary policy: [2, L + 1]."""
    ordinary = ordinary_policy(rewards)
    policies, states = ordinary.repeat(len(LEVELS), 1, 1), has_disagreement(rewards, ordinary).nonzero().flatten()
    if len(states):
        found = decide_states(
            rewards[:, states], LEVELS, num_iterations=STATE_GAME_ITERATIONS, tolerance=STATE_GAME_TOLERANCE
        )
        policies[:, states] = torch.nn.functional.one_hot(found.policies.argmax(dim=-1), truth.shape[1]).double()
    paid = (torch.cat([policies, ordinary[None]]).numpy() * truth).sum(axis=-1)
    return [paid[:, :familiar].mean(axis=1).tolist(), paid[:, familiar:].mean(axis=1).tolist()]


def solved(name: str, kind: str, seed: int, ways: Sequence[str]) -> list[dict[str, Any]]:
    """Some ways on one split of one table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    split = problem(*load(name), kind, seed)
    if split is None:
        return [{"set": name, "kind": kind, "seed": seed, "task": None}]
    rows = []
    for task, payoffs, labels, truth in tasks(split, seed):
        fresh = np.concatenate([split.familiar, split.novel])
        for way in ways:
            rewards = rewards_of(way, split, payoffs, labels, fresh, seed)
            found = payoffs_of_levels(rewards, truth, len(split.familiar))
            rows.append(
                {"set": name, "kind": kind, "seed": seed, "task": task, "way": way, "paid": np.round(found, 5).tolist()}
            )
    return rows


def novel_payoffs(rows: list[dict[str, Any]], share: float) -> dict[str, dict[tuple[str, int], tuple[float, float]]]:
    """Familiar and novel payoff of each way on each (set, seed), at its most cautious level within the share."""
    groups: dict[tuple[str, int], dict[str, np.ndarray]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["seed"]), {})[row["way"]] = np.array(row["paid"])
    span = 5.0 if rows[0]["task"] == "lender" else 1.0
    found: dict[str, dict[tuple[str, int], tuple[float, float]]] = {}
    for place, paid in groups.items():
        best = max(part[0, -1] for part in paid.values())
        for way, part in paid.items():
            within = np.flatnonzero(part[0, :-1] >= best - share * span)
            level = int(within.max()) if len(within) else len(LEVELS)
            found.setdefault(way, {})[place] = float(part[0, level]), float(part[1, level])
    return found


def report(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A table for each task and kind of novelty."""
    for task in ("refer", "lender"):
        for kind in ("class", "far"):
            part = [row for row in rows if row["task"] == task and row["kind"] == kind]
            if not part:
                continue
            yield (
                f"\n| {task}, {kind} ({len({(row['set'], row['seed']) for row in part})} problems) | "
                + " | ".join(f"familiar, novel within {share:.0%}" for share in SHARES)
                + " | 1-of-20 |"
            )
            yield "|---" * (len(SHARES) + 2) + "|"
            by_share = [novel_payoffs(part, share) for share in SHARES]
            for way in by_share[0]:
                cells = [np.mean(list(found[way].values()), axis=0) for found in by_share]
                plain = [np.array(row["paid"])[:, LEVELS.index(KofN(1, 20))] for row in part if row["way"] == way]
                cells.append(np.mean(plain, axis=0))
                yield f"| {way} | " + " | ".join(f"{known:.3f}, {novel:.3f}" for known, novel in cells) + " |"


def main() -> None:
    """Run what is missing, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["development"], help=f"{', '.join(GROUPS)}, or names of sets")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", default=["class", "far"], choices=["class", "far"])
    parser.add_argument("--ways", nargs="+", default=["rewards", *WAYS], choices=["rewards", *WAYS])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("label-training.jsonl"))
    asked = parser.parse_args()
    names = [name for group in asked.sets for name in GROUPS.get(group, [group])]
    print(provenance_line())
    rows = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    done = {(row["set"], row["kind"], row["seed"]) for row in rows}
    wanted = [(name, kind, seed) for seed in range(asked.seeds) for kind in asked.kinds for name in names]
    missing = [place for place in wanted if place not in done]
    with ProcessPoolExecutor(asked.workers, get_context("spawn")) as pool, asked.out.open("a") as file:
        for number, found in enumerate(
            pool.map(partial(solved, ways=asked.ways), *zip(*missing, strict=True)) if missing else ()
        ):
            rows += found
            file.writelines(json.dumps(row) + "\n" for row in found)
            file.flush()
            print(f"{number + 1}/{len(missing)} {found[0]['set']}, {found[0]['kind']}", flush=True)
    print("\n".join(report([row for row in rows if row["task"] and (row["set"], row["kind"], row["seed"]) in wanted])))


if __name__ == "__main__":
    main()
