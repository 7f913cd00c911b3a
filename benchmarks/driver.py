"""What the driver of a Ray cluster can give out and collect: many tiny tasks, and pieces of rows with their decisions.

python -m benchmarks.driver [--tasks 2000] [--address HOST:PORT]

Without an address a cluster of this machine alone is started. Tasks that do nothing show the driver's own limit: more machines
do not help where a task takes less than its share of it.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from cautious.executors import Executor, open_executor
from cautious.policy.states import ROWS_PER_PIECE
from cautious_paper.experiments.store import provenance_line


def nothing(shared: None, piece: int, progress: object) -> int:
    """A task that does nothing."""
    return piece


def like_decisions(shared: None, piece: np.ndarray, progress: object) -> tuple[np.ndarray, ...]:
    """What a piece of rows comes back as: two policies of four actions, and three numbers a row."""
    return tuple(np.zeros((len(piece), width)) for width in (4, 4, 1, 1, 1))


def rate(executor: Executor, work: object, pieces: list[object]) -> float:
    """Tasks a second, after a few to start the workers."""
    list(executor.map(work, None, pieces[:8], device="cpu", title="warm up"))  # type: ignore[arg-type]
    started = time.perf_counter()
    count = len(list(executor.map(work, None, pieces, device="cpu", title="tasks")))  # type: ignore[arg-type]
    return count / (time.perf_counter() - started)


def main() -> None:
    """Print both rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--address", default=None)
    options = parser.parse_args()
    print(provenance_line(), flush=True)
    with open_executor("ray", options.address) as executor:
        tiny = rate(executor, nothing, list(range(options.tasks)))
        print(f"tasks that do nothing: {tiny:.0f} a second", flush=True)
        rows = [np.zeros((ROWS_PER_PIECE, 10)) for _ in range(max(8, options.tasks // 20))]
        pieces = rate(executor, like_decisions, list(rows))
        what = f"pieces of {ROWS_PER_PIECE:,} rows of 10 numbers and back"
        print(f"{what}: {pieces:.0f} a second, {pieces * ROWS_PER_PIECE:,.0f} rows", flush=True)


if __name__ == "__main__":
    main()
