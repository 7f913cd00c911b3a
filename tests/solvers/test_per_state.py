"""Compiled games of single states: against the linear programme, the solver in tensors, and each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from played_states import play_states

from cautious import KofN, solve_bandit, solve_exact
from cautious.policy.decision import disagreement_of, has_disagreement, ordinary_policy
from cautious.solvers.adversary import SolveBatch
from cautious.solvers.cfr import CFROptions, PerStateGame, Problem, minimise_regret_of_all
from cautious.solvers.per_state import decide_states
from cautious.solvers.ranking import _sort_by_digits, _sort_in_buckets, sorting_space
from cautious.solvers.recorded_states import minimise_regret_in_states
from cautious.solvers.rewards import as_rewards
from cautious.types import Sampling, Update

LEVELS = [KofN(1, 20), KofN(5, 10), KofN(3, 3)]


def random_rewards(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(sum(shape)).normal(size=shape))


def test_the_bounds_hold_the_optimum_of_the_linear_programme():
    rewards = random_rewards(30, 8, 4)
    found = play_states(rewards, LEVELS, num_iterations=2000, tolerance=2e-3)
    for number, level in enumerate(LEVELS):
        for state in range(8):
            exact = solve_exact(torch.ones(1), rewards[:, state : state + 1], level)
            optimum = float(exact.exact_value(exact.policy))
            assert float(found.lower[number, state]) <= optimum + 1e-9
            assert float(found.upper[number, state]) >= optimum - 1e-9
    reach = rewards.amax(dim=(0, 2)) - rewards.amin(dim=(0, 2))
    assert bool((found.upper - found.lower <= 2e-3 * reach).all())


def test_the_lower_bound_is_the_value_that_the_torch_solver_gives_the_policy():
    rewards = random_rewards(64, 40, 6)
    found = play_states(rewards, LEVELS, num_iterations=100, tolerance=0)
    oracle = solve_bandit(rewards, LEVELS, regime="single-state", sampling="exact", num_iterations=1)
    torch.testing.assert_close(oracle.exact_value(found.policy), found.lower, atol=1e-12, rtol=0)
    torch.testing.assert_close(found.policy.sum(dim=-1), torch.ones(3, 40).double(), atol=1e-12, rtol=0)


def test_help_is_asked_for_where_the_gamble_may_fail():
    """By hand: help pays 0.25 always, the gamble 1 under half of the models and 0 under the rest; 1-of-2 of 2 models."""
    rewards = torch.tensor([[[1.0, 0.25]], [[0.0, 0.25]]])
    found = play_states(rewards, [KofN(1, 2), KofN(2, 2)], num_iterations=1000, tolerance=1e-6)
    assert found.policy[0, 0].tolist() == pytest.approx([0, 1], abs=1e-3)
    assert found.policy[1, 0].tolist() == pytest.approx([1, 0], abs=1e-3)
    assert found.lower[:, 0].tolist() == pytest.approx([0.25, 0.5], abs=1e-4)


def test_a_state_has_the_same_bits_alone_and_among_others():
    rewards = random_rewards(50, 150, 5)
    together = play_states(rewards, LEVELS, num_iterations=60, tolerance=1e-4)
    for state in (0, 63, 64, 149):
        alone = play_states(rewards[:, state : state + 1], LEVELS[:2], num_iterations=60, tolerance=1e-4)
        for one, all_of_them in zip(alone, together, strict=True):
            assert torch.equal(one[:, 0], all_of_them[:2, state])


NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([0.0, 5e-324]), st.floats(-1.7e308, 1.7e308))


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=300), st.lists(NUMBERS, min_size=2, max_size=2))
def test_sorting_is_stable_sorting(values, ends):
    numbers = np.array(values, dtype=np.float64)
    expected = np.argsort(numbers, kind="stable").tolist()
    order, keys, scratch = sorting_space(len(values))
    keys[0], keys[-1] = ends  # as another policy left them: buckets of any width, and none at all
    _sort_in_buckets(order, numbers, keys, scratch)
    assert order.tolist() == expected
    assert keys.tolist() == sorted(values)
    _sort_by_digits(order, numbers)
    assert order.tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("num_models", "num_actions"), [(2, 2), (33, 1), (100, 11), (300, 4)])
def test_compiled_decisions_have_the_bits_of_those_in_tensors(num_models, num_actions, dtype):
    rewards = random_rewards(num_models, 90, num_actions).to(dtype)
    rewards[:, :45, 0] += 2  # so that models agree in some states
    rewards[:, ::3] = rewards[:, ::3].round()  # and ties
    levels = [level for level in (KofN(1, 2), KofN(2, 2), KofN(1, 20)) if level.n <= num_models]
    found = decide_states(rewards, levels, num_iterations=40, tolerance=1e-3)
    ordinary = ordinary_policy(rewards)
    assert torch.equal(found.ordinary, ordinary)
    assert torch.equal(found.spread, disagreement_of(rewards))
    games = play_states(rewards, levels, num_iterations=40, tolerance=1e-3)
    is_cautious = torch.tensor([[level.k < level.n] for level in levels])
    played = has_disagreement(rewards, ordinary) & is_cautious  # [L, S]
    assert torch.equal(found.policies, torch.where(played[..., None], games.policy, ordinary))
    assert torch.equal(found.gaps, torch.where(played, games.upper - games.lower, 0.0))


@pytest.mark.parametrize("update", Update)
@pytest.mark.parametrize(("sampling", "tracked"), [("queue", False), ("queue", True), ("exact", True)])
def test_compiled_iterations_are_those_in_tensors(update, sampling, tracked):
    """The two sum in other orders. The rewards have no ties, so that 1e-16 here and there stays that."""
    rewards = as_rewards(random_rewards(60, 70, 5))
    levels = (KofN(1, 20), KofN(3, 7), KofN(10, 10), KofN(2, 60))  # the last draws all models
    problem = Problem(PerStateGame(), rewards, SolveBatch(levels, 2))
    options = CFROptions(40, Sampling(sampling), update, 3, tracked)
    ours, oracle = minimise_regret_in_states(problem, options), minimise_regret_of_all(problem, options)
    pairs = [(ours.policy, oracle.policy), (ours.history.average_policy(), oracle.history.average_policy())]
    for name in ("sampled_value", "exact_value", "largest_regret", "best_policy", "best_value"):
        pairs.append((getattr(ours.history, name), getattr(oracle.history, name)))
    if tracked:
        pairs.append((ours.mixtures, oracle.mixtures))
    assert (ours.mixtures is None) == (oracle.mixtures is None) == (not tracked)
    for found, expected in pairs:
        torch.testing.assert_close(found, expected.expand_as(found), atol=1e-11, rtol=0, equal_nan=True)
