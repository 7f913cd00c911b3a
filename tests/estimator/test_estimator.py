"""`CautiousClassifier`: scikit-learn's own checks, pipelines and searches, and scores on groups that training did not have."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from cautious import BeliefWarning, Decision, InvalidInputError, TableWarning
from cautious.estimator import CautiousClassifier, LeaveGroupOut, leave_group_out_score

pytestmark = [pytest.mark.filterwarnings("ignore::cautious.BeliefWarning")]
LENDING = {"bad": {"lend": -4.0, "refuse": 0.0}, "good": {"lend": 1.0, "refuse": 0.0}}


def small(payoffs=None, **options):
    return CautiousClassifier(payoffs, **{"num_models": 20, "num_epochs": 30, **options})


@parametrize_with_checks([small(num_models=4, num_epochs=40)])
@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def loans(count, seed=0):
    """Rows of three kinds, six deviations apart: bad, good, and good ones of a third place."""
    random = np.random.default_rng(seed)
    place = random.integers(3, size=count)
    rows = random.normal(size=(count, 2)) + 6.0 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])[place]
    return rows, np.where(place == 0, "bad", "good"), place


def test_actions_decisions_and_probabilities():
    rows, labels, _ = loans(300)
    lender = small(LENDING).fit(rows, labels)
    fresh, known, _ = loans(200, seed=1)
    assert lender.actions_.tolist() == ["lend", "refuse"]
    assert (np.asarray(lender.predict(fresh) == "lend") == (known == "good")).mean() > 0.95
    chances = lender.predict_proba(fresh)
    assert np.allclose(chances.sum(axis=1), 1)
    assert (lender.classes_[chances.argmax(axis=1)] == known).mean() > 0.95
    far = fresh + np.array([60.0, -60.0])
    decision = lender.decide(far)
    assert isinstance(decision, Decision)
    assert (lender.predict(far) == "refuse").mean() > 0.9
    assert (small(LENDING, level="20-of-20").fit(rows, labels).predict(far) == "refuse").mean() < 0.9


def test_the_score_is_the_mean_payoff():
    rows, labels, _ = loans(300)
    lender = small(LENDING).fit(rows, labels)
    fresh, known, _ = loans(50, seed=1)
    paid = [LENDING[label][action] for label, action in zip(known, lender.predict(fresh), strict=True)]
    assert lender.payoffs_of(fresh, known).tolist() == paid
    assert lender.score(fresh, known) == pytest.approx(np.mean(paid))
    weights = np.arange(50)
    assert lender.score(fresh, known, weights) == pytest.approx(np.average(paid, weights=weights))
    plain = small().fit(rows, labels)
    assert plain.score(fresh, known) == pytest.approx((plain.predict(fresh) == known).mean())


def test_payoffs_as_an_array_follow_the_sorted_classes():
    rows, labels, _ = loans(300)
    numbers = np.where(labels == "good", 2, 10)  # as texts, "10" comes before "2"
    lender = small([[1.0, 0.0], [-4.0, 0.0]]).fit(rows, numbers)
    by_name = small({"2": LENDING["good"], 10: LENDING["bad"]}).fit(rows, numbers)
    fresh, known, _ = loans(100, seed=1)
    assert (np.asarray(lender.predict(fresh) == 0) == (known == "good")).mean() > 0.95
    assert (np.asarray(by_name.predict(fresh) == "lend") == (known == "good")).mean() > 0.95
    assert (
        by_name.classes_[by_name.predict_proba(fresh).argmax(axis=1)] == np.where(known == "good", 2, 10)
    ).mean() > 0.95
    with pytest.raises(InvalidInputError, match="payoffs: none for the labels 7"):
        lender.score(fresh, np.full(100, 7))


def test_in_a_pipeline_and_a_grid_search_with_groups():
    rows, labels, place = loans(240)
    pipeline = make_pipeline(StandardScaler(), small(LENDING, num_epochs=20))
    scores = cross_val_score(pipeline, rows, labels, cv=3)
    assert len(scores) == 3
    assert (scores > 0.4).all()  # two thirds are good and pay 1
    # The third place left out: its rows are good, but new.
    search = GridSearchCV(
        pipeline, {"cautiousclassifier__level": ["20-of-20", "1-of-20"]}, cv=LeaveGroupOut(), refit=False
    )
    groups = np.where(place == 2, "third", np.where(np.arange(240) % 2, "odd", "even"))
    found = search.fit(rows, labels, groups=groups)
    assert len(found.cv_results_["mean_test_score"]) == 2


def test_scores_on_groups_that_were_left_out_show_what_plain_cross_validation_cannot():
    random = np.random.default_rng(0)
    site = np.repeat(["a", "b", "c", "d"], 80)
    rows = random.normal(size=(320, 2)) + 6.0 * np.array([[0, 0], [3, 0], [0, 3], [9, 9]])[np.repeat(range(4), 80)]
    labels = np.where(
        np.isin(site, ["a", "d"]), "bad", "good"
    )  # the far site is bad, and the nearer ones there are good
    careful, bold = (small(LENDING, level=level) for level in ("1-of-20", "20-of-20"))
    with_caution, without = (leave_group_out_score(each, rows, labels, site) for each in (careful, bold))
    assert with_caution.groups.tolist() == ["a", "b", "c", "d"]
    assert with_caution.novel[3] > without.novel[3]
    assert np.allclose(with_caution.familiar, without.familiar, atol=0.1)
    assert with_caution.mean == pytest.approx((with_caution.novel.mean() + with_caution.familiar.mean()) / 2)
    others = leave_group_out_score(LogisticRegression(), rows, labels, site)  # any estimator
    assert others.novel.shape == (4,)
    assert len(cross_val_score(bold, rows, labels, groups=site, cv=LeaveOneGroupOut())) == 4


def test_a_label_may_be_the_group_where_payoffs_know_it():
    rows, _, place = loans(240)
    kinds = np.array(["bad", "good", "odd"])[place]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)  # payoffs for a label that training does not have
        scores = leave_group_out_score(small({**LENDING, "odd": LENDING["bad"]}), rows, kinds, kinds)
    assert scores.novel.shape == (3,)
    assert leave_group_out_score(small(), rows, kinds, kinds).novel.tolist() == [0.0, 0.0, 0.0]  # no action is right


def test_frames_with_texts_and_empty_cells():
    pandas = pytest.importorskip("pandas")
    rows, labels, place = loans(300)
    frame = pandas.DataFrame({"income": rows[:, 0], "age": rows[:, 1], "town": np.array(["x", "y", "z"])[place]})
    lender = small(LENDING, bad_rows_action="refuse").fit(frame, pandas.Series(labels))
    assert lender.feature_names_in_.tolist() == ["income", "age", "town"]
    assert (np.asarray(lender.predict(frame) == "lend") == (labels == "good")).mean() > 0.95
    frame.loc[0, "income"] = np.nan
    assert lender.predict(frame)[0] == "refuse"
    with pytest.raises(ValueError, match="feature names should match"):
        lender.predict(frame.rename(columns={"town": "city"}))


@pytest.mark.parametrize(
    ("groups", "says"),
    [(None, "groups: none are given"), (["a"] * 8, "at least two different ones"), ([["a"], ["b"]], r"shape \[2, 1\]")],
)
def test_bad_groups(groups, says):
    with pytest.raises(InvalidInputError, match=says):
        list(LeaveGroupOut().split(np.zeros((8, 1)), groups=groups))


def test_warnings_of_the_belief_reach_the_caller():
    rows, labels, _ = loans(100)
    with pytest.warns(BeliefWarning, match="blind to novelty"):
        small(prior=0).fit(rows, labels)


def test_groups_of_another_length_are_refused():
    with pytest.raises(InvalidInputError, match="4 for 6 rows"):
        list(LeaveGroupOut().split(np.zeros((6, 1)), groups=["a", "a", "b", "b"]))
