"""Decisions without a safe action on real tables: k-of-N beside what one would use instead, at equal familiar payoff.

    python -m benchmarks.payoffs --quick                                 three sets, one seed, minutes
    python -m benchmarks.payoffs --workers 7 --out results/tables/payoffs.jsonl      goes on where it stopped

The last command prints the tables of docs/tables.md from that file. Needs the extra `benchmarks`.

One class of each set is held out of training. Every class is good or bad, and a matrix says what each action pays for each
class. No action is safe in any of the three shapes of matrices: each can lose. The numbers of a matrix are drawn from a
seed that is fixed here (`payoff_matrix`). Each held-out class is bad in half of the draws. The sets are the 24 of
`table_sets.HELD_BACK`, on which nothing in the library was chosen; `--quick` takes three of other groups, which were looked
at before.

Each method has a dial from ordinary to cautious. It stands at its most cautious place where the familiar payoff is still
that of the ordinary forest, less a budget: a share of what knowing the class is worth, beyond the best constant action.
Both are measured on the same fresh familiar rows, so methods are compared at equal familiar payoff. What counts is the
payoff on the rows of the held-out class. `k-of-N` is what `CautiousPolicy.decide` calls the action, the most likely one;
"drawn" draws it.

Expected, written before the first run, for a budget of 5 % and the mean over all sets, shapes and draws:

1. k-of-N on labels is ahead of forest probabilities times payoffs on novel rows, by 0.1 or more, with an interval above 0.
2. It is ahead of k-of-N trained on payoffs, by less than 0.1; its familiar payoff before any caution is the higher one.
3. It is level with the lower confidence bound of the same models (within 0.03): with few actions both find the same one.
4. It is level with a forest that has a threshold to the action with the best worst case, which the matrix tells anyone, and
   behind the forest with a threshold to the single action that turns out best afterwards.
5. Where the held-out class is good, every method loses by caution: k-of-N is behind the ordinary forest there.
6. Of the shapes, "grades" gains most and "routes" least: there each class has an action of its own, and none hedges.
"""

from __future__ import annotations

import argparse
import json
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.table_sets import HELD_BACK, SETS, Problem, load, problem
from benchmarks.tables import classifiers, fitted, greedy, interval, k_of_n, lower_bound, novelty_scores
from cautious import KofN, RewardEnsemble, fit_ensemble
from cautious.beliefs.diagnostics import BeliefWarning
from cautious_paper.experiments.store import provenance_line

QUICK = ("seats", "fishing", "sites")
SEED = 20261119
BUDGETS = (0.0, 0.05, 0.1)
LEVELS = [KofN(k, 20) for k in (19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)] + [KofN(1, 100)]
PLAIN = {f"{level.k}-of-20": 1 + LEVELS.index(level) for level in (KofN(10, 20), KofN(5, 20), KofN(1, 20))}
"""Places of the dial that are also reported as they are."""
OURS, LEVELLED = "k-of-N, labels", "k-of-N"


# The matrices.


def grades(random: np.random.Generator, bad: np.ndarray) -> np.ndarray:
    """Accept, part or reject a case that turns out good or bad: payoffs [C, 3]."""
    good = [1.0, random.uniform(0.3, 0.7), -random.uniform(0.05, 0.3)]
    loss = [-random.uniform(2, 6), -random.uniform(0.5, 1.5), random.uniform(-0.05, 0.05)]
    return np.where(bad[:, None], loss, good)


def doses(random: np.random.Generator, bad: np.ndarray) -> np.ndarray:
    """No, a low, a middle or a high dose, which helps good cases and harms bad ones: payoffs [C, 4]."""
    amount = np.array([0.0, 0.3, 0.6, 1.0])
    need, harm = random.uniform(0.3, 0.8), random.uniform(2, 5)
    helped = amount ** random.uniform(0.5, 1.0) * (1 + need) - need
    harmed = -harm * amount ** random.uniform(1.0, 1.5) - random.uniform(0.0, 0.2)
    return np.where(bad[:, None], harmed, helped)


def routes(random: np.random.Generator, bad: np.ndarray) -> np.ndarray:
    """Three actions, of which each class has its own best; all others cost something, in bad classes much: payoffs [C, 3]."""
    best = random.permutation(np.arange(len(bad)) % 3)
    cost = np.where(bad[:, None], random.uniform(2, 5, (len(bad), 3)), random.uniform(0.2, 1.0, (len(bad), 3)))
    return np.where(np.arange(3) == best[:, None], 1.0, -cost)


