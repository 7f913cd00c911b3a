"""`RewardModels`: a belief made of models of one's own, each with a random prior.

Models that learned the same rows agree near them, and mostly agree far from them too. So each gets the fixed random function
that the library's own models get (`beliefs.prior`), fitted on the familiar rows:

    r_i(x, a) = model_i(x, a) + prior_i(x, a)

The models see rows as the caller passes them. The prior sees numbers: of a frame, each text of a column becomes a feature of
0 and 1, and an empty cell the column's mean beside a feature that says that it was empty (`tables.learn`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.diagnostics import BeliefWarning, Diagnosis, examine
from cautious.beliefs.disagreement import FamiliarDisagreement, disagreement
from cautious.beliefs.labels import expected_rewards
from cautious.beliefs.prior import WIDTH, Prior, checked_width
from cautious.errors import InvalidInputError
from cautious.parallel import single_threaded
from cautious.seeding import make_rng
from cautious.tables.cells import NOT_FINITE, BadCell, Problems
from cautious.tables.frames import FrameTable, as_table, is_frame, is_named
from cautious.tables.learn import Missing, TableWarning, learn
from cautious.tables.payoffs import Payoffs, about_unused, label_text, read_payoffs
from cautious.tables.schema import StateRows, TableSchema
from cautious.validation import as_float_tensor, check_finite, check_shape, check_size, parse_flag

HELD_OUT = 0.2
"""Share of the familiar rows that the prior does not keep: how far the models and their priors differ there is the unit of
`Decision.disagreement`."""
FEWEST_ROWS = 10
"""Fewer familiar rows than this say little about what is near."""


class RewardModels:
    """A belief made of models of one's own: scikit-learn's, LightGBM's, anything that predicts.

    `CautiousPolicy`, `FallbackRule` and `calibrate` take it like a belief of `fit_ensemble`. It is not written to files: models
    are whatever objects the caller has, so save them as their own library does, and build the belief again.

    >>> class Threshold:
    ...     def __init__(self, at):
    ...         self.at = at
    ...     def predict(self, rows):                                     # what "go" and "ask" pay, [S, 2]
    ...         return np.stack([rows[:, 0] > self.at, np.full(len(rows), 0.4)], axis=1)
    >>> rows = np.random.default_rng(0).random((200, 2))
    >>> belief = RewardModels([Threshold(0.5 + i / 1000) for i in range(20)], actions=["go", "ask"], familiar=rows)
    >>> near, far = belief.rewards([[0.9, 0.5], [30.0, 0.5]]).std(dim=0)[:, 0]
    >>> bool(near < 0.01), bool(far > 0.1)
    (True, True)
    """

    @single_threaded
    def __init__(
        self,
        models: Sequence[Any],
        *,
        familiar: Any = None,
        actions: Sequence[str] | None = None,
        payoffs: Any = None,
        prior: float | None = None,
        rewards: Any = None,
        seed: int = 0,
    ) -> None:
        """Ask the models about the familiar rows, and fit their priors there.

        Args:
            models: M models, each with ``predict(rows) -> [S, A]``: what each action pays. With `payoffs`, classifiers: each
                with ``predict_proba(rows) -> [S, L]``, or without it ``predict(rows) -> [S, L]``.
            familiar: Familiar rows, as the models take them: an array [S, F], or a frame or a dictionary of columns. Best are
                rows that the models were not trained on: the unit of `Decision.disagreement` comes from some of them.
            actions: Names of the A actions.
            payoffs: What each action pays for each label, as `fit_ensemble` takes it: {label: {action: payoff}}, a frame or a
                file with a row per label, or an array [L, A] in the order of the labels (sorted, as in `classes_`).
            prior: Width of each model's random prior, 0 for none; 0.75 if not given.
            rewards: What each action paid in the familiar rows, [S, A], NaN where that is not known: with it the diagnosis has
                errors, too. The priors' heights come from it; without it, from what the models predict on average.
            seed: Model i's prior depends on (seed, i) alone.

        Raises:
            InvalidInputError: There are fewer than two models, or no familiar rows for the prior; or a model predicts another
                shape than [S, A], no numbers, or another number of actions than the others. The message has the model's number.

        Warns:
            BeliefWarning: A cautious policy of these models would hardly react to what is new.
        """
        self.models = _as_models(models)
        self._names = None if actions is None else _as_names(actions)
        self._num_actions: int | None = None
        self._classes = _shared_classes(self.models)
        self.payoffs = None if payoffs is None else self._read_payoffs(payoffs)
        """What each action pays for each label; None for models that predict rewards."""
        self._example: Any = None
        self.columns: TableSchema | None = None
        """How the prior reads the columns of a frame; None for arrays."""
        self.state_shape: tuple[int, ...] | None = None
        """Shape of a state as the prior takes it; None without familiar rows."""
        self.prior: Prior | None = None
        self.familiar: FamiliarDisagreement | None = None
        """How far the models differ in familiar rows, the unit of `Decision.disagreement`; None if unknown."""
        self.diagnosis: Diagnosis | None = None
        """How a cautious policy reacts to made-up rows that are unlike the familiar ones; None without familiar rows."""
        if familiar is None and self.payoffs is not None and self.payoffs.factors:
            raise InvalidInputError(
                f"familiar: none are given, but payoffs depend on {', '.join(map(repr, self.payoffs.factors))}; pass familiar "
                "rows as a frame with these columns."
            )
        width = WIDTH if prior is None else checked_width(prior)
        if familiar is not None:
            self._learn(familiar, rewards, width, int(seed))
        elif width:
            raise InvalidInputError(
                "familiar: none are given. Each model's random prior grows with the distance from familiar rows, so pass some, "
                "such as the training rows; or prior=0, but models alone hardly differ where rows are new."
            )
        elif rewards is not None:
            raise InvalidInputError("rewards: what actions paid in the familiar rows; pass these too, as `familiar`.")

    @property
    def num_models(self) -> int:
        """Number of models, M."""
        return len(self.models)

    @property
    def num_actions(self) -> int | None:
        """Number of actions, A; None until a model was asked."""
        return self._num_actions if self._names is None else len(self._names)

    @property
    def actions(self) -> tuple[str, ...] | None:
        """Names of the actions; None if none were given."""
        return self._names

    def __repr__(self) -> str:
        """Sizes and the kind of models."""
        kind = type(self.models[0]).__name__
        actions = "" if self.num_actions is None else f", {self.num_actions} actions"
        return f"RewardModels({self.num_models:,} x {kind}{actions})"

    def rewards(self, states: Any, *, bounded: bool = True) -> Tensor:
        """Reward of every action in each row under every model with its prior, [M, S, A], float32.

        Args:
            states: Rows as the familiar ones were given. Where those were a frame, an array of them as numbers is taken too
                (`as_trained`), and turned into a frame for the models.
            bounded: Whether rewards stay within each action's familiar range, widened by its length on either side
                (`RewardEnsemble.rewards`).

        Raises:
            InvalidInputError: Rows of another form than the familiar ones; or a model's prediction is not usable.
        """
        predicted = self._predicted(states)
        return self._with_prior(predicted, states, bounded=parse_flag(bounded, "bounded"))

    def opinions(self, states: Any) -> Tensor:
        """Rewards for single decisions, where only the order of actions counts: ``rewards(states, bounded=False)``."""
        return self.rewards(states, bounded=False)

    def as_trained(self, states: Any) -> Tensor:
        """Rows as the numbers that the prior compares, [S, D].

        Raises:
            InvalidInputError: Rows of another form, or with cells that cannot be compared with familiar ones.
        """
        if self.columns is not None and is_named(states):
            return self.columns.states(as_table(states, "states"), strict=True)
        rows = as_float_tensor(states, "states")
        check_shape(rows, "S F", "states", **({} if self.state_shape is None else {"F": self.state_shape[0]}))
        check_finite(rows, "states")
        return rows

    def read(self, states: Any) -> StateRows:
        """Rows without those that cannot be compared with familiar ones, and what is wrong with these."""
        if self.columns is not None and is_named(states):
            problems = self.columns.read(as_table(states, "states"), strict=True).problems
            usable = _some_rows(states, problems.usable)
            if isinstance(usable, Mapping) and not isinstance(self._example, Mapping):  # as a service has rows
                cells = {str(name): np.atleast_1d(np.asarray(column)) for name, column in usable.items()}
                usable = _like(self._example, cells, int(problems.usable.sum()))
            return StateRows(usable, problems)
        rows = as_float_tensor(states, "states")
        check_shape(rows, "S F", "states", **({} if self.state_shape is None else {"F": self.state_shape[0]}))
        bad = [
            BadCell(row, str(column), NOT_FINITE, f"{float(rows[row, column]):g}")
            for row, column in (~rows.isfinite()).nonzero().tolist()
        ]
        problems = Problems(FrameTable("states", {}, len(rows)), tuple(bad))
        return StateRows(_some_rows(states, problems.usable), problems)

    def _learn(self, familiar: Any, rewards: Any, width: float, seed: int) -> None:
        """The prior, the unit and the diagnosis, from the familiar rows."""
        if is_named(familiar):
            learned = learn(as_table(familiar, "familiar"), (), Missing.INDICATOR)
            kept = np.isin(np.arange(len(as_table(familiar, "familiar"))), learned.rows)
            for note in learned.notes:
                warnings.warn(TableWarning(str(note)), stacklevel=4)
            self.columns, rows = replace(learned.schema, others=None), learned.states
            familiar = self._example = _some_rows(familiar, kept)
        else:
            rows, kept = as_float_tensor(familiar, "familiar"), None
            check_shape(rows, "S F", "familiar")
            if not bool(rows.isfinite().all()):
                row, column = (~rows.isfinite()).nonzero()[0].tolist()
                raise InvalidInputError(
                    f"familiar: row {row}, column {column} is {float(rows[row, column])}. Fill in what is missing; or pass a "
                    "frame, where an empty cell may be familiar."
                )
        if len(rows) < FEWEST_ROWS:
            raise InvalidInputError(f"familiar: {len(rows)} rows are too few; give at least {FEWEST_ROWS}.")
        self.state_shape = tuple(rows.shape[1:])
        if self.payoffs is not None:
            self.payoffs.checked_for(self.columns)
        predicted = self._predicted(familiar)
        paid = predicted.double().mean(dim=0)
        targets = torch.full_like(paid, torch.nan)
        if rewards is not None:
            targets = as_float_tensor(rewards, "rewards").double()
            check_shape(targets, "S A", "rewards", A=predicted.shape[2])
            targets = targets if kept is None else targets[torch.from_numpy(kept)]
            check_shape(targets, "S A", "rewards", S=len(rows))
            paid = torch.where(targets.isnan(), paid, targets)
        order = torch.from_numpy(make_rng(seed, "held out").permutation(len(rows)))
        count = int(HELD_OUT * len(rows))
        held_out, near = order[:count].sort().values, order[count:].sort().values
        if width:
            self.prior = Prior.fitted(rows[near], paid[near], width=width, num_models=self.num_models, seed=seed)
        opinions = self._add_prior(predicted[:, held_out], rows[held_out], bounded=False)
        self.familiar = FamiliarDisagreement.of(disagreement(opinions))
        self.diagnosis = examine(self, rows[near], opinions, targets[held_out], seed)
        for sentence in self.diagnosis.concerns:
            warnings.warn(sentence, BeliefWarning, stacklevel=4)

    def _predicted(self, states: Any) -> Tensor:
        """What the models themselves say, [M, S, A], float32."""
        if self.columns is not None and not is_named(states):
            states = self._as_frame(as_float_tensor(states, "states"))
        elif not is_named(states):
            states = states.detach().cpu().numpy() if isinstance(states, Tensor) else np.asarray(states)
        count = _num_rows(states)
        answers = [self._answer(number, states, count) for number in range(self.num_models)]
        return torch.stack(answers)

    def _answer(self, number: int, states: Any, count: int) -> Tensor:
        """What one model says each action pays, checked, [S, A]."""
        model, what = self.models[number], f"model {number} ({type(self.models[number]).__name__})"
        has_probabilities = self.payoffs is not None and hasattr(model, "predict_proba")
        asked = model.predict_proba if has_probabilities else model.predict
        try:
            said = as_float_tensor(np.asarray(asked(states)), f"{what}: its prediction").double()
        except InvalidInputError:
            raise
        except Exception as error:
            raise InvalidInputError(
                f"{what} cannot predict these rows ({type(error).__name__}: {error}). Models get rows as `familiar` was given."
            ) from error
        if self.payoffs is not None:
            said = self._of_payoffs(said, states, number, what, count)
        elif said.dim() != 2 or len(said) != count:
            hint = "; a classifier's labels? Then pass payoffs=, what each action pays for each label" * (
                said.dim() == 1
            )
            raise InvalidInputError(
                f"{what}: its prediction has shape {list(said.shape)}; expected [{count}, A], what each action pays{hint}."
            )
        known = self.num_actions
        if known is not None and said.shape[1] != known:
            raise InvalidInputError(
                f"{what}: it predicts {said.shape[1]} actions; {'the names are of' if self._names else 'the others have'} "
                f"{known}."
            )
        self._num_actions = said.shape[1]
        if not bool(said.isfinite().all()):
            row, action = (~said.isfinite()).nonzero()[0].tolist()
            raise InvalidInputError(
                f"{what}: its prediction for row {row}, action {action} is {float(said[row, action])}."
            )
        check_size(said.float(), what)
        return said.float()

    def _of_payoffs(self, said: Tensor, states: Any, number: int, what: str, count: int) -> Tensor:
        """Expected payoffs [S, A] from one model's probabilities of labels: Σ_l P(l|x) payoff(l, a)."""
        assert self.payoffs is not None
        own, num_labels = getattr(self.models[number], "classes_", None), len(self.payoffs.labels)
        if own is not None and self._classes is not None and said.dim() == 2 and said.shape[1] == len(own):
            places = torch.from_numpy(np.searchsorted(self._classes, np.asarray(own)))
            spread = torch.zeros(
                len(said), num_labels, dtype=said.dtype
            )  # a bag may lack a label: its probability is 0
            spread[:, places] = said
            said = spread
        if said.shape != (count, num_labels):
            raise InvalidInputError(
                f"{what}: its prediction has shape {list(said.shape)}; expected [{count}, {num_labels}], the probability of "
                "each label in `payoffs`."
            )
        wrong = ~(said >= -1e-6).all(dim=1) | ~((said.sum(dim=1) - 1).abs() <= 1e-3)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            raise InvalidInputError(
                f"{what}: its prediction for row {row} is {[round(p, 4) for p in said[row].tolist()]}; probabilities of labels "
                "are at least 0 and sum to 1."
            )
        at_stake = (
            self.payoffs.table
            if not self.payoffs.factors
            else self.payoffs.of_rows(self.as_trained(states), self.columns)
        )
        return expected_rewards(said[None], at_stake)[0]

    def _read_payoffs(self, payoffs: Any) -> Payoffs:
        """Payoffs in any form, in the order of the models' labels."""
        if self._classes is not None:
            labels = [label_text(label) for label in self._classes.tolist()]
        elif isinstance(payoffs, Mapping):
            labels = [label_text(label) for label in payoffs]
        elif isinstance(payoffs, (str, Path)) or callable(payoffs) or is_frame(payoffs):
            raise InvalidInputError(
                "payoffs: the models do not say which labels they predict (classes_); pass an array [L, A] or a dictionary "
                "{label: {action: payoff}} in the order of their predictions."
            )
        else:
            labels = [str(number) for number in range(len(as_float_tensor(payoffs, "payoffs")))]
        found, unused = read_payoffs(payoffs, labels)
        for sentence in about_unused(unused):
            warnings.warn(TableWarning(sentence), stacklevel=4)
        if self._names is None:
            self._names = found.actions or None
        elif found.actions and set(found.actions) != set(self._names):
            raise InvalidInputError(
                f"actions={list(self._names)!r}: the payoffs are of {', '.join(map(repr, found.actions))}; leave `actions` "
                "out, or name the same."
            )
        elif found.actions:
            found = found.with_actions(self._names)
        self._num_actions = found.num_actions
        return found

    def _with_prior(self, predicted: Tensor, states: Any, *, bounded: bool) -> Tensor:
        return predicted if self.prior is None else self._add_prior(predicted, self.as_trained(states), bounded=bounded)

    @single_threaded
    def _add_prior(self, predicted: Tensor, rows: Tensor, *, bounded: bool) -> Tensor:
        """Rewards [M, S, A] with each model's prior in these rows [S, D]."""
        if self.prior is None or not len(rows):
            return predicted
        check_size(
            rows.float(), "states"
        )  # squares of larger distances would overflow, and such rows would look familiar
        opinions = self.prior.opinions(torch.arange(self.num_models), self.prior.novelty(rows), bounded=bounded)
        return (self.prior.bound(predicted) if bounded else predicted) + opinions

    def _as_frame(self, rows: Tensor) -> Any:
        """Numbers [S, D], as the prior compares rows, as a frame of the familiar rows' kind.

        What the prior does not see, a column of names for example, is as in the first familiar row.
        """
        assert self.columns is not None
        check_shape(rows, "S D", "states", D=self.columns.width)
        first = 0
        found: dict[str, Any] = {}
        for feature in self.columns.features:
            part = rows[:, first : first + feature.width].cpu().numpy()
            first += feature.width
            empty = part[:, -1] > 0.5 if feature.fill is not None else np.zeros(len(rows), dtype=bool)
            if feature.texts is None:
                found[feature.name] = np.where(empty, np.nan, part[:, 0])
            else:
                of_texts = part[:, : len(feature.texts)]
                named = np.array([*feature.texts, None], dtype=object)
                unknown = (of_texts.max(axis=1) <= 0) | empty
                found[feature.name] = named[np.where(unknown, len(feature.texts), of_texts.argmax(axis=1))]
        return _like(self._example, found, len(rows))


