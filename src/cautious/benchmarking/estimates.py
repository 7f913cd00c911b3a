"""How long each of the paper's experiments will take on this machine, from a few short measurements."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.networks.image import ImageNetwork
from cautious.benchmarking.measures import seconds
from cautious.experiments.driving.experiment import DrivingExperiment, experiment_at
from cautious.experiments.images.experiment import available_sets, behaviour_study, dial_study, model_study
from cautious.experiments.images.settings import ImageExperiment, image_experiment_at
from cautious.experiments.progress import Tell
from cautious.solvers.mdp import solve_mdp
from cautious.worlds.data import ImageSet
from cautious.worlds.data.sources import complete_size
from cautious.worlds.driving import driving_world

FEW_IMAGES, FEW_ITERATIONS = 32, 5
"""What solving is measured on; it grows linearly in both."""

CERTAIN_SHARE = 218 / 1714
"""Pairs to learn from where obstacles always appear, of those where they do not."""


@dataclass(frozen=True)
class Rates:
    """What this machine was measured to take, in seconds."""

    driving_epoch: float
    """A driving network and epoch."""
    image_step: dict[int, float]
    """An image network and image of training, by batch size."""
    image_look: float
    """An image network and image of predicting."""

    def step(self, batch_size: int) -> float:
        """An image network and image of training in batches of this size, or of the nearest one measured."""
        return self.image_step[min(self.image_step, key=lambda known: abs(known - batch_size))]


def looking(num_models: int, num_images: int, device: torch.device) -> float:
    """Seconds a model and image of predicting."""
    weights = torch.zeros(num_models, ImageNetwork(11).num_parameters)
    belief = RewardEnsemble(ImageNetwork(11), weights).to(device)
    images = torch.zeros(num_images, 28, 28, dtype=torch.uint8)
    belief.rewards(images[:1])
    return seconds(lambda: belief.rewards(images).cpu()) / (num_models * num_images)


def image_seconds(experiment: ImageExperiment, rates: Rates, device: torch.device) -> float:
    """About how long an image experiment trains, predicts and solves."""
    sizes = [complete_size(name, "test") for name in available_sets()]
    counts = [min(size, experiment.num_test or size) for size in sizes]
    bits = 2 if experiment.image_task.help_bit else 1
    familiar = experiment.num_train or complete_size("digits", "train")
    training = sum(
        variant.training.num_models
        * variant.training.num_epochs
        * familiar
        * variant.fraction
        * rates.step(variant.training.batch_size)
        for variant in experiment.variants
    )
    shown = bits * sum(counts)
    studied = bits * sum(min(count, experiment.num_dial_images) for count in counts)
    looks = shown * sum(variant.training.num_models for variant in experiment.variants)
    looks += 2 * studied * experiment.main.training.num_models
    behaviour, dial, models = _study_seconds(experiment, device)
    solving = shown * len(experiment.variants) * behaviour + studied * (dial + models)
    return training + looks * rates.image_look + solving


def _study_seconds(experiment: ImageExperiment, device: torch.device) -> list[float]:
    """Seconds an image of each study, measured on a few made-up images and iterations."""
    num_models = experiment.main.training.num_models
    generator = torch.Generator().manual_seed(0)
    rewards = torch.rand(num_models, FEW_IMAGES, experiment.image_task.num_actions, generator=generator).to(device)
    pictures = torch.zeros(FEW_IMAGES, 28, 28, dtype=torch.uint8)
    images = ImageSet("fashion", "test", pictures, torch.arange(FEW_IMAGES) % 10, "made up")
    brief = replace(experiment, num_iterations=min(FEW_ITERATIONS, experiment.num_iterations))
    longer = experiment.num_iterations / brief.num_iterations / FEW_IMAGES
    return [
        seconds(lambda study=study: study(brief, rewards, images, None)) * longer  # type: ignore[misc]
        for study in (behaviour_study, dial_study, model_study)
    ]


def driving_seconds(experiment: DrivingExperiment, rates: Rates) -> float:
    """About how long the driving experiment trains and solves."""
    uncertain = experiment.training.num_epochs if min(experiment.probabilities) < 1 else 0
    certain = CERTAIN_SHARE * experiment.certain_epochs if 1 in experiment.probabilities else 0
    epochs = uncertain + certain
    training = experiment.training.num_models * epochs * rates.driving_epoch
    mdp = driving_world(novel=True).mdp
    rewards = torch.rand(experiment.training.num_models, 784, 5, generator=torch.Generator().manual_seed(0))
    few = min(FEW_ITERATIONS, experiment.num_iterations)
    solve_mdp(mdp, rewards, experiment.levels, num_iterations=1)
    queue = seconds(
        lambda: solve_mdp(mdp, rewards, experiment.levels, num_runs=experiment.num_runs, num_iterations=few)
    )
    exact = seconds(lambda: solve_mdp(mdp, rewards, experiment.levels, sampling="exact", num_iterations=few))
    return training + len(experiment.probabilities) * (queue + exact) * experiment.num_iterations / few


TASKS = ("ask-for-help", "non-obvious", "help-if-available", "data-extent", "driving")
SCALES = ("smoke", "small", "paper")


def estimates(rates: Rates, device: torch.device, tell: Tell | None = None) -> dict[str, dict[str, float]]:
    """About how many seconds each task takes at each scale."""
    found: dict[str, dict[str, float]] = {task: {} for task in TASKS}
    for number, (task, scale) in enumerate(itertools.product(TASKS, SCALES)):
        if tell is not None:
            tell(number, len(TASKS) * len(SCALES))
        if task == "driving":
            found[task][scale] = driving_seconds(experiment_at(scale), rates)
        else:
            found[task][scale] = image_seconds(image_experiment_at(task, scale), rates, device)
    return found
