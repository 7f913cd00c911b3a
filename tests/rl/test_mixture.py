"""The weights of the models, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cautious import InvalidInputError, KofN, LearnedMixture, RankedMixture
from cautious.ops.means import bernstein_margin, student_margin
from cautious.rl.standings import Standings


def roll(standings, mixture, rewards, visits, level):
    """What `KofNPPO` does after a rollout."""
    standings.count(rewards @ visits, np.full(len(rewards), visits.sum()))
    standings.weigh(mixture, level.rank_weights(len(rewards)).numpy())


def test_the_worst_model_of_a_rollout_gets_the_weight():
    standings, mixture = Standings(3, smoothing=0.5), RankedMixture(0.5)
    rewards = np.array([[1.0, 1.0], [0.0, 3.0], [2.0, -5.0]])
    roll(standings, mixture, rewards, np.array([1.0, 0.0]), KofN(1, 3))  # the first step counts, the second does not
    assert standings.weights.tolist() == [0, 1, 0]
    assert standings.returns.tolist() == [1, 0, 2]
    # Now the third is worst: sums are 0.5 * (1, 0, 2) + (1, 3, -5).
    roll(standings, mixture, rewards, np.array([0.0, 1.0]), KofN(1, 3))
    assert standings.weights.tolist() == [0, 0.5, 0.5]
    assert standings.returns == pytest.approx(np.array([1.5, 3, -4]) / 1.5)
    # The t-th rollout counts t times: (0, 1, 0) and twice (0, 1/2, 1/2), by three.
    assert standings.average == pytest.approx([0, 2 / 3, 1 / 3])


@pytest.mark.parametrize("mixture", [RankedMixture(0.3), LearnedMixture(), LearnedMixture(0.05)])
def test_averages_are_points_of_the_risk_envelope(mixture):
    standings = Standings(8, smoothing=0.3)
    rng, level = np.random.default_rng(0), KofN(2, 4)
    for _ in range(20):
        roll(standings, mixture, rng.standard_normal((8, 5)), np.ones(5), level)
    most = np.cumsum(level.rank_weights(8).numpy())
    for weights in (standings.weights, standings.average):
        assert weights.sum() == pytest.approx(1)
        assert (np.cumsum(np.sort(weights)[::-1]) <= most + 1e-12).all()  # majorised by the rank weights


def test_a_level_of_all_models_is_their_mean():
    standings = Standings(4, smoothing=0.2)
    roll(standings, RankedMixture(), np.random.default_rng(0).standard_normal((4, 3)), np.ones(3), KofN(4, 4))
    assert standings.weights == pytest.approx(np.full(4, 0.25))


def test_a_learning_adversary_steps_towards_the_worst_and_rests_at_a_tie():
    mixture, worst = LearnedMixture(step=0.1), np.array([1.0, 0.0])
    # diam(W) = √2 and J = (0.1, -0.1) of length 0.1 √2: a step is (0.1, -0.1), taken from y = (1/2, 1/2) and once more.
    first = mixture.weights(np.array([0.3, 0.1]), worst, None)
    assert first == pytest.approx([0.3, 0.7])
    assert mixture.centre == pytest.approx([0.4, 0.6])
    assert mixture.weights(np.array([0.2, 0.2]), worst, first) == pytest.approx([0.4, 0.6])
    for _ in range(9):
        last = mixture.weights(np.array([0.3, 0.1]), worst, first)
    assert last == pytest.approx([0, 1])  # the envelope ends there


def test_a_learning_adversary_finds_the_worst_mixture_of_a_game():
    """Two bets that cancel: the policy follows the weights, and both are one half each, the weights on average."""
    mixture, share, weights, seen = LearnedMixture(0.1), 0.9, None, []
    for _ in range(400):
        returns = np.array([share - 0.4 * (1 - share), (1 - share) - 0.4 * share])
        weights = mixture.weights(returns, np.array([1.0, 0.0]), weights)
        share = float(np.clip(share + 0.05 * (weights[0] - weights[1]), 0, 1))
        seen.append(weights)
    assert share == pytest.approx(0.5, abs=0.05)
    assert np.mean(seen[200:], axis=0) == pytest.approx([0.5, 0.5], abs=0.02)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, 0.6], "Wrong.weights: row sums to 1.1"),
        ([1.5, -0.5], "Wrong.weights: entry .1. is -0.5"),
        ([1.0], r"Wrong.weights: expected shape \[M\] with M=2"),
        ([np.nan, 1.0], "not finite"),
        (None, "Wrong.weights"),
    ],
)
def test_weights_that_are_none_are_refused_by_name(weights, message):
    class Wrong:
        def weights(self, returns, rank_weights, last):
            return weights

    with pytest.raises(InvalidInputError, match=message):
        roll(Standings(2, 0.2), Wrong(), np.ones((2, 3)), np.ones(3), KofN(1, 2))


def test_what_is_paid_has_the_scale_of_independent_returns():
    standings, rng = Standings(1, smoothing=1.0), np.random.default_rng(0)
    standings.note_paid(7 + 5 * rng.standard_normal(100_000))
    assert standings.scale(0.9) == pytest.approx(np.sqrt(1 - 0.81) / 5, rel=0.01)
    constant = Standings(1, smoothing=1.0)
    constant.note_paid(np.full(10, 3.0))
    assert constant.scale(0.9) == 1


def test_margins_hold_as_often_as_they_say():
    rng = np.random.default_rng(1)
    samples = rng.beta(2, 5, size=(30, 4000))  # 4,000 repetitions of 30 samples in [0, 1], mean 2/7
    mean = samples.mean(axis=0)
    for margin in (student_margin(samples, 0.05), bernstein_margin(samples, 1.0, 0.05)):
        assert (mean - margin <= 2 / 7).mean() > 0.94
    assert (student_margin(samples, 0.05) < bernstein_margin(samples, 1.0, 0.05)).all()
