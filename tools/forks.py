"""Fork children of a process that has decided about many rows: count those that decide the same, and those that hang.

python tools/forks.py --count 100

Torch's threads stay with the parent, and a child whose torch divides an operation among them waits for ever. The children take
turns: each decides with one of the parent's policies, or asks its belief. The exit status is 1 if any of them does not return
the parent's bits.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

import cautious
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.seeding import make_rng
from cautious_paper.experiments.store import provenance_line

NUM_ROWS = 20_000
"""So many that torch divides operations on them."""
SECONDS = 120
"""After which a child counts as hanging."""


def normal(*shape: int) -> Tensor:
    """Made-up numbers."""
    return torch.from_numpy(make_rng(0, "forks").standard_normal(shape))


def questions() -> dict[str, Callable[[], Tensor]]:
    """What a child is asked, by name."""
    table, network = normal(4, 50, 3), VectorNetwork((2,), 3, (8,))
    ensemble = cautious.RewardEnsemble(network, normal(4, network.num_parameters).float(), torch.zeros(4), {})
    world = cautious.TabularMDP(torch.full((50, 3, 50), 1 / 50), torch.full((50,), 1 / 50), 0.5)
    numbers, vectors = torch.arange(NUM_ROWS) % 50, normal(NUM_ROWS, 2)
    of_table = cautious.CautiousPolicy(table, "1-of-4")
    of_ensemble = cautious.CautiousPolicy(ensemble, "1-of-4")
    of_world = cautious.CautiousPolicy(table, "1-of-4", mdp=world, num_iterations=5)
    return {
        "decide, table": lambda: of_table.decide(numbers).probabilities,
        "decide, ensemble": lambda: of_ensemble.decide(vectors).probabilities,
        "decide, world": lambda: of_world.decide(numbers).probabilities,
        "rewards, table": lambda: of_table.belief.rewards(numbers),
        "rewards, ensemble": lambda: ensemble.rewards(vectors),
    }


def ask_child(question: Callable[[], Tensor], expected: Tensor) -> str:
    """Fork once; what came of it."""
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)  # ends a child that waits for ever
        os._exit(0 if torch.equal(question(), expected) else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "same", 1: "different", -signal.SIGALRM: "hangs"}.get(status, f"ended with {status}")


def main() -> None:
    """Fork, print the table, fail if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    count = parser.parse_args().count
    print(f"{provenance_line()}\n")
    started = time.perf_counter()
    torch.set_num_threads(max(2, torch.get_num_threads()))
    asked = questions()
    expected = {name: question() for name, question in asked.items()}
    torch.rand(2**20).sqrt()  # the parent's own work starts torch's threads, whatever the package does
    counts: dict[str, Counter[str]] = {name: Counter() for name in asked}
    for number in range(count):
        name = list(asked)[number % len(asked)]
        counts[name][ask_child(asked[name], expected[name])] += 1
    print("| what a forked child does | children | same bits | anything else |\n|---|---|---|---|")
    for name, own in counts.items():
        print(f"| {name} | {own.total()} | {own['same']} | {own.total() - own['same']} |")
    print(f"{time.perf_counter() - started:.0f} s")
    sys.exit(any(set(own) - {"same"} for own in counts.values()))


if __name__ == "__main__":
    main()
