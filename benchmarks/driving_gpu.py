"""Driving networks on a GPU: the plain path and the fused kernel, their speed and what they end up with.

python -m benchmarks.driving_gpu [EPOCHS]     (of the comparison of outcomes; 3,000 by default)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from cautious.beliefs.training.loop import train_plainly
from cautious.beliefs.training.state import TrainingSettings, TrainState
from cautious_paper.experiments.driving.driving_experiment import experiment_at
from cautious_paper.experiments.store import provenance_line
from cautious_paper.networks.driving import NUM_HIDDEN, NUM_PARAMETERS
from cautious_paper.networks.driving_training import DrivingTrainingProblem

PAPER = experiment_at("paper").training
STEPS = 3
"""Steps an epoch: batches of 800, 800 and 114 of 1,714 pairs."""

ROWS, FEATURES, PAIRS = 64, 4, 1714 / STEPS
MATRIX_FLOPS = 2 * 3 * 2 * PAIRS * ROWS * NUM_HIDDEN
"""Operations of one model's step on the matrix units: zeros and ones times numbers in three pieces, there and back."""

VECTOR_FLOPS = 3 * 2 * ROWS * FEATURES * 4 * NUM_HIDDEN + 10 * PAIRS * NUM_HIDDEN + 12 * NUM_PARAMETERS
"""In float32: features through the hidden layer and both gradients; ReLU, output layer and slopes of each pair; Adam."""

STEP_BYTES = 4 * 6 * NUM_PARAMETERS + 2 * ROWS * PAIRS
"""Bytes a step moves at least through the second-level cache: weights and averages there and back, rows of pairs once."""

MATRIX_RATE, VECTOR_RATE, CACHE_RATE = 790e12, 67e12, 5.5e12
"""An H200's bfloat16 matrix rate (a measured product), its float32 rate (data sheet) and its cache's bandwidth (published
measurements of the H100), each a second."""

Training = Callable[[TrainState, TrainingSettings, int], None]


def seconds(training: Training, shard: TrainState, num_epochs: int, repeats: int = 3) -> float:
    """Median time of `num_epochs` epochs, after a warm-up."""
    training(shard, PAPER, 2)
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        started = time.perf_counter()
        training(shard, PAPER, num_epochs)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return sorted(times)[repeats // 2]


def copy_of(shard: TrainState, num_models: int) -> TrainState:
    """The first models of an untrained shard, on the GPU."""
    tensors = {name: tensor[:num_models].clone() for name, tensor in shard.tensors().items() if tensor.dim()}
    return TrainState(range(num_models), tensors, 0, torch.device("cuda"))


def speed_table(paths: dict[str, tuple[Training, int]], fresh: TrainState) -> list[str]:
    """One line for each path and number of models."""
    lines = ["driving networks, batch 800 of 1,714 pairs, forward, backward, Adam and shuffles"]
    lines += ["  path    models   ms a step   µs a model-step   min for 2,000 x 51,200   TFLOP/s   cache TB/s"]
    for num_models in (256, 2000):
        for name, (training, num_epochs) in paths.items():
            step = seconds(training, copy_of(fresh, num_models), num_epochs) / (num_epochs * STEPS)
            minutes = step * PAPER.num_epochs * STEPS * (PAPER.num_models / num_models) / 60
            flops = (MATRIX_FLOPS + VECTOR_FLOPS) * num_models / step / 1e12
            moved = STEP_BYTES * num_models / step / 1e12
            lines += [
                f"  {name:6s}  {num_models:6d}   {1e3 * step:9.3f}   {1e6 * step / num_models:15.3f}   {minutes:22.2f}"
                f"   {flops:7.1f}   {moved:10.2f}"
            ]
    limits = MATRIX_FLOPS / MATRIX_RATE, VECTOR_FLOPS / VECTOR_RATE, STEP_BYTES / CACHE_RATE
    lines += [
        "  limits of the fused kernel for 2,000 models, ms a step: matrix units {:.3f}, float32 {:.3f}, cache {:.3f}".format(
            *(1e3 * PAPER.num_models * limit for limit in limits)
        )
    ]
    return lines


def quantiles(losses: Tensor) -> str:
    """Smallest, lower quartile, median, upper quartile and largest."""
    levels = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], device=losses.device)
    return "  ".join(f"{value:.3e}" for value in losses.quantile(levels).tolist())


def outcome_table(paths: dict[str, tuple[Training, int]], fresh: TrainState, num_epochs: int) -> list[str]:
    """Losses after the same epochs of the same models by each path."""
    lines = [f"losses of 256 networks after {num_epochs:,} epochs: min, quartiles, max"]
    for name, (training, _) in paths.items():
        shard = copy_of(fresh, 256)
        training(shard, PAPER, num_epochs)
        lines += [f"  {name:6s}  {quantiles(shard.losses)}"]
    return lines


def main() -> None:
    """Print both tables."""
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.driving_gpu needs a GPU.")
    network: DrivingTrainingProblem = DrivingTrainingProblem.familiar(0.5).to(torch.device("cuda"))
    fused = network.train_epochs
    if fused is None:
        raise SystemExit("benchmarks.driving_gpu needs Triton.")
    paths: dict[str, tuple[Training, int]] = {
        "plain": (lambda shard, settings, num_epochs: train_plainly(network, settings, shard, num_epochs), 3),
        "fused": (fused, 256),
    }
    fresh = TrainState.fresh(network, PAPER, range(PAPER.num_models), torch.device("cpu"))
    print(provenance_line())
    print("\n".join(speed_table(paths, fresh)), flush=True)
    print("\n".join(outcome_table(paths, fresh, int(sys.argv[1]) if len(sys.argv) > 1 else 3000)), flush=True)


if __name__ == "__main__":
    main()
