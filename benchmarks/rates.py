"""Rates that docs/scale.md computes with: what the text of a row costs, and a row of an epoch of training, in CPU time.

python -m benchmarks.rates
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.rows import write_table
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.beliefs.training.loop import adam_step, loss_and_gradient_in_blocks
from cautious.beliefs.training.state import MiniBatch, ModuleTrainingProblem, TrainingSettings, TrainState
from cautious.parallel import single_thread
from cautious.tables.files import read_table
from cautious.tables.learn import Missing, learn_log
from cautious.tables.schema import OutcomeColumns
from cautious_paper.experiments.store import provenance_line

ROWS = 50_000


def text_costs(folder: Path) -> str:
    """Microseconds a row: to read, to turn into states, to find what is new, and to write."""
    write_table(folder / "log.csv", 2000, 1.0, logged=True)
    write_table(folder / "new.csv", ROWS, 3.0, logged=False)
    log, outcome = read_table(folder / "log.csv"), OutcomeColumns("action", "paid")
    schema = learn_log(log, outcome, (), Missing.LEAVE_OUT)[0].schema
    table = read_table(folder / "new.csv")

    def write() -> None:
        with (folder / "out.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([*row, "", "0.123", "wait", "low", "0.1234"] for row in table.rows)

    parts: dict[str, Callable[[], object]] = {
        "read": lambda: read_table(folder / "new.csv"),
        "states": lambda: schema.read(table),
        "what is new": lambda: [feature.remarks(table.read(feature.name)) for feature in schema.features],
        "write": write,
    }
    return ", ".join(f"{name} {1e6 * _least(work) / ROWS:.1f}" for name, work in parts.items())


def training_cost(batch_size: int) -> float:
    """Microseconds per model and row of an epoch: 16 models, 10 features, 4 actions."""
    rng = np.random.default_rng(0)
    states, rewards = (torch.from_numpy(rng.normal(size=(ROWS, width))) for width in (10, 4))
    problem = ModuleTrainingProblem(VectorNetwork((10,), 4), states, rewards)
    settings = TrainingSettings(16, 1, batch_size, 0.01)
    state = TrainState.fresh(problem, settings, range(16), torch.device("cpu"))
    batch = MiniBatch(torch.from_numpy(rng.integers(ROWS, size=(16, batch_size))))

    def step() -> None:
        _, gradient = loss_and_gradient_in_blocks(problem, state.parameters, batch, state.models)
        adam_step(state, gradient, 1, 0.01, 0.0)

    with single_thread():
        return 1e6 * _least(step, 10) / (16 * batch_size)


def _least(work: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def main() -> None:
    """Print all rates."""
    print(provenance_line(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        print(f"text, CPU microseconds a row: {text_costs(Path(folder))}", flush=True)
    for batch_size in (64, 512, 4096):
        cost = training_cost(batch_size)
        print(f"training in batches of {batch_size:,}: {cost:.2f} CPU microseconds per model and row", flush=True)


if __name__ == "__main__":
    main()
