"""The image experiments as data: the paper's settings, variations of them, and smaller ones for two cores."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from cautious.beliefs.training.state import TrainingSettings
from cautious.errors import Argument, InvalidInputError
from cautious.risk import KofN
from cautious.validation import look_up, parse_choice, parse_count
from cautious_paper.networks.image import LEARNING_RATE
from cautious_paper.worlds.image_tasks import ImageTask, RewardUnit, image_task


@dataclass(frozen=True)
class EnsembleVariant:
    """One ensemble of an experiment: what its models are trained on, and how."""

    name: str
    training: TrainingSettings
    help_reward: float | None = None
    fraction: float = 1.0
    """Share of the familiar digits."""
    noise: float = 0.0
    """Standard deviation of white noise on the rewards."""
    unit: RewardUnit = RewardUnit.AS_PRINTED
    """The unit of the rewards, in tasks where high labels pay more."""


@dataclass(frozen=True)
class ImageExperiment:
    """Everything that decides the results, together with the data."""

    task: str
    variants: tuple[EnsembleVariant, ...]
    """The first is the main one: only for it are the dial and the curve over the number of models computed."""
    levels: tuple[str, ...] = ("1-of-20", "1-of-10", "5-of-10", "10-of-10")  # section 4
    num_iterations: int = 100  # T; section 4
    num_runs: int = 10  # "10 repetitions in each MNIST experiment", appendix B
    num_train: int | None = None
    """Familiar digits to use, equally many of each class; all if None."""
    num_test: int | None = None
    """Images of each test set to use; all if None."""
    num_dial_images: int = 1000
    """Images for two studies that the paper lacks: the full dial, and the curve over the number of models. 0: neither."""
    num_parts: int = 5
    """Random parts of the ensemble for each number of models of that curve."""
    curve_sizes: tuple[int, ...] = (20, 40, 80, 160, 320, 640, 1280, 2000)
    """Numbers of models of that curve."""

    @property
    def image_task(self) -> ImageTask:
        """What the actions pay."""
        return image_task(self.task)

    @property
    def parsed_levels(self) -> list[KofN]:
        """The levels, most cautious first."""
        return [KofN.parse(level) for level in self.levels]

    @property
    def main(self) -> EnsembleVariant:
        """The task's main variant."""
        return self.variants[0]

    def as_settings(self) -> dict[str, Any]:
        """Plain values, for a manifest."""
        settings = asdict(self)
        settings["variants"] = {variant.pop("name"): variant for variant in settings["variants"]}
        for variant in settings["variants"].values():
            # The printed unit is not named: results/ask-for-help, data-extent and the as-printed stores were written before
            # there was a choice, and the same run must have the same settings today.
            if (unit := variant.pop("unit")) != RewardUnit.AS_PRINTED:
                variant["unit"] = str(unit)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}


class Setting(StrEnum):
    """Which setting of an experiment to run. Every task has the main one."""

    MAIN = "main"
    """The setting that is compared with the paper: rewards in tenths where high labels pay more (deviation D18)."""
    AS_PRINTED = "as-printed"
    """`non-obvious` and `help-if-available` with the rewards as the paper prints them."""
    DRAWS = "draws"
    """`data-extent` at its smallest share of the digits: several random draws of those digits, with fewer networks each."""


SETTINGS = {
    "ask-for-help": (Setting.MAIN,),
    "non-obvious": (Setting.MAIN, Setting.AS_PRINTED),
    "help-if-available": (Setting.MAIN, Setting.AS_PRINTED),
    "data-extent": (Setting.MAIN, Setting.DRAWS),
}
"""Task -> its settings."""
NUM_DRAWS = 6
SMALLEST_SHARE = 0.01


def _training(num_models: int, num_epochs: int, batch_size: int) -> TrainingSettings:
    return TrainingSettings(num_models, num_epochs, batch_size, LEARNING_RATE)


Extent = tuple[float, TrainingSettings]
"""A share of the digits, and how to train on it."""


@dataclass(frozen=True)
class Sizes:
    """How the ensembles of a scale are trained."""

    main: TrainingSettings
    """A task's main ensemble."""
    other: TrainingSettings
    """The ensembles for other rewards of help."""
    extents: tuple[Extent, ...]
    """The ensembles of data-extent, the main one first."""
    draw: TrainingSettings
    """The ensemble of each draw of the smallest share of the digits."""


def _variants(task: str, setting: Setting, sizes: Sizes) -> tuple[EnsembleVariant, ...]:
    """The paper's ensembles of a task, its main one first (section 4; the sensitivity studies of appendix B.1)."""
    unit = RewardUnit.AS_PRINTED if setting is Setting.AS_PRINTED else RewardUnit.TENTHS
    if task == "ask-for-help":
        rewards = ((0.25, sizes.main), (0.1, sizes.other), (0.5, sizes.other))
        return tuple(EnsembleVariant(f"help-{pays:g}", training, help_reward=pays) for pays, training in rewards)
    if task == "help-if-available":
        rewards = ((0.05, sizes.main), (0.02, sizes.other), (0.2, sizes.other))
        return tuple(
            EnsembleVariant(f"help-{pays:g}", training, help_reward=pays, unit=unit) for pays, training in rewards
        )
    if task == "non-obvious":
        return (EnsembleVariant("non-obvious", sizes.main, unit=unit),)
    if setting is Setting.DRAWS:
        return tuple(
            _extent(SMALLEST_SHARE, replace(sizes.draw, seed=number), f"-draw-{number}") for number in range(NUM_DRAWS)
        )
    return tuple(_extent(part, training) for part, training in sizes.extents)


