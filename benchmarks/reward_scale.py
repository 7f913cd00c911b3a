"""Does it matter whether networks are trained on rewards, or on a tenth of them? Behaviour on digits and clothes, both ways.

python -m benchmarks.reward_scale --data FOLDER [--task non-obvious] [--models 128] [--epochs 100]     a minute on a GPU
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.images import ImageTraining
from cautious.beliefs.training import train
from cautious.experiments.image_data import ImageData, load_data
from cautious.experiments.image_settings import ImageExperiment, image_experiment_at
from cautious.experiments.image_studies import behaviour_of
from cautious.experiments.images import reward_table
from cautious.experiments.surroundings import hardware_name
from cautious.worlds.images import TASKS

MEASURES = ("correct_probability", "help_probability", "index")


def trained(experiment: ImageExperiment, data: ImageData, scale: float, device: str) -> RewardEnsemble:
    """Networks trained on rewards times `scale`, in the paper's way but for that."""
    table = scale * reward_table(experiment, experiment.main, data.train.labels)
    lesson = ImageTraining(data.train.images, table, experiment.image_task.loss_weights)
    found = train(lesson, experiment.main.training, device=device)
    return RewardEnsemble(lesson.network, found.parameters.to(device))


def lines(experiment: ImageExperiment, data: ImageData, device: str) -> Iterator[str]:
    """Mean over runs of each measure by level, and optim's."""
    bits = (True, False) if experiment.image_task.help_bit else (None,)
    for scale in (1.0, 0.1):
        ensemble = trained(experiment, data, scale, device)
        yield f"rewards x {scale:g}"
        for name, bit in ((name, bit) for name in ("digits", "fashion") for bit in bits):
            images = data.tests[name]
            rewards = ensemble.rewards(images.images if bit is None else (images.images, bit))
            numbers, _ = behaviour_of(experiment, rewards, images, None)
            help_is = "" if bit is None else ", help available" if bit else ", help unavailable"
            for regime, measured in numbers["behaviour"].items():
                for measure in MEASURES:
                    runs = torch.tensor(measured.get(measure, []), dtype=torch.float64)
                    if runs.numel() and not runs.isnan().all():
                        row = "  ".join(f"{mean:.4f}" for mean in runs.mean(dim=1).tolist())
                        optim = numbers["optim"][measure]["mean"]
                        yield f"  {name}{help_is}, {regime}, {measure}: {row}   optim {optim:.4f}"


def main() -> None:
    """Train both ways, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the complete sets; the embedded ones if not given")
    parser.add_argument("--task", choices=list(TASKS), default="help-if-available")
    parser.add_argument("--models", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--train", type=int, default=60_000, help="digits to train on")
    parser.add_argument("--test", type=int, default=10_000, help="images of each set to act on")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    whole = image_experiment_at(options.task, "paper")
    settings = replace(whole.main.training, num_models=options.models, num_epochs=options.epochs)
    variants = (replace(whole.main, training=settings),)
    experiment = replace(whole, variants=variants, num_train=options.train, num_test=options.test)
    data = load_data(experiment, options.data)
    print(f"{datetime.date.today()}  {hardware_name(options.device)}, torch {torch.__version__}")
    print(
        f"{options.task}: {options.models} networks x {options.epochs} epochs of {len(data.train):,} digits; "
        f"{', '.join(experiment.levels)}"
    )
    for line in lines(experiment, data, options.device):
        print(line, flush=True)


if __name__ == "__main__":
    main()
