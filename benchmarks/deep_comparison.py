"""k-of-N beside simpler ways to be careful, on maps with one unseen kind of ground, with six, and with six that are one doubt.

    python -m benchmarks.deep_comparison exact           decision rules, solved exactly on 20 maps: minutes
    python -m benchmarks.deep_comparison learned         the same rules learned by PPO on one map, ten seeds: half an hour
    python -m benchmarks.deep_comparison wide            levels on the road of 2.3e10 states: half an hour
    python -m benchmarks.deep_comparison figures         tables and figures of docs/deep-comparison.md from the files in --out

Each row of results is appended to a file in --out as soon as it is known; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.deep_rules import measures, policies
from cautious import fit_ensemble
from cautious.beliefs.diagnostics import BeliefWarning
from cautious_paper.beliefs.terrains import fit_terrain_belief
from cautious_paper.experiments.store import provenance_line
from cautious_paper.worlds.terrains import logged_terrain_rewards, terrain_world

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
NUM_MAPS = 20
NARROW_PRIOR = 0.047
"""Width of the default prior at which its models differ about unseen kinds as much as those of `fit_terrain_belief`."""


@cache
def one_for_all(num_unseen: int) -> Tensor:
    """What 100 models with the default prior say about each kind, [M, K]: about unseen kinds each says the same."""
    kinds, rewards = logged_terrain_rewards(num_unseen)
    belief = fit_ensemble(
        kinds, rewards, num_epochs=30, batch_size=32, prior=NARROW_PRIOR, progress=False, validation_fraction=0
    )
    return belief.rewards(np.eye(kinds.shape[1], dtype=np.float32))[..., 0].double()


@cache
def independent(num_unseen: int, seed: int = 0) -> Tensor:
    """What the 100 models of `fit_terrain_belief` say about each kind, [M, K]."""
    belief = fit_terrain_belief(num_unseen, seed=seed)
    return belief.rewards(torch.eye(belief.state_shape[0]))[..., 0].double()


SETTINGS: dict[str, tuple[int, Callable[[int, int], Tensor]]] = {
    "one doubt": (1, lambda num_unseen, layout: independent(num_unseen)),
    "six doubts": (6, lambda num_unseen, layout: independent(num_unseen)),
    "six kinds, one doubt": (6, lambda num_unseen, layout: one_for_all(num_unseen)),
    "six doubts, other beliefs": (6, lambda num_unseen, layout: independent(num_unseen, 1 + layout % 4)),
}
"""Number of unseen kinds, and what the models say about each kind on a map."""


def rows_of(path: Path) -> list[dict[str, Any]]:
    """What is known already."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append(path: Path, row: dict[str, Any]) -> None:
    """One more row, at once on disk."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def exact_rows(known: set[tuple[str, int]]) -> Iterator[dict[str, Any]]:
    """Measures of every rule at every setting of its dial, map by map, but for what is known."""
    for setting, (num_unseen, fitted) in SETTINGS.items():
        for layout in range(NUM_MAPS):
            if (setting, layout) in known:
                continue
            kind_rewards = fitted(num_unseen, layout)
            unseen = kind_rewards[:, -num_unseen:]
            pairs = ~np.eye(num_unseen, dtype=bool)
            correlation = np.corrcoef(unseen.T.numpy())[pairs].mean() if num_unseen > 1 else 1.0
            started = time.perf_counter()
            world = terrain_world(layout, num_unseen)
            for rule, dial in policies(world, kind_rewards).items():
                for place, (name, policy) in enumerate(dial.items()):
                    yield {
                        "setting": setting,
                        "map": layout,
                        "rule": rule,
                        "place": place,
                        "dial": name,
                        **{name: round(value, 5) for name, value in measures(world, policy).items()},
                    }
            print(
                f"{setting}, map {layout}: deviation {float(unseen.std(dim=0).mean()):.2f}, correlation {correlation:.2f}, "
                f"{time.perf_counter() - started:.1f} s",
                flush=True,
            )


def run_exact(out: Path) -> None:
    """Solve what is not in the file yet."""
    path = out / "exact.jsonl"
    done = {(row["setting"], row["map"]) for row in rows_of(path) if row["rule"] == "one model" and row["place"] == 9}
    for row in exact_rows(done):
        append(path, row)


LEARNED_SEEDS, WIDE_SEEDS = range(100, 110), range(5)
"""Of the learned rules others than those that settings were chosen on."""
WIDE_PROBABILITY = 0.1
"""Of obstacles on the wide road, per hidden obstacle and newly seen row."""


def run_learned(options: argparse.Namespace) -> None:
    """Learn what is not in the file yet; each way to learn has a file of its own."""
    from benchmarks.deep import CRITICS
    from benchmarks.deep_learned import ENTROPY, learned_rows

    entropy = ENTROPY if options.entropy is None else options.entropy
    critics = "" if options.critics == "one" else f"-{options.critics}-critics"
    path = options.out / f"learned{critics}{'' if entropy == ENTROPY else f'-entropy-{entropy:g}'}.jsonl"
    known = {(row["map"], row["rule"], row["dial"], row["seed"], row["steps"]) for row in rows_of(path)}
    way = options.only, options.steps, entropy, CRITICS[options.critics]
    for layout in options.maps:
        for row in learned_rows(layout, independent(6), LEARNED_SEEDS, known, *way):
            append(path, row)
            print(row, flush=True)


def run_wide(out: Path) -> None:
    """Learn what is not in the file yet."""
    from benchmarks.deep_learned import wide_rows

    path = out / "wide.jsonl"
    known = {(row["level"], row["seed"]) for row in rows_of(path)}
    for row in wide_rows(out / "wide-belief", WIDE_PROBABILITY, WIDE_SEEDS, known):
        append(path, row)
        print(row, flush=True)


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["exact", "learned", "wide", "figures"])
    parser.add_argument("--out", type=Path, default=Path("results/deep-comparison"))
    parser.add_argument("--only", help='of "learned": one rule with its dial, such as "k-of-N 1-of-20"')
    parser.add_argument("--steps", type=int, default=150_000, help='of "learned"')
    parser.add_argument("--maps", type=int, nargs="+", default=[0], help='of "learned"')
    parser.add_argument("--entropy", type=float, help='of "learned": another entropy bonus at the beginning')
    parser.add_argument("--critics", choices=["one", "many"], default="one", help='of "learned": of k-of-N')
    options = parser.parse_args()
    warnings.simplefilter("ignore", BeliefWarning)
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    print(provenance_line(), flush=True)
    if options.part == "exact":
        run_exact(options.out)
    elif options.part == "learned":
        run_learned(options)
    elif options.part == "wide":
        run_wide(options.out)
    else:
        from benchmarks.deep_figures import write

        for line in write(options.out, FIGURES, rows_of):
            print(line)


if __name__ == "__main__":
    main()
