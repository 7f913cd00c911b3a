"""What all experiments share: the belief of a run, and runs from several seeds."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cautious.beliefs.ensemble import DESCRIPTION, RewardEnsemble
from cautious.beliefs.training.state import TrainingSettings
from cautious.executors import Executor
from cautious.io.arrays import check_json, checksum_of, load_json
from cautious.progress import TitledProgress, titled
from cautious_paper.experiments.freed_memory import freed_memory_kept
from cautious_paper.experiments.store import Store
from cautious_paper.networks.driving_training import DrivingTrainingProblem
from cautious_paper.networks.image_training import ImageTrainingProblem


class RunContext(NamedTuple):
    """What every part of a run needs."""

    store: Store
    executor: Executor
    device: torch.device | str
    progress: TitledProgress | None


def load_or_train(
    run: RunContext,
    stage: str,
    make_problem: Callable[[], ImageTrainingProblem | DrivingTrainingProblem],
    settings: TrainingSettings,
    *,
    count_name: str,
    title: str,
) -> RewardEnsemble:
    """The ensemble of a stage: loaded if the run has it, trained if not.

    Training resumes from checkpoints in the run's folder; the models are saved in the folder `stage`. The numbers of the stage
    are how training went.

    Args:
        run: Folder, executor, device and progress of the run.
        stage: Name of the stage.
        make_problem: Builds what is trained; called only if it is.
        settings: How it is trained.
        count_name: Under which name the stage keeps the number of samples.
        title: What the progress bar calls the training.
    """
    if run.store.has(stage):
        return load_stage_belief(run.store, stage)
    checkpoints = _checkpoints(run.store, stage)
    resumed = checkpoints.exists()  # then `seconds` are not those of the whole training
    progress = titled(run.progress, title)
    problem = make_problem()
    with freed_memory_kept():
        training = run.executor.train(
            problem, settings, device=run.device, checkpoint_dir=checkpoints, progress=progress
        )
    models, losses = training.models, training.models.losses.double()
    ensemble = RewardEnsemble(problem.network, models.parameters, models.losses, asdict(settings))
    numbers = {
        count_name: problem.num_samples,
        "seconds": training.seconds,
        "resumed": resumed,
        "hardware": training.hardware,
        "loss_median": float(losses.median()),
        "loss_largest": float(losses.max()),
        "mean_reward_loss": problem.mean_reward_loss,
    }
    save_stage_belief(run.store, stage, ensemble, numbers)
    return ensemble


def load_stage_belief(store: Store, stage: str) -> RewardEnsemble:
    """The ensemble of a finished stage, from the folder of the same name; it must be the one that was trained there."""
    # A run that was stopped between finishing the stage and removing its checkpoints left them behind.
    shutil.rmtree(_checkpoints(store, stage), ignore_errors=True)
    description = f"{stage}/{DESCRIPTION}"
    check_json(store.folder / description, store.recorded_checksum(stage, description))
    return RewardEnsemble.load(store.folder / stage)


def save_stage_belief(store: Store, stage: str, ensemble: RewardEnsemble, numbers: Mapping[str, Any]) -> None:
    """Save an ensemble in the folder `stage`, finish the stage, and remove its checkpoints."""
    assert ensemble.losses is not None
    ensemble.save(store.folder / stage)
    # The stage is saved after the ensemble: a stage that is there has its models.
    description = f"{stage}/{DESCRIPTION}"
    files = {description: checksum_of(load_json(store.folder / description))}
    store.save(stage, numbers, {"losses": ensemble.losses}, files)
    shutil.rmtree(_checkpoints(store, stage), ignore_errors=True)  # three times as large as the models


def _checkpoints(store: Store, stage: str) -> Path:
    return store.folder / f"{stage}-checkpoints"


def run_repeats(
    run: Callable[[int, Path, TitledProgress], Store],
    folder: Path,
    first_seed: int,
    num_repeats: int,
    executor: Executor,
    progress: TitledProgress,
) -> dict[int, Store]:
    """Run an experiment from the seeds first_seed, first_seed + 1, ..., each in `folder`/seed-<n>.

    Args:
        run: Called with a seed, a folder and a progress function.
        folder: The folder that holds all runs.
        first_seed: Seed of the first run.
        num_repeats: Number of runs.
        executor: Runs them: one after another, or all at once on a cluster.
        progress: Called as the stages of each run advance.

    Returns:
        The runs by seed.
    """

    def run_seed(seed: int) -> Store:
        def with_seed(title: str, done: int, total: int) -> None:
            progress(f"seed {seed}: {title}", done, total)

        return run(seed, folder / f"seed-{seed}", with_seed)

    seeds = range(first_seed, first_seed + num_repeats)
    return dict(zip(seeds, executor.run_all([partial(run_seed, seed) for seed in seeds]), strict=True))
