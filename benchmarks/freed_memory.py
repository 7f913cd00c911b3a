"""What it saves that freed memory stays with the process during training (`cautious_paper.experiments.freed_memory`).

python -m benchmarks.freed_memory

Every training runs in a process of its own, because the C library's settings are the process's, and in turn with and without,
so that other work on the machine meets both alike. Seconds are those of the processor; faults are pages that the system had to
hand out again.
"""

from __future__ import annotations

import contextlib
import json
import resource
import statistics
import subprocess
import sys

import torch

from benchmarks.shards import CASES
from cautious.beliefs.training.loop import train
from cautious.beliefs.training.state import TrainingSettings
from cautious_paper.experiments.freed_memory import freed_memory_kept
from cautious_paper.experiments.store import provenance_line

REPEATS = 5
EPOCHS = 3
"""Times as many epochs as `benchmarks.shards` trains: starting takes a part of them."""


def measure(case: str, kept: bool) -> tuple[float, float, float]:
    """Processor seconds in all and of the system, and page faults, per model and step of one training in this process."""
    torch.set_num_threads(1)
    make, num_models, batch_size, num_epochs = CASES[case]
    problem = make()
    settings = TrainingSettings(num_models, EPOCHS * num_epochs, batch_size, 1e-3)
    num_steps = num_models * settings.num_epochs * settings.num_batches(problem.num_samples)
    before = resource.getrusage(resource.RUSAGE_SELF)
    with freed_memory_kept() if kept else contextlib.nullcontext():
        train(problem, settings)
    after = resource.getrusage(resource.RUSAGE_SELF)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return (user + system) / num_steps, system / num_steps, (after.ru_minflt - before.ru_minflt) / num_steps


def main() -> None:
    """Print the medians of both ways for each kind of network, and their ratio."""
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], sys.argv[2] == "kept")))
        return
    print(provenance_line())
    print("per model and step: processor ms (of which the system's), page faults; returned / kept")
    for case in CASES:
        found: dict[str, list[list[float]]] = {"kept": [], "returned": []}
        for _ in range(REPEATS):
            for way, measured in found.items():
                command = [sys.executable, "-m", "benchmarks.freed_memory", case, way]
                measured.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        medians = {way: [statistics.median(part) for part in zip(*each, strict=True)] for way, each in found.items()}
        parts = [
            f"{way} {1e3 * seconds:.3f} ms ({1e3 * system:.3f}), {faults:,.0f} faults"
            for way, (seconds, system, faults) in medians.items()
        ]
        ratio = medians["returned"][0] / medians["kept"][0]
        print(f"  {case:<46} {'; '.join(parts)}; ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
