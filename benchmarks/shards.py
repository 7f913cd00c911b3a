"""CPU time of training at the usual shard sizes: milliseconds per model and step.

python -m benchmarks.shards

CPU seconds, not the clock's, so that other work on the machine shows less. To compare two versions, run it with each one's
`src` on PYTHONPATH.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from cautious.beliefs.networks.vector import VectorNetwork
from cautious.beliefs.training.loop import train
from cautious.beliefs.training.state import ModuleTrainingProblem, TrainingProblem, TrainingSettings
from cautious_paper.experiments.store import provenance_line
from cautious_paper.networks.driving_training import DrivingTrainingProblem
from cautious_paper.networks.image_training import ImageTrainingProblem

REPEATS = 5


def images() -> TrainingProblem:
    """The image network on 1,024 random images."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(256, size=(1024, 28, 28), dtype=np.uint8)
    return ImageTrainingProblem(torch.from_numpy(pictures), torch.from_numpy(rng.normal(size=(1024, 11))))


def vectors() -> TrainingProblem:
    """The default network for vectors on 512 rows of 8 features, 5 actions."""
    rng = np.random.default_rng(0)
    rows, rewards = (torch.from_numpy(rng.normal(size=(512, size))) for size in (8, 5))
    return ModuleTrainingProblem(VectorNetwork((8,), 5), rows, rewards)


CASES: dict[str, tuple[Callable[[], TrainingProblem], int, int, int]] = {
    "image network, batches of 512, shards of 2": (images, 2, 512, 1),
    "driving network, batches of 800, shards of 16": (lambda: DrivingTrainingProblem.familiar(0.5), 16, 800, 20),
    "vector network, batches of 64, shards of 16": (vectors, 16, 64, 20),
}
"""Problem, models of a shard, batch size, epochs."""


def main() -> None:
    """Print one line for each kind of network: the median of the repeats, and the lowest."""
    print(provenance_line())
    torch.set_num_threads(1)
    for name, (make, num_models, batch_size, num_epochs) in CASES.items():
        problem = make()
        settings = TrainingSettings(num_models, num_epochs, batch_size, 1e-3)
        num_steps = num_epochs * settings.num_batches(problem.num_samples)
        train(problem, settings)
        found = []
        for _ in range(REPEATS):
            started = time.process_time()
            train(problem, settings)
            found.append(1e3 * (time.process_time() - started) / num_models / num_steps)
        print(f"  {name:<46} {statistics.median(found):8.3f} ms, lowest {min(found):8.3f}", flush=True)


if __name__ == "__main__":
    main()
