"""The first demonstration: the shipped belief decides on the package's own images, in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.progress import TitledProgress, titled
from cautious.solvers.solve import solve_bandit
from cautious_paper.beliefs import SHIPPED
from cautious_paper.evaluation.image_behaviour import behaviour
from cautious_paper.experiments.store import Store
from cautious_paper.worlds.data import load_images
from cautious_paper.worlds.data.find import EMBEDDED
from cautious_paper.worlds.image_tasks import image_task

LEVELS = ("1-of-20", "1-of-10", "5-of-10", "10-of-10")


class DemoResult(NamedTuple):
    """What each level does on one set of images."""

    images: str
    num_images: int
    help: list[float]
    """How often it asks for help, by level."""
    correct: list[float] | None
    """How often it names the right digit; None where there is none."""


STAGE = "first-decisions"
"""Where the demo keeps them, for its report."""


def save_first_decisions(store: Store, results: Sequence[DemoResult]) -> None:
    """Keep the results with a run."""
    num_models = RewardEnsemble.load(SHIPPED / "ask-for-help").num_models
    sets = [result._asdict() for result in results]
    store.save(STAGE, {"levels": list(LEVELS), "num_models": num_models, "sets": sets})


def first_decisions(num_images: int = 200, progress: TitledProgress | None = None) -> list[DemoResult]:
    """Behaviour on digits, which are familiar, and on clothes, which are novel, in the single-state regime."""
    belief = RewardEnsemble.load(SHIPPED / "ask-for-help")
    task = image_task("ask-for-help")
    decisions = []
    for name in ("digits", "fashion"):
        images = load_images(name, data=EMBEDDED)
        rewards = belief.rewards(images.images[:num_images], progress=titled(progress, f"predicting, {name}"))
        solution = solve_bandit(rewards, LEVELS, regime="single-state", sampling="exact")
        labels = images.labels[:num_images] if name == "digits" else None
        measured = behaviour(solution.policy, task.help_action, labels)
        correct = measured["correct_probability"].tolist() if labels is not None else None
        decisions.append(DemoResult(name, len(rewards[0]), measured["help_probability"].tolist(), correct))
    return decisions
