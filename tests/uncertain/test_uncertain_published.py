"""RiverSwim and HIV of Su & Petrik (UAI 2023), from the data folder: published means, and tails with bounds."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from cautious import CVaR, Mean, solve_mdp
from cautious.mdp.models import Models, read_models
from cautious.risk import weights_by_rank
from cautious.solvers.uncertain.ascent import ascend, mixed_values_policy
from cautious.solvers.uncertain.oracle import nominal_actions
from cautious.solvers.uncertain.problem import UncertainProblem

FOLDER = Path(os.environ.get("CAUTIOUS_DATA", "no data")) / "multi-model"
HORIZONS = {"riverswim": 50, "hiv": 15}
pytestmark = [
    pytest.mark.skipif(not FOLDER.is_dir(), reason="CAUTIOUS_DATA has no folder multi-model"),
    pytest.mark.filterwarnings("ignore::cautious.errors.FewModelsWarning"),
]


def load(name: str, part: str) -> Models:
    with (FOLDER / f"{name}_initial.csv").open() as file:
        start = [float(row["probability"]) for row in csv.DictReader(file)]
    path = next(FOLDER.glob(f"{name}_{part}.csv*"))
    return read_models(path, start, 0.9, horizon=HORIZONS[name])


def mean_problem(models: Models) -> UncertainProblem:
    weights = weights_by_rank(Mean(), len(models.world)).numpy()
    rewards = models.world.scaled_rewards(models.rewards)
    return UncertainProblem(models.world.dynamics, rewards, weights, models.world.horizon)


@pytest.mark.parametrize(
    ("name", "published"),
    # Table 1: mean value problem, mixed values (WSU), CADP, oracle, on test models; rounded as printed there.
    [("riverswim", (201.9, 203.6, 204.7, 210.6)), ("hiv", (42.2e3, 42.2e3, 42.2e3, 53.1e3))],
)
def test_the_published_means(name, published):
    training, held_out = load(name, "training"), load(name, "test")
    problem = mean_problem(training)
    mixed = mixed_values_policy(problem, problem.rank_weights)
    policies = (nominal_actions(problem, problem.rank_weights), mixed, ascend(problem, problem.rank_weights, mixed))
    scale = training.world.normaliser
    means = [float(held_out.world.returns(problem.of_actions(p), held_out.rewards).mean()) * scale for p in policies]
    means.append(mean_problem(held_out).best_returns.mean() * scale)
    assert means == pytest.approx(published, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "alpha", "at_least", "largest_gap"),
    # The tail to reach, from a search of its own, and the gap, as a share of the value.
    [
        ("riverswim", 0.05, 53.08, 0.01),
        ("riverswim", 0.1, 57.39, 0.01),
        ("riverswim", 0.2, 71.58, 0.01),
        ("riverswim", 0.5, 123.6, 0.01),
        ("hiv", 0.1, 19_956, 0.05),
        ("hiv", 0.2, 23_970, 0.05),
    ],
)
def test_tails_with_bounds(name, alpha, at_least, largest_gap):
    training = load(name, "training")
    tolerance = 1e-3 if name == "hiv" else 2e-4
    certificate = solve_mdp(training.world, training.rewards, CVaR(alpha), tolerance=tolerance).certificate()
    lower, upper = (float(bound) * training.world.normaliser for bound in (certificate.lower, certificate.upper))
    assert lower >= at_least - 0.01 * (1 if name == "riverswim" else 100)
    assert upper - lower <= largest_gap * lower


def test_the_tail_holds_on_other_models_where_there_are_enough():
    """RiverSwim at .1: ten models in the tail of 100. On 700 others the mixture's tail is far above the nominal policy's."""
    training, held_out = load("riverswim", "training"), load("riverswim", "test")
    solution = solve_mdp(training.world, training.rewards, CVaR(0.1), tolerance=1e-3)
    problem = mean_problem(training)
    nominal = problem.of_actions(nominal_actions(problem, problem.rank_weights))
    weights = weights_by_rank(CVaR(0.1), len(held_out.world)).numpy()
    tails = [
        weights @ np.sort(returns.numpy()) * held_out.world.normaliser
        for returns in (
            solution.returns(held_out.world, held_out.rewards),
            held_out.world.returns(nominal, held_out.rewards),
        )
    ]
    assert tails[0] > 64
    assert tails[1] < 52
