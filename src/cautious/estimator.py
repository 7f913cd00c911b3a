"""`CautiousClassifier`: caution as an estimator of scikit-learn, and how to score it on what is new (extra `sklearn`).

Plain cross-validation draws its test rows from the same rows as its training rows: nothing in them is new, so caution can only
lose there. `LeaveGroupOut` leaves whole groups out (sites, years, customers): half of the test rows are of such a group, half
are familiar. `leave_group_out_score` gives both halves apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cautious.beliefs.fit import fit_ensemble
from cautious.errors import InvalidInputError, MissingPackageError
from cautious.policy.decision import Decision
from cautious.policy.policy import CautiousPolicy
from cautious.risk import Mean
from cautious.seeding import make_rng
from cautious.tables.frames import is_frame
from cautious.tables.payoffs import label_text, read_payoffs

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone
    from sklearn.utils import _safe_indexing, check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise MissingPackageError(
        f"cautious.estimator needs scikit-learn 1.6 or later ({error}): pip install 'cautious[sklearn]'."
    ) from None


class CautiousClassifier(ClassifierMixin, BaseEstimator):
    """Learns labels and acts on payoffs: as usual where rows are familiar, carefully where they are not.

    A belief of `fit_ensemble(labels=, payoffs=)` behind scikit-learn's interface, for pipelines, grid searches and
    cross-validation. `predict` returns *actions*. Without `payoffs` nothing says what a mistake costs, so there is nothing to
    be careful about: `predict` then returns the most likely label.

    >>> random = np.random.default_rng(0)
    >>> good = random.integers(2, size=200)
    >>> rows = random.normal(size=(200, 2)) + 6.0 * good[:, None]
    >>> payoffs = {"0": {"lend": -4.0, "refuse": 0.0}, "1": {"lend": 1.0, "refuse": 0.0}}
    >>> lender = CautiousClassifier(payoffs, num_models=20, num_epochs=30).fit(rows, good)
    >>> lender.predict([[6.0, 6.0], [6.0, 60.0]]).tolist()                     # a good row, and one like nothing seen
    ['lend', 'refuse']
    """

    def __init__(
        self,
        payoffs: Any = None,
        *,
        level: Any = "1-of-20",
        num_models: int = 100,
        num_epochs: int = 100,
        prior: float | None = None,
        categorical: Any = None,
        bad_rows_action: Any = None,
        random_state: Any = 0,
    ) -> None:
        """Keep the parameters, as scikit-learn asks; `fit` checks them.

        Args:
            payoffs: What each action pays for each label, in any form that `fit_ensemble` takes: {label: {action: payoff}}, a
                frame with a row per label, or an array [L, A] in the order of the sorted labels (actions are then numbers).
            level: How cautious: a risk measure or its text.
            num_models: M.
            num_epochs: Passes over the training rows.
            prior: Width of each model's random prior; None for the default.
            categorical: Columns of a frame whose numbers are codes.
            bad_rows_action: The action for rows that no model can judge; None raises an error that names them.
            random_state: Seed, a whole number; or a generator that draws one.
        """
        self.payoffs = payoffs
        self.level = level
        self.num_models = num_models
        self.num_epochs = num_epochs
        self.prior = prior
        self.categorical = categorical
        self.bad_rows_action = bad_rows_action
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> CautiousClassifier:
        """Train the models.

        Args:
            X: Familiar rows: an array [S, F], or a frame with numbers, texts and categories.
            y: Their labels, [S].

        Returns:
            The estimator itself. `belief_` is its belief, `policy_` its policy, `classes_` the labels, `actions_` the actions.
        """
        rows, labels = self._training(X, y)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"CautiousClassifier needs rows of at least 2 classes; there is only one class, {self.classes_[0]!r}."
            )
        payoffs, known = self.payoffs, labels
        if not _by_name(payoffs):  # an array in the order of the classes: texts of these may have another order
            payoffs, known = np.eye(len(self.classes_)) if payoffs is None else payoffs, numbers
        texts = range(len(self.classes_)) if known is numbers else self.classes_
        self._texts = [label_text(label) for label in texts]
        options = {} if self.categorical is None else {"categorical": self.categorical}
        self.belief_ = fit_ensemble(
            rows,
            labels=known,
            payoffs=payoffs,
            num_models=self.num_models,
            num_epochs=self.num_epochs,
            prior=self.prior,
            seed=_seed(self.random_state),
            progress=False,
            **options,
        )
        level = Mean() if self.payoffs is None else self.level
        self.policy_ = CautiousPolicy(self.belief_, level, bad_rows_action=self.bad_rows_action)
        names = self.belief_.actions
        self.actions_ = self.classes_ if self.payoffs is None else np.array(names or range(self.belief_.num_actions))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The action in each row, [S]: names, or numbers where the payoffs have none; without `payoffs`, labels."""
        rows = self._rows(X)
        if self.payoffs is None:
            return np.asarray(self.classes_[self._chances(rows).argmax(axis=1)])
        return np.asarray(self.actions_[self.policy_.decide(rows).action.numpy()])

    def predict_proba(self, X: Any) -> np.ndarray:
        """How likely each label is, the mean of the models without their priors: [S, L], in the order of `classes_`."""
        return self._chances(self._rows(X))

    def decide(self, X: Any) -> Decision:
        """What to do in each row, with caution and disagreement: `CautiousPolicy.decide`."""
        rows = self._rows(X)
        return self.policy_.decide(rows)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean payoff of the actions in rows with these labels; without `payoffs` this is the accuracy."""
        return float(np.average(self.payoffs_of(X, y), weights=sample_weight))

    def payoffs_of(self, X: Any, y: Any) -> np.ndarray:
        """What the action in each row pays, given the row's label, [S].

        A label that training did not have pays what `payoffs` says; without `payoffs` no action is right for it.

        Raises:
            InvalidInputError: `payoffs` has no row for a label.
        """
        labels = np.asarray(y)
        if self.payoffs is None:
            return np.asarray(self.predict(X) == labels, dtype=float)
        rows = self._rows(X)
        action = self.policy_.decide(rows).action.numpy()
        known, numbers = np.unique(labels, return_inverse=True)
        payoffs = self.belief_.payoffs
        assert payoffs is not None
        if _by_name(self.payoffs):
            payoffs, _ = read_payoffs(self.payoffs, [label_text(label) for label in known])
        else:
            strange = set(known.tolist()) - set(self.classes_.tolist())
            if strange:
                raise InvalidInputError(
                    f"payoffs: none for the labels {', '.join(map(repr, sorted(strange, key=str)))}, which training did not "
                    "have; give payoffs as {label: {action: payoff}}."
                )
            numbers = np.searchsorted(self.classes_, labels)
        paid = payoffs.of_rows(self.belief_.as_trained(rows), self.belief_.columns).numpy()
        paid = np.broadcast_to(paid, (len(labels), *paid.shape[-2:]))
        return np.asarray(paid[np.arange(len(labels)), numbers, action])

    def _chances(self, rows: Any) -> np.ndarray:
        """Probabilities of the labels in checked rows, [S, L], in the order of `classes_`."""
        chances = self.belief_.probabilities(rows).double().mean(dim=0).numpy()
        assert self.belief_.labels is not None
        order = [self.belief_.labels.index(text) for text in self._texts]
        return np.asarray(chances[:, order] / chances.sum(axis=1, keepdims=True))

    def _training(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        """Rows and labels to learn from, checked."""
        if is_frame(X) and y is not None:  # texts and categories stay as they are
            validate_data(self, X, y, skip_check_array=True)
            rows, labels = X, column_or_1d(y, warn=True)
        else:
            rows, labels = validate_data(self, X, y, ensure_min_samples=2)
        check_classification_targets(labels)
        return rows, labels

    def _rows(self, X: Any) -> Any:
        """New rows, checked to have the columns of the training."""
        check_is_fitted(self)
        return validate_data(self, X, reset=False, skip_check_array=is_frame(X))


class LeaveGroupOut:
    """A splitter for cross-validation that tests caution: half of the test rows are new, half are familiar.

    Each group is left out once. Its rows are half of the test rows; the other half are familiar rows that training does not
    get, as many as there are of the group, and at most a third of all familiar ones. (A larger group is tried on as many of its
    rows.) Pass it as ``cv=`` together with ``groups=``: the mean payoff on such a test set punishes both too much caution and
    too little.

    >>> groups = ["a"] * 4 + ["b"] * 12
    >>> for train, test in LeaveGroupOut().split(np.zeros((16, 1)), groups=groups):
    ...     print(len(train), sorted(groups[row] for row in test))
    8 ['a', 'a', 'a', 'a', 'b', 'b', 'b', 'b']
    3 ['a', 'b']
    """

    def __init__(self, random_state: int = 0) -> None:
        """Keep the seed of the draw of familiar rows."""
        self.random_state = random_state

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Numbers of the rows to train on, and of those to test on, for each group in order."""
        if X is not None and len(_as_groups(groups)) != len(X):
            raise InvalidInputError(f"groups: {len(groups)} for {len(X)} rows; give one group per row.")
        for train, familiar, novel in _halves(groups, self.random_state):
            yield train, np.concatenate([familiar, novel[: len(familiar)]])

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of groups."""
        return len(np.unique(_as_groups(groups)))


class GroupScores(NamedTuple):
    """Mean payoffs of an estimator where one group at a time was left out."""

    groups: np.ndarray
    """The groups, [G]."""
    novel: np.ndarray
    """On the rows of each group, by an estimator that never saw one of them, [G]."""
    familiar: np.ndarray
    """The same estimators' on familiar rows that they were not trained on either, [G]."""

    @property
    def mean(self) -> float:
        """Half familiar, half novel, over all groups."""
        return float((self.novel.mean() + self.familiar.mean()) / 2)