def _as_models(models: Any) -> tuple[Any, ...]:
    if isinstance(models, (str, bytes, Mapping)) or not isinstance(models, (Sequence, np.ndarray)):
        raise InvalidInputError(f"models is a {type(models).__name__}; pass a list of models.")
    if len(models) < 2:
        found = "there is none" if not len(models) else "one model cannot disagree with itself"
        raise InvalidInputError(f"models: {found}; give several, a level such as 1-of-20 needs at least 20.")
    for number, model in enumerate(models):
        if isinstance(model, type) or not (
            callable(getattr(model, "predict", None)) or callable(getattr(model, "predict_proba", None))
        ):
            raise InvalidInputError(
                f"models: model {number} is a {type(model).__name__} without predict(rows); pass trained models."
            )
    return tuple(models)


def _as_names(actions: Any) -> tuple[str, ...]:
    if isinstance(actions, (str, bytes)) or not all(isinstance(name, str) for name in actions):
        raise InvalidInputError(f"actions={actions!r} must be a list of names.")
    if len(set(actions)) < len(actions) or not len(actions):
        raise InvalidInputError(f"actions={list(actions)!r} must be different names, at least one.")
    return tuple(actions)


def _shared_classes(models: Sequence[Any]) -> np.ndarray | None:
    """The labels of all models, sorted, [L]; None where some do not say."""
    own = [getattr(model, "classes_", None) for model in models]
    if any(part is None for part in own):
        return None
    return np.unique(np.concatenate([np.asarray(part).ravel() for part in own]))


