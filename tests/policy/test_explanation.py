"""`policy.explain`: the feature that was moved is named, what is outside is said, and other beliefs refuse by name."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from cautious import (
    BeliefWarning,
    CautiousPolicy,
    FallbackRule,
    InvalidInputError,
    RewardEnsemble,
    RewardModels,
    TableBelief,
    TableWarning,
    fit_ensemble,
)
from cautious.policy import explanation
from cautious.policy.decision import disagreement_of
from cautious.policy.explanation import _familiar, _nearest


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    lactate = rng.gamma(2.0, 1.0, 300).round(2)
    return pd.DataFrame(
        {
            "lactate": lactate,
            "base": (-2 * lactate + rng.normal(size=300) / 10).round(2),  # follows lactate closely
            "age": rng.normal(60, 10, 300).round(),
            "unit": rng.choice(["icu", "ward"], 300),
            "weight": np.where(rng.random(300) < 0.2, np.nan, rng.normal(75, 10, 300)),
        }
    )


@pytest.fixture(scope="module")
def belief(frame) -> RewardEnsemble:
    treat = (frame["lactate"] > 2).astype(float)
    paid = pd.DataFrame({"treat": treat, "wait": 1 - treat, "refer": 0.6})
    with pytest.warns(TableWarning, match="empty cells are learned as such"):
        return fit_ensemble(frame, paid, num_models=20, num_epochs=15, missing="indicator", progress=False)


@pytest.fixture(scope="module")
def policy(belief) -> CautiousPolicy:
    return CautiousPolicy(belief, "1-of-20")


def test_each_feature_is_named_where_it_alone_was_moved(policy, frame):
    row = frame.dropna().iloc[[5]]
    new = {"lactate": 60.0, "base": 40.0, "age": 160.0, "unit": "attic", "weight": 300.0}
    for number, (name, value) in enumerate(new.items()):
        moved = row.assign(**{name: value})
        found = policy.explain(moved)
        assert found.features == tuple(frame)
        assert found.contribution.argmax(dim=1).tolist() == [number]
        assert found.outside.nonzero().tolist() == [[0, number]]
        apart = policy.decide(moved).disagreement
        assert float(found.contribution[0, number]) > 0.8 * float(apart)
        assert f"{name} " in found.sentences[0]
        assert found.index.equals(row.index)
    assert not policy.explain(row).outside.any()


def test_a_value_that_contradicts_the_others_is_named_though_it_is_in_its_range(policy, frame):
    row = frame.dropna().iloc[[5]].assign(lactate=5.0, base=-0.2)
    found = policy.explain(row)
    assert not found.outside.any()
    assert found.contribution[0].argmax() in (0, 1)
    assert "in familiar rows like this one" not in found.sentences[0]
    assert "where familiar rows like this one have" in found.sentences[0]


def test_contributions_are_what_the_disagreement_falls_by(policy, frame):
    """By hand: the counterpart by trying all familiar rows, the disagreement by asking the belief."""
    row = frame.dropna().iloc[[5]].assign(lactate=40.0, age=95.0)
    found = policy.explain(row)
    numbers = policy.belief.as_trained(row)
    familiar = _familiar(policy.belief, numbers.shape[1], None)
    apart = numbers.double() - familiar.rows
    for feature, slot in {0: [0], 1: [1], 2: [2], 3: [3, 4], 4: [5, 6]}.items():
        best = []
        for (
            v
        ) in apart:  # the least distance when the numbers of the feature may be anything: a small least-squares problem
            root = torch.linalg.cholesky(familiar.metric).T
            shift = torch.linalg.lstsq(root[:, slot], -(root @ v)[:, None]).solution
            best.append(float(((root @ v)[:, None] + root[:, slot] @ shift).square().sum()))
        changed = numbers.clone()
        changed[:, slot] = familiar.rows[int(np.argmin(best)), slot].to(numbers.dtype)
        before, after = (
            disagreement_of(policy.belief.rewards(rows, bounded=False)) / policy.familiar.unit
            for rows in (numbers, changed)
        )
        assert float(found.contribution[0, feature]) == pytest.approx(float(before - after), rel=1e-9, abs=1e-9)


def test_familiar_rows_of_a_prior_are_those_of_the_training(policy, frame):
    numbers = policy.belief.as_trained(frame).double()
    rows = _familiar(policy.belief, numbers.shape[1], None).rows
    assert float(torch.cdist(rows, numbers).amin(dim=1).max()) < 1e-3  # of numbers up to 100, through float32
    assert set(rows[:, 3:5].flatten().tolist()) == {0.0, 1.0}
    slots = [slice(number, number + 1) for number in range(rows.shape[1])]
    near = _familiar(policy.belief, numbers.shape[1], None)
    assert (_nearest(rows[7], near, slots) == 7).all()


def test_sentences_say_action_feature_value_range_and_share(policy, frame):
    good = frame.dropna().iloc[5].to_dict()
    rows = [
        {**good, "lactate": 60.0},
        {**good, "unit": "attic"},
        {**good, "age": None},
        good,
        {**good, "weight": None, "age": 30.0},
    ]
    decision = policy.decide(rows, allow_undecided=True)
    found = policy.explain(rows).sentences
    low, high = frame["lactate"].min(), frame["lactate"].max()
    apart = decision.disagreement
    assert found[0].startswith("refer")
    assert f"lactate 60, above all 300 familiar rows ({low:.4g} to {high:.4g}), causes " in found[0]
    assert f" of the disagreement of {float(apart[0]):.3g} (" in found[0]
    assert found[0].endswith(" %).")
    assert "unit 'attic', unlike all 300 familiar rows, causes " in found[1]
    assert found[2] == "undecided: no model can judge this row, because age is empty."
    assert found[3].endswith("as usual: the models disagree no more than in familiar rows "
                             f"({float(apart[3]):.3g}; 95 % of these are below 1).")  # fmt: skip
    assert policy.explain(rows).contribution[2].isnan().all()
    judged = policy.explain(rows).contribution[[0, 1, 3, 4]]
    assert judged.isfinite().all()
    only_bad = policy.explain(rows[2:3])
    assert (only_bad.sentences, only_bad.contribution.shape) == (found[2:3], (1, 5))
    asks = CautiousPolicy(policy.belief, "1-of-20", bad_rows_action="refer")
    assert asks.explain(rows).sentences[2] == "refer: no model can judge this row, because age is empty."


def test_frames_of_decisions_say_why_rows_depart(policy, frame, monkeypatch):
    clear = frame.dropna().query("0.5 < lactate < 1")
    rows = pd.concat([clear.iloc[:3], clear.iloc[3:6].assign(lactate=[50.0, 60.0, 70.0])])
    decision = policy.decide(rows)
    assert decision.departs.tolist() == [False] * 3 + [True] * 3
    told = decision.to_frame()["why"].tolist()
    assert told == ["", "", "", *policy.explain(rows).sentences[3:]]
    assert all("lactate" in sentence for sentence in told[3:])
    found = policy.explain(rows).to_frame()
    assert found.index.equals(rows.index)
    assert found["contribution of lactate"].tolist() == policy.explain(rows).contribution[:, 0].tolist()
    assert found["lactate outside"].tolist() == [False] * 3 + [True] * 3
    rule = FallbackRule(policy.belief, "refer", threshold=1.0)
    assert [sentence.startswith("refer: lactate") for sentence in rule.explain(rows).sentences] == [False] * 3 + [
        True
    ] * 3
    assert rule.decide(rows).to_frame()["why"].tolist()[3:] == list(rule.explain(rows).sentences[3:])
    assert decision.why([3, 4, 5], most=1)[1:] == ["not explained: more than 1,000 rows depart"] * 2


def test_rows_are_explained_alike_alone_and_together(policy, frame, monkeypatch):
    rows = frame.dropna().iloc[:40].assign(age=np.linspace(20, 140, 40))
    together = policy.explain(rows)
    monkeypatch.setattr(explanation, "CHANGED_ROWS", 13)
    assert torch.equal(policy.explain(rows).contribution, together.contribution)
    alone = policy.explain(rows.iloc[[17]])
    assert torch.equal(alone.contribution[0], together.contribution[17])
    assert alone.sentences[0] == together.sentences[17]


def test_the_belief_is_asked_at_most_once_per_row_and_feature(frame):
    class Counting:
        state_shape = (2,)
        asked = 0

        def rewards(self, states):
            Counting.asked += len(states)
            values = torch.as_tensor(states).double()
            return torch.stack([values, -values])

    policy = CautiousPolicy(Counting(), "1-of-2", familiar_states=torch.randn(20, 2, generator=torch.manual_seed(0)))
    Counting.asked = 0
    found = policy.explain(torch.tensor([[1.0, 50.0], [0.0, 0.0], [40.0, 1.0]]), familiar=torch.randn(30, 2))
    assert Counting.asked <= 3 * (2 + 1)
    assert found.contribution.argmax(dim=1).tolist()[::2] == [1, 0]
    assert found.features == ("feature 0", "feature 1")
    with pytest.raises(InvalidInputError, match=r"keeps no familiar rows .* policy.explain\(rows, familiar=...\)"):
        policy.explain(torch.zeros(1, 2))


def test_plain_arrays_have_numbered_features_and_the_range_of_all_training_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 3))
    belief = fit_ensemble(
        rows, np.column_stack([rows[:, 0], np.zeros(120)]), num_models=6, num_epochs=5, progress=False
    )
    highest = rows.max(axis=0)
    at_the_edge = np.array([highest, [highest[0] + 1e-9, 0, 0]])
    found = CautiousPolicy(belief, "1-of-6").explain(at_the_edge)
    assert found.outside.tolist() == [[False] * 3, [True, False, False]]
    far = CautiousPolicy(belief, "1-of-6").explain([[0.0, 0.0, 30.0]])
    assert "feature 2 30, above all 120 familiar rows" in far.sentences[0]
    without = fit_ensemble(
        rows, np.column_stack([rows[:, 0], np.zeros(120)]), num_models=6, num_epochs=5, prior=0, progress=False
    )
    assert CautiousPolicy(without, "1-of-6").explain([[0.0, 30.0, 0.0]]).contribution.shape == (1, 3)


class Slope:
    """A model of the user's, which takes frames: going pays the dose."""

    def __init__(self, extra: float) -> None:
        self._extra = extra

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        assert isinstance(rows, pd.DataFrame)
        return np.stack([rows["dose"].to_numpy(dtype=float) + self._extra, np.zeros(len(rows))], axis=1)


