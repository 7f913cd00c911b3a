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
from torch import nn

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.image_network import ImageNetwork
from cautious.beliefs.images import ImageTraining
from cautious.beliefs.training import TrainingSettings, train
from cautious.experiments.image_settings import image_experiment_at
from cautious.experiments.image_studies import behaviour_of
from cautious.worlds.data import ImageSet, load_images
from cautious.worlds.images import ask_for_help_rewards


def plain_network() -> nn.Sequential:
    """The paper's network for one model, with the layers PyTorch ships."""
    return nn.Sequential(
        *(nn.Conv2d(1, 64, 4), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(64, 16, 4), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(256, 50), nn.ReLU(), nn.Linear(50, 15), nn.ReLU(), nn.Linear(15, 11)),
    )


def plain_seconds(batch_size: int, num_steps: int, channels_last: bool) -> float:
    """Seconds an image of the plain loop, all cores on one operation."""
    digits = load_images("digits", "train")
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network = plain_network()
    network.to(memory_format=layout)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(network.parameters(), lr=0.0016)
    generator = torch.Generator().manual_seed(0)
    rewards = ask_for_help_rewards(digits.labels).float()
    started = 0.0
    for step in range(num_steps + 2):
        if step == 2:
            started = time.perf_counter()
        batch = torch.randint(len(digits), (batch_size,), generator=generator)
        images = (digits.images[batch].unsqueeze(1).float() / 255).to(memory_format=layout)
        optimiser.zero_grad()
        (network(images) - rewards[batch]).square().mean().backward()
        optimiser.step()
    return (time.perf_counter() - started) / (num_steps * batch_size)


def bench_images(num_models: int = 8) -> list[str]:
    """Microseconds a model and image: two plain loops, and ours on all cores."""
    digits = load_images("digits", "train")
    lines = ["image models, forward, backward and Adam, microseconds a model and image"]
    for batch_size, num_images in ((64, 1024), (512, 2048)):
        plain = plain_seconds(batch_size, num_images // batch_size, channels_last=False)
        last = plain_seconds(batch_size, num_images // batch_size, channels_last=True)
        lesson = ImageTraining(digits.images[:num_images], ask_for_help_rewards(digits.labels[:num_images]))
        train(lesson, TrainingSettings(2, 1, batch_size, 0.0016))
        started = time.perf_counter()
        train(lesson, TrainingSettings(num_models, 1, batch_size, 0.0016))
        ours = (time.perf_counter() - started) / (num_models * num_images)
        rate = 8.65e6 / ours / 1e9
        lines += [
            f"  batch {batch_size}: one network after another, plain PyTorch  {1e6 * plain:7.0f}",
            f"  batch {batch_size}: the same in channels-last layout           {1e6 * last:7.0f}",
            f"  batch {batch_size}: ours                                       {1e6 * ours:7.0f}   "
            f"{plain / ours:4.1f} x, {last / ours:4.1f} x; {rate:.0f} useful GFLOP/s",
        ]
    return lines


def peak_gib() -> float:
    """The most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def bench_memory(num_models: int = 2000, num_images: int = 40_800) -> list[str]:
    """Predict, solve and measure at the paper's size on the CPU with synthetic weights: the most memory held, and the time."""
    network = ImageNetwork(11)
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(np.stack([network.init(rng).astype(np.float32) for _ in range(num_models)]))
    belief = RewardEnsemble(network, weights)
    experiment = image_experiment_at("ask-for-help", "paper")
    lines = [
        f"{num_models} models x {num_images} images, four levels x ten runs, T = 100; {peak_gib():.2f} GiB to begin with"
    ]
    for name, share in (("letters", 20_800), ("fashion", 10_000), ("digits", 10_000)):  # the largest first
        images = rng.integers(0, 256, (num_images * share // 40_800, 28, 28), dtype=np.uint8)
        started = time.perf_counter()
        rewards = belief.rewards(images)
        seconds = {"predicting": time.perf_counter() - started}
        labels = torch.from_numpy(rng.integers(0, 10, len(images)))
        started = time.perf_counter()
        behaviour_of(
            experiment, rewards, ImageSet("fashion", "test", torch.from_numpy(images), labels, "synthetic"), None
        )
        seconds["solving and measuring"] = time.perf_counter() - started
        times = ", ".join(f"{what} {value:.0f} s" for what, value in seconds.items())
        lines.append(f"  {name:8} {len(images):6} images: {times}; at most {peak_gib():.2f} GiB so far")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


if __name__ == "__main__":
    memory = sys.argv[1:2] == ["memory"]
    print("\n".join(bench_memory(*(int(size) for size in sys.argv[2:])) if memory else bench_images()))
