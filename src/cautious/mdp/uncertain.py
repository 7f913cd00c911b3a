"""`UncertainMDP`: M models of one world, each with transition probabilities of its own.

All models share states, actions, start and discount. A successor that any model can reach from a pair (s, a) has one place in
the storage, with its M probabilities beside each other, so that dense and sparse worlds are one case:

    pair s*A + a owns the places  first[pair] .. first[pair + 1] - 1
    place z leads to successor[z], in model m with probability chance[z, m]
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from cautious.errors import BadFileError, InvalidInputError
from cautious.io.arrays import load_tensors, pick, save_tensors
from cautious.mdp.tabular import ROW_TOLERANCE, TabularMDP
from cautious.types import ArrayLike
from cautious.validation import (
    ROUNDING,
    as_distribution,
    as_float_tensor,
    as_number,
    as_path,
    check_shape,
    check_size,
    parse_count,
)


class UncertainMDP:
    """A world whose dynamics are in doubt: one of M models is true, and nobody knows which.

    Without a horizon the world goes on for ever: policies are [S, A], and returns are normalised by (1 - discount). With a
    horizon it ends after that many steps: policies are [T, S, A], and returns are normalised by the sum of the discounts. Both
    have the scale of rewards.

    Attributes:
        num_models: M, also ``len(world)``.
        num_states: S.
        num_actions: A.
        initial_state_dist: [S], float64.
        discount: γ; in [0, 1), with a horizon in [0, 1].
        horizon: T, or None.
        dynamics: What evaluation needs, as numpy arrays (`mdp.evaluation.Dynamics`).

    In the first model the only action moves to state 1 for sure, in the second half of the time:

    >>> world = UncertainMDP([[[[0.0, 1.0]], [[0.0, 1.0]]], [[[0.5, 0.5]], [[0.0, 1.0]]]], [1.0, 0.0], 0.9)
    >>> world
    UncertainMDP(num_models=2, num_states=2, num_actions=1, discount=0.9)
    >>> world.returns([[1.0], [1.0]], [[0.0], [1.0]]).round(decimals=3).tolist()
    [0.9, 0.818]
    """

    def __init__(
        self,
        transitions: Any,
        initial_state_dist: ArrayLike | None = None,
        discount: float | None = None,
        *,
        horizon: int | None = None,
    ) -> None:
        """Check and store a world.

        Args:
            transitions: Dense [M, S, A, S]; or a sequence of M models, each a `TabularMDP` or sparse: a scipy matrix or a torch
                tensor [S*A, S] (row s*A + a).
            initial_state_dist: [S]. May be left out where `transitions` are TabularMDPs with the same start.
            discount: γ in [0, 1), with a horizon in [0, 1]. May be left out where `transitions` are TabularMDPs that share it.
            horizon: T, the number of steps in an episode; None if the world goes on for ever.

        Raises:
            InvalidInputError: A row that is no distribution (the error names model, state and action), models of different
                sizes, or a discount, horizon or start that breaks its rule.
        """
        start, shared_discount = _shared_by_models(transitions, initial_state_dist, discount)
        self.horizon = None if horizon is None else parse_count(horizon, "horizon")
        self.discount = _checked_discount(shared_discount, self.horizon)
        first, successor, chance, self.num_states = _stored(transitions)
        self.num_actions = (len(first) - 1) // self.num_states
        self.num_models = chance.shape[1]
        chance = _checked_rows(first, successor, chance, self.num_actions)
        check_shape(as_float_tensor(start, "initial_state_dist", "cpu"), "S", "initial_state_dist", S=self.num_states)
        self.initial_state_dist = as_distribution(start, "initial_state_dist", "cpu").clone()
        from cautious.mdp.evaluation import Dynamics  # loads numba, which worlds of certain dynamics do without

        self.dynamics = Dynamics(first, successor, chance, self.initial_state_dist.numpy(), self.discount)

    @classmethod
    def from_tabular(cls, mdp: TabularMDP, horizon: int | None = None) -> UncertainMDP:
        """The world of one model that a `TabularMDP` is: M = 1."""
        return cls([mdp], horizon=horizon)

    def __len__(self) -> int:
        """M."""
        return self.num_models

    def __repr__(self) -> str:
        """Sizes, discount and horizon."""
        sizes = f"num_models={self.num_models}, num_states={self.num_states}, num_actions={self.num_actions}"
        return f"UncertainMDP({sizes}, discount={self.discount!r}{'' if self.horizon is None else f', horizon={self.horizon}'})"

    def __getitem__(self, model: int) -> TabularMDP:
        """One model as a world of its own; `optimal_policy` and `solve_mdp` take it. A horizon is left behind."""
        number = operator.index(model)
        if not -self.num_models <= number < self.num_models:
            raise IndexError(f"model {number}: there are {self.num_models}, counted from 0.")
        discount = min(
            self.discount, float(np.nextafter(1, 0))
        )  # a TabularMDP has no horizon, so its discount is below 1
        return TabularMDP(self._rows(self.dynamics.chance[:, number]), self.initial_state_dist, discount)

    def __iter__(self) -> Iterator[TabularMDP]:
        """Every model as a world of its own."""
        return (self[model] for model in range(self.num_models))

    def subset(self, models: Sequence[int] | np.ndarray | Tensor) -> UncertainMDP:
        """The world of some of the models, in the order given: to hold out the others, for example."""
        numbers = np.asarray(models, dtype=np.int64)
        if (
            numbers.ndim != 1
            or not len(numbers)
            or numbers.min() < -self.num_models
            or numbers.max() >= self.num_models
        ):
            raise InvalidInputError(
                f"models={models!r} must be numbers of some of the {self.num_models} models, from 0."
            )
        part = [self._rows(self.dynamics.chance[:, number]) for number in numbers]
        return UncertainMDP(part, self.initial_state_dist, self.discount, horizon=self.horizon)

    def mean_model(self, weights: ArrayLike | None = None) -> UncertainMDP:
        """The world of one model whose probabilities are the mean of all models', the nominal one; `weights` [M] sum to one."""
        if weights is None:
            weights = torch.full((self.num_models,), 1 / self.num_models, dtype=torch.float64)
        check_shape(as_float_tensor(weights, "weights", "cpu"), "M", "weights", M=self.num_models)
        share = as_distribution(weights, "weights", "cpu").numpy()
        rows = self._rows(self.dynamics.chance @ share)
        return UncertainMDP([rows], self.initial_state_dist, self.discount, horizon=self.horizon)

    @property
    def normaliser(self) -> float:
        """What sums of discounted rewards are divided by: 1 / (1 - γ), or Σ_t γ^t over the horizon."""
        return (
            1 / (1 - self.discount)
            if self.horizon is None
            else float(sum(self.discount**t for t in range(self.horizon)))
        )

    @cached_property
    def transitions(self) -> Tensor:
        """P_m(s'|s,a) as a dense tensor [M, S, A, S]."""
        dense = torch.zeros(self.num_models, self.num_states * self.num_actions, self.num_states, dtype=torch.float64)
        pair = torch.from_numpy(self._pair_of_place())
        dense[:, pair, torch.from_numpy(self.dynamics.successor)] = torch.from_numpy(self.dynamics.chance.T.copy())
        return dense.unflatten(1, (self.num_states, self.num_actions))

    def returns(self, policy: ArrayLike, rewards: ArrayLike) -> Tensor:
        """Exact normalised returns of policies in every model.

        Args:
            policy: [..., S, A]; with a horizon [..., T, S, A].
            rewards: [S, A], the same in all models; or [M, S, A], one per model.

        Returns:
            Returns [..., M], float64.
        """
        table = self.scaled_rewards(rewards)
        policies = self.checked_policies(policy)
        stages = policies.shape[-2:] if self.horizon is None else policies.shape[-3:]
        lead = policies.shape[: policies.dim() - len(stages)]
        batch = policies.reshape(-1, self.horizon or 1, *policies.shape[-2:]).numpy()
        start = self.dynamics.start
        from cautious.mdp.evaluation import policy_values

        values = [start @ policy_values(self.dynamics, table, each, self.horizon)[0] for each in batch]
        return torch.from_numpy(np.array(values)).reshape(*lead, self.num_models)

    def checked_policies(self, policy: ArrayLike) -> Tensor:
        """`policy` as a float64 tensor [..., S, A], with a horizon [..., T, S, A], whose rows are distributions."""
        letters, sizes = "... S A", {"S": self.num_states, "A": self.num_actions}
        if self.horizon is not None:
            letters, sizes = "... T S A", {**sizes, "T": self.horizon}
        check_shape(as_float_tensor(policy, "policy", "cpu"), letters, "policy", **sizes)
        return as_distribution(policy, "policy", "cpu").contiguous()

    def scaled_rewards(self, rewards: ArrayLike) -> np.ndarray:
        """Rewards [S, A] or [M, S, A], checked, as evaluation takes them: [S*A, M], divided by `normaliser`."""
        tensor = as_float_tensor(rewards, "rewards", "cpu").double()
        if tensor.dim() == 2:
            tensor = tensor.expand(self.num_models, -1, -1)
        check_shape(tensor, "M S A", "rewards", M=self.num_models, S=self.num_states, A=self.num_actions)
        check_size(tensor, "rewards")
        return np.ascontiguousarray(tensor.flatten(1).T.numpy()) / self.normaliser

    def save(self, path: Path | str) -> None:
        """Write the world as one safetensors file; `UncertainMDP.load` reads it."""
        save_tensors(as_path(path, "path"), self.tensors())

    def tensors(self) -> dict[str, Tensor]:
        """What a file holds of the world."""
        first, successor, chance = (torch.from_numpy(part) for part in self.dynamics[:3])
        parts = {
            "first": first,
            "successor": successor,
            "chance": chance,
            "initial_state_dist": self.initial_state_dist,
        }
        parts["discount"] = torch.tensor(self.discount, dtype=torch.float64)
        parts["horizon"] = torch.tensor(self.horizon or 0)  # 0 stands for none
        return parts

    @classmethod
    def load(cls, path: Path | str) -> UncertainMDP:
        """Read what `save` wrote; runs no code from it."""
        place = as_path(path, "path")
        return cls.from_tensors(load_tensors(place), place)

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], path: Path) -> UncertainMDP:
        """The world that `tensors` describes; `path` is for errors."""
        names = ("first", "successor", "chance", "initial_state_dist", "discount", "horizon")
        first, successor, chance, start, discount, horizon = (pick(tensors, name, path) for name in names)
        size = (len(first) - 1, len(start))
        try:
            if (
                chance.dim() != 2
                or successor.shape != chance.shape[:1]
                or discount.numel() != 1
                or horizon.numel() != 1
            ):
                raise ValueError("arrays of shapes that do not fit")
            models = [
                scipy.sparse.csr_array((column, successor.numpy(), first.numpy()), shape=size)
                for column in chance.T.numpy()
            ]
            return cls(models, start, float(discount), horizon=int(horizon) or None)
        except (ValueError, TypeError, IndexError) as error:
            raise BadFileError(f"{path}: not the file of an uncertain world ({error}).") from None

    def _pair_of_place(self) -> np.ndarray:
        """The pair s*A + a that owns each place, [Z]."""
        return np.repeat(np.arange(len(self.dynamics.first) - 1), np.diff(self.dynamics.first))

    def _rows(self, chance: np.ndarray) -> scipy.sparse.csr_array:
        """Probabilities [Z] of one model as rows [S*A, S]."""
        shape = (self.num_states * self.num_actions, self.num_states)
        parts = (chance, self.dynamics.successor, self.dynamics.first)
        rows = scipy.sparse.csr_array(parts, shape=shape, copy=True)
        rows.eliminate_zeros()  # in place
        return rows


