"""A safe action where models differ too much: by hand, with its guarantee, on disk; and calibration without rows set aside."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import scipy.stats
import torch

from cautious import CautiousPolicy, FallbackRule, KofN, RewardEnsemble, calibrate, fit_ensemble
from cautious.errors import BadFileError, InvalidInputError
from cautious.policy.calibration import CalibrationWarning

SAFE = 2


def models_that_differ_by(size: torch.Tensor) -> torch.Tensor:
    """Two models of three actions: the first is best by far, and they differ about it by ±size in each state [S]."""
    models = torch.tensor([10.0, 0.0, 1.0]).repeat(2, len(size), 1)
    models[0, :, 0] += size
    models[1, :, 0] -= size
    return models


def rule_about(size: torch.Tensor, **options) -> FallbackRule:
    return FallbackRule(models_that_differ_by(size), SAFE, **options)


def test_it_refers_where_the_models_differ_more_than_the_threshold():
    """Models that differ by ±s about one of three actions have a spread of s / √3."""
    rule = rule_about(torch.tensor([0.0, 1.0, 2.0, 3.0]), threshold=2 / 3**0.5 + 1e-9)
    decision = rule.decide([0, 1, 2, 3])
    assert decision.action.tolist() == [0, 0, 0, SAFE]
    assert decision.departs.tolist() == [False, False, False, True]
    assert decision.caution.tolist() == [0, 0, 0, 1]
    assert decision.ordinary.argmax(dim=1).tolist() == [0, 0, 0, 0]
    assert rule.refers(decision).tolist() == [False, False, False, True]
    assert rule.predict(3) == (SAFE, None)
    assert rule.predict([0, 3], deterministic=False)[0].tolist() == [0, SAFE]


def test_elsewhere_it_does_what_its_policy_does():
    gamble_or_help = torch.tensor([[[1.0, 0.25, 0.0]], [[0.0, 0.25, 0.0]]])
    assert FallbackRule(gamble_or_help, 2, threshold=9.0).decide([0]).action.tolist() == [
        0
    ]  # of a belief, the ordinary one
    cautious = FallbackRule(CautiousPolicy(gamble_or_help, "1-of-2"), 2, threshold=9.0)
    assert cautious.decide([0]).action.tolist() == [1]


def test_one_in_twenty_familiar_states_exceeds_the_threshold_of_old(generator):
    size = torch.rand(500, generator=generator)
    policy = CautiousPolicy(models_that_differ_by(size), "2-of-2", familiar_states=range(100))
    rule = FallbackRule(policy, SAFE)
    assert rule.threshold == 1
    assert 0.02 < float(rule.refers(rule.decide(range(100, 500))).double().mean()) < 0.1
    with pytest.raises(InvalidInputError, match=r"familiar_states=\.\.\."):
        FallbackRule(models_that_differ_by(size), SAFE)


def test_the_threshold_is_the_order_statistic_that_the_binomial_allows():
    """300 states with spreads 1 to 300: at 5 % and confidence 0.95, 8 may be above (P(Bin(300, 0.05) <= 8) = 0.035)."""
    size = torch.arange(1.0, 301.0) * 3**0.5
    assert scipy.stats.binom.cdf(8, 300, 0.05) <= 0.05 < scipy.stats.binom.cdf(9, 300, 0.05)
    found = calibrate(rule_about(size, threshold=1.0), range(300), at_most=0.05, progress=False)
    assert found.threshold == pytest.approx(292)
    assert found.rate == pytest.approx(8 / 300)
    assert found.bound == pytest.approx(scipy.stats.binomtest(8, 300).proportion_ci(0.9, "exact").high)
    assert found.level == KofN(1, 1)
    assert (
        calibrate(rule_about(size, threshold=7.0), range(300), at_most=0.05, progress=False) == found
    )  # whatever it was


def test_the_calibrated_rule_keeps_its_promise_in_simulation():
    """1,000 draws of 100 states with uniform spreads: 10 % may be referred, and that may be broken in 10 % of the draws."""
    rng = np.random.default_rng(0)
    size = torch.linspace(0, 1, 2001)
    spread = size.double() / 3**0.5
    rule = rule_about(size, threshold=1.0)
    broken = 0
    for _ in range(1000):
        found = calibrate(rule, rng.integers(0, 2001, 100), at_most=0.1, confidence=0.9, progress=False)
        broken += float((spread > found.threshold + 1e-6).double().mean()) > 0.1
    assert 0.03 * 1000 < broken <= 0.12 * 1000  # at most 10 %, and not for being far too careful


@pytest.mark.parametrize("num_states", [19, 50, 99])
def test_on_average_the_rule_refers_what_is_allowed(num_states: int):
    """Uniform spreads: of 2,000 draws the mean share above the threshold is ⌊0.05 (B + 1)⌋ / (B + 1)."""
    rng = np.random.default_rng(0)
    size = torch.linspace(0, 1, 20001)
    scores = np.sort(rng.random((2000, num_states)), axis=1)
    rule = rule_about(size, threshold=1.0)
    allowed = int(0.05 * (num_states + 1) + 1e-9)
    shares = 1 - scores[:, num_states - allowed]
    states = (scores[0] * 20000).astype(int)
    found = calibrate(rule, states, at_most=0.05, guarantee="average", progress=False)
    assert found.threshold == pytest.approx(float(size[states[num_states - allowed]]) / 3**0.5, rel=1e-5)
    assert np.mean(shares) == pytest.approx(allowed / (num_states + 1), abs=0.005)
    assert found.bound == pytest.approx(allowed / (num_states + 1))


def test_too_few_states_refer_nothing():
    with pytest.warns(CalibrationWarning, match=r"at least 59.* 58 show at most 0\.0503 .* is never taken"):
        found = calibrate(rule_about(torch.ones(58), threshold=1.0), range(58), progress=False)
    assert (found.threshold, found.rate, found.bound) == (math.inf, 0, 0)


def test_a_rule_on_a_policy_that_departs_too_often_is_told_so():
    models = torch.tensor([[[1.0, 0.25, 0.0]], [[0.0, 0.25, 0.0]]]).repeat(1, 100, 1)
    rule = FallbackRule(CautiousPolicy(models, "1-of-2", num_iterations=50), 2, threshold=1.0)
    with pytest.warns(CalibrationWarning, match="own policy departs .* in 100 of 100"):
        calibrate(rule, range(100), progress=False)


def test_a_unit_of_nought_is_named_as_the_cause():
    """The models agree in the states of the unit, and differ in all others; the ordinary policy departs nowhere."""
    size = torch.cat([torch.zeros(20), torch.ones(100)])
    policy = CautiousPolicy(models_that_differ_by(size), "2-of-2", familiar_states=range(20))
    with pytest.warns(CalibrationWarning, match="infinite in 100 of 100 familiar states.* its unit is 0"):
        found = calibrate(FallbackRule(policy, SAFE), range(20, 120), progress=False)
    assert found.threshold == math.inf


def test_it_is_saved_with_its_policy(tmp_path):
    size = torch.arange(6.0)
    rule = FallbackRule(
        CautiousPolicy(models_that_differ_by(size), "1-of-2", familiar_states=range(6)), SAFE, threshold=0.5
    )
    rule.save(tmp_path)
    again = FallbackRule.load(tmp_path)
    assert (again.action, again.threshold, again.policy.level) == (SAFE, 0.5, KofN(1, 2))
    assert torch.equal(again.decide(range(4)).probabilities, rule.decide(range(4)).probabilities)
    with pytest.raises(BadFileError, match=r"FallbackRule\.load"):
        CautiousPolicy.load(tmp_path)
    rule.policy.save(tmp_path)
    with pytest.raises(BadFileError, match=r"CautiousPolicy\.load"):
        FallbackRule.load(tmp_path)
    rule_about(size, threshold=math.inf).save(tmp_path)
    assert FallbackRule.load(tmp_path).threshold == math.inf


@pytest.fixture(scope="module")
def experience() -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.Generator().manual_seed(0)
    kind = torch.arange(100) % 2
    states = 3.0 * kind[:, None] + torch.randn(100, 2, generator=noise)
    return states, torch.cat([torch.eye(2)[kind], torch.full((100, 1), 0.4)], dim=1)


@pytest.fixture(scope="module")
def belief(experience) -> RewardEnsemble:
    return fit_ensemble(*experience, num_models=8, num_epochs=40, progress=False)


def test_cross_fitting_decides_about_every_row_with_models_that_never_saw_it(belief, experience, monkeypatch):
    from cautious.policy import calibration

    states, rewards = experience
    seen = []
    refit = calibration.refit

    def noting(like, inputs, paid, progress=None):
        seen.append(inputs)
        return refit(like, inputs, paid)

    monkeypatch.setattr(calibration, "refit", noting)
    told = []
    policy = CautiousPolicy(belief, "1-of-8", num_iterations=50)
    found = calibrate(policy, states, rewards, folds=4, at_most=0.3, progress=lambda *step: told.append(step))
    assert found.num_states == 100
    assert [len(part) for part in seen] == [75] * 4
    left_out = [{tuple(row) for row in states.tolist()} - {tuple(row) for row in part.tolist()} for part in seen]
    assert sum(map(len, left_out)) == 100 == len(set.union(*left_out))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_cross_fitting_is_no_better_than_fresh_rows_would_be(belief, experience):
    """On the rows of its own training a belief looks better than it is; cross-fitted it does not."""
    states, rewards = experience
    rule = FallbackRule(belief, SAFE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        crossed = calibrate(rule, states, rewards, at_most=0.1, progress=False)
        flattered = calibrate(rule, states, at_most=0.1, progress=False)
    assert crossed.threshold > flattered.threshold
    noise = torch.Generator().manual_seed(1)
    fresh = 3.0 * (torch.arange(2000) % 2)[:, None] + torch.randn(2000, 2, generator=noise)
    calibrated = FallbackRule(belief, SAFE, threshold=crossed.threshold)
    assert float(calibrated.refers(calibrated.decide(fresh)).double().mean()) <= 0.12


def test_a_row_that_alone_knows_an_action_is_always_learned_from(belief, experience):
    states, rewards = experience
    logged = rewards.clone()
    logged[1:, 2] = torch.nan
    found = calibrate(CautiousPolicy(belief, "1-of-2"), states, logged, folds=2, at_most=0.3, progress=False)
    assert found.num_states == 99


def test_a_part_with_nothing_to_decide_about_is_passed_over(belief, experience):
    states, rewards = (part[:12] for part in experience)
    logged = rewards.clone()
    logged[1:, 2] = torch.nan
    told = []
    policy = CautiousPolicy(belief, "1-of-2")
    found = calibrate(policy, states, logged, folds=12, at_most=0.3, progress=lambda *step: told.append(step))
    assert found.num_states == 11
    assert told == [(fold + 1, 12) for fold in range(12)]
    alone = torch.where(torch.eye(3) > 0, rewards[:3], torch.nan)  # each of three rows knows another action
    with pytest.raises(InvalidInputError, match="folds=3: every part contains the only sample"):
        calibrate(policy, states[:3], alone, folds=3, progress=False)


def test_modules_of_ones_own_are_trained_again_too(experience):
    states, rewards = experience
    options = {"num_models": 3, "num_epochs": 20, "learning_rate": 0.05, "progress": False, "validation_fraction": 0}
    own = fit_ensemble(states, rewards, network=lambda: torch.nn.Linear(2, 3), **options)
    policy = CautiousPolicy(own, "1-of-2", num_iterations=20)
    assert calibrate(policy, states, rewards, folds=2, at_most=0.3, progress=False).num_states == 100


def test_what_cannot_be_trained_again_is_refused(belief, experience):
    states, rewards = experience
    with pytest.raises(InvalidInputError, match="can be retrained"):
        calibrate(CautiousPolicy(torch.rand(4, 100, 3), "1-of-2"), range(100), rewards)
    untold = RewardEnsemble(belief.network, belief.parameters)
    with pytest.raises(InvalidInputError, match="how it was trained is not known"):
        calibrate(CautiousPolicy(untold, "1-of-2"), states, rewards)
    with pytest.raises(InvalidInputError, match="folds=101 exceeds the 100 states"):
        calibrate(CautiousPolicy(belief, "1-of-2"), states, rewards, folds=101)
    with pytest.raises(InvalidInputError, match="rewards: expected shape"):
        calibrate(CautiousPolicy(belief, "1-of-2"), states, rewards[:5])
