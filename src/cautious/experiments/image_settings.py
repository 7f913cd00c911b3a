"""The image experiments as data: the paper's settings, and smaller ones that run on two cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from cautious.beliefs.image_network import LEARNING_RATE
from cautious.beliefs.shards import TrainingSettings
from cautious.ops.risk import KofN
from cautious.types import look_up
from cautious.worlds.images import ImageTask, image_task


@dataclass(frozen=True)
class Variant:
    """One ensemble of an experiment: what its models are trained on, and how."""

    name: str
    training: TrainingSettings
    help_reward: float | None = None
    fraction: float = 1.0
    """Share of the familiar digits."""
    noise: float = 0.0
    """Standard deviation of white noise on the rewards."""


@dataclass(frozen=True)
class ImageExperiment:
    """Everything that decides the outcome, together with the data."""

    task: str
    variants: tuple[Variant, ...]
    """The first is the task's main one: the dial and the curve over the number of models are drawn for it."""
    levels: tuple[str, ...] = ("1-of-20", "1-of-10", "5-of-10", "10-of-10")  # section 4
    num_iterations: int = 100  # T; section 4
    num_runs: int = 10  # "10 repetitions in each MNIST experiment", appendix B
    num_train: int | None = None
    """Familiar digits to use, as many of each class; all if None."""
    num_test: int | None = None
    """Images of each test set to use; all if None."""
    num_dial_images: int = 1000
    """Images for what the paper lacks: the full dial, and the curve over the number of models."""
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
    def main(self) -> Variant:
        """The task's main variant."""
        return self.variants[0]

    def as_settings(self) -> dict[str, Any]:
        """Plain values, for a manifest."""
        found = asdict(self)
        found["variants"] = {variant.pop("name"): variant for variant in found["variants"]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def _training(num_models: int, num_epochs: int, batch_size: int) -> TrainingSettings:
    return TrainingSettings(num_models, num_epochs, batch_size, LEARNING_RATE)


def _variants(task: str, main: TrainingSettings, other: TrainingSettings, extent: Any = None) -> tuple[Variant, ...]:
    """The paper's ensembles of a task, its main one first (section 4; the sensitivity studies of appendix B.1)."""
    if task == "ask-for-help":
        rewards = ((0.25, main), (0.1, other), (0.5, other))
        return tuple(Variant(f"help-{pays:g}", training, help_reward=pays) for pays, training in rewards)
    if task == "help-if-available":
        rewards = ((0.05, main), (0.02, other), (0.2, other))
        return tuple(Variant(f"help-{pays:g}", training, help_reward=pays) for pays, training in rewards)
    if task == "non-obvious":
        return (Variant("non-obvious", main),)
    return tuple(
        Variant(f"extent-{round(100 * part)}", training, help_reward=0.25, fraction=part, noise=0.1)
        for part, training in extent
    )


def _paper(task: str) -> ImageExperiment:
    """Appendix B.1: 2,000 models; batch 512 and 100 epochs, for 10 % of the data 128 and 1,000, for 1 % 64 and 10,000."""
    full = _training(2000, 100, 512)
    extent = ((0.1, _training(2000, 1000, 128)), (1.0, full), (0.01, _training(2000, 10_000, 64)))
    return ImageExperiment(task, _variants(task, full, full, extent))


def _small(task: str) -> ImageExperiment:
    """The embedded 6,000 digits; small batches, so that few epochs make many steps; rather more models than longer training."""
    main, other = _training(64, 9, 32), _training(24, 5, 32)
    extent = ((0.1, _training(32, 70, 32)), (1.0, _training(32, 7, 32)), (0.01, _training(32, 300, 16)))
    return ImageExperiment(
        task,
        _variants(task, main, other, extent),
        num_runs=5,
        num_train=6000,
        num_test=1000,
        num_dial_images=500,
        curve_sizes=(20, 32, 48, 64),
    )


def _smoke(task: str) -> ImageExperiment:
    """Seconds: only to see that everything runs."""
    tiny = _training(20, 1, 32)
    extent = ((0.1, replace(tiny, num_epochs=2)), (1.0, tiny), (0.01, replace(tiny, num_epochs=8)))
    return ImageExperiment(
        task,
        _variants(task, tiny, tiny, extent),
        num_iterations=6,
        num_runs=2,
        num_train=1000 if task == "data-extent" else 200,
        num_test=40,
        num_dial_images=20,
        num_parts=2,
        curve_sizes=(20,),
    )


SCALES: dict[str, Callable[[str], ImageExperiment]] = {"smoke": _smoke, "small": _small, "paper": _paper}
"""smoke: seconds, no result; small: 20 minutes on two cores, bears most orderings out; paper: the paper."""


def image_experiment_at(task: str, scale: str, seed: int = 0) -> ImageExperiment:
    """The experiment of a task at a named scale."""
    image_task(task)
    preset = look_up(SCALES, scale, "scale")(task)
    variants = tuple(replace(one, training=replace(one.training, seed=seed)) for one in preset.variants)
    return replace(preset, variants=variants)
