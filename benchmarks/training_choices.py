"""Choices that the paper leaves open, tried out: behaviour on digits and clothes of networks that were trained either way.

python -m benchmarks.training_choices reward-scale --data FOLDER [--task TASK]     on rewards in three units (deviation D18)
python -m benchmarks.training_choices draw --data FOLDER                           on three draws of 1 % of the digits

Some minutes on a GPU. `reward-scale --scale small --device cpu` takes the smaller sizes and the package's own images: about
20 minutes on two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.training.loop import train
from cautious.cli.console import progress_bar
from cautious_paper.experiments.images.image_experiment import (
    ImageData,
    behaviour_study,
    load_data,
    reward_table,
    training_problem,
)
from cautious_paper.experiments.images.settings import EnsembleVariant, ImageExperiment, image_experiment_at
from cautious_paper.experiments.store import provenance_line
from cautious_paper.networks.image_training import ImageTrainingProblem
from cautious_paper.worlds.image_tasks import TASKS, RewardUnit

MEASURES = ("correct_probability", "help_probability", "index")

Way = tuple[str, EnsembleVariant, ImageTrainingProblem]
"""What is tried, in words; the settings; what networks learn from."""


def reward_scales(experiment: ImageExperiment, data: ImageData) -> Iterator[Way]:
    """The main variant's rewards as printed, a tenth of them, and in tenths with help undivided where the task has a choice."""
    printed = replace(experiment.main, unit=RewardUnit.AS_PRINTED)
    table = reward_table(experiment, printed, data.train.labels)
    tables = {"as printed": table, "a tenth of everything": table / 10}
    if experiment.image_task.weighted_loss:
        tenths = replace(experiment.main, unit=RewardUnit.TENTHS)
        tables["in tenths, help undivided"] = reward_table(experiment, tenths, data.train.labels)
    for words, rewards in tables.items():
        problem = ImageTrainingProblem(data.train.images, rewards, experiment.image_task.loss_weights)
        yield f"rewards {words}", experiment.main, problem


def draws(experiment: ImageExperiment, data: ImageData) -> Iterator[Way]:
    """Other digits, other noise and other first weights for the same share of the digits."""
    smallest = min(experiment.variants, key=lambda variant: variant.fraction)
    for seed in range(3):
        variant = replace(smallest, training=replace(smallest.training, seed=seed))
        yield (
            f"{variant.fraction:.0%} of the digits, seed {seed}",
            variant,
            training_problem(experiment, variant, data.train),
        )


CHOICES: dict[str, Callable[[ImageExperiment, ImageData], Iterator[Way]]] = {
    "reward-scale": reward_scales,
    "draw": draws,
}


def lines(experiment: ImageExperiment, ways: Iterator[Way], data: ImageData, device: str) -> Iterator[str]:
    """Mean over runs of each measure by level, and optim's."""
    bits = (True, False) if experiment.image_task.help_bit else (None,)
    for title, variant, problem in ways:
        with progress_bar(f"training, {title}") as progress:
            found = train(problem, variant.training, device=device, progress=progress)
        ensemble = RewardEnsemble(problem.network, found.parameters.to(device))
        yield title
        for name, bit in ((name, bit) for name in ("digits", "fashion") for bit in bits):
            images = data.tests[name]
            rewards = ensemble.rewards(images.images if bit is None else (images.images, bit))
            numbers, _ = behaviour_study(experiment, rewards, images, None)
            help_is = "" if bit is None else ", help available" if bit else ", help unavailable"
            for regime, measured in numbers["behaviour"].items():
                for measure in MEASURES:
                    stored = measured.get(measure, [])  # None where no label is ever chosen, which has no index
                    runs = torch.tensor([[torch.nan if x is None else x for x in own] for own in stored]).double()
                    if runs.numel() and not runs.isnan().all():
                        row = "  ".join(f"{mean:.4f}" for mean in runs.mean(dim=1).tolist())
                        optim = numbers["optim"][measure]["mean"]
                        single = "none" if optim is None else f"{optim:.4f}"
                        yield f"  {name}{help_is}, {regime}, {measure}: {row}   optim {single}"


def main() -> None:
    """Train either way, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("choice", choices=list(CHOICES))
    parser.add_argument("--data", type=Path, help="folder with the complete sets; the embedded ones if not given")
    parser.add_argument("--task", choices=list(TASKS), default="help-if-available", help="of reward-scale")
    parser.add_argument(
        "--scale", choices=["paper", "small"], default="paper", help="whose sizes to take where they are not given"
    )
    parser.add_argument("--models", type=int, help="128 if not given; the scale's with --scale small")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--train", type=int, help="digits there are to train on")
    parser.add_argument("--test", type=int, help="images of each set to act on")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    whole = image_experiment_at("data-extent" if options.choice == "draw" else options.task, options.scale)
    models = options.models or (128 if options.scale == "paper" else whole.main.training.num_models)
    needed = max(level.n for level in whole.parsed_levels)
    if models < needed:
        parser.error(f"--models {models}: {', '.join(whole.levels)} need {needed} networks or more.")

    def shorter(variant: EnsembleVariant) -> EnsembleVariant:
        epochs = options.epochs or variant.training.num_epochs
        return replace(variant, training=replace(variant.training, num_models=models, num_epochs=epochs))

    experiment = replace(
        whole,
        variants=tuple(shorter(variant) for variant in whole.variants),
        num_train=options.train or whole.num_train,
        num_test=options.test or whole.num_test,
    )
    data = load_data(experiment, options.data)
    print(provenance_line())
    print(f"{experiment.task}: {models} networks; {', '.join(experiment.levels)}")
    for line in lines(experiment, CHOICES[options.choice](experiment, data), data, options.device):
        print(line, flush=True)


if __name__ == "__main__":
    main()
