from __future__ import annotations

from itertools import product

import pytest
import torch

from cautious import TabularMDP, optimal_policy
from cautious.errors import InvalidInputError


def test_no_deterministic_policy_is_better(random_problem):
    mdp, rewards = random_problem(num_states=4, num_actions=3, discount=0.95)
    found = optimal_policy(mdp, rewards[0])
    every = torch.nn.functional.one_hot(torch.tensor(list(product(range(3), repeat=4))), 3).double()
    assert float(found.expected_return) == pytest.approx(float(mdp.expected_return(every, rewards[0]).max()), abs=1e-12)
    assert float(mdp.expected_return(found.policy, rewards[0])) == pytest.approx(float(found.expected_return))


def test_action_values_satisfy_bellmans_equation(random_problem):
    mdp, rewards = random_problem(discount=0.99)
    _, action_values, _ = optimal_policy(mdp, rewards[0])
    next_values = torch.einsum("sat,t->sa", mdp.transitions, action_values.max(dim=-1).values)
    assert (action_values - (0.01 * rewards[0] + 0.99 * next_values)).abs().max() < 1e-10


def test_a_batch_is_solved_as_its_members_are(random_problem):
    mdp, rewards = random_problem()
    batch = optimal_policy(mdp, rewards.reshape(3, 4, 6, 3))
    assert batch.policy.shape == (3, 4, 6, 3)
    assert batch.expected_return.shape == (3, 4)
    for index in range(12):
        alone = optimal_policy(mdp, rewards[index])
        assert torch.equal(batch.policy.reshape(12, 6, 3)[index], alone.policy)
        assert torch.equal(batch.expected_return.reshape(12)[index], alone.expected_return)


def test_ties_go_to_the_lowest_action():
    mdp = TabularMDP([[[1.0]] * 3], [1.0], 0.5)
    assert optimal_policy(mdp, [[1.0, 2.0, 2.0]]).policy.tolist() == [[0.0, 1.0, 0.0]]
    assert optimal_policy(mdp, [[0.0, 0.0, 0.0]]).policy.tolist() == [[1.0, 0.0, 0.0]]


def test_bad_rewards_are_refused(random_problem):
    mdp, rewards = random_problem()
    with pytest.raises(InvalidInputError, match=r"reward: expected shape .* got \[5, 3\]"):
        optimal_policy(mdp, rewards[0, :5])
    with pytest.raises(InvalidInputError, match="not finite"):
        optimal_policy(mdp, torch.full((6, 3), torch.inf))
