"""What `fit_ensemble` is given, frames or arrays, as arrays, with the names that the belief keeps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.tables.cells import EMPTY, Problems, bad_numbers
from cautious.tables.frames import as_table, index_of, is_named
from cautious.tables.learn_table import Missing, about_rewards, learn, select
from cautious.tables.schema import ACTIONS_KEPT_AS, KEPT_AS, TableSchema
from cautious.validation import as_float_tensor, check_shape, parse_choice


class TableWarning(UserWarning):
    """Something about a table that its owner should know: rows or columns left out, identifiers, a value far off."""


class TrainingData(NamedTuple):
    """Arrays to train on."""

    inputs: Any
    """States, [S, ...]."""
    rewards: Any
    """[S, A]."""
    names: dict[str, Any]
    """What a belief's settings keep: the columns of its states, and the names of its actions."""


def with_names(inputs: Any, rewards: Any, missing: str) -> TrainingData:
    """Frames and dictionaries of columns as arrays with names; arrays as they are.

    Args:
        inputs: Familiar states.
        rewards: What each action paid in them; NaN or nothing where it was not tried.
        missing: What becomes of rows with an empty cell (`Missing`).
    """
    rule = parse_choice(Missing, missing, "missing")
    rewards = same_rows(inputs, rewards)
    actions, paid = reward_columns(rewards) if is_named(rewards) else ((), rewards)
    if not is_named(inputs):
        return TrainingData(inputs, paid, {ACTIONS_KEPT_AS: list(actions)} if actions else {})
    table, known = as_table(inputs, "inputs"), as_float_tensor(paid, "rewards")
    if known.dim() == 2:  # `fit_ensemble` says what is wrong with another shape
        check_shape(known, "S A", "rewards", S=len(table))
    learned = learn(table, (), rule)
    used = known[torch.from_numpy(learned.rows)] if known.dim() == 2 else known
    notes = [*learned.notes, *(about_rewards(actions, used, select(table, learned.rows)) if used.dim() == 2 else ())]
    for note in notes:
        warnings.warn(note, TableWarning, stacklevel=4)  # past `fit_ensemble` and its wrapper
    schema = TableSchema(learned.schema.features, actions, learned.schema.others)
    return TrainingData(learned.states, used, {KEPT_AS: schema.described()})


def reward_columns(rewards: Any, order: Sequence[str] | None = None) -> tuple[tuple[str, ...], Tensor]:
    """Rewards with a named column per action: the names, and [S, A], NaN where nothing is.

    Args:
        rewards: A frame, or a dictionary of columns.
        order: The actions of the training, in whose order they are then returned.
    """
    table = as_table(rewards, "rewards")
    if order is not None:
        if set(order) != set(table.header):
            raise InvalidInputError(
                f"rewards: columns {', '.join(map(repr, table.header))}; the actions of the training were "
                f"{', '.join(map(repr, order))}. Give these, in any order."
            )
        table = replace(table, columns={name: table.read(name) for name in order})
    bad = [cell for name in table.header for cell in bad_numbers(table.read(name), name) if cell.what != EMPTY]
    if bad:
        raise InvalidInputError(
            f"{Problems(table, tuple(bad))}. A reward is a number, or nothing where it is not known."
        )
    return tuple(table.header), torch.from_numpy(np.stack([table.read(name).numbers for name in table.header], axis=1))


def same_rows(inputs: Any, rewards: Any) -> Any:
    """Rewards in the order of the states, where both are pandas frames: rows go together by their labels, as in pandas."""
    ours, theirs = index_of(inputs), index_of(rewards)
    if ours is None or theirs is None or len(ours) != len(theirs) or ours.equals(theirs):
        return rewards
    if ours.is_unique and theirs.is_unique and ours.isin(theirs).all():
        return rewards.loc[ours]
    raise InvalidInputError(
        "rewards: its rows have other labels than those of inputs, or labels twice in another order, so that nobody can tell "
        "which go together; give both the same index, or reset_index(drop=True) on both."
    )
