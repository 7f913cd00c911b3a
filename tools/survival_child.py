"""Runs made to be ended: one with longer training than "smoke", as a command, and tiny ones (for `survival.py`).

python tools/survival_child.py FOLDER [--clock SEED]
"""

from __future__ import annotations

import argparse
import datetime
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cautious.beliefs.training import loop as training
from cautious.beliefs.training.state import TrainingSettings
from cautious.cli.console import progress_bars, run_verb
from cautious_paper.experiments.driving.driving_experiment import DrivingExperiment, run_driving
from cautious_paper.experiments.images.image_experiment import run_images
from cautious_paper.experiments.images.settings import EnsembleVariant, ImageExperiment
from cautious_paper.report.html import write_report

EXPERIMENT = DrivingExperiment(
    TrainingSettings(num_models=32, num_epochs=80, batch_size=800, learning_rate=1e-3, weight_decay=1e-5),
    certain_epochs=20,
    ks=(1, 20),
    num_iterations=150,
    num_runs=2,
    probabilities=(0.5,),
    num_optim=4,
)
TINY_TRAINING = TrainingSettings(num_models=20, num_epochs=1, batch_size=20, learning_rate=1e-3)
TINY_IMAGES = ImageExperiment(
    "ask-for-help",
    (EnsembleVariant("help-0.25", TINY_TRAINING, help_reward=0.25),),
    num_iterations=2,
    num_runs=1,
    num_train=40,
    num_test=10,
    num_dial_images=10,
    num_parts=1,
    curve_sizes=(20,),
)
TINY_DRIVING = replace(EXPERIMENT, training=replace(TINY_TRAINING, batch_size=800), num_iterations=2, num_runs=1)
MIDDLING = replace(TINY_DRIVING, training=replace(TINY_DRIVING.training, num_epochs=30), num_iterations=20)
TINY: dict[str, Callable[[Path], object]] = {
    "ask-for-help": lambda folder: run_images(TINY_IMAGES, folder),
    "driving": lambda folder: run_driving(TINY_DRIVING, folder),
}


def mad_clock(seed: int) -> None:
    """Let the clock on the wall jump years to and fro at every look."""
    rng, real = random.Random(seed), time.time

    def wild() -> float:
        return real() + rng.uniform(-3e8, 3e8)

    class WildDate(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> WildDate:
            return cls.fromtimestamp(wild(), tz)

    time.time, time.time_ns = wild, lambda: int(1e9 * wild())
    datetime.datetime = WildDate  # type: ignore[misc]


def main() -> None:
    """Run, or go on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clock", type=int, help="seed of a clock that jumps")
    arguments = parser.parse_args()
    training.CHECKPOINT_SECONDS = 1.0
    if arguments.clock is not None:
        mad_clock(arguments.clock)

    def run() -> None:
        with progress_bars() as progress:
            store = run_driving(EXPERIMENT, arguments.folder, progress=progress)
            progress("drawing the report", 0, 1)
            write_report(store)
            progress("drawing the report", 1, 1)

    run_verb(run)


if __name__ == "__main__":
    main()
