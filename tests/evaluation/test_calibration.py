"""The calibrated dial keeps its promise."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from cautious import CautiousPolicy, KofN, TabularMDP, calibrate
from cautious.errors import InvalidInputError
from cautious.evaluation.calibration import CalibrationWarning, above_p_value, upper_bound


def belief_with(num_strange: int, num_states: int, num_models: int = 40) -> torch.Tensor:
    """A gamble that every model likes, except in the first states, where a few models hate it: help pays 0.2 everywhere."""
    rewards = torch.zeros(num_models, num_states, 2)
    rewards[:, :, 0], rewards[:, :, 1] = 1.0, 0.2
    rewards[: num_models // 8, :num_strange, 0] = -2.0
    return rewards


def test_it_finds_the_most_cautious_level_that_is_allowed():
    policy = CautiousPolicy(belief_with(30, 300), "1-of-5")
    loose = calibrate(policy, range(300), at_most=0.2)
    assert loose.level == KofN(1, 5)
    assert loose.rate <= loose.bound <= 0.2
    strict = calibrate(policy, range(300), at_most=0.02)
    assert strict.level.k > loose.level.k
    assert strict.tried[-1][2] > 0.05
    assert [name for name, _, _ in strict.tried] == [f"{k}-of-5" for k in range(5, 5 - len(strict.tried), -1)]


def test_the_ordinary_level_departs_never_in_an_mdp_too():
    mdp = TabularMDP(torch.full((30, 4, 30), 1 / 30), torch.full((30,), 1 / 30), 0.5)
    rewards = torch.tensor([1.0, 0.9995, 0.0, 0.0]).expand(6, 30, 4)  # two that the game does not tell apart in time
    policy = CautiousPolicy(rewards, "1-of-6", mdp=mdp, num_iterations=20)
    with pytest.warns(CalibrationWarning):
        found = calibrate(policy, range(30), at_most=0.001, progress=False)
    assert (found.level, found.rate, found.bound) == (KofN(6, 6), 0, 0)
    assert found.tried[0] == ("6-of-6", 0, 0)


def test_too_few_states_allow_nothing_but_the_ordinary_level():
    policy = CautiousPolicy(belief_with(0, 10), "1-of-5")
    with pytest.warns(CalibrationWarning, match="10 are too few .* at least 149"):
        found = calibrate(policy, range(10), at_most=0.02)
    assert found.level == KofN(5, 5)
    assert found.rate == found.bound == 0


@pytest.mark.parametrize(("at_most", "confidence", "needed"), [(0.1, 0.9, 22), (0.05, 0.95, 59)])
def test_the_number_asked_for_is_just_enough(at_most: float, confidence: float, needed: int):
    policy = CautiousPolicy(belief_with(0, needed, 4), "1-of-2", num_iterations=2)
    options = {"at_most": at_most, "confidence": confidence}
    assert calibrate(policy, range(needed), **options).level == KofN(1, 2)
    with pytest.warns(CalibrationWarning, match=f"at least {needed},"):
        assert calibrate(policy, range(needed - 1), **options).level == KofN(2, 2)


def test_models_that_differ_everywhere_allow_nothing_but_the_ordinary_level():
    generator = torch.Generator().manual_seed(0)
    policy = CautiousPolicy(torch.randn(20, 100, 3, generator=generator), "1-of-5", num_iterations=20)
    with pytest.warns(CalibrationWarning, match=r"4-of-5 departs by 0\.\d+ on the 100 familiar states"):
        assert calibrate(policy, range(100), at_most=0.05, progress=False).level == KofN(5, 5)


@pytest.mark.parametrize("at_most", [1e-12, 1e-300, 1e-320])
def test_a_rate_that_nobody_can_show_is_said_to_be_one(at_most: float):
    policy = CautiousPolicy(belief_with(0, 10, 4), "1-of-2", num_iterations=2)
    with pytest.warns(CalibrationWarning, match="no number of states is enough: allow more"):
        assert calibrate(policy, range(10), at_most=at_most, progress=False).level == KofN(2, 2)


def test_whoever_asks_is_told_how_far_it_is():
    told = []
    policy = CautiousPolicy(belief_with(1, 60, 8), "1-of-2", num_iterations=3)
    calibrate(policy, range(60), at_most=0.05, progress=lambda *step: told.append(step))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_whoever_asks_is_told_of_the_end_where_no_game_is_needed():
    told = []
    policy = CautiousPolicy(belief_with(0, 60, 4), "1-of-2", num_iterations=3)
    calibrate(policy, range(60), at_most=0.05, progress=lambda *step: told.append(step))
    assert told == [(3, 3)]


def test_the_p_value_is_that_of_a_binomial_or_better_and_never_lies():
    losses = torch.cat([torch.ones(3), torch.zeros(297)])
    assert above_p_value(losses, 0.05) <= np.e * scipy.stats.binom.cdf(3, 300, 0.05)
    assert above_p_value(losses, 0.01) == pytest.approx(1)
    bound = upper_bound(losses, 0.05)
    assert 0.01 < bound < 0.05
    assert above_p_value(losses, bound) <= 0.05 < above_p_value(losses, bound - 1e-6)


@pytest.mark.parametrize("kind", ["binary", "even"])
def test_the_bound_holds_in_simulation(kind: str):
    """2,000 draws of 200 losses with a known mean: a 90 % bound fails, where the test at the mean itself rejects, in 10 %."""
    rng = np.random.default_rng(0)
    mean = 0.06
    draws = rng.random((2000, 200))
    losses = (draws < mean).astype(float) if kind == "binary" else draws * 2 * mean
    failures = sum(above_p_value(torch.from_numpy(row), mean) <= 0.1 for row in losses)
    assert failures <= 0.1 * 2000


def test_the_chosen_level_keeps_its_promise_in_simulation():
    """400 draws of 150 familiar states from a world in which 1-of-4 departs in 8 % of states; 5 % is allowed.

    The chosen level may break the promise in 10 % of the draws at most. (What each level does in each state is computed
    once; the draws only pick states.)
    """
    world = belief_with(80, 1000)
    table = CautiousPolicy(world, "1-of-4", num_iterations=20).caution_at(
        [KofN(k, 4) for k in range(4, 0, -1)], range(1000)
    )
    rates = {4 - number: float(rate) for number, rate in enumerate(table.mean(dim=1))}
    assert rates[1] > 0.05
    rng = np.random.default_rng(1)
    broken = 0
    for _ in range(400):
        states = rng.integers(0, 1000, 150)
        found = calibrate(Known(table), states, at_most=0.05, confidence=0.9)
        broken += rates[found.level.k] > 0.05
    assert broken <= 0.1 * 400


class Known(CautiousPolicy):
    """A policy whose caution at each level and state is known."""

    def __init__(self, table: torch.Tensor) -> None:
        self.level, self._known = KofN(1, 4), table

    def caution_at(self, levels, states, progress=None):
        return self._known[:, states]


def test_bad_numbers_are_refused():
    policy = CautiousPolicy(belief_with(0, 10), "1-of-5")
    for name in ("at_most", "confidence"):
        with pytest.raises(InvalidInputError, match=name):
            calibrate(policy, range(10), **{name: 1.0})
