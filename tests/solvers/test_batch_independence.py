"""Single-state problems have the same bits whatever else is solved in the same call: levels, states, blocks of models."""

from __future__ import annotations

import pytest
import torch

from cautious import CautiousPolicy, solve_bandit
from cautious.solvers import adversary
from cautious.solvers import rewards as rewards_module

OPTIONS = {"regime": "single-state", "sampling": "exact", "num_iterations": 40}


@pytest.fixture(params=[1, 2])
def _threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def random_rewards(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("shape", [(333, 197, 3), (333, 97, 11), (500, 61, 7)])
def test_other_levels_in_the_same_call_do_not_show(shape):
    rewards = random_rewards(*shape)
    alone, both = (solve_bandit(rewards, levels, **OPTIONS) for levels in ("1-of-20", ["1-of-20", "2-of-20"]))
    assert torch.equal(alone.policy, both.policy[0])
    assert torch.equal(alone.best_policy, both.best_policy[0])


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("block_bytes", [rewards_module.BLOCK_BYTES, 2**12])
def test_other_states_in_the_same_call_do_not_show(monkeypatch, block_bytes):
    monkeypatch.setattr(rewards_module, "BLOCK_BYTES", block_bytes)  # the smaller one cuts the models into blocks
    policy = CautiousPolicy(random_rewards(333, 30, 11), "1-of-20", num_iterations=40)
    together = policy.decide(range(30)).probabilities
    for state in range(0, 30, 7):
        assert torch.equal(policy.decide([state]).probabilities[0], together[state])


def test_pieces_that_are_not_kept_have_the_same_bits(monkeypatch):
    rewards = random_rewards(333, 40, 5)
    kept = solve_bandit(rewards, ["1-of-20", "5-of-20"], **OPTIONS)
    monkeypatch.setattr(adversary, "KEPT_BYTES", 0)
    monkeypatch.setattr(adversary, "CHUNK_BYTES", 2**17)
    assert torch.equal(solve_bandit(rewards, ["1-of-20", "5-of-20"], **OPTIONS).best_policy, kept.best_policy)
