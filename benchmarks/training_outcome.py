"""Do our GPU kernels train as well as plain float32? Many networks both ways, with the same first weights and shuffles.

python -m benchmarks.training_outcome --data FOLDER [--task help-if-available] [--models 512] [--epochs 50]

By default a tenth of the digits in batches of 128: within the same time that makes four times as many steps as batches of 512.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from scipy.stats import ks_2samp
from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.training.loop import train
from cautious_paper.experiments.images.image_experiment import ImageData, load_data, training_problem
from cautious_paper.experiments.images.settings import ImageExperiment, image_experiment_at
from cautious_paper.experiments.store import provenance_line
from cautious_paper.worlds.image_tasks import TASKS

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def trained(experiment: ImageExperiment, data: ImageData, device: str, kernels: str) -> tuple[Tensor, Tensor, float]:
    """Last epoch's loss [M] and share of test digits named correctly [M] of networks trained one way, and the seconds."""
    problem = training_problem(experiment, experiment.main, data.train, kernels)
    started = time.perf_counter()
    found = train(problem, experiment.main.training, device=device)
    seconds = time.perf_counter() - started
    digits = data.tests["digits"]
    states = (digits.images, True) if experiment.image_task.help_bit else digits.images
    rewards = RewardEnsemble(problem.network, found.parameters.to(device)).rewards(states)
    right = rewards.argmax(dim=-1).cpu() == digits.labels
    return found.losses.double(), right.double().mean(dim=1), seconds


def lines(experiment: ImageExperiment, data: ImageData, device: str, ways: list[str]) -> Iterator[str]:
    """Quantiles over networks of loss and accuracy for each way, and how far apart the ways' distributions are."""
    found = {}
    for kernels in ways:
        *found[kernels], seconds = trained(experiment, data, device, kernels)
        for what, values in zip(("loss", "correct"), found[kernels], strict=True):
            row = "  ".join(f"{value:.5f}" for value in torch.quantile(values, torch.tensor(QUANTILES).double()))
            yield f"  {kernels:8} {what:8} {row}   mean {values.mean():.5f} ± {values.std() / len(values) ** 0.5:.5f}"
        yield f"  {kernels:8} {seconds:.0f} s"
    first, *rest = ways
    for other in rest:
        for what, ours, theirs in zip(("loss", "correct"), found[first], found[other], strict=True):
            test = ks_2samp(ours.numpy(), theirs.numpy())
            yield (
                f"  {first} against {other}, {what}: largest distance of the distributions {test.statistic:.3f}, as far or "
                f"farther by chance in {test.pvalue:.0%} of samples"
            )


def main() -> None:
    """Train each way, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the complete digits; the embedded ones if not given")
    parser.add_argument("--task", choices=list(TASKS), default="ask-for-help")
    parser.add_argument("--models", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--fraction", type=float, default=0.1, help="share of the digits")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ways", nargs="+", default=["auto", "plain"], help="'plain', 'auto' or a kernel variant")
    options = parser.parse_args()
    whole = image_experiment_at(options.task, "paper")
    settings = replace(
        whole.main.training, num_models=options.models, num_epochs=options.epochs, batch_size=options.batch
    )
    main_one = replace(whole.main, training=settings, fraction=options.fraction)
    experiment = replace(whole, variants=(main_one,), num_train=60_000, num_test=10_000)
    data = load_data(experiment, options.data)
    print(provenance_line())
    print(
        f"{options.task}: {options.models} networks x {options.epochs} epochs of {options.fraction:.0%} of "
        f"{len(data.train):,} digits, batch {options.batch}; quantiles {', '.join(f'{q:.0%}' for q in QUANTILES)} over networks"
    )
    for line in lines(experiment, data, options.device, options.ways):
        print(line, flush=True)


if __name__ == "__main__":
    main()
