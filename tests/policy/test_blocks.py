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
    whole = policy.decide_at(LEVELS, rows)

    monkeypatch.setattr(states, "ROWS_PER_BLOCK", 40)
    told = []
    parts = policy.decide_at(LEVELS, rows, progress=lambda *now: told.append(now))
    for name in ("probabilities", "ordinary", "caution", "disagreement", "gap", "value"):
        for ours, expected in zip(parts, whole, strict=True):
            assert torch.equal(getattr(ours, name), getattr(expected, name))
    assert told[0] == (0, 150)
    assert told[-1] == (150, 150)
    assert sorted(told) == told
    rewards = policy.belief.rewards(rows, bounded=False).double()
    for number, level in enumerate(LEVELS):
        returns = (rewards * whole[number].probabilities).sum(dim=-1).T
        torch.testing.assert_close(whole[number].value, level.value(returns), atol=1e-12, rtol=0)
        assert bool((whole[number].gap >= 0).all())
    single = policy.decide(rows[7:8])
    assert torch.equal(single.probabilities[0], whole[0].probabilities[7])


@pytest.mark.parametrize("size", [40, 1024])
def test_rows_that_overflow_have_their_own_numbers(policy, monkeypatch, size):

    monkeypatch.setattr(states, "ROWS_PER_BLOCK", size)
    rows = np.random.default_rng(1).normal(size=(150, 4))
    whole = policy.decide_at(LEVELS, rows)
    bad = [7, *range(40, 80), 133]  # one block of bad rows alone
    rows[bad, 2] = 1e38
    with pytest.raises(InvalidInputError, match=r"states: 42 of 150 rows .*'2' is too large in rows? 7, 40.*1e\+38"):
        policy.decide_at(LEVELS, rows)
    told = []
    decisions = policy.decide_at(LEVELS, rows, allow_undecided=True, progress=lambda *now: told.append(now))
    assert decisions[0].undecided.nonzero().flatten().tolist() == bad
    assert size > 40 or told[-1] == (150, 150)
    good = decisions[0].judged
    for ours, expected in zip(decisions, whole, strict=True):
        for name in ("probabilities", "value", "disagreement"):
            assert torch.equal(getattr(ours, name)[good], getattr(expected, name)[good])


def test_an_interrupt_ends_between_blocks(policy, monkeypatch):

    monkeypatch.setattr(states, "ROWS_PER_BLOCK", 10)

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        policy.decide_at(LEVELS, np.zeros((100, 4)), progress=stop)
