"""k-of-N: rank weights against enumeration, values against sampling, ties."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cautious import KofN
from cautious.errors import InvalidInputError
from cautious.risk import ranked_weights, worst_k_mean, worst_k_of


def enumerated_weights(k: int, n: int, draws: list[tuple[int, ...]], num_models: int) -> np.ndarray:
    """Weight of each rank, averaged over all draws of n models; models are numbered worst first."""
    weights = np.zeros(num_models)
    for draw in draws:
        for model in sorted(draw)[:k]:
            weights[model] += 1 / (k * len(draws))
    return weights


def test_weights_without_replacement_equal_enumeration():
    for num_models in range(1, 9):
        for n in range(1, num_models + 1):
            draws = list(combinations(range(num_models), n))
            for k in range(1, n + 1):
                expected = enumerated_weights(k, n, draws, num_models)
                assert np.abs(KofN(k, n).rank_weights(num_models).numpy() - expected).max() < 1e-12, (k, n, num_models)


def test_weights_with_replacement_equal_enumeration():
    for num_models, n in product(range(1, 5), range(1, 7)):
        draws = list(product(range(num_models), repeat=n))
        for k in range(1, n + 1):
            expected = enumerated_weights(k, n, draws, num_models)
            weights = KofN(k, n).rank_weights(num_models, replacement=True).numpy()
            assert np.abs(weights - expected).max() < 1e-12, (k, n, num_models)


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("level", ["1-of-20", "5-of-10", "100-of-1000", "20-of-20", "999-of-1000"])
def test_weights_stay_accurate_for_ten_thousand_models(level, replacement):
    weights = KofN.parse(level).rank_weights(10_000, replacement)
    assert weights.dtype == torch.float64
    assert abs(float(weights.sum()) - 1) < 1e-12
    assert bool((weights.diff() <= 0).all())
    assert bool((weights >= 0).all())


def test_a_hand_worked_case():
    # 4 models, draw 2, keep the worse one: of the 6 pairs, 3 have rank 1 as their worse, 2 rank 2, 1 rank 3, none rank 4.
    assert KofN(1, 2).rank_weights(4).tolist() == pytest.approx([3 / 6, 2 / 6, 1 / 6, 0])
    assert float(KofN(1, 2).value([40.0, 10.0, 30.0, 20.0])) == pytest.approx(10 * 3 / 6 + 20 * 2 / 6 + 30 / 6)


def test_the_worst_rank_weighs_as_often_as_it_is_drawn():
    # The worst of M models counts whenever it is drawn: n/M of the time, with weight 1/k.
    for k, n, num_models in [(1, 20, 2000), (5, 10, 777), (3, 7, 11)]:
        assert float(KofN(k, n).rank_weights(num_models)[0]) == pytest.approx(n / (k * num_models), rel=1e-12)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_weights_are_a_distribution_that_never_increases(data):
    num_models = data.draw(st.integers(1, 400))
    n = data.draw(st.integers(1, num_models))
    k = data.draw(st.integers(1, n))
    weights = KofN(k, n).rank_weights(num_models)
    assert abs(float(weights.sum()) - 1) < 1e-12
    assert bool((weights.diff() <= 0).all())


@pytest.mark.parametrize("replacement", [False, True])
def test_value_agrees_with_a_million_draws(replacement):
    rng = np.random.default_rng(0)
    returns = rng.normal(size=12)
    level = KofN(2, 5)
    draws = 1_000_000
    with_replacement = rng.integers(0, 12, size=(draws, 5))
    without = rng.random((draws, 12)).argpartition(5, axis=1)[:, :5]
    picked = with_replacement if replacement else without
    values = np.sort(returns[picked], axis=1)[:, :2].mean(axis=1)
    standard_error = values.std() / np.sqrt(draws)
    assert abs(float(level.value(returns, replacement)) - values.mean()) < 5 * standard_error


def test_value_works_over_leading_dimensions_and_ignores_order():
    returns = torch.randn(3, 4, 9, generator=torch.Generator().manual_seed(0))
    level = KofN(2, 6)
    values = level.value(returns)
    assert values.shape == (3, 4)
    assert torch.equal(values, level.value(returns.flip(-1)))
    assert float(values[1, 2]) == pytest.approx(float(level.value(returns[1, 2])))


def test_caution_grows_as_k_falls():
    returns = torch.randn(30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = [float(KofN(k, 10).value(returns)) for k in range(1, 11)]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(float(returns.mean()))


def test_levels_are_values():
    assert KofN.parse(" 1-of-20 ") == KofN(1, 20)
    assert str(KofN(3, 7)) == "3-of-7"
    assert len({KofN(1, 2), KofN.parse("1-of-2")}) == 1
    with pytest.raises(AttributeError):
        KofN(1, 2).k = 2  # type: ignore[misc]


@pytest.mark.parametrize(("k", "n"), [(0, 5), (-1, 5), (1, 0), (6, 5), (1.5, 5), ("1", 5), (True, 5)])
def test_impossible_levels_are_refused(k, n):
    with pytest.raises(InvalidInputError, match="KofN"):
        KofN(k, n)


@pytest.mark.parametrize("text", ["", "1of20", "1-of-", "a-of-b", "1-of-20-of-3", "-1-of-20", 3, None])
def test_unreadable_levels_are_refused(text):
    with pytest.raises(InvalidInputError, match="k-of-n"):
        KofN.parse(text)


def test_the_message_names_value_rule_and_way_out():
    with pytest.raises(InvalidInputError, match=r"k=30 exceeds n=20; k is how many"):
        KofN(30, 20)
    with pytest.raises(InvalidInputError, match=r"n=20 exceeds the 5 models .* more models"):
        KofN(1, 20).rank_weights(5)
    assert KofN(1, 20).rank_weights(5, replacement=True).shape == (5,)
    with pytest.raises(InvalidInputError, match="finite"):
        KofN(1, 2).value([0.0, float("nan"), 1.0])


def test_ties_go_to_the_earlier_model():
    values = torch.tensor([1.0, 0.0, 0.0, 0.0, -1.0], dtype=torch.float64)
    assert worst_k_of(values, 3).tolist() == [4, 1, 2]
    assert worst_k_of(torch.zeros(4), 1).tolist() == [0]
    weights = ranked_weights(values, torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0]))
    assert weights.tolist() == pytest.approx([0.0, 0.3, 0.15, 0.05, 0.5])


def test_worst_k_mean_chooses_in_each_state_anew():
    # Three models, two states, one action: model 0 is worst in state 0, model 2 in state 1.
    rewards = torch.tensor([[[0.0], [9.0]], [[5.0], [5.0]], [[9.0], [0.0]]])
    mean, value = worst_k_mean(rewards, rewards[..., 0], k=1)
    assert mean.tolist() == [[0.0], [0.0]]
    mean, value = worst_k_mean(rewards, rewards[..., 0], k=2)
    assert mean.tolist() == [[2.5], [2.5]]
    assert value.tolist() == [2.5, 2.5]
    mean, _ = worst_k_mean(rewards, rewards[..., 0], k=3)
    assert mean.flatten().tolist() == pytest.approx([14 / 3, 14 / 3])
