"""What a belief is, and the simplest one: an array.

A belief of one's own is any object with `Belief.rewards`; docs/extend.md has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.parallel import single_threaded
from cautious.validation import as_float_tensor, check_callable, check_shape, check_size


class Belief(Protocol):
    """What M models say each action pays: all that a policy needs to know of a belief.

    A belief may have more, which a policy uses where it is there. `RewardModels` has all of it:

    - ``num_models``, ``num_actions``: sizes, so that a level or an action that does not fit is refused at once;
    - ``actions``: the names of the actions, a tuple;
    - ``familiar``: a `FamiliarDisagreement`, the unit of `Decision.disagreement`;
    - ``opinions(states) -> [M, B, A]``: rewards for single decisions, where only the order of actions counts; without it,
      `rewards`;
    - ``read(states)``: the rows without those that the belief cannot judge, and what is wrong with these
      (`tables.schema.StateRows`); without it, `rewards` raises for such rows;
    - ``as_trained(states) -> [B, D]``, ``columns`` and ``prior``: states as numbers, which `rewards` must take too, the columns
      behind these (a `TableSchema`), and a `Prior` that keeps familiar rows; for `CautiousPolicy.explain`.
    """

    def rewards(self, states: Any) -> Tensor:
        """Rewards [M, B, A] of all models for B states, in whatever form the belief takes states."""
        ...


def opinions_of(belief: Any, states: Any) -> Any:
    """What a belief's models say for single decisions, [M, B, A], unchecked."""
    return getattr(belief, "opinions", belief.rewards)(states)


class TableBelief:
    """A belief about S numbered states: an array of rewards [M, S, A].

    >>> belief = TableBelief([[[1.0, 0.5], [0.0, 0.5]], [[0.0, 0.5], [1.0, 0.5]]])
    >>> belief.num_models, belief.rewards([1]).tolist()
    (2, [[[0.0, 0.5]], [[1.0, 0.5]]])
    """

    state_shape: tuple[int, ...] = ()

    def __init__(self, rewards: Any, state_of: Callable[[Any], Any] | None = None) -> None:
        """Keep the checked array.

        Args:
            rewards: [M, S, A].
            state_of: From what is passed as states to their numbers [B], where it is something else: features, for example.
        """
        check_callable(state_of, "state_of", "states")
        self._state_of = state_of
        self.table = as_float_tensor(rewards, "belief").clone()  # the caller may change theirs
        check_shape(self.table, "M S A", "belief")
        check_size(self.table, "belief")

    @property
    def num_models(self) -> int:
        """Number of models, M."""
        return len(self.table)

    @property
    def num_actions(self) -> int:
        """Number of actions, A."""
        return self.table.shape[2]

    @single_threaded
    def rewards(self, states: Any) -> Tensor:
        """Rewards [M, B, A] in the states of these numbers [B], or in those that `state_of` finds."""
        states = states if self._state_of is None else self._state_of(states)
        return self.table[:, state_numbers(states, self.table.shape[1])]


def state_numbers(states: Any, num_states: int, name: str = "states") -> Tensor:
    """`states` as checked whole numbers [B] below `num_states`; `name` is what errors call them."""
    numbers = as_float_tensor(states, name)
    if (states.dtype if isinstance(states, Tensor) else np.asarray(states).dtype) in (torch.bool, np.dtype(bool)):
        raise InvalidInputError(
            f"{name}: expected numbers, got truth values; for a mask, pass the places where it is True (its nonzero())."
        )
    whole = numbers.long()
    if numbers.dim() != 1 or not len(numbers) or bool((whole != numbers).any()):
        found = "none" if not numbers.numel() else f"shape {list(numbers.shape)}" if numbers.dim() != 1 else "fractions"
        raise InvalidInputError(f"{name}: expected whole numbers [B], at least one, got {found}.")
    if bool(((whole < 0) | (whole >= num_states)).any()):
        raise InvalidInputError(
            f"{name}: numbers from {int(whole.min())} to {int(whole.max())}; there are {num_states}, counted from 0."
        )
    return whole
