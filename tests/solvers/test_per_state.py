"""Compiled games of single states: against the linear programme, the solver in tensors, and each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cautious import KofN, solve_bandit, solve_exact
from cautious.solvers.adversary import SolveBatch
from cautious.solvers.cfr import CFROptions, PerStateGame, Problem, minimise_regret_of_all
from cautious.solvers.per_state import _sort, _sort_by_digits, play_states
from cautious.solvers.per_state_cfr import minimise_regret_in_states
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


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(-3, 3), st.floats(-1e300, 1e300)), min_size=1, max_size=300))
def test_sorting_is_stable_sorting(values):
    numbers = np.array(values, dtype=np.float64)
    for sort in (_sort, _sort_by_digits):
        order = np.empty(len(values), dtype=np.int64)
        sort(order, numbers)
        assert order.tolist() == np.argsort(numbers, kind="stable").tolist()


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
