"""Policy evaluation in a discounted continuing MDP: values, action values and occupancy from one factorisation.

Everything is normalised by (1 - γ), as in the paper, so that returns have the scale of rewards.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from cautious.ops.linear import (
    BATCHED_LU_SIZE,
    LARGEST_DENSE,
    BatchMatrix,
    DenseLU,
    MixingSolver,
    SparseLU,
    fill_reducing_order,
    mixes,
)


class Transitions:
    """P(s'|s,a) in the form that evaluation needs: rows (s, a), columns s'; dense on any device, or sparse on the CPU."""

    def __init__(self, matrix: Tensor | scipy.sparse.csr_array, num_actions: int) -> None:
        """Wrap checked transitions.

        Args:
            matrix: [S*A, S], row s*A + a; a tensor or a scipy CSR array.
            num_actions: A.
        """
        self.matrix: Any = matrix
        self.num_states = matrix.shape[1]
        self.num_actions = num_actions

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are held as a scipy CSR array."""
        return not isinstance(self.matrix, Tensor)

    def dense(self, device: torch.device | None = None) -> Tensor:
        """The same transitions as a tensor [S, A, S]."""
        rows = torch.from_numpy(self.matrix.toarray()) if self.is_sparse else self.matrix
        return rows.to(device).reshape(self.num_states, self.num_actions, self.num_states)

    def sparse(self) -> scipy.sparse.csr_array:
        """The rows as a scipy CSR array."""
        return self.matrix if self.is_sparse else scipy.sparse.csr_array(self.matrix.cpu().numpy())

    def to(self, device: torch.device) -> Transitions:
        """The same transitions for evaluation on `device`; dense wherever it is not the CPU."""
        if device.type == "cpu" or (not self.is_sparse and self.matrix.device == device):
            return self
        return Transitions(self.dense(device).flatten(0, 1), self.num_actions)

    def expected_next(self, state_values: Tensor) -> Tensor:
        """Σ_s' P(s'|s,a) v(s'): [B, S] -> [B, S, A]."""
        if self.is_sparse:
            rows = torch.from_numpy(np.ascontiguousarray((self.matrix @ state_values.numpy().T).T))
        else:
            rows = self._product.dot(state_values)
        return rows.reshape(len(state_values), self.num_states, self.num_actions)

    def factorise(self, policy: Tensor, discount: float) -> DenseLU | SparseLU | MixingSolver:
        """A solver of I - γ P_π for each policy of the batch [B, S, A]."""
        # Which of the three ways depends on the world alone, so that it does not change from one policy to the next.
        if not self.is_sparse or self.num_states <= BATCHED_LU_SIZE:
            return DenseLU(self._dense_systems(policy, discount))
        merge, row, column = self._pattern
        entries = merge @ policy.flatten(1).numpy().T  # P_π, its non-zero entries, [nnz, B]
        size = (self.num_states, self.num_states)
        if self._order is None:
            return MixingSolver(
                [scipy.sparse.csr_array((entry, (row, column)), shape=size) for entry in entries.T], discount
            )
        position = np.argsort(self._order)
        diagonal = np.arange(self.num_states)
        at = np.concatenate([position[row], diagonal]), np.concatenate([position[column], diagonal])
        ones = np.ones(self.num_states)
        systems = [
            scipy.sparse.csc_array((np.concatenate([-discount * entry, ones]), at), shape=size) for entry in entries.T
        ]
        for system in systems:
            system.eliminate_zeros()  # what a policy never does costs nothing
        return SparseLU(systems, self._order)

    def _dense_systems(self, policy: Tensor, discount: float) -> Tensor:
        transitions = self.dense(policy.device)
        system = (
            torch.eye(self.num_states, dtype=policy.dtype, device=policy.device).expand(len(policy), -1, -1).clone()
        )
        for action in range(self.num_actions):  # elementwise, so that bits do not depend on the batch
            system -= discount * policy[:, :, action, None] * transitions[:, action]
        return system

    @cached_property
    def _product(self) -> BatchMatrix:
        return BatchMatrix(self.matrix)

    @cached_property
    def _pattern(self) -> tuple[scipy.sparse.csr_array, np.ndarray, np.ndarray]:
        """(matrix that turns π(a|s) into the entries of P_π, their rows, their columns)."""
        # π changes in every iteration, the positions of non-zero entries do not: they are found once.
        entries = self.matrix.tocoo()
        state, successor = entries.row // self.num_actions, entries.col
        entry, slot = np.unique(state.astype(np.int64) * self.num_states + successor, return_inverse=True)
        merge = scipy.sparse.csr_array((entries.data, (slot, entries.row)), shape=(len(entry), self.matrix.shape[0]))
        return merge, entry // self.num_states, entry % self.num_states

    @cached_property
    def _order(self) -> np.ndarray | None:
        merge, row, column = self._pattern
        if self.num_states > LARGEST_DENSE:
            # Where a chain mixes factors fill up as a rule, and at this size only to try them takes hours.
            uniform = merge @ np.full(self.num_states * self.num_actions, 1 / self.num_actions)
            if mixes(scipy.sparse.csr_array((uniform, (row, column)), shape=(self.num_states,) * 2)):
                return None
        # Any numbers will do for finding an order; a dominant diagonal keeps the factorisation from pivoting.
        pattern = scipy.sparse.csc_array((np.full(len(row), -1.0), (row, column)), shape=(self.num_states,) * 2)
        dominant = 2 * self.num_states * scipy.sparse.eye_array(self.num_states)
        return fill_reducing_order(scipy.sparse.csc_array(pattern + dominant))


class PolicyEvaluation:
    """Everything about a batch of policies that needs (I - γ P_π)⁻¹, from one factorisation each."""

    def __init__(self, transitions: Transitions, policy: Tensor, discount: float) -> None:
        """Factorise I - γ P_π for each policy [B, S, A]."""
        self._transitions = transitions
        self._policy = policy
        self._discount = discount
        self._factors = transitions.factorise(policy, discount)

    def occupancy(self, initial_state_dist: Tensor) -> Tensor:
        """Discounted future state distribution from the initial one, d(s) = (1-γ) Σ_i γ^i P[S_i = s].

            d = (1-γ) (I - γ P_πᵀ)⁻¹ d_∅

        App. C. The return under any reward is then Σ_s d(s) Σ_a π(a|s) r(s,a).

        Args:
            initial_state_dist: d_∅, [S].

        Returns:
            Occupancy [B, S]; each row sums to one.
        """
        start = (1 - self._discount) * initial_state_dist.expand(len(self._policy), -1)
        return self._factors.solve(start, transposed=True).clamp(min=0)  # rounding leaves -1e-17 where nothing goes

    def state_values(self, reward: Tensor) -> Tensor:
        """Normalised return from each state, v = (1-γ) (I - γ P_π)⁻¹ r_π: [B, S, A] -> [B, S]."""
        return self._factors.solve((1 - self._discount) * (self._policy * reward).sum(dim=-1))

    def action_values(self, reward: Tensor) -> Tensor:
        """Normalised return of each action, q(s,a) = (1-γ) r(s,a) + γ Σ_s' P(s'|s,a) v(s'): [B, S, A] -> [B, S, A]."""
        future = self._transitions.expected_next(self.state_values(reward))
        return (1 - self._discount) * reward + self._discount * future
