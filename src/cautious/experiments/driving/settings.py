"""The driving experiment as data: the paper's settings, and smaller ones that run on two cores."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from cautious.beliefs.training.state import TrainingSettings
from cautious.ops.risk import KofN
from cautious.validation import look_up


@dataclass(frozen=True)
class DrivingExperiment:
    """Everything that decides the outcome."""

    training: TrainingSettings
    certain_epochs: int
    """Epochs of the separate belief for p = 1, whose training set is smaller (218 pairs: one batch an epoch)."""
    ks: tuple[int, ...] = (1, 2, 4, 5, 10, 20)  # section 4, Driving Gridworld
    n: int = 20
    num_iterations: int = 100  # T; appendix B.2
    num_runs: int = 5  # "five random repetitions", appendix B.2
    probabilities: tuple[float, ...] = (0.1, 0.2, 0.5, 0.8, 1.0)  # the paper gives none (deviation D5)
    default_probability: float = 0.5
    num_optim: int = 100
    """Single networks whose own optimal policies make up the baseline."""

    @property
    def levels(self) -> list[KofN]:
        """The levels, most cautious first."""
        return [KofN(k, self.n) for k in self.ks]

    def as_settings(self) -> dict[str, Any]:
        """Plain values, for a manifest."""
        found = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


SCALES = {
    "smoke": DrivingExperiment(
        TrainingSettings(num_models=24, num_epochs=30, batch_size=800, learning_rate=1e-3, weight_decay=1e-5),
        certain_epochs=30,
        ks=(1, 5, 20),
        num_iterations=8,
        num_runs=2,
        probabilities=(0.5, 1.0),
        num_optim=8,
    ),
    "demo": DrivingExperiment(
        TrainingSettings(num_models=32, num_epochs=1500, batch_size=800, learning_rate=1e-3, weight_decay=1e-5),
        certain_epochs=3000,
        num_runs=3,
        probabilities=(0.5,),
        num_optim=32,
    ),
    "small": DrivingExperiment(
        TrainingSettings(num_models=64, num_epochs=2500, batch_size=800, learning_rate=1e-3, weight_decay=1e-5),
        certain_epochs=6000,
        num_optim=64,
    ),
    "paper": DrivingExperiment(  # appendix B.2: 51,200 epochs, batch 800, Adam 1e-4, weight decay 1e-5, 2,000 models
        TrainingSettings(num_models=2000, num_epochs=51_200, batch_size=800, learning_rate=1e-4, weight_decay=1e-5),
        certain_epochs=51_200,
    ),
}
"""smoke: seconds, no result; demo: a minute or two; small: minutes on two cores, bears the claims out; paper: the paper.

The learning rate of the small scales is ten times the paper's, so that a twentieth of its epochs reaches its fit."""


def experiment_at(scale: str, seed: int = 0) -> DrivingExperiment:
    """The experiment at a named scale."""
    preset = look_up(SCALES, scale, "scale")
    return replace(preset, training=replace(preset.training, seed=seed))
