"""What a world may look like on the way in, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from cautious import TabularMDP
from cautious.errors import InvalidInputError

RIGHT = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.0, 1.0], [0.5, 0.5]]])
START = [0.3, 0.7]


def test_every_accepted_form_is_the_same_world():
    rows = RIGHT.reshape(4, 2)
    forms = [
        RIGHT,
        RIGHT.tolist(),
        torch.tensor(RIGHT),
        scipy.sparse.csr_array(rows),
        scipy.sparse.coo_matrix(rows),
        [scipy.sparse.csr_array(RIGHT[:, action]) for action in range(2)],
        torch.tensor(RIGHT).to_sparse(),
        torch.tensor(rows).to_sparse(),
    ]
    for form in forms:
        mdp = TabularMDP(form, START, 0.5)
        assert (mdp.num_states, mdp.num_actions) == (2, 2)
        assert np.allclose(mdp.transitions.to_dense().numpy(), RIGHT, rtol=0, atol=1e-15)


def test_float32_rows_are_rescaled_to_sum_to_one():
    rows = torch.softmax(torch.randn(5, 2, 5, generator=torch.Generator().manual_seed(0)), dim=-1)
    total = TabularMDP(rows, torch.full((5,), 0.2), 0.9).transitions.sum(dim=-1)
    assert (total - 1).abs().max() < 1e-14


def test_the_world_keeps_its_own_copy():
    transitions = torch.tensor(RIGHT)
    mdp = TabularMDP(transitions, START, 0.5)
    transitions.zero_()
    assert float(mdp.transitions.sum()) == pytest.approx(4)


def broken(state: int, action: int, successor: int, value: float) -> np.ndarray:
    wrong = RIGHT.copy()
    wrong[state, action, successor] = value
    return wrong


@pytest.mark.parametrize("form", [np.asarray, lambda t: scipy.sparse.csr_array(t.reshape(4, 2))])
def test_a_bad_row_is_named_by_state_and_action(form):
    with pytest.raises(InvalidInputError, match=r"state 1, action 0 sums to 0.75"):
        TabularMDP(form(broken(1, 0, 1, 0.75)), START, 0.5)
    with pytest.raises(InvalidInputError, match=r"P\(s'=1 \| s=0, a=1\) is -0.8"):
        TabularMDP(form(broken(0, 1, 1, -0.8)), START, 0.5)
    with pytest.raises(InvalidInputError, match=r"P\(s'=1 \| s=0, a=1\) is nan"):
        TabularMDP(form(broken(0, 1, 1, np.nan)), START, 0.5)


@pytest.mark.parametrize("discount", [-0.1, 1, 1.5, float("nan"), "x", None])
def test_a_discount_lies_below_one(discount):
    with pytest.raises(InvalidInputError, match="discount"):
        TabularMDP(RIGHT, START, discount)


@pytest.mark.parametrize("start", [[1.0], [0.5, 0.6], [1.5, -0.5], [np.nan, 1.0], [[0.5, 0.5]]])
def test_the_start_is_a_distribution_over_the_states(start):
    with pytest.raises(InvalidInputError, match="initial_state_dist"):
        TabularMDP(RIGHT, start, 0.5)


@pytest.mark.parametrize(
    "transitions",
    [np.zeros((0, 2, 0)), np.zeros((2, 0, 2)), np.zeros((2, 2)), np.zeros((2, 2, 3)), scipy.sparse.csr_array((3, 2)), 5.0,
     [scipy.sparse.eye_array(2), scipy.sparse.eye_array(3)]],
)  # fmt: skip
def test_wrong_shapes_and_empty_worlds_are_refused(transitions):
    with pytest.raises(InvalidInputError, match="transitions"):
        TabularMDP(transitions, START, 0.5)


def test_a_policy_is_checked_too():
    mdp = TabularMDP(RIGHT, START, 0.5)
    for wrong in ([[0.5, 0.6], [0.5, 0.5]], [[0.5, 0.5]], [0.5, 0.5], [[np.nan, 1.0], [0.5, 0.5]]):
        with pytest.raises(InvalidInputError, match="policy"):
            mdp.evaluate(wrong)
    with pytest.raises(InvalidInputError, match="reward"):
        mdp.expected_return([[0.5, 0.5], [0.5, 0.5]], np.zeros((3, 2)))


@pytest.mark.parametrize("sparse", [False, True])
def test_expected_rewards_are_sums_over_next_states(sparse):
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(150, 2, 150, generator=generator, dtype=torch.float64)
    rows = rows * (torch.rand(rows.shape, generator=generator) < 0.05) if sparse else rows
    rows[..., 0] += 1e-3
    mdp = TabularMDP(rows / rows.sum(dim=-1, keepdim=True), torch.full((150,), 1 / 150), 0.9)
    assert mdp.dynamics.is_sparse is sparse
    of_steps = torch.randn(3, 150, 2, 150, generator=generator, dtype=torch.float64)
    entering = torch.randn(3, 150, generator=generator, dtype=torch.float64)
    dense = mdp.transitions.to_dense()
    # sums of 150 terms in another order: rounding
    assert torch.allclose(mdp.expected_rewards(of_steps), (dense * of_steps).sum(dim=-1), rtol=0, atol=1e-12)
    assert torch.allclose(
        mdp.expected_rewards(entering), torch.einsum("sat,mt->msa", dense, entering), rtol=0, atol=1e-12
    )
