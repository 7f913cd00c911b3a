from __future__ import annotations

import math

import pytest

from cautious.errors import InvalidInputError
from cautious.ops.bounds import (
    cfr_regret_bound,
    cumulative_regret_bound,
    k_of_n_regret_bound,
    optimality_gap,
    sampling_slack,
)


def test_bounds_by_hand():
    # U = 3, A = 4, T = 100: C^T = 2·3·√400 = 120; γ = 0.9 makes it 1200; p = e^-2 adds 4·3·√(2·100·2) = 240.
    assert cumulative_regret_bound(3, 4, 100) == 120
    assert cfr_regret_bound(3, 4, 100, 0.9) == pytest.approx(1200)
    assert sampling_slack(3, 100, math.exp(-2)) == pytest.approx(240)
    assert k_of_n_regret_bound(3, 4, 100, 0.9, math.exp(-2)) == pytest.approx(1440)
    assert optimality_gap(3, 4, 100, 0.9, math.exp(-2)) == pytest.approx(14.4)


def test_without_sampling_the_slack_is_gone():
    assert sampling_slack(3, 100, 1) == 0
    assert k_of_n_regret_bound(3, 4, 100, 0.9, 1) == cfr_regret_bound(3, 4, 100, 0.9)


@pytest.mark.parametrize("p", [0, -0.1, 1.1])
def test_a_failure_probability_is_one(p):
    with pytest.raises(InvalidInputError, match="failure_probability"):
        sampling_slack(1, 1, p)