def leave_group_out_score(estimator: Any, X: Any, y: Any, groups: Any, *, random_state: int = 0) -> GroupScores:
    """Mean payoffs on rows of a group that training did not have, and on familiar rows, group by group.

    Args:
        estimator: Anything with ``fit``, and ``score``, which is the mean payoff for a `CautiousClassifier`. It is cloned.
        X: Rows, an array or a frame, [S, F].
        y: Their labels, [S].
        groups: The group of each row, [S]: a site, a year, or the label itself.
        random_state: Seed of the draw of familiar rows (`LeaveGroupOut`).

    Returns:
        `GroupScores`, two numbers per group.
    """
    labels, found = np.asarray(y), []
    for train, familiar, novel in _halves(groups, random_state):
        fitted = clone(estimator).fit(_safe_indexing(X, train), labels[train])
        found.append([fitted.score(_safe_indexing(X, rows), labels[rows]) for rows in (novel, familiar)])
    novel_scores, familiar_scores = np.array(found).T
    return GroupScores(np.unique(_as_groups(groups)), novel_scores, familiar_scores)


def _halves(groups: Any, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Numbers of the training rows, of the familiar test rows and of the novel ones, for each group in order."""
    every = _as_groups(groups)
    for number, group in enumerate(np.unique(every)):
        random = make_rng(seed, "leave group out", number)
        novel = random.permutation(np.flatnonzero(every == group))
        rest = random.permutation(np.flatnonzero(every != group))
        count = min(len(novel), max(1, len(rest) // 3))
        yield np.sort(rest[count:]), np.sort(rest[:count]), novel


def _as_groups(groups: Any) -> np.ndarray:
    if groups is None:
        raise InvalidInputError("groups: none are given; say which group each row belongs to (groups=...).")
    every = np.asarray(groups)
    if every.ndim != 1 or len(np.unique(every)) < 2:
        raise InvalidInputError(
            f"groups: expected one group per row, at least two different ones; got shape {list(every.shape)}."
        )
    return every


def _by_name(payoffs: Any) -> bool:
    """Whether payoffs name their labels."""
    return isinstance(payoffs, (Mapping, str, Path)) or is_frame(payoffs)


def _seed(random_state: Any) -> int:
    """A seed from what scikit-learn calls `random_state`."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
