"""Image networks on the CPU: training against plain PyTorch loops, and the memory of a paper-sized solve.

python -m benchmarks.images                              training
python -m benchmarks.images memory [MODELS] [IMAGES]     an hour or more of CPU time at the paper's 2,000 x 40,800
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
import torch

from cautious.beliefs.ensemble import RewardEnsemble
from cautious_paper.experiments.images.image_experiment import ImageStageInputs, Stage, run_stage
from cautious_paper.experiments.images.settings import image_experiment_at
from cautious_paper.networks.image import ImageNetwork
from cautious_paper.timing.measures import image_training
from cautious_paper.timing.plain import plain_image_seconds
from cautious_paper.worlds.data import ImageSet


def bench_images(num_models: int = 8) -> list[str]:
    """Microseconds a model and image: two plain loops, and ours on all cores."""
    lines = ["image models, forward, backward and Adam, microseconds a model and image"]
    for batch_size, num_images in ((64, 1024), (512, 2048)):
        found = image_training(batch_size, num_images, num_models, device="cpu")
        last = plain_image_seconds(batch_size, num_images // batch_size, channels_last=True)
        rate = 8.65e6 / found.ours / 1e9
        lines += [
            f"  batch {batch_size}: one network after another, plain PyTorch  {1e6 * found.plain:7.0f}",
            f"  batch {batch_size}: the same in channels-last layout           {1e6 * last:7.0f}",
            f"  batch {batch_size}: ours                                       {1e6 * found.ours:7.0f}   "
            f"{found.ratio:4.1f} x, {last / found.ours:4.1f} x; {rate:.0f} useful GFLOP/s",
        ]
    return lines


def peak_gib() -> float:
    """The most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def bench_memory(num_models: int = 2000, num_images: int = 40_800) -> list[str]:
    """An experiment's own stages at the paper's size on the CPU with synthetic weights: the most memory held, and the time."""
    network = ImageNetwork(11)
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(np.stack([network.init(rng).astype(np.float32) for _ in range(num_models)]))
    belief = RewardEnsemble(network, weights)
    experiment = image_experiment_at("ask-for-help", "paper")
    question = ImageStageInputs(experiment, belief, {}, "cpu")
    lines = [
        f"{num_models} models x {num_images} images, four levels x ten runs, T = 100; {peak_gib():.2f} GiB to begin with"
    ]
    for name, share in (("letters", 20_800), ("fashion", 10_000), ("digits", 10_000)):  # the largest first
        size = num_images * share // 40_800
        pictures = torch.from_numpy(rng.integers(0, 256, (size, 28, 28), dtype=np.uint8))
        labels = torch.from_numpy(rng.integers(0, 10, size))
        question.tests[name] = ImageSet("fashion", "test", pictures, labels, "synthetic")
        started = time.perf_counter()
        numbers, _ = run_stage(question, Stage(experiment.main.name, name), None)
        predicting = numbers["predict_seconds"]
        solving = time.perf_counter() - started - predicting
        lines.append(
            f"  {name:8} {size:6} images: predicting {predicting:.0f} s, solving and measuring {solving:.0f} s; "
            f"at most {peak_gib():.2f} GiB so far"
        )
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


if __name__ == "__main__":
    memory = sys.argv[1:2] == ["memory"]
    print("\n".join(bench_memory(*(int(size) for size in sys.argv[2:])) if memory else bench_images()))