def parse_uncertain(world: Any) -> UncertainMDP:
    """`world` if it is one, a `TabularMDP` as the world of one model; an error that says what to pass otherwise."""
    if isinstance(world, TabularMDP):
        return UncertainMDP.from_tabular(world)
    if not isinstance(world, UncertainMDP):
        raise InvalidInputError(f"world is a {type(world).__name__}; pass a cautious.UncertainMDP.")
    return world


def _shared_by_models(transitions: Any, start: Any, discount: Any) -> tuple[Any, Any]:
    """Start and discount as given, or as TabularMDPs share them."""
    if start is not None and discount is not None:
        return start, discount
    if not _is_list_of(transitions, TabularMDP):
        missing = "initial_state_dist" if start is None else "discount"
        raise InvalidInputError(
            f"{missing}: pass it; it may be left out only where transitions are TabularMDPs that share it."
        )
    for number, model in enumerate(transitions):
        same_start = model.num_states == transitions[0].num_states and torch.equal(
            model.initial_state_dist, transitions[0].initial_state_dist
        )
        if (start is None and not same_start) or (discount is None and model.discount != transitions[0].discount):
            raise InvalidInputError(
                f"transitions: model {number} has another start or discount than model 0; pass initial_state_dist and discount."
            )
    return (
        transitions[0].initial_state_dist if start is None else start,
        transitions[0].discount if discount is None else discount,
    )


