"""Sparse worlds of some hundred states without a horizon: sweeps instead of factors, and an ascent in many states at a time."""

import numpy as np
import pytest
import scipy.sparse
import torch

from cautious import KofN, TabularMDP, UncertainMDP, optimal_policy, solve_mdp
from cautious.mdp.evaluation import optimal_values, policy_reach, policy_values
from cautious.risk import weights_by_rank
from cautious.solvers.uncertain.ascent import ascend
from cautious.solvers.uncertain.problem import UncertainProblem

pytestmark = pytest.mark.filterwarnings("ignore::cautious.errors.FewModelsWarning")
STATES, ACTIONS, MODELS, DISCOUNT = 250, 3, 4, 0.9


@pytest.fixture(scope="module")
def world():
    """Three successors of every pair, the same in all models; chances differ by one shared doubt."""
    rng = np.random.default_rng(0)
    pairs = STATES * ACTIONS
    rows, columns = np.repeat(np.arange(pairs), 3), rng.integers(0, STATES, 3 * pairs)
    base, shown = rng.random(3 * pairs), rng.normal(size=3 * pairs)
    models = []
    for m in range(MODELS):
        matrix = scipy.sparse.csr_array((base * np.exp((m - 1.5) * shown), (rows, columns)), shape=(pairs, STATES))
        models.append(matrix.multiply(1 / matrix.sum(axis=1)[:, None]).tocsr())
    return UncertainMDP(models, np.full(STATES, 1 / STATES), DISCOUNT), rng.random((STATES, ACTIONS)) ** 3, models


def chains(models, policy):
    """P_π of each model, dense: the truth is a dense solution with it."""
    return [np.einsum("sa,sat->st", policy, model.toarray().reshape(STATES, ACTIONS, STATES)) for model in models]


def test_values_and_reach_are_those_of_dense_systems(world):
    uncertain, pays, models = world
    assert uncertain.dynamics.takes_sweeps
    policy = np.random.default_rng(1).dirichlet(np.ones(ACTIONS), STATES)
    rewards = np.ascontiguousarray(np.repeat(pays.reshape(-1, 1), MODELS, axis=1))
    values = policy_values(uncertain.dynamics, rewards, policy[None], None)[0]
    reach = policy_reach(uncertain.dynamics, policy[None], None)[0]
    for m, chain in enumerate(chains(models, policy)):
        system = np.eye(STATES) - DISCOUNT * chain
        assert np.abs(values[:, m] - np.linalg.solve(system, (policy * pays).sum(axis=1))).max() < 1e-11
        assert np.abs(reach[:, m] - np.linalg.solve(system.T, np.full(STATES, 1 / STATES))).max() < 1e-12


def test_own_optima_are_those_of_policy_iteration(world):
    uncertain, pays, models = world
    rewards = np.ascontiguousarray(np.repeat(pays.reshape(-1, 1), MODELS, axis=1)) * (1 - DISCOUNT)
    values, _ = optimal_values(uncertain.dynamics, rewards, None)
    for m, model in enumerate(models):
        mdp = TabularMDP(model, np.full(STATES, 1 / STATES), DISCOUNT)
        best = float(optimal_policy(mdp, torch.from_numpy(pays)).expected_return)
        assert best - 1e-14 <= values[0, :, m].mean() <= best + 1e-11  # from above, so that the bound holds


def test_small_and_dense_worlds_keep_their_factors():
    dense = np.random.default_rng(0).dirichlet(np.ones(40), size=(2, 40, 3))
    assert not UncertainMDP(dense, np.full(40, 1 / 40), DISCOUNT).dynamics.takes_sweeps
    few = [scipy.sparse.csr_array(np.eye(6)), scipy.sparse.csr_array(np.eye(6))]
    assert not UncertainMDP(few, np.full(6, 1 / 6), DISCOUNT).dynamics.takes_sweeps


def test_the_ascent_ends_where_no_single_change_of_steepest_slope_improves(world):
    uncertain, pays, _ = world
    weights = weights_by_rank(KofN(1, 2), MODELS).numpy()
    problem = UncertainProblem(uncertain.dynamics, uncertain.scaled_rewards(torch.from_numpy(pays)), weights, None)
    start = np.random.default_rng(2).integers(0, ACTIONS, (1, STATES))
    end = ascend(problem, weights, start)

    def worth(actions):
        return problem.returns(problem.of_actions(actions)) @ weights

    assert worth(end) > worth(start) + 0.01
    assert np.array_equal(ascend(problem, weights, end), end)
    rng = np.random.default_rng(3)
    for state in rng.choice(STATES, 20, replace=False):
        for action in range(ACTIONS):
            other = end.copy()
            other[0, state] = action
            assert worth(other) <= worth(end) + 1e-6  # of returns between 0 and 1


def test_bounds_hold_and_the_mixture_has_the_value_that_is_stated(world):
    uncertain, pays, models = world
    solution = solve_mdp(uncertain, pays, "1-of-2", tolerance=0.2)
    certificate = solution.certificate()
    start = np.full(STATES, 1 / STATES)

    def value(policy):
        systems = [np.eye(STATES) - DISCOUNT * chain for chain in chains(models, policy)]
        paid = (policy * pays).sum(axis=1)
        return np.array([(1 - DISCOUNT) * start @ np.linalg.solve(system, paid) for system in systems])

    weights = weights_by_rank(KofN(1, 2), MODELS).numpy()
    mixed = sum(
        float(share) * value(policy.numpy())
        for share, policy in zip(solution.mixture.weights, solution.mixture.policies, strict=True)
    )
    assert np.sort(mixed) @ weights == pytest.approx(float(certificate.lower), abs=1e-12)
    for seed in range(5):
        policy = np.random.default_rng(seed).dirichlet(np.full(ACTIONS, 0.1), STATES)
        assert np.sort(value(policy)) @ weights <= float(certificate.upper) + 1e-12
    nominal = optimal_policy(TabularMDP(sum(models) / MODELS, start, DISCOUNT), torch.from_numpy(pays)).policy
    assert np.sort(value(nominal.numpy())) @ weights <= float(certificate.lower) + 1e-9
