"""Which models suit tables: networks that learn rewards or labels, trees, or both, under one random prior.

    python -m benchmarks.members --sets development validation --out results/tables/members-choosing.jsonl
    python -m benchmarks.members --sets held-back --out results/tables/members.jsonl --chosen-on FILE_OF_THE_FIRST

The task is that of `benchmarks.tables`. Every candidate is a hundred models of what the classes pay, plus the same random
prior. All methods are compared at the same share of familiar decisions that depart from what the method ordinarily does, the
action with the highest expected payoff: at most 5 %, each at its most cautious setting. (`--by help` is the measure of
`benchmarks.tables`, at most 5 % familiar help: it leaves nothing to choose where a method ordinarily asks more often.)
References have the same rows: a forest times the payoffs that asks below a confidence, beyond a distance, or where either does.

The rule of the choice: the candidate with the highest payoff at 5 % familiar help, mean over kinds, on the development and the
validation sets. It alone is compared with the references on the sets that were held back.

Expected for `--by help`, written before any held-back set was run:

1. The chosen candidate has models of labels, and no networks that were trained on rewards.
2. On the held-back sets it is ahead of the forest and of the Mahalanobis distance, each with an interval above 0.
3. It is level with the best reference, a forest or a distance: within 0.01, the interval contains 0.
4. Trees alone notice more rows of held-out classes than networks do, and lose on shifts, where networks continue a trend.

Expected for departures, written after 53 of the 72 held-back problems had been run by help, and before any was run by
departures: the same for 1 to 3.

Each problem's rows are appended to --out as soon as they are known; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.table_sets import (
    DEVELOPMENT,
    EARLIER,
    HELD_BACK,
    HELP_REWARD,
    KINDS,
    LATER,
    REPORT,
    VALIDATION,
    Problem,
    load,
    problem,
)
from benchmarks.tables import (
    Judged,
    Outcome,
    _as_row,
    asking_beyond,
    interval,
    judged,
    k_of_n_of,
    mean_over_kinds,
    novelty_scores,
    scores,
)
from cautious import fit_ensemble
from cautious_paper.experiments.store import provenance_line

GROUPS = {
    "development": DEVELOPMENT,
    "validation": VALIDATION,
    "earlier": EARLIER,
    "later": LATER,
    "report": REPORT,
    "held-back": HELD_BACK,
}
NUM_MODELS = 100
BUDGET = 0.05


def tree_models(split: Problem, rows: np.ndarray, seed: int, trees: int) -> Tensor:
    """What M small forests say about the classes and help, [M, S, A]: each is the mean of so many trees."""
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(NUM_MODELS * trees, random_state=seed).fit(split.rows, split.labels)
    chances = np.stack([tree.predict_proba(rows) for tree in forest.estimators_])  # [M trees, S, L]
    means = chances.reshape(NUM_MODELS, trees, *chances.shape[1:]).mean(axis=1)
    return _with_help(torch.from_numpy(means))


def label_models(split: Problem, rows: np.ndarray, seed: int) -> tuple[Tensor, Tensor]:
    """What M networks that were trained on labels say, with their own random prior and without it, each [M, S, A]."""
    payoffs = np.column_stack([np.eye(split.num_labels), np.full(split.num_labels, HELP_REWARD)])
    belief = fit_ensemble(
        split.rows, labels=split.labels, payoffs=payoffs, seed=seed, num_models=NUM_MODELS, progress=False
    )
    return belief.rewards(rows, bounded=False), _with_help(belief.probabilities(rows))


def _with_help(chances: Tensor) -> Tensor:
    """Classes' chances [M, S, L] as rewards [M, S, L + 1]."""
    return torch.cat([chances, torch.full_like(chances[..., :1], HELP_REWARD)], dim=-1).float()


def either(first: np.ndarray, second: np.ndarray, familiar: int) -> np.ndarray:
    """A score [S] that asks where either of two does: the larger of their ranks among the familiar rows."""
    ranks = [
        np.searchsorted(np.sort(score[:familiar]), score, side="left") + 1e-9 * np.argsort(np.argsort(score))
        for score in (first, second)
    ]
    return np.maximum(*ranks)