def test_models_of_ones_own_are_explained_and_take_rows_as_a_service_has_them():
    rng = np.random.default_rng(0)
    familiar = pd.DataFrame(
        {"age": rng.normal(60, 10, 200), "dose": rng.normal(size=200), "unit": ["icu", "ward"] * 100}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeliefWarning)
        belief = RewardModels([Slope(n / 1000) for n in range(20)], actions=["go", "ask"], familiar=familiar)
    policy = CautiousPolicy(belief, bad_rows_action="ask")
    good = {"age": 60.0, "dose": 1.0, "unit": "icu"}
    rows = [good, {**good, "dose": 50.0}, {**good, "age": 300.0}, {**good, "unit": "attic"}, {"dose": "?", "age": 60.0}]
    found = policy.explain(rows)
    assert found.contribution[1:4].argmax(dim=1).tolist() == [1, 0, 2]
    assert found.outside.nonzero().tolist() == [[1, 1], [2, 0], [3, 2]]
    assert "dose 50, above all familiar rows" in found.sentences[1]
    assert policy.decide(rows).reasons[4] == "dose is not a number ('?')" + "; unit is empty"
    assert torch.equal(policy.decide(pd.DataFrame(rows)).probabilities, policy.decide(rows).probabilities)
    assert policy.decide(good).names == ["go"]