def _num_rows(states: Any) -> int:
    return len(as_table(states, "states")) if is_named(states) else len(states)


def _some_rows(states: Any, usable: np.ndarray) -> Any:
    """The rows of an array, a frame or a dictionary where `usable` [S] is true."""
    if usable.all():
        return states
    if isinstance(states, Mapping):
        return {name: np.asarray(cells)[usable] for name, cells in states.items()}
    if hasattr(states, "iloc"):
        return states.iloc[np.flatnonzero(usable)]
    if is_frame(states):
        return states[np.flatnonzero(usable)] if hasattr(states, "columns") else states.take(np.flatnonzero(usable))
    return as_float_tensor(states, "states")[torch.from_numpy(usable)]


def _like(example: Any, columns: Mapping[str, Any], count: int) -> Any:
    """Columns as a frame of the kind, and with the types and the other columns, of an example."""
    if isinstance(example, Mapping):
        return {name: columns.get(name, np.repeat(np.asarray(cells)[:1], count)) for name, cells in example.items()}
    if not hasattr(example, "iloc"):
        return type(example)({name: columns[name] for name in columns})
    series = type(example.iloc[:, 0])
    parts = {}
    for name in example.columns:
        cells = example[name]
        if str(name) not in columns:
            parts[name] = series(np.repeat(cells.to_numpy()[:1], count))
            continue
        values = columns[str(name)]
        if cells.dtype.kind == "b":
            values = np.array([str(value).casefold() == "true" for value in values])
        # Made-up numbers need not be whole.
        parts[name] = series(values) if cells.dtype.kind in "iu" else series(values).astype(cells.dtype)
    return type(example)(parts)
