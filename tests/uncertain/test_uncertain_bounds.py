"""Both bounds in 500 random uncertain worlds, against programs and enumerations that know nothing of the solver."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.optimize
import torch

from cautious import KofN, UncertainMDP
from cautious.errors import FewModelsWarning
from cautious.risk import CVaR, MeanCVaR, WorstCase, weights_by_rank
from cautious.solvers.uncertain.solve import solve_uncertain

pytestmark = pytest.mark.filterwarnings("ignore::cautious.errors.FewModelsWarning")
NUM_WORLDS, CHUNKS = 500, 10
ROUNDING = 1e-8
"""Of HiGHS, whose tolerance is 1e-7 of numbers of size one at most, and of sums over histories."""


def random_world(rng: np.random.Generator, number: int) -> tuple[UncertainMDP, np.ndarray]:
    """2 to 6 states, 2 or 3 actions, 1 to 6 models, a horizon of 1 to 3; some transitions are possible in few models only."""
    num_states, num_actions, num_models = rng.integers(2, 7), rng.integers(2, 4), rng.integers(1, 7)
    horizon = int(rng.integers(1, 4)) if num_states * num_actions <= 9 else int(rng.integers(1, 3))
    chance = rng.dirichlet(np.full(num_states, (0.1, 0.5, 2.0)[number % 3]), size=(num_models, num_states, num_actions))
    chance = np.where(chance < 0.02, 0, chance)
    chance /= chance.sum(axis=-1, keepdims=True)
    if number % 5 == 0:  # some rows are the same in all models
        chance[:, 0] = chance[0, 0]
    rewards = rng.normal(size=(num_models, num_states, num_actions))
    start = rng.dirichlet(np.ones(num_states))
    if number % 4 == 0:
        start = np.eye(num_states)[0]
    world = UncertainMDP(chance, start, (0.5, 0.9, 1.0)[number % 3], horizon=horizon)
    return world, rewards if number % 2 else rewards[0]


def random_level(rng: np.random.Generator, num_models: int):
    n = int(rng.integers(1, num_models + 1))
    levels = (KofN(int(rng.integers(1, n + 1)), n), CVaR(float(rng.uniform(0.1, 1))), WorstCase(), MeanCVaR(0.3, 0.5))
    return levels[int(rng.integers(4))]


def optimum_with_memory(world: UncertainMDP, rewards: np.ndarray, weights: np.ndarray, offset: np.ndarray) -> float:
    """The best value of any policy, with memory and coins: a linear program over plans x(history, action).

    The return of model m is linear in x; the value of returns v is max Σ_g α_g + Σ_m β_m with α_g + β_m <= w_g v_m.
    """
    chance = world.transitions.numpy()
    num_models, num_states, num_actions, _ = chance.shape
    rewards = np.broadcast_to(rewards, (num_models, num_states, num_actions)) / world.normaliser
    histories = [(s, None, np.full(num_models, world.initial_state_dist[s].item()), 0) for s in range(num_states)]
    histories = [history for history in histories if history[2].max() > 0]
    parents, gains, number = (
        [],
        [],
        0,
    )  # of each (history, action): the (history, action) before it, its pay in each model
    while number < len(histories):
        state, before, likelihood, stage = histories[number]
        for action in range(num_actions):
            parents.append(before)
            gains.append(world.discount**stage * likelihood * rewards[:, state, action])
            if stage + 1 < world.horizon:
                for s in range(num_states):
                    reached = likelihood * chance[:, state, action, s]
                    if reached.max() > 0:
                        histories.append((s, number * num_actions + action, reached, stage + 1))
        number += 1
    num_plans = len(parents)
    flow = np.zeros((number, num_plans))
    root = np.zeros(number)
    for history in range(number):
        flow[history, history * num_actions : (history + 1) * num_actions] = 1
        if parents[history * num_actions] is None:
            root[history] = 1
        else:
            flow[history, parents[history * num_actions]] -= 1
    # Variables: x, α [M ranks], β [M].
    returns = np.array(gains).T  # [M, plans]
    rows, limits = [], []
    for rank, model in product(range(num_models), range(num_models)):
        row = np.zeros(num_plans + 2 * num_models)
        row[:num_plans] = -weights[rank] * returns[model]
        row[num_plans + rank], row[num_plans + num_models + model] = 1, 1
        rows.append(row)
        limits.append(-weights[rank] * offset[model])
    result = scipy.optimize.linprog(
        np.r_[np.zeros(num_plans), -np.ones(2 * num_models)],
        A_ub=np.array(rows),
        b_ub=limits,
        A_eq=np.c_[flow, np.zeros((number, 2 * num_models))],
        b_eq=root,
        bounds=[(0, None)] * num_plans + [(None, None)] * (2 * num_models),
        method="highs",
    )
    assert result.status == 0
    return -result.fun


def returns_of(world: UncertainMDP, rewards: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Returns [M] of a policy [T, S, A], stage by stage."""
    chance = world.transitions.numpy()
    rewards = np.broadcast_to(rewards, chance.shape[:3])
    reach, total = np.tile(world.initial_state_dist.numpy(), (len(world), 1)), np.zeros(len(world))
    for t in range(world.horizon):
        pairs = reach[..., None] * policy[t]
        total += world.discount**t * (pairs * rewards).sum(axis=(1, 2))
        reach = np.einsum("msa,msat->mt", pairs, chance)
    return total / world.normaliser


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_optimum_with_memory_lies_between_the_bounds_in_500_worlds(chunk):
    rng = np.random.default_rng(chunk)
    gaps = []
    for number in range(NUM_WORLDS // CHUNKS):
        world, rewards = random_world(rng, number)
        level = random_level(rng, len(world))
        objective = ("return", "regret")[number % 3 == 0]
        solution = solve_uncertain(world, rewards, level, objective=objective)
        certificate = solution.certificate()
        lower, upper = float(certificate.lower), float(certificate.upper)
        weights = weights_by_rank(level, len(world)).numpy()
        offset = solution.best_returns.numpy() if objective == "regret" else np.zeros(len(world))
        # The mixture earns what it says, by another evaluation.
        policies = solution.mixture.policies.numpy()
        returns = solution.mixture.weights.numpy() @ [returns_of(world, rewards, policy) for policy in policies]
        assert lower == pytest.approx(np.sort(returns - offset) @ weights, abs=ROUNDING)
        optimum = optimum_with_memory(world, rewards, weights, offset)
        assert lower <= optimum + ROUNDING
        assert optimum <= upper + ROUNDING
        if number % 5 == 1:
            remembering = solve_uncertain(world, rewards, level, objective=objective, memory=True)
            value = float(remembering.certificate().lower)
            assert lower - ROUNDING <= value <= optimum + ROUNDING
            assert value == pytest.approx(remembering.record["value_with_memory"], abs=ROUNDING)
            assert value >= optimum - 0.01
        gaps.append((upper - lower, upper - optimum))
    # Horizons are short, so that the tree can be opened to its end: nearly all of the gap is what memory is worth.
    assert np.median([gap for gap, _ in gaps]) < 0.02
    assert max(beyond for _, beyond in gaps) < 0.01


def test_the_program_agrees_with_all_deterministic_policies_with_memory():
    """Two states, two actions, two steps: 2^2 first actions, 2^4 second ones that the state before and after decide."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        chance, start = rng.dirichlet(np.ones(2), size=(3, 2, 2)), np.array([0.4, 0.6])
        rewards = rng.normal(size=(3, 2, 2))
        world = UncertainMDP(chance, start, 0.9, horizon=2)
        rows = []
        for first in product(range(2), repeat=2):
            for second in product(range(2), repeat=4):
                value = np.zeros(3)
                for s, s2 in product(range(2), repeat=2):
                    a, a2 = first[s], second[2 * s + s2]
                    value += start[s] * chance[:, s, a, s2] * (rewards[:, s, a] + 0.9 * rewards[:, s2, a2])
                rows.append(value / 1.9)
        # The worst of three models: the value of a matrix game of 64 policies against three models.
        game = scipy.optimize.linprog(
            np.r_[np.zeros(64), -1], A_ub=np.c_[-np.array(rows).T, np.ones(3)], b_ub=np.zeros(3),
            A_eq=np.r_[np.ones(64), 0][None], b_eq=[1], bounds=[(0, None)] * 64 + [(None, None)],
        )  # fmt: skip
        weights = np.array([1.0, 0.0, 0.0])
        assert optimum_with_memory(world, rewards, weights, np.zeros(3)) == pytest.approx(-game.fun, abs=ROUNDING)
        certificate = solve_uncertain(world, rewards, WorstCase()).certificate()
        assert float(certificate.lower) - ROUNDING <= -game.fun <= float(certificate.upper) + ROUNDING


def test_without_end_no_mixture_of_stationary_policies_is_above_the_bound_or_above_the_mixture_found():
    """All deterministic stationary policies are enumerated; the solver may be better, since it mixes actions, too."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        num_models = int(rng.integers(2, 6))
        chance = rng.dirichlet(np.full(3, 0.3), size=(num_models, 3, 2))
        rewards = rng.normal(size=(num_models, 3, 2))
        world = UncertainMDP(chance, [1.0, 0.0, 0.0], 0.8)
        policies = np.array([np.eye(2)[list(actions)] for actions in product(range(2), repeat=3)])
        rows = world.returns(policies, rewards).numpy()
        game = scipy.optimize.linprog(
            np.r_[np.zeros(8), -1], A_ub=np.c_[-rows.T, np.ones(num_models)], b_ub=np.zeros(num_models),
            A_eq=np.r_[np.ones(8), 0][None], b_eq=[1], bounds=[(0, None)] * 8 + [(None, None)],
        )  # fmt: skip
        certificate = solve_uncertain(world, rewards, WorstCase(), tolerance=0.01).certificate()
        assert -game.fun <= float(certificate.upper) + ROUNDING
        within = 0.01 * np.ptp(rewards)  # either the certificate says so, or the search found all of the mixture
        assert -game.fun <= float(certificate.lower) + within


def test_one_model_is_solved_to_the_optimum():
    from cautious import TabularMDP, optimal_policy

    rng = np.random.default_rng(3)
    mdp = TabularMDP(rng.dirichlet(np.ones(5), size=(5, 3)), rng.dirichlet(np.ones(5)), 0.95)
    reward = rng.normal(size=(5, 3))
    certificate = solve_uncertain(mdp, reward, "1-of-1").certificate()
    assert float(certificate.lower) == pytest.approx(float(optimal_policy(mdp, reward).expected_return), abs=1e-10)
    assert float(certificate.gap) < 1e-10


def test_with_certain_dynamics_it_agrees_with_the_linear_program_over_occupancies():
    """M models that differ in their rewards alone: `solve_exact` is the truth, and memory is worth nothing."""
    from cautious import TabularMDP, solve_exact

    rng = np.random.default_rng(4)
    mdp = TabularMDP(rng.dirichlet(np.ones(4), size=(4, 2)), rng.dirichlet(np.ones(4)), 0.9)
    rewards = rng.normal(size=(20, 4, 2))
    truth = float(solve_exact(mdp, rewards, "2-of-8").certificate().lower)
    certificate = solve_uncertain(mdp, rewards, "2-of-8").certificate()
    assert float(certificate.lower) == pytest.approx(truth, abs=1e-4)
    assert float(certificate.upper) >= truth - ROUNDING


def test_few_models_in_the_tail_are_warned_of():
    world = UncertainMDP(np.full((20, 2, 2, 2), 0.5), [1.0, 0.0], 0.9)
    with pytest.warns(FewModelsWarning, match="about 1 of them"):
        solve_uncertain(world, torch.zeros(2, 2), "1-of-20")
