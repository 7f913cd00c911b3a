"""The weights of the models, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cautious import KofN
from cautious.ops.means import bernstein_margin, student_margin
from cautious.rl.mixture import Mixture


def test_the_worst_model_of_a_rollout_gets_the_weight():
    mixture = Mixture(3, smoothing=0.5)
    rewards = np.array([[1.0, 1.0], [0.0, 3.0], [2.0, -5.0]])
    mixture.update(rewards, np.array([1.0, 0.0]), KofN(1, 3))  # the first step counts, the second does not
    assert mixture.weights.tolist() == [0, 1, 0]
    assert mixture.returns.tolist() == [1, 0, 2]
    # Now the third is worst: sums are 0.5 * (1, 0, 2) + (1, 3, -5).
    mixture.update(rewards, np.array([0.0, 1.0]), KofN(1, 3))
    assert mixture.weights.tolist() == [0, 0.5, 0.5]
    assert mixture.returns == pytest.approx(np.array([1.5, 3, -4]) / 1.5)


def test_averages_are_points_of_the_risk_envelope():
    mixture, rng, level = Mixture(8, smoothing=0.3), np.random.default_rng(0), KofN(2, 4)
    for _ in range(20):
        mixture.update(rng.standard_normal((8, 5)), np.ones(5), level)
    most = np.cumsum(level.rank_weights(8).numpy())
    for weights in (mixture.weights, mixture.average):
        assert weights.sum() == pytest.approx(1)
        assert (np.cumsum(np.sort(weights)[::-1]) <= most + 1e-12).all()  # majorised by the rank weights


def test_a_level_of_all_models_is_their_mean():
    mixture = Mixture(4, smoothing=0.2)
    mixture.update(np.random.default_rng(0).standard_normal((4, 3)), np.ones(3), KofN(4, 4))
    assert mixture.weights == pytest.approx(np.full(4, 0.25))


def test_what_is_paid_has_the_scale_of_independent_returns():
    mixture, rng = Mixture(1, smoothing=1.0), np.random.default_rng(0)
    rewards = 7 + 5 * rng.standard_normal((1, 100_000))
    assert (mixture.pay(rewards) == rewards[0]).all()
    assert mixture.scale(0.9) == pytest.approx(np.sqrt(1 - 0.81) / 5, rel=0.01)
    constant = Mixture(1, smoothing=1.0)
    constant.pay(np.full((1, 10), 3.0))
    assert constant.scale(0.9) == 1


def test_margins_hold_as_often_as_they_say():
    rng = np.random.default_rng(1)
    samples = rng.beta(2, 5, size=(30, 4000))  # 4,000 repetitions of 30 samples in [0, 1], mean 2/7
    mean = samples.mean(axis=0)
    for margin in (student_margin(samples, 0.05), bernstein_margin(samples, 1.0, 0.05)):
        assert (mean - margin <= 2 / 7).mean() > 0.94
    assert (student_margin(samples, 0.05) < bernstein_margin(samples, 1.0, 0.05)).all()
