"""Occupancy, values and action values against definitions that share no code with them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from cautious import TabularMDP
from cautious.ops.bellman import Transitions
from cautious.ops.linear import BATCHED_LU_SIZE, BatchMatrix, DenseLU, MixingSolver, SparseLU
from cautious.ops.regret import uniform_policy


def random_policy(generator, *shape):
    return torch.softmax(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)


def test_a_two_state_chain_by_hand():
    # From state 0 the only action leads to state 1, which absorbs; reward 1 in state 0 alone. γ = 0.9.
    # v(0) = (1-γ)·1 = 0.1, v(1) = 0; occupancy of state 0 from state 0 is (1-γ) = 0.1.
    mdp = TabularMDP([[[0.0, 1.0]], [[0.0, 1.0]]], [1.0, 0.0], 0.9)
    evaluation = mdp.evaluate([[1.0], [1.0]])
    reward = torch.tensor([[[1.0], [0.0]]], dtype=torch.float64)
    assert evaluation.state_values(reward)[0].tolist() == pytest.approx([0.1, 0.0])
    assert evaluation.occupancy(mdp.initial_state_dist)[0].tolist() == pytest.approx([0.1, 0.9])


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99])
def test_values_equal_the_discounted_sum(random_problem, generator, discount):
    mdp, rewards = random_problem(discount=discount)
    policy = random_policy(generator, mdp.num_states, mdp.num_actions)
    step = torch.einsum("sa,sat->st", policy, mdp.transitions)
    term, total = (policy * rewards[0]).sum(dim=-1), torch.zeros(mdp.num_states, dtype=torch.float64)
    for power in range(4000):
        total += (1 - discount) * discount**power * term
        term = step @ term
    evaluation = mdp.evaluate(policy)
    values = evaluation.state_values(rewards[:1])[0]
    assert (values - total).abs().max() < 1e-10
    action_values = evaluation.action_values(rewards[:1])[0]
    assert ((policy * action_values).sum(dim=-1) - values).abs().max() < 1e-12


def test_occupancy_and_bellman_give_the_same_return(random_problem, generator):
    mdp, rewards = random_problem(discount=0.95)
    policy = random_policy(generator, 4, mdp.num_states, mdp.num_actions)
    occupancy = mdp.occupancy(policy)
    assert (occupancy.sum(dim=(1, 2)) - 1).abs().max() < 1e-12
    by_occupancy = (occupancy * rewards[:4]).sum(dim=(1, 2))
    by_values = (mdp.evaluate(policy).state_values(rewards[:4]) * mdp.initial_state_dist).sum(dim=-1)
    assert (by_occupancy - by_values).abs().max() < 1e-12
    assert torch.equal(mdp.expected_return(policy[0], rewards[0]), by_occupancy[0])


def grid_world(side: int) -> scipy.sparse.csr_array:
    """Four moves on a torus, one in five goes astray: sparse, and with sparse LU factors."""
    size, rows, columns, data = side * side, [], [], []
    for state in range(size):
        row, column = divmod(state, side)
        nearby = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        targets = [(r % side) * side + c % side for r, c in nearby]
        for action in range(4):
            for target in range(4):
                rows.append(state * 4 + action)
                columns.append(targets[target])
                data.append(0.85 if target == action else 0.05)
    return scipy.sparse.csr_array((data, (rows, columns)), shape=(size * 4, size))


@pytest.mark.parametrize("side", [4, 24])
def test_sparse_and_dense_agree(generator, side):
    rows = grid_world(side)
    size = side * side
    start = np.full(size, 1 / size)
    sparse = TabularMDP(rows, start, 0.97)
    dense = TabularMDP(rows.toarray().reshape(size, 4, size), start, 0.97)
    dense.dynamics.matrix = torch.from_numpy(rows.toarray())  # a dense input this sparse is stored sparse: undo that
    assert sparse.dynamics.is_sparse
    assert not dense.dynamics.is_sparse
    assert torch.equal(sparse.transitions.to_dense(), dense.transitions)
    policy = random_policy(generator, 3, size, 4)
    reward = torch.randn(3, size, 4, generator=generator, dtype=torch.float64)
    ours, theirs = sparse.evaluate(policy), dense.evaluate(policy)
    assert (ours.occupancy(sparse.initial_state_dist) - theirs.occupancy(dense.initial_state_dist)).abs().max() < 1e-13
    assert (ours.action_values(reward) - theirs.action_values(reward)).abs().max() < 1e-12


def mixing_world(num_states: int, num_actions: int = 2) -> TabularMDP:
    """Every pair leads to a few states anywhere: sparse, but its LU factors fill up."""
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(num_states * num_actions), 5)
    values = rng.dirichlet(np.ones(5), num_states * num_actions).ravel()
    shape = (num_states * num_actions, num_states)
    matrix = scipy.sparse.csr_array((values, (rows, rng.integers(0, num_states, len(rows)))), shape=shape)
    return TabularMDP(matrix, np.full(num_states, 1 / num_states), 0.99)


def test_each_kind_of_world_gets_the_solver_that_suits_it(generator):
    structured = TabularMDP(grid_world(24), np.full(576, 1 / 576), 0.9)
    policy = uniform_policy(1, 576, 4)
    assert isinstance(structured.dynamics.factorise(policy, 0.9), SparseLU)
    mixing = mixing_world(400)
    assert isinstance(mixing.dynamics.factorise(uniform_policy(1, 400, 2), 0.9), MixingSolver)
    assert isinstance(mixing_world(50).dynamics.factorise(uniform_policy(1, 50, 2), 0.9), DenseLU)


def test_an_iterative_solve_is_exact_too(generator):
    mdp = mixing_world(400)
    pure = torch.nn.functional.one_hot(torch.randint(0, 2, (400,), generator=generator), 2).double()
    policy = torch.stack([random_policy(generator, 400, 2), pure])
    reward = torch.randn(2, 400, 2, generator=generator, dtype=torch.float64)
    ours, dense = mdp.evaluate(policy), TabularMDP(mdp.transitions.to_dense(), mdp.initial_state_dist, 0.99)
    dense.dynamics.matrix = dense.dynamics.dense().flatten(0, 1)
    theirs = dense.evaluate(policy)
    assert (ours.occupancy(mdp.initial_state_dist) - theirs.occupancy(mdp.initial_state_dist)).abs().max() < 1e-13
    assert (ours.action_values(reward) - theirs.action_values(reward)).abs().max() < 1e-11


def test_a_chain_that_does_not_mix_is_factorised():
    # A cycle through 300 states never forgets where it started.
    size = 300
    cycle = scipy.sparse.csr_array((np.ones(size), (np.arange(size), (np.arange(size) + 1) % size)), shape=(size, size))
    system = scipy.sparse.eye_array(size) - 0.999 * cycle
    b = torch.zeros(1, size, dtype=torch.float64)
    b[0, 0] = 1
    solver = MixingSolver([cycle], 0.999)
    assert np.abs(system @ solver.solve(b)[0].numpy() - b[0].numpy()).max() < 1e-12
    assert np.abs(system.T @ solver.solve(b, transposed=True)[0].numpy() - b[0].numpy()).max() < 1e-12


@pytest.mark.parametrize("size", [5, 13, 60, BATCHED_LU_SIZE + 9])
def test_a_batch_member_has_the_bits_it_has_alone(generator, size):
    batch = 11
    systems = torch.eye(size, dtype=torch.float64) - 0.95 * random_policy(generator, batch, size, size)
    sides = torch.randn(batch, size, generator=generator, dtype=torch.float64)
    together = DenseLU(systems)
    matrix = BatchMatrix(torch.randn(37, size, generator=generator, dtype=torch.float64))
    weights = torch.rand(batch, 37, generator=generator, dtype=torch.float64)
    products, mixtures = matrix.dot(sides), matrix.combine(weights)
    for member in range(batch):
        one = slice(member, member + 1)
        alone = DenseLU(systems[one].clone())
        for transposed in (False, True):
            assert torch.equal(together.solve(sides, transposed)[one], alone.solve(sides[one].clone(), transposed))
        assert torch.equal(products[one], matrix.dot(sides[one].clone()))
        assert torch.equal(mixtures[one], matrix.combine(weights[one].clone()))


def test_products_are_products(generator):
    matrix = torch.randn(19, 7, generator=generator, dtype=torch.float64)
    vectors = torch.randn(21, 7, generator=generator, dtype=torch.float64)
    assert torch.allclose(BatchMatrix(matrix).dot(vectors), vectors @ matrix.T, rtol=0, atol=1e-13)
    weights = torch.randn(21, 19, generator=generator, dtype=torch.float64)
    assert torch.allclose(BatchMatrix(matrix).combine(weights), weights @ matrix, rtol=0, atol=1e-13)


def test_large_worlds_are_never_factorised_densely(monkeypatch):
    """With a lower limit: a world that mixes is not tried for factors, and one that does not has a long series."""
    monkeypatch.setattr("cautious.ops.linear.LARGEST_DENSE", 300)
    monkeypatch.setattr("cautious.ops.bellman.LARGEST_DENSE", 300)

    def refuse(pattern):
        raise AssertionError("factors were tried")

    rng = np.random.default_rng(0)
    pairs = 2 * 400
    entries = np.full(3 * pairs, 1 / 3), (np.repeat(np.arange(pairs), 3), rng.integers(400, size=3 * pairs))
    transitions = Transitions(scipy.sparse.csr_array(entries, shape=(pairs, 400)), 2)
    with monkeypatch.context() as patch:
        patch.setattr("cautious.ops.bellman.fill_reducing_order", refuse)
        assert isinstance(transitions.factorise(uniform_policy(1, 400, 2), 0.9), MixingSolver)
    cycle = scipy.sparse.csr_array(np.roll(np.eye(400), 1, axis=1))
    solver, b = MixingSolver([cycle], 0.97), torch.from_numpy(rng.normal(size=(1, 400)))
    monkeypatch.setattr(MixingSolver, "_factorised", refuse)
    expected = np.linalg.solve(np.eye(400) - 0.97 * cycle.toarray(), b[0].numpy())
    assert np.abs(solver.solve(b)[0].numpy() - expected).max() < 1e-12 * np.abs(expected).max()