def _extent(part: float, training: TrainingSettings, suffix: str = "") -> EnsembleVariant:
    unnamed = EnsembleVariant("", training, help_reward=0.25, fraction=part, noise=0.1)
    return replace(unnamed, name=variant_name("data-extent", unnamed) + suffix)


VARIED = {"ask-for-help": "help_reward", "help-if-available": "help_reward", "data-extent": "fraction"}
"""Task -> the setting in which its ensembles differ, and after which they are named."""


def variant_name(task: str, variant: EnsembleVariant) -> str:
    """The name of an ensemble, by what a task varies."""
    if VARIED.get(task) == "help_reward":
        return f"help-{variant.help_reward:g}"
    return f"extent-{percent(variant.fraction)}" if VARIED.get(task) == "fraction" else task


def percent(share: float) -> str:
    """A share as a percentage, without rounding errors.

    >>> percent(0.1), percent(0.07), percent(0.005)
    ('10', '7', '0.5')
    """
    return f"{round(100 * share, 6):g}"


def check_image_experiment(experiment: ImageExperiment) -> ImageExperiment:
    """The experiment, if it can be run to its end; raises before the training what would fail after it."""
    for name in ("num_iterations", "num_runs", "num_parts"):
        parse_count(getattr(experiment, name), name)
    for name in ("num_train", "num_test"):
        if getattr(experiment, name) is not None:
            parse_count(getattr(experiment, name), name)
    parse_count(experiment.num_dial_images, "num_dial_images", 0)
    if not experiment.levels:
        raise InvalidInputError("levels: give one at least, such as 1-of-20.")
    for size in experiment.curve_sizes:
        parse_count(size, "curve_sizes")
    for variant in experiment.variants:
        if not 0 < variant.fraction <= 1:
            raise InvalidInputError(
                f"fraction={variant.fraction:g} must be a share of the digits, above 0 and at most 1."
            )
        if not 0 <= variant.noise < math.inf:
            raise InvalidInputError(f"noise={variant.noise:g} must be zero or a positive number.")
        if variant.help_reward is not None and not math.isfinite(variant.help_reward):
            raise InvalidInputError(f"help_reward={variant.help_reward:g} must be a finite number.")
        for level in experiment.parsed_levels:
            level.check_num_models(variant.training.num_models)
    return experiment


PAPER = Sizes(
    main=_training(2000, 100, 512),
    other=_training(2000, 100, 512),
    extents=(
        (0.1, _training(2000, 1000, 128)),
        (1.0, _training(2000, 100, 512)),
        (SMALLEST_SHARE, _training(2000, 10_000, 64)),
    ),
    draw=_training(250, 10_000, 64),
)
"""Appendix B.1: 2,000 models; batch 512 and 100 epochs, for 10 % of the data 128 and 1,000, for 1 % 64 and 10,000. How many
models each draw has is our choice."""

SMALL = Sizes(
    main=_training(64, 9, 32),
    other=_training(24, 5, 32),
    extents=((0.1, _training(32, 70, 32)), (1.0, _training(32, 7, 32)), (SMALLEST_SHARE, _training(32, 300, 16))),
    draw=_training(24, 300, 16),
)
"""Small batches, so that few epochs make many steps; more models rather than longer training."""

_TINY = _training(20, 1, 32)
SMOKE = Sizes(
    main=_TINY,
    other=_TINY,
    extents=((0.1, replace(_TINY, num_epochs=2)), (1.0, _TINY), (SMALLEST_SHARE, replace(_TINY, num_epochs=8))),
    draw=replace(_TINY, num_epochs=2),
)


SCALES: dict[str, tuple[Sizes, dict[str, Any]]] = {
    "smoke": (
        SMOKE,
        {
            "num_iterations": 6,
            "num_runs": 2,
            "num_train": 200,
            "num_test": 40,
            "num_dial_images": 20,
            "num_parts": 2,
            "curve_sizes": (20,),
        },
    ),
    "small": (
        SMALL,
        {
            "num_runs": 5,
            "num_train": 6000,  # the embedded digits
            "num_test": 1000,
            "num_dial_images": 500,
            "curve_sizes": (20, 32, 48, 64),
        },
    ),
    "paper": (PAPER, {}),
}
"""smoke: seconds, no result; small: 20 minutes on two cores, reproduces most orderings; paper: the paper. How the ensembles are
trained, and in what else the experiment differs from the paper's."""
FEWEST_DIGITS = 1000
"""Of `data-extent`: one of each class at the smallest share."""


def image_experiment_at(task: str, scale: str, seed: int = 0, setting: Setting | str = Setting.MAIN) -> ImageExperiment:
    """The experiment of a task at a named scale.

    Args:
        task: One of the image tasks.
        scale: "smoke", "small" or "paper".
        seed: Of every random draw; the draws of "draws" use seed, seed + 1, ...
        setting: One of the task's `SETTINGS`.
    """
    image_task(task)  # raises for a task that is not known
    chosen = parse_choice(Setting, setting, "setting")
    if chosen not in SETTINGS[task]:
        known = ", ".join(repr(str(each)) for each in SETTINGS[task])
        raise InvalidInputError(
            Argument("setting", str(chosen)), f" is not a setting of {task}; choose one of {known}."
        )
    sizes, options = look_up(SCALES, scale, "scale")
    variants = tuple(
        replace(variant, training=replace(variant.training, seed=seed + variant.training.seed))
        for variant in _variants(task, chosen, sizes)
    )
    experiment = ImageExperiment(task, variants, **options)
    if task == "data-extent" and experiment.num_train is not None:
        experiment = replace(experiment, num_train=max(experiment.num_train, FEWEST_DIGITS))
    # The dial and the curve over the number of models are computed for a task's main ensemble, which a draw is not.
    return replace(experiment, num_dial_images=0) if chosen is Setting.DRAWS else experiment
