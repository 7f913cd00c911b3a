"""Many rows, a block at a time: what one call gives, with the same bits, and a true count of the rows done."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cautious import CautiousPolicy, KofN, fit_ensemble
from cautious.errors import InvalidInputError
from cautious.policy import states

LEVELS = [KofN(1, 20), KofN(5, 10), KofN(3, 3)]


@pytest.fixture(scope="module")
def policy():
    rng = np.random.default_rng(0)
    options = {"num_models": 20, "num_epochs": 3, "progress": False, "validation_fraction": 0}
    return CautiousPolicy(fit_ensemble(rng.normal(size=(80, 4)), rng.normal(size=(80, 3)), **options), "1-of-20")


def test_blocks_give_what_one_call_gives(policy, monkeypatch):
    rows = 3 * np.random.default_rng(1).normal(size=(150, 4))
    whole = policy.solve_rows(rows, LEVELS)

    monkeypatch.setattr(states, "ROWS_PER_BLOCK", 40)
    told = []
    for ours, expected in zip(policy.solve_rows(rows, LEVELS, lambda *now: told.append(now)), whole, strict=True):
        assert torch.equal(ours, expected)
    assert told[0] == (0, 150)
    assert told[-1] == (150, 150)
    assert sorted(told) == told
    rewards = policy.belief.rewards(rows, bounded=False).double()
    for number, level in enumerate(LEVELS):
        returns = (rewards * whole.policies[number]).sum(dim=-1).T
        torch.testing.assert_close(whole.values[number], level.value(returns), atol=1e-12, rtol=0)
    assert bool((whole.gaps >= 0).all())
    single = policy.decide(rows[7:8])
    assert torch.equal(single.probabilities[0], whole.policies[0, 7])


@pytest.mark.parametrize("size", [40, 1024])
def test_rows_that_overflow_have_their_own_numbers(policy, monkeypatch, size):

    monkeypatch.setattr(states, "ROWS_PER_BLOCK", size)
    rows = np.random.default_rng(1).normal(size=(150, 4))
    whole = policy.solve_rows(rows, LEVELS)
    bad = [7, *range(40, 80), 133]  # one block of bad rows alone
    rows[bad, 2] = 1e38
    with pytest.raises(InvalidInputError, match=r"states: 42 of 150 rows .*'2' is too large in rows? 7, 40.*1e\+38"):
        policy.solve_rows(rows, LEVELS)
    told = []
    solved = policy.solve_rows(rows, LEVELS, lambda *now: told.append(now), allow_undecided=True)
    assert solved.too_large.nonzero().flatten().tolist() == bad
    assert size > 40 or told[-1] == (150, 150)
    good = ~solved.too_large
    assert torch.equal(solved.policies, whole.policies[:, good])
    assert torch.equal(solved.values, whole.values[:, good])
    assert torch.equal(solved.spread, whole.spread[good])


def test_an_interrupt_ends_between_blocks(policy, monkeypatch):

    monkeypatch.setattr(states, "ROWS_PER_BLOCK", 10)

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        policy.solve_rows(np.zeros((100, 4)), LEVELS, stop)