def _checked_discount(discount: Any, horizon: int | None) -> float:
    value = as_number(discount)
    if horizon is None and not 0 <= value < 1:
        raise InvalidInputError(f"discount={discount!r} must lie in [0, 1) in a world without a horizon.")
    if not 0 <= value <= 1:
        raise InvalidInputError(f"discount={discount!r} must lie in [0, 1].")
    return value


def _is_list_of(values: Any, kind: type) -> bool:
    return isinstance(values, Sequence) and len(values) > 0 and all(isinstance(value, kind) for value in values)


def _stored(transitions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Any accepted form as (first [S*A + 1], successor [Z], chance [Z, M], S); entries are not yet checked."""
    if isinstance(transitions, Sequence) and any(
        _is_sparse(model) or isinstance(model, TabularMDP) for model in transitions
    ):
        return _stored_sparse([_as_rows(model, number) for number, model in enumerate(transitions)])
    if isinstance(transitions, Sequence):
        _check_equal_shapes(transitions)
    tensor = as_float_tensor(transitions, "transitions", "cpu").double()
    check_shape(tensor, "M S A S", "transitions", S=tensor.shape[-1] if tensor.dim() else 0)
    num_states = tensor.shape[-1]
    rows = tensor.flatten(1, 2).numpy()  # [M, S*A, S]
    pair, successor = np.nonzero((rows != 0).any(axis=0))
    first = np.searchsorted(pair, np.arange(rows.shape[1] + 1))
    return first, successor, np.ascontiguousarray(rows[:, pair, successor].T), num_states


def _check_equal_shapes(models: Sequence[Any]) -> None:
    """Raise if dense models, one array [S, A, S] each, differ in size."""
    shapes = [np.shape(model) if isinstance(model, (np.ndarray, Tensor)) else None for model in models]
    for number, shape in enumerate(shapes):
        if shape is not None and shapes[0] is not None and shape != shapes[0]:
            raise InvalidInputError(
                f"transitions: model {number} has shape {list(shape)}, model 0 has {list(shapes[0])}; all models must share "
                "states and actions."
            )


def _is_sparse(model: Any) -> bool:
    return scipy.sparse.issparse(model) or (isinstance(model, Tensor) and model.layout != torch.strided)


def _as_rows(model: Any, number: int) -> scipy.sparse.csr_array:
    """One model as rows [S*A, S]."""
    if not _is_sparse(model) and not isinstance(model, TabularMDP):
        raise InvalidInputError(
            f"transitions: model {number} is a {type(model).__name__}; where one model is a TabularMDP or sparse, all "
            "must be (TabularMDP.from_gymnasium makes one of an environment)."
        )
    try:
        mdp = model if isinstance(model, TabularMDP) else None
        if mdp is None:
            size = model.shape[-1]
            mdp = TabularMDP(model, np.full(size, 1 / max(size, 1)), 0.0)  # it checks the rows
    except InvalidInputError as error:
        raise InvalidInputError(f"model {number}: {error}") from None
    return mdp.dynamics.sparse()


def _stored_sparse(models: list[scipy.sparse.csr_array]) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Places for every entry that some model has."""
    num_rows, num_states = models[0].shape
    for number, model in enumerate(models):
        if model.shape != (num_rows, num_states):
            sizes = [
                f"{each.shape[1]} states and {each.shape[0] // each.shape[1]} actions" for each in (model, models[0])
            ]
            raise InvalidInputError(
                f"transitions: model {number} has {sizes[0]}, model 0 has {sizes[1]}; all models must share states and actions."
            )
    entries = [model.tocoo() for model in models]
    keys = [each.row.astype(np.int64) * num_states + each.col for each in entries]
    places = np.unique(np.concatenate(keys))
    chance = np.zeros((len(places), len(models)))
    for number, (key, each) in enumerate(zip(keys, entries, strict=True)):
        chance[np.searchsorted(places, key), number] = each.data
    first = np.searchsorted(places // num_states, np.arange(num_rows + 1))
    return first, places % num_states, chance, num_states


def _checked_rows(first: np.ndarray, successor: np.ndarray, chance: np.ndarray, num_actions: int) -> np.ndarray:
    """The probabilities, rescaled where rounding keeps a row from summing to one; an error names model, state and action."""
    wrong = ~(np.isfinite(chance) & (chance >= 0))
    if wrong.any():
        place, model = np.argwhere(wrong)[0]
        state, action = divmod(int(np.searchsorted(first, place, side="right")) - 1, num_actions)
        raise InvalidInputError(
            f"transitions: P(s'={successor[place]} | s={state}, a={action}) of model {model} is {chance[place, model]:g}; "
            "probabilities must be finite and 0 or more."
        )
    padded = np.concatenate([chance, np.zeros((1, chance.shape[1]))])  # `reduceat` takes no empty end
    total = np.where(np.diff(first)[:, None] > 0, np.add.reduceat(padded, first[:-1], axis=0), 0.0)  # [S*A, M]
    off = np.abs(total - 1)
    if (off > ROW_TOLERANCE).any():
        pair, model = np.unravel_index(int(off.argmax()), off.shape)
        state, action = divmod(int(pair), num_actions)
        raise InvalidInputError(
            f"transitions: the row of model {model}, state {state}, action {action} sums to {total[pair, model]:.9g}; the "
            "probabilities of the next states must sum to 1."
        )
    scale = np.where(off > ROUNDING, total, 1.0)
    return np.ascontiguousarray(chance / np.repeat(scale, np.diff(first), axis=0))