def candidates(split: Problem, rows: np.ndarray, seed: int) -> Iterator[tuple[str, Tensor, float]]:
    """Names, rewards [M, S, A], and seconds of fitting and predicting."""
    started = time.perf_counter()
    belief = fit_ensemble(split.rows, split.rewards(), seed=seed, num_models=NUM_MODELS, progress=False)
    yield "networks of rewards", belief.rewards(rows, bounded=False), time.perf_counter() - started
    started = time.perf_counter()
    whole, labels = label_models(split, rows, seed)
    yield "networks of labels", whole, time.perf_counter() - started
    started = time.perf_counter()
    forests, opinions = tree_models(split, rows, seed, 4), whole - labels
    yield "groups of 4 trees", forests + opinions, time.perf_counter() - started
    half = (torch.arange(NUM_MODELS) % 4 < 2)[:, None, None]  # pairs of opposite priors stay together
    yield "half networks of labels, half 4 trees", torch.where(half, forests, labels) + opinions, 0.0


CANDIDATES = (
    "networks of rewards",
    "groups of 4 trees",
    "networks of labels",
    "half networks of labels, half 4 trees",
)


def results(split: Problem, seed: int) -> Iterator[tuple[str, Judged, float]]:
    """Every candidate and reference on one problem, with its seconds of fitting and predicting."""
    from sklearn.ensemble import RandomForestClassifier

    rows, familiar = np.concatenate([split.familiar, split.novel]), len(split.familiar)
    for name, said, seconds in candidates(split, rows, seed):
        policies, ordinary = k_of_n_of(said)
        yield name, _by_both(split, policies, ordinary, ordinary), seconds
    forest = RandomForestClassifier(200, random_state=seed).fit(split.rows, split.labels)
    chances = torch.from_numpy(forest.predict_proba(rows))
    paid = torch.cat([chances, torch.full_like(chances[:, :1], HELP_REWARD)], dim=1)
    acting, usual = (
        torch.nn.functional.one_hot(part.argmax(dim=1), split.num_labels + 1).double() for part in (chances, paid)
    )
    doubt, distances = -chances.amax(dim=1).numpy(), dict(novelty_scores(split, rows, seed))
    asked = {"forest": doubt}
    for name in ("Mahalanobis", "nearest neighbours"):
        asked[name] = distances[name]()
        asked[f"forest or {name}"] = either(doubt, asked[name], familiar)
    for name, score in asked.items():
        helped = judged(split, *asking_beyond(score, familiar, acting))
        departing = _departing(split, *asking_beyond(score, familiar, usual))
        yield name, helped._replace(budgets=helped.budgets | {"departures": departing}), 0.0


def _by_both(split: Problem, policies: Tensor, ordinary: Tensor, usual: Tensor) -> Judged:
    """Policies [L, S, A] at 5 % familiar help, and at 5 % familiar departures."""
    helped = judged(split, policies, ordinary)
    return helped._replace(budgets=helped.budgets | {"departures": _departing(split, policies, usual)})


def _departing(split: Problem, policies: Tensor, ordinary: Tensor) -> Outcome:
    """The most cautious of policies [L, S, A] whose action departs from the ordinary one in at most 5 % of familiar rows.

    Its `familiar_help` is the share of these departures.
    """
    policies = torch.cat([ordinary[None], policies])
    familiar = len(split.familiar)
    departs = (policies.argmax(dim=-1) != ordinary.argmax(dim=-1))[:, :familiar].double().mean(dim=1)
    setting = max((departs <= BUDGET + 1e-9).nonzero().flatten().tolist())
    at = judged(split, policies[setting][None], policies[setting]).budgets["0.05"]  # the only policy there is
    return at._replace(familiar_help=float(departs[setting]))


