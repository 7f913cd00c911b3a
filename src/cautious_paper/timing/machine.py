"""This machine, measured in about a minute: speed-ups over plain implementations, and how long each experiment will take."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.progress import Progress, TitledProgress, titled
from cautious.solvers.solve import solve_mdp
from cautious_paper.experiments.driving.driving_experiment import DrivingExperiment, experiment_at
from cautious_paper.experiments.images.image_experiment import available_sets, behaviour_study, dial_study, model_study
from cautious_paper.experiments.images.settings import ImageExperiment, image_experiment_at
from cautious_paper.networks.image import ImageNetwork
from cautious_paper.timing import measures
from cautious_paper.timing.measures import Comparison, seconds
from cautious_paper.worlds.data import ImageSet
from cautious_paper.worlds.data.sources import complete_size
from cautious_paper.worlds.driving import driving_world

FEW_IMAGES, FEW_ITERATIONS = 32, 5
"""Solving is measured on these; its time grows linearly in both."""

CERTAIN_SHARE = 218 / 1714
"""Training pairs where obstacles always appear, as a share of those where they do not."""


@dataclass(frozen=True)
class Rates:
    """Measured seconds of this machine."""

    driving_epoch: float
    """Per driving network and epoch."""
    image_step: dict[int, float]
    """Training, per image network and image, by batch size."""
    image_prediction: float
    """Predicting, per image network and image."""

    def step(self, batch_size: int) -> float:
        """Training, per image network and image, in batches of this size or of the nearest one measured."""
        return self.image_step[min(self.image_step, key=lambda known: abs(known - batch_size))]


def prediction_seconds(num_models: int, num_images: int, device: torch.device) -> float:
    """Seconds of predicting per model and image."""
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
    predictions = shown * sum(variant.training.num_models for variant in experiment.variants)
    predictions += 2 * studied * experiment.main.training.num_models
    behaviour, dial, models = _study_seconds(experiment, device)
    solving = shown * len(experiment.variants) * behaviour + studied * (dial + models)
    return training + predictions * rates.image_prediction + solving


def _study_seconds(experiment: ImageExperiment, device: torch.device) -> list[float]:
    """Seconds per image of each study, measured on a few synthetic images and iterations."""
    num_models = experiment.main.training.num_models
    generator = torch.Generator().manual_seed(0)
    rewards = torch.rand(num_models, FEW_IMAGES, experiment.image_task.num_actions, generator=generator).to(device)
    pictures = torch.zeros(FEW_IMAGES, 28, 28, dtype=torch.uint8)
    images = ImageSet("fashion", "test", pictures, torch.arange(FEW_IMAGES) % 10, "synthetic")
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
    solve_mdp(mdp, rewards, experiment.levels, method="cfr", num_iterations=1)
    queue = seconds(
        lambda: solve_mdp(
            mdp, rewards, experiment.levels, method="cfr", num_runs=experiment.num_runs, num_iterations=few
        )
    )
    exact = seconds(
        lambda: solve_mdp(mdp, rewards, experiment.levels, method="cfr", sampling="exact", num_iterations=few)
    )
    return training + len(experiment.probabilities) * (queue + exact) * experiment.num_iterations / few


TASKS = ("ask-for-help", "non-obvious", "help-if-available", "data-extent", "driving")
SCALES = ("smoke", "small", "paper")


def estimates(rates: Rates, device: torch.device, progress: Progress | None = None) -> dict[str, dict[str, float]]:
    """About how many seconds each task takes at each scale."""
    seconds: dict[str, dict[str, float]] = {task: {} for task in TASKS}
    for number, (task, scale) in enumerate(itertools.product(TASKS, SCALES)):
        if progress is not None:
            progress(number, len(TASKS) * len(SCALES))
        if task == "driving":
            seconds[task][scale] = driving_seconds(experiment_at(scale), rates)
        else:
            seconds[task][scale] = image_seconds(image_experiment_at(task, scale), rates, device)
    return seconds


class Machine(NamedTuple):
    """The measurements of this machine."""

    comparisons: list[Comparison]
    estimates: dict[str, dict[str, float]]
    """About how many seconds each task takes at each scale."""


def measure_machine(device: torch.device, progress: TitledProgress | None = None) -> Machine:
    """Compare each kind of work with a plain implementation, then estimate the time of each experiment."""
    cores, on_gpu = torch.get_num_threads(), device.type == "cuda"
    num_driving, num_image = (2048, 256) if on_gpu else (16 * cores, 2 * cores)  # as many as are trained together
    images = measures.image_belief()
    works = (
        lambda: measures.driving_training(num_driving, 20, 10, device),
        lambda: measures.image_training(32, 1024, num_image, device),
        lambda: measures.image_training(512, 2048, num_image, device),
        lambda: measures.driving_solving(2000, 100, 1),
        lambda: measures.state_solving(5000, 1000, 50, 20),
        lambda: measures.deciding(images, 1, 1, repeats=5),
        lambda: measures.deciding(images, 64, 4),
    )
    comparing, estimating = titled(progress, "comparing"), titled(progress, "estimating")
    comparisons = []
    for number, work in enumerate(works):
        if comparing is not None:
            comparing(number, len(works))
        comparisons.append(work())
    driving, small_batch, large_batch = (one.ours for one in comparisons[:3])
    rates = Rates(driving, {32: small_batch, 512: large_batch}, prediction_seconds(2 * num_image, 64, device))
    return Machine(comparisons, estimates(rates, device, estimating))
