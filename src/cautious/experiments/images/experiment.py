"""The image experiments: familiar digits -> belief -> k-of-N policies -> behaviour on familiar and novel images.

belief-<variant>                    how training went; the models beside it
<variant>-<set>                     behaviour on one set of images; with a help bit -available and -unavailable
<main variant>-<set>-dial           every k of N = 20
<main variant>-<set>-models         the same against the number of models
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.training.problems import ImageTrainingProblem
from cautious.errors import InvalidInputError
from cautious.experiments.executors.engine import Engine, LocalEngine
from cautious.experiments.images.inputs import ImageData, cut, load_data
from cautious.experiments.images.settings import ImageExperiment, Variant
from cautious.experiments.images.studies import behaviour_of, dial_study, model_study
from cautious.experiments.load_or_train import load_or_train
from cautious.experiments.provenance import hardware_name
from cautious.experiments.store import StageResult, Store
from cautious.progress import TitledProgress, titled
from cautious.worlds.data import ImageSet
from cautious.worlds.image_tasks import class_balanced_subset, perturbed


def run_images(
    experiment: ImageExperiment,
    folder: Path | str,
    *,
    data: Path | str | None = None,
    device: torch.device | str = "cpu",
    only: Sequence[str] | None = None,
    progress: TitledProgress | None = None,
    engine: Engine | None = None,
) -> Store:
    """Run the experiment, or finish it where an earlier call left off.

    Args:
        experiment: What to run.
        folder: Where the run lives.
        data: A folder with image data, if not the default places.
        device: Where to train, predict and solve.
        only: Names of the variants to run now; all if not given. The rest can follow later, in the same folder.
        progress: Told how each stage goes.
        engine: Who works on it; this process if not given.
    """
    chosen = _chosen(experiment, only)
    images = load_data(experiment, data)
    settings = {**experiment.as_settings(), "data": images.described()}
    store = Store.create(folder, experiment.task, settings, images.origins())
    engine = engine or LocalEngine()
    with store.alone():
        engine.side_by_side(
            [partial(_run_variant, experiment, one, store, images, device, progress, engine) for one in chosen]
        )
    return store


def _run_variant(
    experiment: ImageExperiment,
    variant: Variant,
    store: Store,
    images: ImageData,
    device: torch.device | str,
    progress: TitledProgress | None,
    engine: Engine,
) -> None:
    """Train the variant's ensemble and run its stages, as far as they are missing."""
    missing = [stage for stage in stages_of(experiment, variant, images) if not store.has(stage.name)]
    if not missing:
        return
    ensemble = belief(experiment, variant, store, images, device, progress, engine)

    def finished(stage: Stage, findings: StageResult) -> None:
        store.save(stage.name, *findings)

    question = StageInputs(experiment, ensemble, images.tests, device)
    title = f"solving, {variant.name}"
    engine.each(run_stage, question, missing, finished, device=device, title=title, progress=progress)


def _chosen(experiment: ImageExperiment, only: Sequence[str] | None) -> list[Variant]:
    by_name = {variant.name: variant for variant in experiment.variants}
    unknown = [name for name in only or () if name not in by_name]
    if unknown:
        raise InvalidInputError(
            f"variant {unknown[0]!r} is not part of {experiment.task}; it has {', '.join(by_name)}."
        )
    return [variant for name, variant in by_name.items() if only is None or name in only]


@dataclass(frozen=True)
class Stage:
    """One thing to find out about one variant on one set of images."""

    variant: str
    images: str
    help_available: bool | None = None
    """None where the task has no help bit."""
    study: str = "behaviour"
    """Or "dial", or "models"."""

    @property
    def name(self) -> str:
        """The stage's name in the store."""
        bit = {None: "", True: "-available", False: "-unavailable"}[self.help_available]
        return f"{self.variant}-{self.images}{bit}" + ("" if self.study == "behaviour" else f"-{self.study}")


def stages_of(experiment: ImageExperiment, variant: Variant, images: ImageData) -> Iterator[Stage]:
    """What is to be found out about a variant, in order."""
    bits = (True, False) if experiment.image_task.help_bit else (None,)
    extra = ("dial", "models") if variant == experiment.main and experiment.num_dial_images else ()
    studies = ("behaviour", *extra)
    for study in studies:
        for name in images.tests:
            for bit in bits:
                yield Stage(variant.name, name, bit, study)


def belief(
    experiment: ImageExperiment,
    variant: Variant,
    store: Store,
    images: ImageData,
    device: torch.device | str,
    progress: TitledProgress | None,
    engine: Engine,
) -> RewardEnsemble:
    """The trained ensemble of a variant: loaded if it is there, trained (or trained on) if not."""
    return load_or_train(
        store,
        f"belief-{variant.name}",
        variant.training,
        lambda: training_data(experiment, variant, images.train),
        lambda problem, trained: RewardEnsemble(
            problem.network, trained.parameters, trained.losses, asdict(variant.training)
        ),
        counted="num_images",
        engine=engine,
        device=device,
        tell=titled(progress, f"training, {variant.name}"),
    )


def training_data(
    experiment: ImageExperiment, variant: Variant, train: ImageSet, kernels: str = "auto"
) -> ImageTrainingProblem:
    """Familiar images and what each action pays on them, as the variant has it; `kernels` as in `ImageTrainingProblem`."""
    chosen = class_balanced_subset(train.labels, variant.fraction, variant.training.seed)
    table = reward_table(experiment, variant, train.labels[chosen])
    return ImageTrainingProblem(train.images[chosen], table, experiment.image_task.loss_weights, kernels=kernels)


def reward_table(experiment: ImageExperiment, variant: Variant, labels: Tensor) -> Tensor:
    """What each action pays on images with these labels, [S, A]; with a help bit [2, S, A], without help first."""
    task = experiment.image_task
    bits = (False, True) if task.help_bit else (True,)
    rewards = torch.stack([task.rewards(labels, variant.help_reward, bit, variant.unit) for bit in bits])
    if variant.noise:
        rewards = perturbed(rewards, variant.noise, variant.training.seed)
    return rewards if task.help_bit else rewards[0]


class StageInputs(NamedTuple):
    """What the stages of a variant share: all they need, wherever they are run."""

    experiment: ImageExperiment
    ensemble: RewardEnsemble
    tests: dict[str, ImageSet]
    device: torch.device | str


def run_stage(question: StageInputs, stage: Stage, progress: TitledProgress | None) -> StageResult:
    """Predict, solve, measure."""
    experiment, images = question.experiment, question.tests[stage.images]
    ensemble = question.ensemble.to(question.device)
    if stage.study != "behaviour" and len(images) > experiment.num_dial_images:
        images = cut(images, experiment.num_dial_images)
    states: Any = images.images if stage.help_available is None else (images.images, stage.help_available)
    started = time.perf_counter()
    rewards = ensemble.rewards(states, progress=titled(progress, f"predicting, {stage.name}"))
    seconds = time.perf_counter() - started
    study = {"behaviour": behaviour_of, "dial": dial_study, "models": model_study}[stage.study]
    numbers, arrays = study(experiment, rewards, images, titled(progress, f"solving, {stage.name}"))
    numbers |= {
        "variant": stage.variant,
        "images": stage.images,
        "help_available": stage.help_available,
        "num_images": len(images),
        "num_models": ensemble.num_models,
        "predict_seconds": seconds,
        "hardware": hardware_name(ensemble.parameters.device),
    }
    return numbers, arrays
