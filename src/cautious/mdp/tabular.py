"""A finite, discounted, continuing MDP without a reward: a novel world has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.mdp.coverage import Coverage
from cautious.mdp.from_gymnasium import Endings, read_model
from cautious.ops.bellman import PolicyEvaluation, Transitions
from cautious.ops.linear import sparse_tensor
from cautious.types import ArrayLike
from cautious.validation import ROUNDING, as_distribution, as_float_tensor, as_number, check_finite, check_shape

ROW_TOLERANCE = 1e-6
"""How far from one a row of probabilities may sum (float32 input); rows are then rescaled to sum to one."""


class TabularMDP:
    """States, actions, transition probabilities, an initial state distribution and a discount; checked on the way in.

    All returns are normalised by (1 - discount), so that they have the scale of rewards.

    Attributes:
        num_states: S.
        num_actions: A.
        initial_state_dist: [S], float64.
        discount: γ, in [0, 1).
        transitions: P(s'|s,a), float64 [S, A, S]: a plain tensor, or a sparse COO tensor where most entries are zero.
        dynamics: The same in the form that evaluation needs (`ops.bellman.Transitions`).
        endings: In a world from Gymnasium whose episodes end, the steps that end them, for `expected_rewards`; the last state
            is then the one after the end. None otherwise.
        coverage: Where the dynamics were estimated from experience, how often each pair was tried (`Coverage`); None otherwise.

    >>> coin = torch.tensor([[[0.5, 0.5]], [[0.5, 0.5]]])
    >>> TabularMDP(coin, [1.0, 0.0], discount=0.9)
    TabularMDP(num_states=2, num_actions=1, discount=0.9, dense)
    """

    def __init__(
        self,
        transitions: Any,
        initial_state_dist: ArrayLike,
        discount: float,
        *,
        coverage: Coverage | None = None,
        endings: Endings | None = None,
    ) -> None:
        """Check and store a world.

        Args:
            transitions: Dense [S, A, S]; or sparse: a scipy matrix or torch sparse tensor [S*A, S] (row s*A + a), or a
                sequence of A scipy matrices [S, S], one per action.
            initial_state_dist: [S].
            discount: γ, in [0, 1).
            coverage: How often each pair was tried, where `transitions` is an estimate; certificates then say so.
            endings: Steps that end an episode, where the last state is the one after the end.
        """
        self.discount = _checked_discount(discount)
        matrix, self.num_actions = _as_rows(transitions)
        self.num_states = matrix.shape[1]
        self.dynamics = Transitions(_checked_rows(matrix, self.num_actions), self.num_actions)
        start = as_float_tensor(initial_state_dist, "initial_state_dist", "cpu")
        check_shape(start, "S", "initial_state_dist", S=self.num_states)
        self.initial_state_dist = as_distribution(start, "initial_state_dist").clone()
        if coverage is not None:
            check_shape(coverage.visits, "S A", "coverage.visits", S=self.num_states, A=self.num_actions)
            check_shape(coverage.entered, "S", "coverage.entered", S=self.num_states)
        self.coverage = coverage
        self.endings = None if endings is None else self._checked_endings(endings)

    def _checked_endings(self, endings: Endings) -> Endings:
        after = self.num_states - 1
        for name, numbers, most in (
            ("pair", endings.pair, after * self.num_actions),
            ("entered", endings.entered, after),
        ):
            check_shape(numbers, "E", f"endings.{name}", E=len(endings.chance))
            if bool(((numbers < 0) | (numbers >= most)).any()):
                raise InvalidInputError(
                    f"endings.{name}: each must be from 0 to {most - 1}, before the state after the end."
                )
        return endings

    @classmethod
    def from_gymnasium(
        cls,
        env: Any,
        discount: float = 0.99,
        *,
        num_steps: int | None = None,
        seed: int = 0,
        prior: float = 0.0,
        explore: Callable[[int], int] | None = None,
    ) -> TabularMDP:
        """The world of a Gymnasium environment with discrete states and actions; `mdp.from_gymnasium.read_model` says how.

        Wrappers are part of the environment: with a discretising wrapper (`cautious.DiscretizeObservation`, or your own) around
        it, MountainCar is a world of cells.

        Args:
            env: One that offers its table of transitions (FrozenLake, Taxi, CliffWalking, driving): exact; its start
                is estimated from 1,000 resets where it has no ``initial_state_distrib``. Others, and those
                whose wrappers may change what happens: estimated, and then `coverage` says how well.
            discount: Gymnasium's environments have none.
            num_steps: Steps of experience (random actions) to estimate from, where there is no table.
            seed: Starts the experience, and the resets.
            prior: Pseudo-steps that each pair starts with, in which it does what the actions that were tried did in the same
                state; 1 counts as much as one real step. With 0, a pair that was never tried is taken to stay where it is.
            explore: State -> action, asked in half of the steps; the other half are random. For worlds in which random actions
                do not get far.

        Warns:
            CoverageWarning: Some pair of a state that was entered was tried fewer than five times; or the start was
                estimated from resets, beside a table.
        """
        model = read_model(env, num_steps, seed, prior, explore)
        return cls(
            model.transitions, model.initial_state_dist, discount, coverage=model.coverage, endings=model.endings
        )

    def __repr__(self) -> str:
        """Sizes, discount and storage."""
        kind = "sparse" if self.dynamics.is_sparse else "dense"
        kind += "" if self.coverage is None else f", estimated from {self.coverage.num_steps:,} steps"
        return f"TabularMDP(num_states={self.num_states}, num_actions={self.num_actions}, discount={self.discount!r}, {kind})"

    @cached_property
    def transitions(self) -> Tensor:
        """P(s'|s,a) as a tensor [S, A, S], sparse where the world is."""
        if not self.dynamics.is_sparse:
            return self.dynamics.dense()
        entries = self.dynamics.matrix.tocoo()
        index = np.stack([entries.row // self.num_actions, entries.row % self.num_actions, entries.col])
        shape = (self.num_states, self.num_actions, self.num_states)
        return sparse_tensor(torch.from_numpy(index).long(), torch.from_numpy(entries.data), shape)

    def evaluate(self, policy: ArrayLike) -> PolicyEvaluation:
        """Factorise once for `policy` ([S, A] or a batch [B, S, A]), then ask for occupancy, values, action values."""
        tensor = checked_policy(policy, self.num_states, self.num_actions)
        batch = tensor.reshape(-1, self.num_states, self.num_actions)
        return PolicyEvaluation(self.dynamics.to(batch.device), batch, self.discount)

    def occupancy(self, policy: ArrayLike) -> Tensor:
        """Discounted state-action occupancy x(s,a) = d(s) π(a|s), [..., S, A] as `policy`; sums to one."""
        tensor = checked_policy(policy, self.num_states, self.num_actions)
        states = self.evaluate(tensor).occupancy(self.initial_state_dist.to(tensor.device))
        return states.reshape(tensor.shape[:-1]).unsqueeze(-1) * tensor

    def expected_return(self, policy: ArrayLike, reward: ArrayLike) -> Tensor:
        """Normalised return of `policy` [..., S, A] under `reward` [..., S, A] from the initial state distribution, [...]."""
        occupancy = self.occupancy(policy)
        values = as_float_tensor(reward, "reward", occupancy.device).double()
        check_shape(values, "... S A", "reward", S=self.num_states, A=self.num_actions)
        check_finite(values, "reward")
        try:
            return (occupancy * values).sum(dim=(-2, -1))
        except RuntimeError:
            batches = f"{list(occupancy.shape[:-2])} and {list(values.shape[:-2])}"
            raise InvalidInputError(
                f"policy and reward: batches {batches} cannot be combined; they must be equal, or one must have no batch "
                "dimension."
            ) from None

    def expected_rewards(self, rewards: ArrayLike) -> Tensor:
        """Rewards that depend on the next state, as the solvers take them: r(s,a) = Σ_s' P(s'|s,a) r(s,a,s'), [..., S, A].

        Args:
            rewards: What a transition pays, [S, A, S], or of M models [M, S, A, S]; or what *entering* a state pays, [S] or
                [M, S]: r(s,a) = Σ_s' P(s'|s,a) r(s'). In a world from Gymnasium whose episodes end, the state after the end may
                be left out (S - 1 instead of S): nothing is paid there. A step that ends an episode is paid for the state that
                the environment enters with it.

        Moving to the second of two states pays 1 and works half of the time:

        >>> world = TabularMDP([[[0.5, 0.5]], [[0.0, 1.0]]], [1.0, 0.0], 0.9)
        >>> world.expected_rewards([0.0, 1.0]).tolist()
        [[0.5], [1.0]]
        >>> world.expected_rewards([[[0.0, 1.0]], [[0.0, 0.0]]]).tolist()
        [[0.5], [0.0]]
        """
        values = as_float_tensor(rewards, "rewards", "cpu").double()
        check_finite(values, "rewards")
        of_transitions = values.dim() > 2
        if values.dim() not in (1, 2, 3, 4):
            raise InvalidInputError(
                f"rewards: expected [S, A, S] or [M, S, A, S] (of a transition), or [S] or [M, S] (of entering a state), got "
                f"shape {list(values.shape)}."
            )
        if self.endings is not None and values.shape[-1] == self.num_states - 1:
            short = of_transitions and values.shape[-3] == self.num_states - 1
            values = torch.nn.functional.pad(values, (0, 1, 0, 0, 0, 1) if short else (0, 1))
        if of_transitions:
            check_shape(values, "... S A S", "rewards", S=self.num_states, A=self.num_actions)
        else:
            check_shape(values, "... S", "rewards", S=self.num_states)
        pair, target, chance = self._steps()
        paid = values.flatten(-3, -2)[..., pair, target] if of_transitions else values[..., target]  # [..., steps]
        expected = paid.new_zeros(*paid.shape[:-1], self.num_states * self.num_actions)
        expected.index_add_(-1, pair, chance * paid)
        return expected.unflatten(-1, (self.num_states, self.num_actions))

    def _steps(self) -> tuple[Tensor, Tensor, Tensor]:
        """Every possible step: its pair s*A + a, the state that it enters, its probability."""
        if self.dynamics.is_sparse:
            entries = self.dynamics.matrix.tocoo()
            pair, target = (torch.from_numpy(each).long() for each in (entries.row, entries.col))
            chance = torch.from_numpy(entries.data)
        else:
            rows = self.dynamics.dense().flatten(0, 1)
            pair, target = rows.nonzero(as_tuple=True)
            chance = rows[pair, target]
        if self.endings is None:
            return pair, target, chance
        # A step to the state after the end enters a state of the environment first: that one is paid for.
        after = self.num_states - 1
        goes_on = (target != after) | (pair >= after * self.num_actions)
        parts = zip((pair[goes_on], target[goes_on], chance[goes_on]), self.endings, strict=True)
        pair, target, chance = (torch.cat(each) for each in parts)
        return pair, target, chance


def parse_mdp(mdp: Any) -> TabularMDP:
    """`mdp` if it is one; an error that says what to pass otherwise."""
    if not isinstance(mdp, TabularMDP):
        hint = " (its .mdp is one)" if hasattr(mdp, "mdp") else ""
        hint = " (TabularMDP.from_gymnasium makes one of it)" if hasattr(mdp, "action_space") else hint
        raise InvalidInputError(f"mdp is a {type(mdp).__name__}; pass a cautious.TabularMDP{hint}.")
    return mdp


def check_fits(mdp: TabularMDP, num_models: int, num_states: int, num_actions: int) -> None:
    """Raise unless rewards [M, S, A] of these sizes are about the states and actions of `mdp`."""
    if (num_states, num_actions) != (mdp.num_states, mdp.num_actions):
        hint = ""
        if mdp.endings is not None and num_states == mdp.num_states - 1:
            hint = (
                " The last state is the one after the end of an episode, where nothing is paid: append it with "
                "torch.nn.functional.pad(rewards, (0, 0, 0, 1))."
            )
        raise InvalidInputError(
            f"rewards: expected shape [M, S, A] with S={mdp.num_states} A={mdp.num_actions} as the MDP has, "
            f"got [{num_models}, {num_states}, {num_actions}].{hint}"
        )


def checked_policy(policy: ArrayLike, num_states: int, num_actions: int) -> Tensor:
    """`policy` as a float64 tensor [..., S, A] whose rows are distributions."""
    check_shape(as_float_tensor(policy, "policy"), "... S A", "policy", S=num_states, A=num_actions)
    return as_distribution(policy, "policy")


def _checked_discount(discount: float) -> float:
    value = as_number(discount)
    if not 0 <= value < 1:
        raise InvalidInputError(f"discount={discount!r} must lie in [0, 1): returns are normalised by 1 - discount.")
    return value


def _as_rows(transitions: Any) -> tuple[Tensor | scipy.sparse.csr_array, int]:
    """Any accepted form as rows [S*A, S] in float64, and A."""
    if isinstance(transitions, Tensor) and transitions.layout != torch.strided:
        transitions = _scipy_from_torch(transitions)
    if scipy.sparse.issparse(transitions):
        num_actions = _num_actions_of(transitions.shape)
        return _as_csr(transitions), num_actions
    if isinstance(transitions, Sequence) and len(transitions) and all(scipy.sparse.issparse(m) for m in transitions):
        return _interleave([_as_csr(matrix) for matrix in transitions])
    tensor = as_float_tensor(transitions, "transitions", "cpu").double()
    check_shape(tensor, "S A S", "transitions", S=tensor.shape[-1] if tensor.dim() else 0)
    num_states, num_actions, _ = tensor.shape
    rows = tensor.reshape(num_states * num_actions, num_states)
    if num_states > 128 and int(rows.count_nonzero()) < 0.1 * rows.numel():
        return _as_csr(scipy.sparse.csr_array(rows.numpy())), num_actions
    return rows.clone(), num_actions


COMPLEX = "transitions: complex numbers are not probabilities; pass real ones."


def _scipy_from_torch(tensor: Tensor) -> scipy.sparse.coo_array:
    tensor = tensor.detach()
    if tensor.is_complex():
        raise InvalidInputError(COMPLEX)
    if tensor.layout == torch.sparse_coo and tensor.dense_dim():
        tensor = tensor.to_dense().to_sparse()  # hybrid: some dimensions are dense
    entries = tensor.to_sparse_coo().coalesce().cpu()
    index, values = entries.indices().numpy(), entries.values().double().numpy()
    if (index.max(axis=1, initial=0) >= tensor.shape).any():
        raise InvalidInputError(f"transitions: entries lie outside of the sparse tensor's shape {list(tensor.shape)}.")
    if tensor.dim() == 3:
        num_states, num_actions, num_successors = tensor.shape
        if num_states != num_successors:
            raise InvalidInputError(f"transitions: expected shape [S, A, S], got {list(tensor.shape)}.")
        row, shape = index[0] * num_actions + index[1], (num_states * num_actions, num_states)
        return scipy.sparse.coo_array((values, (row, index[2])), shape=shape)
    if tensor.dim() != 2:
        raise InvalidInputError(f"transitions: expected shape [S, A, S] or [S*A, S], got {list(tensor.shape)}.")
    return scipy.sparse.coo_array((values, (index[0], index[1])), shape=tuple(tensor.shape))


def _as_csr(matrix: Any) -> scipy.sparse.csr_array:
    if np.iscomplexobj(matrix):
        raise InvalidInputError(COMPLEX)
    rows = scipy.sparse.csr_array(matrix, dtype=np.float64)
    rows.sum_duplicates()
    return rows


def _num_actions_of(shape: tuple[int, ...]) -> int:
    num_rows, num_states = shape if len(shape) == 2 else (0, 0)
    if num_states == 0 or num_rows == 0 or num_rows % num_states:
        raise InvalidInputError(
            f"transitions: expected shape [S*A, S] (row s*A + a), got {list(shape)}; rows must be a multiple of states."
        )
    return num_rows // num_states


def _interleave(matrices: list[scipy.sparse.csr_array]) -> tuple[scipy.sparse.csr_array, int]:
    """One matrix [S, S] per action -> rows [S*A, S] in the order s*A + a."""
    num_actions, num_states = len(matrices), matrices[0].shape[0]
    for matrix in matrices:
        if matrix.shape != (num_states, num_states):
            raise InvalidInputError(
                f"transitions: expected one [S, S] matrix per action, got {[list(m.shape) for m in matrices]}."
            )
    order = np.arange(num_states * num_actions).reshape(num_actions, num_states).T.ravel()
    return _as_csr(scipy.sparse.vstack(matrices).tocsr()[order]), num_actions


def _checked_rows(matrix: Tensor | scipy.sparse.csr_array, num_actions: int) -> Tensor | scipy.sparse.csr_array:
    """The rows, each a distribution (rescaled if it was one up to float32 rounding); else an error naming state, action."""
    if matrix.shape[1] == 0:
        raise InvalidInputError("transitions: there are no states; a world needs at least one.")
    entries = matrix if isinstance(matrix, Tensor) else torch.from_numpy(matrix.data)
    wrong = ~(entries >= 0) | ~torch.isfinite(entries)
    if bool(wrong.any()):
        entry = int(wrong.flatten().to(torch.uint8).argmax())
        if isinstance(matrix, Tensor):
            row, column = divmod(entry, matrix.shape[1])
        else:
            row, column = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1, int(matrix.indices[entry])
        raise InvalidInputError(
            f"transitions: P(s'={column} | s={row // num_actions}, a={row % num_actions}) is "
            f"{float(entries.flatten()[entry]):g}; probabilities must be finite and 0 or more."
        )
    total = (
        matrix.sum(dim=1) if isinstance(matrix, Tensor) else torch.from_numpy(np.asarray(matrix.sum(axis=1)).ravel())
    )
    off = (total - 1).abs()
    if bool((off > ROW_TOLERANCE).any()):
        row = int(off.argmax())
        raise InvalidInputError(
            f"transitions: the row of state {row // num_actions}, action {row % num_actions} sums to "
            f"{float(total[row]):.9g}; the probabilities of the next states must sum to 1."
        )
    scale = torch.where(off > ROUNDING, total, torch.ones_like(total))
    if isinstance(matrix, Tensor):
        return matrix / scale[:, None]
    return _as_csr(scipy.sparse.diags_array(1 / scale.numpy()) @ matrix)
