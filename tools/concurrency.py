"""Two processes save into one folder while a third reads it: count what is not the one save or the other.

python tools/concurrency.py --rounds 500

In each round two writers save different content into one folder at the same moment, several times each, and a reader loads it
all the while. Every load should give one of the two contents, whole, and so should a load after the round. The exit status is 1
if anything else happens.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import queue
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import cautious
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.seeding import make_rng

SAVES = 4
"""Of each writer in a round."""


class Kind(NamedTuple):
    """Something that is saved as a folder."""

    make: Callable[[int], Any]
    """Writer 0's and writer 1's."""
    load: Callable[[Path], Any]
    content: Callable[[Any], Tensor]
    """What tells the two apart."""


def normal(seed: int, *shape: int) -> Tensor:
    """Made-up numbers."""
    return torch.from_numpy(make_rng(seed, "concurrency").standard_normal(shape))


def make_ensemble(seed: int) -> cautious.RewardEnsemble:
    """Three small networks."""
    network = VectorNetwork((2,), 2, (4,))
    weights, losses = normal(seed, 3, network.num_parameters).float(), normal(seed, 3).float()
    return cautious.RewardEnsemble(network, weights, losses, {"seed": seed})


def make_world(seed: int) -> cautious.TabularMDP:
    """Four states, two actions."""
    return cautious.TabularMDP(torch.softmax(normal(seed, 4, 2, 4), dim=-1), torch.ones(4) / 4, 0.5)


KINDS = {
    "Solution": Kind(
        lambda seed: cautious.solve_mdp(make_world(seed), normal(seed, 4, 4, 2), "1-of-3", num_iterations=5),
        cautious.Solution.load,
        lambda solution: torch.cat(
            [solution.policy, solution.problem.game.mdp.transitions.to_dense().reshape(4, -1)], 1
        ),
    ),
    "CautiousPolicy": Kind(
        lambda seed: cautious.CautiousPolicy(make_ensemble(seed), "1-of-3"),
        cautious.CautiousPolicy.load,
        lambda policy: policy.belief.parameters,
    ),
    "CautiousPolicy in a world": Kind(
        lambda seed: cautious.CautiousPolicy(normal(seed, 4, 4, 2), "1-of-3", mdp=make_world(seed), num_iterations=5),
        cautious.CautiousPolicy.load,
        lambda policy: torch.cat([policy.belief.table.reshape(-1), policy.mdp.transitions.to_dense().reshape(-1)]),
    ),
    "RewardEnsemble": Kind(make_ensemble, cautious.RewardEnsemble.load, lambda ensemble: ensemble.parameters),
}


def _write(kind: str, folder: Path, seed: int, rounds: int, start: Any, finished: Any) -> None:
    """A writer: tells after each round how many of its saves failed."""
    made = KINDS[kind].make(seed)
    for _ in range(rounds):
        start.wait()
        failed = []
        for _ in range(SAVES):
            try:
                made.save(folder)
            except Exception as error:
                failed.append(f"{type(error).__name__}: {error}")
        finished.put(failed)


def _loaded(kind: str, folder: Path, expected: list[Tensor]) -> str:
    """What a load gives: "first", "second", or what is wrong."""
    try:
        content = KINDS[kind].content(KINDS[kind].load(folder))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    found = [name for name, each in zip(("first", "second"), expected, strict=True) if torch.equal(content, each)]
    return found[0] if found else "neither"


def contend(kind: str, rounds: int) -> Counter[str]:
    """Counts of loads while two processes wrote, of loads after them, and of everything wrong."""
    counts: Counter[str] = Counter()
    expected = [KINDS[kind].content(KINDS[kind].make(seed)) for seed in range(2)]
    processes = multiprocessing.get_context("spawn")
    start, finished = processes.Barrier(3), processes.Queue()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        KINDS[kind].make(0).save(folder)
        writers = [processes.Process(target=_write, args=(kind, folder, n, rounds, start, finished)) for n in range(2)]
        for writer in writers:
            writer.start()
        for _ in range(rounds):
            start.wait(timeout=120)
            done = 0
            while done < len(writers):
                counts[f"during: {_loaded(kind, folder, expected)}"] += 1
                with contextlib.suppress(queue.Empty):
                    counts.update(finished.get_nowait())
                    counts["saves"] += SAVES
                    done += 1
            counts[f"after: {_loaded(kind, folder, expected)}"] += 1
            counts["rounds"] += 1
        for writer in writers:
            writer.join()
    return counts


def wrong(counts: Counter[str]) -> int:
    """How often anything happened that should not."""
    right = {"rounds", "saves", *(f"{when}: {which}" for when in ("during", "after") for which in ("first", "second"))}
    return sum(count for what, count in counts.items() if what not in right)


def main() -> None:
    """Contend for a folder of each kind, print the table, fail if something is wrong."""
    from cautious_paper.experiments.store import provenance_line

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50, help="in all, divided among the kinds")
    arguments = parser.parse_args()
    print(f"{provenance_line()}\n")
    started, failures = time.perf_counter(), 0
    print(
        "| what is saved | rounds | saves | loads during | loads after | neither save, or an error |\n|---|---|---|---|---|---|"
    )
    for kind in KINDS:
        counts = contend(kind, arguments.rounds // len(KINDS))
        during, after = (sum(n for what, n in counts.items() if what.startswith(when)) for when in ("during", "after"))
        print(f"| {kind} | {counts['rounds']} | {counts['saves']} | {during} | {after} | {wrong(counts)} |", flush=True)
        failures += wrong(counts)
        if wrong(counts):
            print(dict(counts), file=sys.stderr)
    print(f"{time.perf_counter() - started:.0f} s")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
