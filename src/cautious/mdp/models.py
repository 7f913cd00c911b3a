"""Where the models of an uncertain world come from: a log, counts, a parameter, published models.

    resampled_models      whole episodes of a log, drawn again: doubts that a patient or a season brings to many states at once
    dirichlet_models      each (state, action) by itself; such doubts average out along a path, and ranking returns sees little
    models_of_parameter   a parameter with a distribution: a demand, a slip, a rate
    read_models           models that others published, as rows of a file

Each returns a world and what its models pay (`Models`), as `solve_mdp` takes them.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.errors import BadFileError, InvalidInputError, MissingFileError
from cautious.mdp.tabular import TabularMDP
from cautious.mdp.uncertain import UncertainMDP
from cautious.seeding import make_rng
from cautious.types import ArrayLike
from cautious.validation import as_float_tensor, as_number, as_path, check_shape, parse_count


class Models(NamedTuple):
    """An uncertain world, and what its models pay."""

    world: UncertainMDP
    rewards: Tensor
    """What each model pays, [M, S, A]."""


Episode = Sequence[tuple[int, int, float, int]]
"""Its steps: (state, action, reward, next state)."""


def resampled_models(
    episodes: Sequence[Episode],
    num_models: int,
    discount: float,
    *,
    horizon: int | None = None,
    num_states: int | None = None,
    num_actions: int | None = None,
    prior: float = 1.0,
    seed: int = 0,
) -> Models:
    """Models by the bootstrap over whole episodes: each model counts E episodes that are drawn from the E with replacement.

        P_m(s'|s,a) = (n_m(s,a,s') + prior · P(s'|s,a)) / (n_m(s,a) + prior)

    with n_m the counts of the drawn episodes and P the shares in the whole log. What one episode says of many pairs is drawn or
    left out together, so doubts are shared among states. A pair that the log never tried stays where it is and pays the lowest
    reward of the log: nothing is known of it, and this is the careful guess.

    Args:
        episodes: The log, E episodes.
        num_models: M.
        discount: γ.
        horizon: T; None without end.
        num_states: S; one more than the largest number in the log, if not given.
        num_actions: A; likewise.
        prior: How many steps' weight the whole log has in each model's pair.
        seed: Starts the draws; model m depends on (seed, m) alone.

    Two seasons, one with rain: models differ in how often it rains.

    >>> dry, wet = [(0, 0, 1.0, 0)] * 3, [(0, 0, 0.0, 0)] * 3
    >>> resampled_models([dry, wet], 5, 0.9).rewards.flatten().unique().tolist()
    [0.07142857142857142, 0.5, 0.9285714285714286]
    """
    steps = [np.array(episode, dtype=np.float64).reshape(-1, 4) for episode in episodes]
    if not steps or not sum(map(len, steps)):
        raise InvalidInputError(
            "episodes: the log is empty; give at least one step (state, action, reward, next state)."
        )
    if as_number(prior) < 0 or not np.isfinite(as_number(prior)):
        raise InvalidInputError(f"prior={prior!r} must be zero or a positive number of steps.")
    everything = np.concatenate(steps)
    whole = everything[:, [0, 1, 3]].astype(np.int64)
    if not np.isfinite(everything).all() or (whole != everything[:, [0, 1, 3]]).any() or whole.min() < 0:
        raise InvalidInputError("episodes: states and actions must be whole numbers from 0, rewards finite numbers.")
    sizes = (num_states or int(whole[:, [0, 2]].max()) + 1, num_actions or int(whole[:, 1].max()) + 1)
    if whole[:, [0, 2]].max() >= sizes[0] or whole[:, 1].max() >= sizes[1]:
        raise InvalidInputError(
            f"episodes: some state or action is not below num_states={sizes[0]}, num_actions={sizes[1]}."
        )
    counts = [_counted(each, *sizes) for each in steps]
    transitions, rewards = _shares(*_counted(everything, *sizes), float(everything[:, 2].min()))
    start = np.bincount([int(each[0, 0]) for each in steps if len(each)], minlength=sizes[0]).astype(np.float64)
    models = []
    for m in range(parse_count(num_models, "num_models")):
        drawn = np.bincount(make_rng(seed, "episodes", m).integers(len(steps), size=len(steps)), minlength=len(steps))
        seen = sum(times * count for times, (count, _) in zip(drawn, counts, strict=True) if times)
        paid = sum(times * pay for times, (_, pay) in zip(drawn, counts, strict=True) if times)
        tried = seen.sum(axis=-1)
        weight = prior + (tried == 0) * (prior == 0)  # a pair that was not drawn is as in the whole log
        chance = (seen + weight[..., None] * transitions) / (tried + weight)[..., None]
        models.append((chance, (paid + weight * rewards) / (tried + weight)))
    return _joined(models, start / start.sum(), discount, horizon)


def dirichlet_models(
    counts: ArrayLike | TabularMDP,
    num_models: int,
    initial_state_dist: ArrayLike | None = None,
    discount: float | None = None,
    *,
    horizon: int | None = None,
    prior: float = 0.1,
    seed: int = 0,
) -> UncertainMDP:
    """Models whose rows are drawn from a Dirichlet distribution, each (state, action) by itself.

        P_m(·|s,a) ~ Dirichlet(n(s,a,·) + prior on successors that were seen)

    The weakness: doubts are independent. Along a path of many pairs they average out, so that all models have nearly the same
    returns, and no level is cautious about them. Where doubts are shared, `resampled_models` keeps that.

    Args:
        counts: How often each step was seen, [S, A, S]; or what `TabularMDP.from_gymnasium(num_steps=...)` estimated, whose
            visits are the counts. A pair never tried has one row in all models: as the estimate has it, else it stays.
        num_models: M.
        initial_state_dist: [S]; may be left out with a `TabularMDP`.
        discount: γ; likewise.
        horizon: T; None without end.
        prior: Added to the count of each successor that was seen.
        seed: Starts the draws; model m depends on (seed, m) alone.
    """
    if isinstance(counts, TabularMDP):
        if counts.coverage is None:
            raise InvalidInputError(
                "counts: the dynamics of this TabularMDP are exact; an estimate has visits to draw from."
            )
        seen = counts.transitions.to_dense().numpy() * counts.coverage.visits.numpy()[..., None]
        initial_state_dist = counts.initial_state_dist if initial_state_dist is None else initial_state_dist
        discount = counts.discount if discount is None else discount
        known = counts.transitions.to_dense().numpy()
    else:
        table = as_float_tensor(counts, "counts", "cpu").double()
        check_shape(table, "S A S", "counts", S=table.shape[-1] if table.dim() else 0)
        seen = table.numpy()
        known = np.broadcast_to(np.eye(seen.shape[-1])[:, None], seen.shape)
    if as_number(prior) < 0 or not np.isfinite(seen).all() or (seen < 0).any():
        raise InvalidInputError("counts and prior: they must be zero or positive, finite numbers.")
    shape = np.where(seen > 0, seen + prior, 0.0)
    tried = shape.sum(axis=-1, keepdims=True) > 0
    models = []
    for m in range(parse_count(num_models, "num_models")):
        parts = make_rng(seed, "dirichlet", m).gamma(shape)  # 0 where the shape is 0
        total = parts.sum(axis=-1, keepdims=True)
        models.append(np.where(tried & (total > 0), parts / np.where(total > 0, total, 1), known))
    return UncertainMDP(np.array(models), initial_state_dist, discount, horizon=horizon)


def models_of_parameter(
    make: Callable[[Any], tuple[ArrayLike, ArrayLike]],
    parameters: Iterable[Any],
    initial_state_dist: ArrayLike,
    discount: float,
    *,
    horizon: int | None = None,
) -> Models:
    """One model for each value of a parameter: draws from its distribution.

    Args:
        make: From a value to (transitions [S, A, S], rewards [S, A]).
        parameters: M values.
        initial_state_dist: [S].
        discount: γ.
        horizon: T; None without end.
    """
    made = [tuple(np.asarray(part, dtype=np.float64) for part in make(value)) for value in parameters]
    if not made:
        raise InvalidInputError("parameters: there are none; give at least one value.")
    return _joined(made, initial_state_dist, discount, horizon)


def read_models(
    path: Path | str, initial_state_dist: ArrayLike, discount: float, *, horizon: int | None = None
) -> Models:
    """Models from a CSV file (plain, or .gz) in the form of published multi-model MDPs.

    Columns: idstatefrom, idaction, idstateto, idoutcome (the model), probability, reward; numbers count from 0. A model's
    reward of a pair is the mean over its successors.
    """
    place = as_path(path, "path")
    if not place.is_file():
        raise MissingFileError(f"{place}: there is no such file.")
    try:
        with gzip.open(place, "rt") if place.suffix == ".gz" else place.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        numbers = [
            np.array([int(row[name]) for row in rows]) for name in ("idoutcome", "idstatefrom", "idaction", "idstateto")
        ]
        chance, reward = (np.array([float(row[name]) for row in rows]) for name in ("probability", "reward"))
        models, state, action, following = numbers
        model = np.unique(models, return_inverse=True)[1].reshape(-1)
        num_states = int(max(state.max(), following.max())) + 1
        table = np.zeros((model.max() + 1, num_states, action.max() + 1, num_states))
        paid = np.zeros(table.shape[:3])
        np.add.at(table, (model, state, action, following), chance)
        np.add.at(paid, (model, state, action), chance * reward)
    except (KeyError, ValueError, IndexError, OSError, EOFError) as error:
        raise BadFileError(f"{place}: not a file of models ({error}).") from None
    total = np.maximum(table.sum(axis=-1), 1e-300)
    near = np.abs(total - 1) < PUBLISHED_ROUNDING  # published probabilities are rounded
    scale = np.where(near, total, 1.0)
    world = UncertainMDP(table / scale[..., None], initial_state_dist, discount, horizon=horizon)
    return Models(world, torch.from_numpy(paid / scale))


PUBLISHED_ROUNDING = 1e-3
"""Rows of published files that sum to one up to this are rescaled; others are errors."""


def _counted(steps: np.ndarray, num_states: int, num_actions: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each step was seen [S, A, S], and what was paid in each pair [S, A], in one episode."""
    counts, paid = np.zeros((num_states, num_actions, num_states)), np.zeros((num_states, num_actions))
    state, action, following = steps[:, [0, 1, 3]].astype(np.int64).T
    np.add.at(counts, (state, action, following), 1)
    np.add.at(paid, (state, action), steps[:, 2])
    return counts, paid


def _shares(counts: np.ndarray, paid: np.ndarray, lowest: float) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the successors and mean rewards in the whole log; a pair never tried stays and pays the lowest reward."""
    tried = counts.sum(axis=-1)
    stay = np.broadcast_to(np.eye(len(counts))[:, None], counts.shape)
    shares = np.where(tried[..., None] > 0, counts / np.maximum(tried, 1)[..., None], stay)
    return shares, np.where(tried > 0, paid / np.maximum(tried, 1), lowest)


def _joined(models: Sequence[Any], start: ArrayLike, discount: float, horizon: int | None) -> Models:
    """Pairs of transitions and rewards as one world."""
    world = UncertainMDP(np.array([chance for chance, _ in models]), start, discount, horizon=horizon)
    rewards = torch.from_numpy(np.array([reward for _, reward in models]))
    check_shape(rewards, "M S A", "rewards", M=len(world), S=world.num_states, A=world.num_actions)
    return Models(world, rewards)
