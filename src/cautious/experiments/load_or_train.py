"""The belief of a run: loaded if it is there, trained (or trained on) if not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from cautious.beliefs.ensemble import DESCRIPTION, RewardEnsemble
from cautious.beliefs.training.loop import TrainedModels
from cautious.beliefs.training.state import TrainingProblem, TrainingSettings
from cautious.experiments.executors.engine import Engine
from cautious.experiments.store import Store
from cautious.io.arrays import checksum_of, load_json
from cautious.progress import Progress

Lesson = TypeVar("Lesson", bound=TrainingProblem)


def load_or_train(
    store: Store,
    name: str,
    settings: TrainingSettings,
    make_lesson: Callable[[], Lesson],
    make_ensemble: Callable[[Lesson, TrainedModels], Any],
    *,
    counted: str,
    engine: Engine,
    device: torch.device | str,
    tell: Progress | None,
) -> Any:
    """The ensemble that a run keeps in folder `name`, with how its training went as the stage of that name.

    Args:
        store: The run.
        name: Of the folder and the stage.
        settings: How to train.
        make_lesson: The network with its training data; called only if there is something left to train.
        make_ensemble: From that and the trained models.
        counted: What the stage calls the number of training samples.
        engine: Who trains.
        device: Where to train.
        tell: Told how far training is.
    """
    checkpoints = store.folder / f"{name}-checkpoints"
    description = f"{name}/{DESCRIPTION}"
    if store.has(name):
        shutil.rmtree(checkpoints, ignore_errors=True)
        load_json(store.folder / description, store.listed(name, description))  # the one that was trained here
        return RewardEnsemble.load(store.folder / name)
    resumed = checkpoints.exists()
    problem = make_lesson()
    trained, seconds, hardware = engine.train(
        problem, settings, device=device, checkpoint_dir=checkpoints, progress=tell
    )
    losses = trained.losses.double()
    numbers = {
        "seconds": seconds,
        counted: problem.num_samples,
        "resumed": resumed,
        "hardware": hardware,
        "loss_median": float(losses.median()),
        "loss_largest": float(losses.max()),
    }
    ensemble = make_ensemble(problem, trained)
    ensemble.save(store.folder / name)
    files = {description: checksum_of(load_json(store.folder / description))}
    store.save(name, numbers, {"losses": trained.losses}, files)
    shutil.rmtree(checkpoints, ignore_errors=True)  # three times as large as the models, and of no more use
    return ensemble