def test_models_of_labels_are_explained():
    rng = np.random.default_rng(0)
    dose = rng.normal(size=200)
    belief = fit_ensemble(
        {"age": rng.normal(60, 10, 200), "dose": dose},
        labels=np.where(dose > 0, "good", "bad"),
        payoffs={"bad": {"lend": -4, "refuse": 0}, "good": {"lend": 1, "refuse": 0}},
        num_models=20,
        num_epochs=10,
        progress=False,
    )
    found = CautiousPolicy(belief).explain([{"age": 60.0, "dose": 50.0}, {"age": 300.0, "dose": 2.0}])
    assert found.contribution.argmax(dim=1).tolist() == [1, 0]
    assert "age 300, above all 200 familiar rows" in found.sentences[1]


def test_beliefs_without_features_refuse_and_name_the_way_out():
    images = fit_ensemble(
        np.zeros((12, 5, 4)) + np.arange(12)[:, None, None],
        np.eye(12)[:, :2],
        num_models=2,
        num_epochs=1,
        progress=False,
    )
    with pytest.raises(InvalidInputError, match=r"shape \[5, 4\], such as images.*decision.opinions\(\)"):
        CautiousPolicy(images, "1-of-2").explain(np.zeros((1, 5, 4)))
    for policy in (
        CautiousPolicy(torch.rand(4, 3, 2), "1-of-2"),
        FallbackRule(TableBelief(torch.rand(4, 3, 2)), 1, threshold=1),
    ):
        with pytest.raises(InvalidInputError, match="numbered states or a whole world, which have no features"):
            policy.explain([0])
        assert "why" not in policy.decide([0]).to_frame()


def test_the_moved_feature_of_a_real_table_is_named_first():
    """`python -m benchmarks.explaining` does so on 44 tables."""
    datasets = pytest.importorskip("sklearn.datasets")
    wine, rng = datasets.load_wine(), np.random.default_rng(0)
    order = rng.permutation(len(wine.data))
    rows, fresh = wine.data[order[:128]], wine.data[order[128:]]
    paid = np.column_stack([np.eye(3)[wine.target[order[:128]]], np.full(128, 0.4)])
    belief = fit_ensemble(rows, paid, num_models=20, num_epochs=20, progress=False)
    moved = rng.choice(rows.shape[1], len(fresh))
    far = fresh.copy()
    far[np.arange(len(fresh)), moved] += 5 * rows.std(axis=0)[moved] * rng.choice([-1, 1], len(fresh))
    policy = CautiousPolicy(belief, "1-of-20")
    assert (policy.explain(far).contribution.argmax(dim=1).numpy() == moved).mean() >= 0.9
    assert (policy.explain(fresh).contribution.argmax(dim=1).numpy() == moved).mean() < 0.5