SHAPES: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "grades": grades,
    "doses": doses,
    "routes": routes,
}


def payoff_matrix(name: str, shape: str, seed: int, num_known: int, novel_is_bad: bool) -> np.ndarray:
    """What each action pays for each class, [C + 1, A]; the last row is the held-out class's; half of the others are bad."""
    random = np.random.default_rng([SEED, zlib.crc32(name.encode()), list(SHAPES).index(shape), seed, novel_is_bad])
    bad = random.permutation(np.arange(num_known) < max(1, num_known // 2))
    return SHAPES[shape](random, np.append(bad, novel_is_bad))


# Methods: policies [L, rows, A], of familiar rows and then of novel ones, from ordinary to cautious.


class Task(NamedTuple):
    """What every method is given, and the matrix by which it is judged."""

    split: Problem
    payoffs: np.ndarray
    """Of the known classes, [C, A]."""
    novel_payoffs: np.ndarray
    """Of the held-out class, [A]; no method sees it."""

    @property
    def rows(self) -> np.ndarray:
        """Familiar rows, then novel ones."""
        return np.concatenate([self.split.familiar, self.split.novel])

    @property
    def paid(self) -> np.ndarray:
        """What each action pays in each of the rows, [S, A]."""
        return np.concatenate(
            [self.payoffs[self.split.familiar_labels], np.tile(self.novel_payoffs, (len(self.split.novel), 1))]
        )


def of_models(belief: Any, rows: np.ndarray) -> Iterator[tuple[str, Tensor]]:
    """The rules that ask all models of one belief."""
    policies, ordinary = k_of_n(belief, rows, LEVELS, drawn=True)
    yield "k-of-N", torch.cat([ordinary[None], greedy(policies)])
    yield "k-of-N, drawn", torch.cat([ordinary[None], policies])
    yield "mean - beta std", lower_bound(belief, rows)[0]


def of_forest(task: Task, probabilities: np.ndarray, distance: np.ndarray) -> Iterator[tuple[str, Tensor]]:
    """Probabilities [S, C] times payoffs; alone, and with a threshold to one action by confidence or by distance [S]."""
    acting = greedy(torch.from_numpy(probabilities @ task.payoffs))
    yield "forest x payoffs", acting[None]
    careful = int(task.payoffs.min(axis=0).argmax())
    for action in range(task.payoffs.shape[1]):
        unsure = beyond(-probabilities.max(axis=1), len(task.split.familiar), acting, action)
        far = beyond(distance, len(task.split.familiar), acting, action)
        if action == careful:
            yield "forest, threshold to the best worst case", unsure
            yield "Mahalanobis, threshold to the best worst case", far
        yield f"forest, threshold to action {action}", unsure
        yield f"Mahalanobis, threshold to action {action}", far


def beyond(score: np.ndarray, familiar: int, acting: Tensor, action: int) -> Tensor:
    """One action where a score [S] exceeds a threshold, else as usual: [L, S, A] for every threshold that matters."""
    thresholds = np.append(np.inf, np.unique(score[:familiar])[::-1])
    only = torch.eye(acting.shape[1], dtype=acting.dtype)[action]
    return torch.where(torch.from_numpy(score[None] > thresholds[:, None])[..., None], only, acting)


def outcome(task: Task, policies: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Mean payoffs on familiar and on novel rows at each place of the dial, twice [L]."""
    earned = (policies * torch.from_numpy(task.paid)).sum(dim=-1).numpy()
    familiar = len(task.split.familiar)
    return earned[:, :familiar].mean(axis=1), earned[:, familiar:].mean(axis=1)


def places(familiar: np.ndarray, allowed: Sequence[float]) -> list[int]:
    """The most cautious place of the dial with a familiar payoff of at least so much; without one, the ordinary place."""
    return [max(np.flatnonzero(familiar >= least - 1e-9).tolist(), default=0) for least in allowed]


# One set with one seed, with all its draws.

Cell = list[list[float]]
"""Payoffs on familiar and on novel rows: without caution, at each budget, and for k-of-N at each level of `PLAIN`."""


def solved(name: str, seed: int, ours: bool) -> list[dict[str, Any]]:
    """A row for each draw: what each method earns (`Cell`), or with `ours` only the methods that ask models of labels."""
    torch.set_num_threads(1)
    split = problem(*load(name), "class", seed)
    if split is None:
        return [{"set": name, "seed": seed, "shape": None}]
    rows = np.concatenate([split.familiar, split.novel])
    forest = classifiers(seed)["random forest"]().fit(split.rows, split.labels).predict_proba(rows)
    distance = next(score() for title, score in novelty_scores(split, rows, seed) if title == "Mahalanobis")
    found, ensemble = [], None
    for shape in SHAPES:
        for bad in (False, True):
            matrix = payoff_matrix(name, shape, seed, split.num_labels, bad)
            task = Task(split, matrix[:-1], matrix[-1])
            ensemble = by_labels(task, ensemble, seed)
            methods = dict(judged(task, ensemble, forest, None if ours else distance, seed))
            found.append({"set": name, "seed": seed, "shape": shape, "bad": bad, "methods": methods})
    return found


def by_labels(task: Task, before: RewardEnsemble | None, seed: int) -> RewardEnsemble:
    """The default belief of this library, trained on labels; trained once, then given each draw's payoffs."""
    if before is not None:
        return before.with_payoffs(task.payoffs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeliefWarning)
        return fit_ensemble(task.split.rows, labels=task.split.labels, payoffs=task.payoffs, seed=seed, progress=False)


def judged(
    task: Task, ensemble: RewardEnsemble, forest: np.ndarray, distance: np.ndarray | None, seed: int
) -> Iterator[tuple[str, Cell]]:
    """Every method on one draw; without `distance` only those that ask models of labels."""
    familiar_paid = task.payoffs[task.split.familiar_labels]
    known = familiar_paid.max(axis=1).mean() - familiar_paid.mean(axis=0).max()
    ordinary = outcome(task, greedy(torch.from_numpy(forest @ task.payoffs))[None])[0][0]
    allowed = [ordinary - budget * known for budget in BUDGETS]
    methods = [(f"{rule}, labels", policies) for rule, policies in of_models(ensemble, task.rows)]
    if distance is not None:
        by_payoffs = fitted(task.split, task.payoffs[task.split.labels], seed, None)
        methods += [(f"{rule}, payoffs", policies) for rule, policies in of_models(by_payoffs, task.rows)]
        methods += of_forest(task, forest, distance)
    for method, policies in methods:
        familiar, novel = outcome(task, policies)
        chosen = [0, *places(familiar, allowed), *(PLAIN.values() if method.startswith(LEVELLED) else ())]
        yield method, [[round(float(familiar[place]), 4), round(float(novel[place]), 4)] for place in chosen]


def run(sets: Sequence[str], seeds: int, out: Path, workers: int, ours: bool) -> list[dict[str, Any]]:
    """Results of all sets and seeds; those that are in the file already are not computed again."""
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    known = {(row["set"], row["seed"]) for row in done}
    wanted = [(name, seed) for seed in range(seeds) for name in sets]
    tasks = [task for task in wanted if task not in known]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, out.open("a") as file:
        for number, work in enumerate(as_completed([pool.submit(solved, *task, ours) for task in tasks])):
            rows = work.result()
            done += rows
            file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
            file.flush()
            print(f"{number + 1}/{len(tasks)} {rows[0]['set']}, seed {rows[0]['seed']}", flush=True)
    chosen = set(wanted)
    found = [row for row in done if row["shape"] and (row["set"], row["seed"]) in chosen]
    return sorted(found, key=lambda row: (row["set"], row["seed"], row["shape"], row["bad"]))


def beside(rows: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """The rows with the other methods of earlier rows of the same draws, whose models of labels are called "labels before"."""
    keys = ("set", "seed", "shape", "bad")
    earlier = [json.loads(line) for line in path.read_text().splitlines()]
    methods = {tuple(row.get(key) for key in keys): row.get("methods", {}) for row in earlier}
    found = []
    for row in rows:
        place = tuple(row[key] for key in keys)
        if place in methods:
            others = {name.replace(", labels", ", labels before"): cell for name, cell in methods[place].items()}
            found.append(row | {"methods": others | row["methods"]})
    return found


# Tables of the results.


def with_best_single(rows: list[dict[str, Any]], place: int) -> list[dict[str, Any]]:
    """The rows with one threshold to a single action: to that which was best on novel rows of each set and shape."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["set"], row["shape"]), []).append(row)
    found = []
    for here in cells.values():
        best = {}
        for title in ("forest", "Mahalanobis"):
            single = [name for name in here[0]["methods"] if name.startswith(f"{title}, threshold to action")]
            best[f"{title}, threshold to the action that was best afterwards"] = max(
                single, key=lambda name: np.mean([row["methods"][name][place][1] for row in here])
            )
        for row in here:
            methods = {name: cell for name, cell in row["methods"].items() if "threshold to action" not in name}
            found.append(row | {"methods": methods | {name: row["methods"][method] for name, method in best.items()}})
    return found


def by_set(rows: list[dict[str, Any]], method: str, place: int, kind: int) -> np.ndarray:
    """Means of a payoff, familiar (0) or novel (1), by set and shape, [sets, shapes]."""
    found = []
    for name in sorted({row["set"] for row in rows}):
        here = [row for row in rows if row["set"] == name]
        found.append([
            np.mean([row["methods"][method][place][kind] for row in here if row["shape"] == shape]) for shape in SHAPES
        ])  # fmt: skip
    return np.array(found)


def table(rows: list[dict[str, Any]], budget: float) -> list[str]:
    """A table in Markdown: one line per method, the best on novel rows first."""
    place = 1 + BUDGETS.index(budget)
    rows = with_best_single(rows, place)
    novel = {method: by_set(rows, method, place, 1) for method in rows[0]["methods"]}
    lines = [
        f"| at most {budget:.0%} of the worth of knowing given up | familiar | novel | {' / '.join(SHAPES)} | "
        "class is bad / good | k-of-N on labels is ahead by |",
        "|---" * 6 + "|",
    ]
    for method in sorted(novel, key=lambda method: -novel[method].mean()):
        familiar = by_set(rows, method, place, 0).mean()
        kinds = [by_set([row for row in rows if row["bad"] is bad], method, place, 1).mean() for bad in (True, False)]
        ahead = novel[OURS] - novel[method]
        low, high = interval(ahead)
        lead = "" if method == OURS else f"{ahead.mean():+.3f} [{low:+.3f}, {high:+.3f}]"
        shapes = " / ".join(f"{value:.3f}" for value in novel[method].mean(axis=0))
        lines.append(
            f"| {method} | {familiar:.3f} | {novel[method].mean():.3f} | {shapes} | {kinds[0]:.3f} / {kinds[1]:.3f} | {lead} |"
        )
    return lines


def plain_table(rows: list[dict[str, Any]]) -> list[str]:
    """What methods earn without caution, and levels as they are, without a budget: familiar, novel."""
    lines = ["| method | ordinary | " + " | ".join(PLAIN) + " |", "|---" * (2 + len(PLAIN)) + "|"]
    for method in ("forest x payoffs", *(name for name in rows[0]["methods"] if name.startswith(LEVELLED))):
        whole = [0, *range(1 + len(BUDGETS), len(rows[0]["methods"][method]))]
        cells = [[by_set(rows, method, place, kind).mean() for kind in (0, 1)] for place in whole]
        texts = [f"{cell[0]:.3f}, {cell[1]:.3f}" for cell in cells] + [""] * (1 + len(PLAIN) - len(cells))
        lines.append(f"| {method} | {' | '.join(texts)} |")
    return lines


def main() -> None:
    """Run what is missing, print every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three sets and one seed")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="processes, one set each at a time")
    parser.add_argument("--out", type=Path, default=Path("payoffs.jsonl"))
    parser.add_argument("--ours", action="store_true", help="only the methods that ask models of labels")
    parser.add_argument("--beside", type=Path, help="earlier rows, whose other methods join the tables")
    asked = parser.parse_args()
    print(provenance_line(), flush=True)
    sets = asked.sets or tuple(QUICK if asked.quick else HELD_BACK)
    rows = run(sets, 1 if asked.quick else asked.seeds, asked.out, asked.workers, asked.ours)
    rows = beside(rows, asked.beside) if asked.beside else rows
    print(f"{len({row['set'] for row in rows})} sets, {len({(row['set'], row['seed']) for row in rows})} splits")
    for budget in BUDGETS:
        print("\n" + "\n".join(table(rows, budget)))
    print("\n" + "\n".join(plain_table(rows)))


if __name__ == "__main__":
    main()
