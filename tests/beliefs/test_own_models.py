"""`RewardModels`: beliefs made of models of one's own."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from cautious import (
    BeliefWarning,
    CautiousPolicy,
    FallbackRule,
    InvalidInputError,
    RewardModels,
    TableWarning,
    calibrate,
)
from cautious.beliefs.prior import WIDTH, Prior

HELP = 0.4


def blobs(count, seed=0):
    """Rows of two kinds, three deviations apart in each of three features, and their kinds."""
    random = np.random.default_rng(seed)
    kinds = random.integers(2, size=count)
    return random.normal(size=(count, 3)) + 6.0 * kinds[:, None], kinds


class Linear:
    """What three actions pay: kind 0, kind 1, help; cut at a place of its own between the kinds."""

    def __init__(self, cut):
        self.cut = cut

    def predict(self, rows):
        second = (np.asarray(rows, dtype=float)[:, 0] > self.cut).astype(float)
        return np.column_stack([1 - second, second, np.full(len(second), HELP)])


def linear_models(count=40):
    return [Linear(3.0 + (i - count / 2) / 1000) for i in range(count)]


class Says:
    """Predicts whatever it is told to."""

    def __init__(self, said):
        self.said = said

    def predict(self, rows):
        return self.said(rows)


def quiet(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeliefWarning)
        return RewardModels(*args, **kwargs)


@pytest.fixture(scope="module")
def belief():
    return quiet(linear_models(), familiar=blobs(300)[0], actions=["first", "second", "help"])


def test_rewards_are_the_models_and_their_priors(belief):
    rows = blobs(50, seed=1)[0]
    said = torch.from_numpy(np.stack([model.predict(rows) for model in belief.models])).float()
    assert isinstance(belief.prior, Prior)
    opinions = belief.prior.opinions(torch.arange(40), belief.prior.novelty(torch.from_numpy(rows)), bounded=False)
    assert torch.equal(belief.opinions(rows), said + opinions)
    assert torch.equal(belief.rewards(rows, bounded=False), said + opinions)
    assert belief.prior.width == WIDTH
    # Pairs of opposite heights: the ordinary policy has no prior.
    assert torch.allclose(belief.opinions(rows).mean(dim=0), said.mean(dim=0), atol=1e-5)


def test_bounded_rewards_stay_within_the_familiar_range_and_its_length_on_either_side(belief):
    far = belief.rewards(np.full((1, 3), 1e6))
    assert float(far[..., :2].min()) >= -1
    assert float(far[..., :2].max()) <= 2
    assert float(belief.opinions(np.full((1, 3), 1e6)).abs().max()) > 2


def test_a_policy_is_ordinary_near_and_asks_far_away(belief):
    policy = CautiousPolicy(belief, "1-of-20")
    rows, kinds = blobs(100, seed=2)
    near = policy.decide(rows)
    assert (near.action.numpy() == kinds).mean() > 0.95
    assert near.actions == ("first", "second", "help")
    far = policy.decide(rows + np.array([0.0, 40.0, 0.0]))
    assert (far.action == 2).double().mean() > 0.9
    # In units of the fifth of the familiar rows that the prior did not keep.
    assert float((near.disagreement > 1).double().mean()) < 0.2
    assert float(far.disagreement.min()) > 1


def test_without_a_prior_there_is_hardly_any_caution_and_a_warning_says_so():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plain = RewardModels(linear_models(), familiar=blobs(300)[0], prior=0)
    assert {warning.category for warning in caught} == {BeliefWarning}
    assert any("the belief is blind to novelty" in str(warning.message) for warning in caught)
    assert caught[0].filename == __file__
    far = CautiousPolicy(plain, "1-of-20").decide(blobs(100, seed=2)[0] + np.array([0.0, 40.0, 0.0]))
    assert not bool((far.action == 2).any())
    assert plain.diagnosis.unfamiliar_departures < 0.25


def test_the_diagnosis_has_errors_where_rewards_are_known(belief):
    rows, kinds = blobs(300)
    paid = np.column_stack([kinds == 0, kinds == 1, np.full(300, HELP)]).astype(float)
    known = quiet(linear_models(), familiar=rows, rewards=paid)
    assert known.diagnosis.error < 0.2
    assert np.isnan(belief.diagnosis.error)
    assert known.diagnosis.unfamiliar_departures > 0.8
    assert belief.diagnosis.unfamiliar_departures > 0.8


def test_model_i_depends_on_the_seed_and_i_alone():
    rows, new = blobs(300)[0], blobs(20, seed=3)[0] * 4
    few, many = (quiet(linear_models(40)[:count], familiar=rows, actions=None) for count in (30, 40))
    assert few.prior is not None
    heights = few.prior.heights
    assert torch.equal(heights, many.prior.heights[:30])
    assert not torch.equal(few.rewards(new), quiet(linear_models()[:30], familiar=rows, seed=1).rewards(new))


def test_calibrate_and_a_fallback_rule_take_it(belief):
    fresh = blobs(400, seed=4)[0]
    found = calibrate(belief, fresh, at_most=0.05, progress=False)
    assert found.rate <= 0.05
    assert found.level.k < 20
    rule = FallbackRule(belief, "help")
    fixed = calibrate(rule, fresh, at_most=0.05, progress=False)
    assert fixed.rate <= 0.05
    assert rule.decide([[0.0, 50.0, 0.0]]).action.tolist() == [2]
    with pytest.raises(InvalidInputError, match="only a belief made by fit_ensemble can be retrained"):
        calibrate(belief, fresh, np.zeros((400, 3)), progress=False)


def test_rows_that_cannot_be_judged_are_named_or_get_the_action_for_them(belief):
    rows = [[0.0, 0.0, 0.0], [0.0, float("nan"), 0.0]]
    with pytest.raises(InvalidInputError, match="not finite"):
        CautiousPolicy(belief, "1-of-20").decide(rows)
    decision = CautiousPolicy(belief, "1-of-20", bad_rows_action="help").decide(rows)
    assert decision.action.tolist() == [0, 2]
    assert decision.judged.tolist() == [True, False]


def frame_of(count, seed=0):
    import pandas

    rows, kinds = blobs(count, seed)
    colours = pandas.Categorical(np.where(kinds == 1, "red", "blue"))
    return pandas.DataFrame({"size": rows[:, 0], "age": rows[:, 1], "colour": colours, "count": np.arange(count) % 7})


class OfFrames:
    """A model that insists on the columns and types of its training."""

    def __init__(self, cut):
        self.cut = cut

    def predict(self, frame):
        assert list(frame.columns) == ["size", "age", "colour", "count"]
        assert str(frame["colour"].dtype) == "category"
        second = (frame["size"].to_numpy() > self.cut).astype(float)
        return np.column_stack([1 - second, second, np.full(len(frame), HELP)])


def test_models_get_frames_as_they_were_passed_and_holes_may_be_familiar():
    pytest.importorskip("pandas")
    familiar = frame_of(300)
    familiar.loc[::10, "age"] = np.nan
    with pytest.warns(TableWarning, match="column 'age' is empty in rows 0, 10"):
        belief = quiet([OfFrames(3 + i / 1000) for i in range(20)], familiar=familiar)
    assert belief.diagnosis.num_unfamiliar > 0  # made-up rows reached the models as frames
    policy, new = CautiousPolicy(belief, "1-of-20"), frame_of(30, seed=5)
    new.loc[3, "age"] = np.nan
    decision = policy.decide(new)
    assert decision.judged.all()
    odd = new.copy()
    odd["size"] = 500.0
    assert (policy.decide(odd).action == 2).all()
    broken = new.copy()
    broken.loc[4, "size"] = np.nan
    assert policy.decide(broken, allow_undecided=True).judged.tolist() == [row != 4 for row in range(30)]
    with pytest.raises(InvalidInputError, match="no column 'size'"):
        policy.decide(new.drop(columns="size"))
    # Rows as numbers come back as the same frames.
    assert torch.equal(belief.rewards(belief.as_trained(new)), belief.rewards(new))


def test_explanations_name_the_feature_that_moved(belief):
    rows = blobs(30, seed=6)[0]
    moved = np.arange(30) % 3
    rows[np.arange(30), moved] += 40.0
    why = CautiousPolicy(belief, "1-of-20").explain(rows)
    assert (why.contribution.argmax(dim=1).numpy() == moved).mean() >= 0.9
    assert why.outside[np.arange(30), moved].all()
    pytest.importorskip("pandas")
    of_frames = quiet([OfFrames(3 + i / 1000) for i in range(20)], familiar=frame_of(300))
    new = frame_of(5, seed=5).assign(age=500.0)
    found = CautiousPolicy(of_frames, "1-of-20").explain(new)
    assert all("age 500, above all familiar rows" in sentence for sentence in found.sentences)


def test_a_dictionary_of_columns_and_a_polars_frame_work_alike():
    polars = pytest.importorskip("polars")
    rows = blobs(200)[0]
    columns = {"x": rows[:, 0], "y": rows[:, 1]}

    class OfColumns:
        def predict(self, table):
            second = (np.asarray(table["x"]) > 3).astype(float)
            return np.column_stack([1 - second, second, np.full(len(second), HELP)])

    beliefs = [quiet([OfColumns()] * 20, familiar=make(columns)) for make in (dict, polars.DataFrame)]
    new = {"x": [0.0, 90.0], "y": [0.0, 0.0]}
    assert torch.equal(beliefs[0].rewards(new), beliefs[1].rewards(polars.DataFrame(new)))


def test_bags_of_scikit_learn_with_payoffs():
    ensemble = pytest.importorskip("sklearn.ensemble")
    rows, kinds = blobs(300)
    random = np.random.default_rng(0)
    labels = np.where(kinds == 1, "yes", "no")
    bags = []
    for seed in range(20):
        drawn = random.integers(300, size=300)
        drawn = drawn[labels[drawn] == "yes"] if seed == 7 else drawn  # this bag never saw the other label
        bags.append(ensemble.RandomForestClassifier(5, random_state=seed).fit(rows[drawn], labels[drawn]))
    payoffs = {"yes": {"reject": 0.0, "accept": 1.0}, "no": {"reject": 0.0, "accept": -4.0}}
    belief = quiet(bags, familiar=rows, payoffs=payoffs)
    assert belief.actions == ("reject", "accept")
    chance = torch.from_numpy(bags[0].predict_proba(rows[:9]))
    plain = quiet(bags, familiar=rows, payoffs=payoffs, prior=0)
    expected = torch.stack([torch.zeros(9).double(), chance @ torch.tensor([-4.0, 1.0]).double()], dim=1)
    assert torch.allclose(plain.rewards(rows[:9])[0].double(), expected, atol=1e-6)
    assert torch.allclose(plain.rewards(rows[:9])[7, :, 1], torch.ones(9))
    with pytest.raises(InvalidInputError, match="payoffs: none for the label 'no'"):
        quiet(bags, familiar=rows, payoffs={"yes": {"accept": 1.0}})
    good = blobs(200, seed=1)
    decided = CautiousPolicy(belief, "1-of-20").decide(good[0]).action.numpy()
    assert (decided == good[1]).mean() > 0.9
    far = CautiousPolicy(belief, "1-of-20").decide(good[0] + np.array([0.0, 0.0, 60.0])).action
    assert (far == 0).double().mean() > 0.9


def test_payoffs_may_depend_on_a_column_of_the_rows():
    class Even:
        classes_ = np.array(["bad", "good"])

        def predict_proba(self, table):
            return np.full((len(table["amount"]), 2), 0.5)

    amount = np.linspace(1.0, 9.0, 50)
    payoffs = {"bad": {"lend": "-amount", "refuse": 0.0}, "good": {"lend": 2.0, "refuse": 0.0}}
    belief = quiet([Even(), Even()], familiar={"amount": amount}, payoffs=payoffs, prior=0)
    expected = np.stack([0.5 * 2.0 - 0.5 * amount, np.zeros(50)], axis=1)
    assert np.allclose(belief.rewards({"amount": amount})[0].numpy(), expected, atol=1e-6)
    with pytest.raises(InvalidInputError, match="payoffs"):
        quiet([Even(), Even()], familiar={"size": amount}, payoffs=payoffs, prior=0)


def test_bags_of_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    rows, kinds = blobs(300)
    random = np.random.default_rng(0)
    bags = []
    for seed in range(20):
        drawn = random.integers(300, size=300)
        bags.append(
            lightgbm.LGBMClassifier(n_estimators=10, verbose=-1, random_state=seed).fit(rows[drawn], kinds[drawn])
        )
    belief = quiet(bags, familiar=rows, payoffs=[[0.0, -4.0], [0.0, 1.0]], actions=["reject", "accept"])
    far = CautiousPolicy(belief, "1-of-20").decide(blobs(100, seed=1)[0] + np.array([0.0, 0.0, 60.0]))
    assert (far.action == 0).double().mean() > 0.9


def three(said):
    return [*linear_models(2), Says(said)]


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ([], "models: there is none"),
        (linear_models(1), "one model cannot disagree with itself"),
        ("models", "models is a str"),
        ([*linear_models(2), 7], "model 2 is a int without predict"),
        (three(lambda rows: np.zeros(len(rows))), r"model 2 \(Says\): its prediction has shape \[300\].*payoffs="),
        (three(lambda rows: np.zeros((len(rows), 2))), r"model 2 \(Says\): it predicts 2 actions; the others have 3"),
        (
            three(lambda rows: np.zeros((2, 3))),
            r"model 2 \(Says\): its prediction has shape \[2, 3\]; expected \[300, A\]",
        ),
        (
            three(lambda rows: np.full((len(rows), 3), np.nan)),
            r"model 2 \(Says\): its prediction for row 0, action 0 is nan",
        ),
        (three(lambda rows: [["a"] * 3] * len(rows)), r"model 2 \(Says\): its prediction: cannot be read"),
        (three(lambda rows: 1 / 0), r"model 2 \(Says\) cannot predict these rows \(ZeroDivisionError"),
    ],
)
def test_bad_models_are_named_by_their_number(models, says):
    with pytest.raises(InvalidInputError, match=says):
        RewardModels(models, familiar=blobs(300)[0])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "familiar: none are given"),
        ({"familiar": blobs(4)[0]}, "familiar: 4 rows are too few"),
        ({"familiar": [[np.nan] * 3] * 20}, "familiar: row 0, column 0 is nan"),
        ({"familiar": np.zeros(20)}, "familiar: expected shape"),
        ({"familiar": blobs(20)[0], "prior": -1}, "prior=-1 must be zero"),
        (
            {"familiar": blobs(20)[0], "actions": ["a", "b"]},
            r"model 0 \(Linear\): it predicts 3 actions; the names are of 2",
        ),
        ({"familiar": blobs(20)[0], "actions": ["a", "a", "b"]}, "must be different names"),
        ({"familiar": blobs(20)[0], "actions": "abc"}, "must be a list of names"),
        ({"familiar": blobs(20)[0], "payoffs": [1.0, 2.0]}, "payoffs for the labels .*expected shape"),
        ({"familiar": blobs(20)[0], "payoffs": np.zeros((2, 3))}, r"expected \[20, 2\], the probability of each label"),
        ({"familiar": blobs(20)[0], "rewards": np.zeros((20, 2))}, "rewards: expected shape"),
        ({"prior": 0, "rewards": np.zeros((20, 3))}, "rewards: what actions paid in the familiar rows"),
    ],
)
def test_bad_arguments(options, says):
    with pytest.raises(InvalidInputError, match=says):
        RewardModels(linear_models(20), **options)


def test_without_familiar_rows_only_plain_models(belief):
    plain = RewardModels(linear_models(20), prior=0)
    assert (plain.familiar, plain.diagnosis, plain.prior, plain.num_actions) == (None, None, None, None)
    assert CautiousPolicy(plain, "1-of-20").decide([[0.0, 0.0, 0.0]]).action.tolist() == [0]
    assert repr(belief) == "RewardModels(40 x Linear, 3 actions)"


def test_it_is_not_written_to_files_and_the_message_says_so(belief, tmp_path):
    with pytest.raises(InvalidInputError, match="RewardModels cannot be written"):
        CautiousPolicy(belief, "1-of-20").save(tmp_path)


def test_rows_too_large_for_distances_are_refused():
    """Their squares would overflow, and the prior would take them for familiar."""
    rows, _ = blobs(60)
    belief = quiet(linear_models(20), familiar=rows)
    for value in (1e32, 1e155, 1e300):
        with pytest.raises(InvalidInputError, match="states"):
            belief.rewards(np.array([[0.0, value, 0.0]]))


@pytest.mark.parametrize("said", [[1.0, 1.0], [2.0, -1.0], [0.2, 0.2]])
def test_probabilities_that_are_none_are_refused(said):
    class Sure:
        def predict_proba(self, rows):
            return np.tile(said, (len(rows), 1))

    belief = quiet([Sure(), Sure()], payoffs=[[1.0, 0.0], [0.0, 1.0]], prior=0)
    with pytest.raises(InvalidInputError, match=r"model 0 .* row 0 .* sum to 1"):
        belief.rewards(np.zeros((2, 3)))


class Even:
    def predict_proba(self, rows):
        return np.full((len(rows), 2), 0.5)


def test_payoffs_come_in_the_order_of_the_named_actions():
    payoffs = {"bad": {"go": -3.0, "stay": 0.0}, "good": {"go": 1.0, "stay": 0.0}}
    belief = quiet([Even(), Even()], payoffs=payoffs, actions=["stay", "go"], prior=0)
    assert belief.actions == ("stay", "go")
    assert belief.rewards(np.zeros((1, 2)))[0, 0].tolist() == [0.0, -1.0]
    with pytest.raises(InvalidInputError, match="the payoffs are of 'go', 'stay'"):
        quiet([Even(), Even()], payoffs=payoffs, actions=["stay", "run"], prior=0)


def test_payoffs_that_depend_on_rows_need_familiar_ones():
    payoffs = {"bad": {"go": "-amount", "stay": 0}, "good": {"go": 1, "stay": 0}}
    with pytest.raises(InvalidInputError, match="familiar: none are given, but payoffs depend on 'amount'"):
        quiet([Even(), Even()], payoffs=payoffs, prior=0)
