"""`cautious solve` and `calibrate` on tables of many rows: seconds and memory of the whole command, from CSV to decisions.csv.

python -m benchmarks.rows [--rows 10000 100000] [--verb solve calibrate] [--models 100]

The rows are logged treatments with eight features, one of them a text; those to decide about are three times as far spread, so
that the models differ about most of them.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from cautious_paper.experiments.store import provenance_line

ACTIONS = ("wait", "low", "high", "refer")
TRAINING_ROWS = 2000


def write_table(path: Path, count: int, spread: float, *, logged: bool) -> None:
    """Rows of seven numbers and a text; with `logged`, what was done and what it paid."""
    rng = np.random.default_rng(count)
    numbers = spread * rng.normal(size=(count, 7))
    kinds, done = rng.choice(["old", "new", "none"], size=count), rng.integers(len(ACTIONS), size=count)
    paid = np.cos(numbers[:, 0] - done) + 0.1 * numbers[:, 1]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{number}" for number in range(7)), "kind", *(("action", "paid") if logged else ())])
        for row, kind, action, reward in zip(numbers.round(4).tolist(), kinds, done, paid, strict=True):
            writer.writerow([*row, kind, *((ACTIONS[action], f"{reward:.4f}") if logged else ())])


def measured(*arguments: str) -> tuple[float, float, float]:
    """Seconds, CPU seconds and GiB at most of a command of this package, in a process of its own."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "cautious", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)}: exit status {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def main() -> None:
    """Print a line per verb and number of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--verb", nargs="+", choices=["solve", "calibrate"], default=["solve"])
    parser.add_argument("--models", type=int, default=100)
    options = parser.parse_args()
    print(provenance_line(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_table(folder / "log.csv", TRAINING_ROWS, 1.0, logged=True)
        belief = ("--belief", str(folder / "belief"))
        outcome = ("--action", "action", "--reward", "paid", "--out", str(folder / "belief"))
        size = ("--num-models", str(options.models), "--num-epochs", "20")
        took = measured("train", str(folder / "log.csv"), *outcome, *size)
        print(f"train {TRAINING_ROWS:,} rows, {options.models} models, 20 epochs: {took[0]:.1f} s", flush=True)
        for count in options.rows:
            for verb in options.verb:
                table = folder / f"{verb}.csv"
                write_table(table, count, 3.0 if verb == "solve" else 1.0, logged=False)
                out = ("--out", str(folder / "solved")) if verb == "solve" else ("--at-most", "0.1")
                seconds, cpu, memory = measured(verb, *belief, "--states", str(table), *out)
                rate = count / seconds
                print(
                    f"{verb} {count:,} rows, {options.models} models: {seconds:.1f} s ({cpu:.1f} s of CPU, {rate:.0f} rows a "
                    f"second), {memory:.2f} GiB at most",
                    flush=True,
                )


if __name__ == "__main__":
    main()
