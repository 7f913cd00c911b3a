"""A small driving run with longer training than "smoke", and misfortunes on order (for `survival.py`).

python tools/survival_child.py FOLDER [--die WRITE] [--clock SEED]
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from cautious.beliefs import training
from cautious.beliefs.shards import TrainingSettings
from cautious.cli.console import progress_bars, run_verb
from cautious.experiments.driving import DrivingExperiment, run_driving
from cautious.report.html import write_report

EXPERIMENT = DrivingExperiment(
    TrainingSettings(num_models=32, num_epochs=80, batch_size=800, learning_rate=1e-3, weight_decay=1e-5),
    certain_epochs=20,
    ks=(1, 20),
    num_iterations=150,
    num_runs=2,
    probabilities=(0.5,),
    num_optim=4,
)


def die_at_write(number: int) -> None:
    """Kill this process at its n-th write: just after the rename if n is odd, and with half a file before it if even."""
    count, replace = 0, Path.replace

    def counted(path: Path, target: Any) -> Path:
        nonlocal count
        count += 1
        if count == number and number % 2 == 0:
            os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        moved = replace(path, target)
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return moved

    Path.replace = counted  # type: ignore[method-assign, assignment]


def mad_clock(seed: int) -> None:
    """Let the clock on the wall jump years to and fro at every look."""
    rng, real = random.Random(seed), time.time

    def wild() -> float:
        return real() + rng.uniform(-3e8, 3e8)

    class WildDate(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> WildDate:
            return cls.fromtimestamp(wild(), tz)

    time.time, time.time_ns = wild, lambda: int(1e9 * wild())
    datetime.datetime = WildDate  # type: ignore[misc]


def main() -> None:
    """Run, or go on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--die", type=int, help="at which write to die")
    parser.add_argument("--clock", type=int, help="seed of a clock that jumps")
    arguments = parser.parse_args()
    training.CHECKPOINT_SECONDS = 1.0
    if arguments.die is not None:
        die_at_write(arguments.die)
    if arguments.clock is not None:
        mad_clock(arguments.clock)

    def run() -> None:
        with progress_bars() as progress:
            store = run_driving(EXPERIMENT, arguments.folder, progress=progress)
            progress("drawing the report", 0, 1)
            write_report(store)
            progress("drawing the report", 1, 1)

    run_verb(run)


if __name__ == "__main__":
    main()
