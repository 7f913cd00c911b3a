from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cautious.errors import InvalidInputError
from cautious.ops.regret import RULES, accumulate, instantaneous_regret, regret_matching, uniform_policy
from cautious.types import Update


def test_regret_by_hand():
    # q = (1, 0), policy (0.25, 0.75): value 0.25, so regrets are 0.75 and -0.25.
    regret = instantaneous_regret(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.25, 0.75]]))
    assert regret.tolist() == [[0.75, -0.25]]


def test_the_policys_own_regret_is_zero():
    generator = torch.Generator().manual_seed(0)
    policy = torch.softmax(torch.randn(5, 4, 3, generator=generator, dtype=torch.float64), dim=-1)
    values = torch.randn(5, 4, 3, generator=generator, dtype=torch.float64)
    assert (policy * instantaneous_regret(values, policy)).sum(dim=-1).abs().max() < 1e-14


def test_updates_by_hand():
    before, regret = torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([[-3.0, 1.0, 0.25]])
    results = {update: accumulate(before, regret, RULES[update](0)).tolist()[0] for update in Update}
    assert results[Update.REGRET_MATCHING] == [-2.0, -1.0, 0.75]
    assert results[Update.REGRET_MATCHING_PLUS] == results[Update.PREDICTIVE] == [0.0, 0.0, 0.75]
    assert results[Update.AS_PRINTED] == [1.0, -1.0, 0.75]
    assert results[Update.DISCOUNTED] == [-1.0, -0.5, 0.375]  # t = 0: both factors are 1/2
    fourth = RULES[Update.DISCOUNTED](3)  # n = 4: 4^1.5 = 8
    assert accumulate(before, regret, fourth).tolist()[0] == pytest.approx([-1.0, -0.5, 0.75 * 8 / 9])


def test_regret_matching_by_hand():
    policy = regret_matching(torch.tensor([[3.0, 1.0, -5.0], [-1.0, 0.0, -2.0]]))
    assert policy[0].tolist() == [0.75, 0.25, 0.0]
    assert policy[1].tolist() == pytest.approx([1 / 3] * 3)


@settings(deadline=None)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=6))
def test_regret_matching_always_gives_a_distribution(regrets):
    policy = regret_matching(torch.tensor([regrets], dtype=torch.float64) / len(regrets))
    assert bool((policy >= 0).all())
    assert float(policy.sum()) == pytest.approx(1, abs=1e-12)


def test_a_policy_needs_states_and_actions():
    with pytest.raises(InvalidInputError, match="cumulative_regret"):
        regret_matching(torch.zeros(3))
    assert uniform_policy(2, 4).tolist() == [[0.25] * 4] * 2
