"""Caution in an MDP comes from disagreement alone: not from ties, nor from what the solver had no time for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cautious import CautiousPolicy, RewardEnsemble, TabularMDP, driving_world, optimal_policy, solve_mdp
from cautious.policy.decision import all_models_agree, nearest_ordinary
from cautious.solvers.optimal import optimal_actions


@pytest.mark.parametrize("novel", [False, True])
def test_models_that_say_the_same_are_not_cautious_anywhere(novel):
    world = driving_world(novel)
    same = world.features["reward"].expand(20, -1, -1)
    policy = CautiousPolicy(same, "1-of-20", mdp=world.mdp, num_iterations=5)
    decision = policy.decide(range(len(world.states)))
    assert decision.caution.max() == 0
    levels = policy.decide_at(["1-of-20", "20-of-20"], range(len(world.states)))
    assert all(each.caution.max() == 0 for each in levels)
    value = world.mdp.expected_return(decision.probabilities, same[0])
    assert float(value) == pytest.approx(float(optimal_policy(world.mdp, same[0]).expected_return), abs=1e-12)


def test_on_the_familiar_road_the_shipped_belief_drives_as_usual():
    belief = RewardEnsemble.load("driving")
    caution = {}
    for novel in (False, True):
        world = driving_world(novel)
        policy = CautiousPolicy(belief.rewards(world), "1-of-20", mdp=world.mdp)
        caution[novel] = policy.decide(range(len(world.states))).caution
    assert caution[False].max() < 1e-9  # its models differ, but not about what is best
    assert caution[True].mean() > 0.1


def test_equally_good_actions_are_no_sign_of_caution():
    world = TabularMDP(np.ones((1, 3, 1)), [1.0], 0.5)
    decision = CautiousPolicy(np.array([[[1.0, 1.0, 0.0]], [[1.0, 1.0, 0.5]]]), "1-of-2", mdp=world).decide([0])
    assert decision.caution.tolist() == [0]
    ordinary = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    policies = torch.tensor([[[0.25, 0.5, 0.25]], [[0.0, 0.0, 1.0]]], dtype=torch.float64)
    nearest = nearest_ordinary(policies, ordinary, torch.tensor([[True, True, False]]))
    assert nearest.tolist() == [[[1 / 3, 2 / 3, 0.0]], [[1.0, 0.0, 0.0]]]  # where it has none of them, the first


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_the_best_for_every_model_is_the_best_at_every_level(seed):
    rng = np.random.default_rng(seed)
    world = TabularMDP(rng.dirichlet(np.ones(4), (4, 3)), np.full(4, 0.25), 0.8)
    base = rng.normal(size=(4, 3))
    scaled = torch.from_numpy(np.stack([factor * base + shift for factor, shift in rng.uniform(0.5, 2, (5, 2))]))
    ordinary, action_values, _ = optimal_policy(world, scaled.mean(dim=0))
    assert all_models_agree(scaled, ordinary, world).all()  # a positive factor and a constant move no optimum
    assert not all_models_agree(
        torch.cat([scaled, -scaled[:1]]), ordinary, world
    ).any()  # every state leads to every other
    assert torch.equal(ordinary, ordinary * optimal_actions(world, scaled.mean(dim=0), action_values))
    assert CautiousPolicy(scaled, "1-of-5", mdp=world, num_iterations=3).decide(range(4)).caution.max() == 0
    game = solve_mdp(world, scaled, "1-of-5", sampling="exact", num_iterations=100)
    gained = game.exact_value(game.best_policy) - game.exact_value(ordinary)
    assert float(gained) <= 1e-12


def test_of_equally_good_iterates_the_later_is_kept():
    # State 1 is never reached: its policy does not move the value, and takes longer to settle, with two actions close together.
    dynamics = np.zeros((2, 3, 2))
    dynamics[0, :, 0] = dynamics[1, :, 1] = 1
    world = TabularMDP(dynamics, [1.0, 0.0], 0.5)
    rewards = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 0.9, 1.0]]]).expand(2, -1, -1)
    early, late = (solve_mdp(world, rewards, "1-of-2", sampling="exact", num_iterations=n) for n in (3, 50))
    assert early.best_policy[0].tolist() == late.best_policy[0].tolist() == [1.0, 0.0, 0.0]
    assert 0 < early.best_policy[1, 2] < 1
    assert late.best_policy[1].tolist() == [0.0, 0.0, 1.0]


def test_a_dispute_elsewhere_does_not_matter_where_nothing_leads_to_it():
    # States 0 and 1 lead nowhere else; 2 leads to 1 or, by its third action, to 0, where models differ.
    dynamics = np.zeros((3, 3, 3))
    dynamics[0, :, 0] = dynamics[1, :, 1] = 1
    dynamics[2, :2, 1] = dynamics[2, 2, 0] = 1
    world = TabularMDP(dynamics, np.full(3, 1 / 3), 0.9)
    agreed = [1.0, 0.999, -1.0]
    rewards = torch.tensor([[[1.0, 0.25, 0.0], agreed, agreed], [[0.0, 0.25, 0.0], agreed, agreed]])
    ordinary = optimal_policy(world, rewards.mean(dim=0)).policy
    assert all_models_agree(rewards, ordinary, world).tolist() == [False, True, False]
    decision = CautiousPolicy(rewards, "1-of-2", mdp=world).decide([0, 1])
    assert decision.caution[0] > 0.9
    assert decision.caution[1] == 0