def solved(name: str, kind: str, seed: int) -> list[dict[str, Any]]:
    """All results of one problem; a row without a method where a set has no such novelty."""
    torch.set_num_threads(1)
    split = problem(*load(name), kind, seed)
    rows: list[dict[str, Any]] = []
    if split is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = [_as_row(*found) for found in results(split, seed)]
    return [{"set": name, "kind": kind, "seed": seed, **row} for row in rows or [{"method": None}]]


def run(sets: list[str], seeds: int, out: Path, workers: int) -> list[dict[str, Any]]:
    """Results of all problems; those that are in the file already are not computed again."""
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    wanted = [(name, kind, seed) for seed in range(seeds) for name in sets for kind in KINDS]
    known = {(row["set"], row["kind"], row["seed"]) for row in done}
    tasks = [task for task in wanted if task not in known]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, out.open("a") as file:
        for number, task in enumerate(as_completed([pool.submit(solved, *task) for task in tasks])):
            rows = task.result()
            done += rows
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            print(f"{number + 1}/{len(tasks)} {rows[0]['set']}, {rows[0]['kind']}, seed {rows[0]['seed']}", flush=True)
    return [row for row in done if row["method"] and (row["set"], row["kind"], row["seed"]) in set(wanted)]


def table(rows: list[dict[str, Any]], against: str, by: str) -> list[str]:
    """One line per method, best first: help, payoff, and how far `against` is ahead with its interval."""
    rows = [row for row in rows if by in row["budgets"]]  # earlier rows have help alone
    methods = sorted({row["method"] for row in rows})
    found = {method: scores(rows, method, by) for method in methods}
    heads = f"help on novel rows ({' / '.join(KINDS)})", f"payoff ({' / '.join(KINDS)})"
    lines = [
        f"| at most 5 % familiar {'help' if by == '0.05' else by} | {' | '.join(heads)} | spent | {against} is ahead by |",
        "|---" * 5 + "|",
    ]
    for method in sorted(methods, key=lambda name: -mean_over_kinds(found[name]["payoff"])):
        part = found[method]
        ahead = found[against]["payoff"] - part["payoff"]
        low, high = interval(ahead)
        lead = "" if method == against else f"{mean_over_kinds(ahead):+.3f} [{low:+.3f}, {high:+.3f}]"
        helps = " / ".join(f"{x:.2f}" for x in np.nanmean(part["novel_help"], axis=0))
        pays = " / ".join(f"{x:.3f}" for x in np.nanmean(part["payoff"], axis=0))
        lines.append(
            f"| {method} | {helps} | {mean_over_kinds(part['payoff']):.3f} ({pays}) | "
            f"{np.nanmean(part['familiar_help']):.3f} | {lead} |"
        )
    return lines


def chosen(rows: list[dict[str, Any]]) -> str:
    """The candidate with the highest payoff at 5 % familiar help, mean over kinds."""
    rows = [row for row in rows if row["method"]]
    return max(CANDIDATES, key=lambda name: mean_over_kinds(scores(rows, name, "0.05")["payoff"]))


def main() -> None:
    """Run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["development"], help="groups of sets, or names of sets")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="processes, one problem each at a time")
    parser.add_argument("--out", type=Path, default=Path("members.jsonl"))
    parser.add_argument("--against", default="networks of rewards", help="the method that others are compared with")
    parser.add_argument("--chosen-on", type=Path, help="instead: the candidate that is best in the rows of this file")
    parser.add_argument("--by", choices=("departures", "help"), default="departures", help="what is at most 5 %%")
    asked = parser.parse_args()
    by = "departures" if asked.by == "departures" else "0.05"
    sets = [name for group in asked.sets for name in GROUPS.get(group, [group])]
    print(provenance_line())
    against = asked.against
    if asked.chosen_on is not None:
        against = chosen([json.loads(line) for line in asked.chosen_on.read_text().splitlines()])
        print(f"chosen: {against}")
    print("\n".join(table(run(sets, asked.seeds, asked.out, asked.workers), against, by)))


if __name__ == "__main__":
    main()
