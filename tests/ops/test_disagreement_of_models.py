"""How far models differ, by hand; and what the next draw stays below, by chance."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from cautious.beliefs.disagreement import disagreement, predictive_quantile


def test_two_models_by_hand():
    """State 0: actions differ by ±0.5 and not at all, √((0.25 + 0) / 2); state 1: by ±3 and ±4, √((9 + 16) / 2)."""
    rewards = torch.tensor([[[1.0, 0.4], [3.0, 0.0]], [[0.0, 0.4], [-3.0, 8.0]]])
    assert disagreement(rewards).tolist() == pytest.approx([0.125**0.5, 12.5**0.5])


def test_a_constant_is_no_disagreement_and_a_factor_is_one():
    rewards = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(disagreement(rewards + 7), disagreement(rewards), atol=1e-5)
    assert torch.allclose(disagreement(-2 * rewards), 2 * disagreement(rewards))
    assert disagreement(rewards[:1]).tolist() == [0, 0, 0, 0]


def test_the_quantile_is_between_order_statistics_if_there_are_enough():
    values = torch.arange(1.0, 40.0)  # 39 draws: the 38th has 38/40 = 95 % below it
    assert predictive_quantile(values, 0.95) == 38
    assert predictive_quantile(values[:19], 0.95) == 19
    assert predictive_quantile(torch.arange(1.0, 31.0), 0.95) == pytest.approx(29.45)  # 0.95 · 31
    assert predictive_quantile(torch.arange(1.0, 4.0), 0.1) == 1  # nothing lies below the smallest


def test_too_few_draws_are_extended_as_a_log_normal_would_be():
    values = torch.tensor([1.0, np.e, np.e**2])  # logarithms 0, 1, 2: mean 1, deviation 1
    reach = scipy.stats.t.ppf(0.95, 2) * (4 / 3) ** 0.5
    assert predictive_quantile(values, 0.95) == pytest.approx(np.exp(1 + reach))
    assert predictive_quantile(torch.tensor([0.0, 2.0, 1.0]), 0.95) == 2  # nought has no logarithm
    assert predictive_quantile(torch.tensor([2.0, 2.0, 2.0]), 0.95) == 2


@pytest.mark.parametrize("count", [4, 10, 18, 19, 25, 40, 100])
def test_the_next_draw_exceeds_it_in_five_of_a_hundred(count: int):
    """Exactly so for log-normal draws, if few; for any draws, if many."""
    rng = np.random.default_rng(count)
    draws = np.exp(rng.normal(size=(4000, count + 1)))
    above = [row[-1] > predictive_quantile(torch.from_numpy(row[:-1]), 0.95) for row in draws]
    assert np.mean(above) == pytest.approx(0.05, abs=0.012)


def test_a_states_spread_has_the_same_bits_in_any_company():
    rewards = torch.randn(37, 50, 5, generator=torch.Generator().manual_seed(0))
    together = disagreement(rewards)
    for state in range(50):
        assert torch.equal(disagreement(rewards[:, state : state + 1]), together[state : state + 1])
