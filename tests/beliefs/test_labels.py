"""Beliefs about labels: rewards worked by hand, payoffs that change after training, payoffs that depend on the row."""

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from cautious import (
    BeliefWarning,
    CautiousPolicy,
    InvalidInputError,
    RewardEnsemble,
    TableWarning,
    calibrate,
    fit_ensemble,
    open_executor,
)
from cautious.beliefs.fit import VectorLearner
from cautious.beliefs.labels import cross_entropy, expected_rewards, probabilities, smoothed, unsmoothed
from cautious.beliefs.training.state import MiniBatch

pytestmark = pytest.mark.filterwarnings("ignore::cautious.BeliefWarning")

LOANS = {"bad": {"lend": -4, "part": -1, "refuse": 0}, "good": {"lend": 1, "part": 0.5, "refuse": -0.1}}
QUICK = {"num_models": 20, "num_epochs": 30, "progress": False}


def applicants(count=200):
    """Applicants whose loans are repaid above an income of 45, but for chance."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "income": rng.normal(50, 15, count),
            "amount": rng.uniform(1, 20, count),
            "kind": rng.choice(["car", "house"], count),
        }
    )
    return frame, np.where(frame["income"] + rng.normal(0, 8, count) > 45, "good", "bad")


@pytest.fixture(scope="module")
def lender():
    frame, labels = applicants()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeliefWarning)
        return frame, labels, fit_ensemble(frame, labels=labels, payoffs=LOANS, **QUICK)


def test_probabilities_are_the_softmax():
    scores = 20 * torch.randn(200, 7, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(probabilities(scores), scores.double().softmax(dim=-1), rtol=1e-10, atol=1e-25)


def test_probabilities_of_a_row_do_not_depend_on_the_batch():
    scores = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    one_by_one = torch.cat([probabilities(scores[row : row + 1]) for row in range(1000)])
    assert torch.equal(probabilities(scores), one_by_one)


def test_slope_of_the_cross_entropy_is_that_of_autograd():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 8, 3, generator=generator).double().requires_grad_()
    targets = torch.nn.functional.one_hot(torch.randint(3, (5, 8), generator=generator)).double()
    weights = torch.tensor([1.0, 2.0, 0.5]).double()
    loss = -(weights * targets * scores.log_softmax(dim=-1)).sum(dim=(1, 2)) / 8
    (slope,) = torch.autograd.grad(loss.sum(), scores)
    found = cross_entropy(scores.detach(), targets, weights, 8)
    assert torch.allclose(found[0], loss.detach(), rtol=1e-10)
    assert torch.allclose(found[1], slope, rtol=1e-9, atol=1e-12)


def test_expected_rewards_by_hand():
    likely = torch.tensor([[[0.25, 0.75], [1.0, 0.0]]]).double()
    payoffs = torch.tensor([[-4.0, 0.0], [1.0, -0.2]]).double()
    expected = torch.tensor([[[-0.25, -0.15], [-4.0, 0.0]]]).double()
    assert torch.allclose(expected_rewards(likely, payoffs), expected)


def test_separable_labels_pay_what_their_label_pays():
    states = torch.tensor([[-1.0], [1.0]]).repeat(50, 1)
    belief = fit_ensemble(states, labels=["bad", "good"] * 50, payoffs=LOANS, num_models=20, progress=False)
    mean = belief.rewards(states[:2], bounded=False).mean(dim=0)
    assert torch.allclose(mean, torch.tensor([[-4.0, -1.0, 0.0], [1.0, 0.5, -0.1]]), atol=0.15)


def test_known_probabilities_give_the_expected_payoff():
    """Three of four rows in one state are good, one of four in the other: 0.75 · 1 + 0.25 · -4 = -0.25, and so on."""
    states = torch.tensor([[0.0], [1.0]]).repeat(200, 1)
    labels = np.where(np.arange(400) % 8 // 2 == 0, "rare", "usual")  # a quarter of the rows of either state
    labels = np.where(np.arange(400) % 2 == 0, labels, np.where(labels == "rare", "usual", "rare"))
    payoffs = {"rare": {"go": -4, "stay": 0}, "usual": {"go": 1, "stay": 0}}
    belief = fit_ensemble(states, labels=labels, payoffs=payoffs, num_models=20, progress=False, validation_fraction=0)
    likely = belief.probabilities(states[:2]).mean(dim=0)
    assert torch.allclose(likely, torch.tensor([[0.25, 0.75], [0.75, 0.25]]), atol=0.03)
    mean = belief.rewards(states[:2], bounded=False).mean(dim=0)
    assert torch.allclose(mean, torch.tensor([[-0.25, 0.0], [-2.75, 0.0]]), atol=0.15)


def test_an_action_that_pays_the_same_for_all_labels_is_never_in_doubt():
    states = torch.linspace(-1, 1, 40)[:, None]
    payoffs = {False: {"go": 0, "ask": 0.4}, True: {"go": 1, "ask": 0.4}}
    belief = fit_ensemble(states, labels=(states[:, 0] > 0).tolist(), payoffs=payoffs, num_models=20, progress=False)
    far = belief.rewards([[50.0]], bounded=False)[:, 0]
    assert torch.allclose(far[:, 1], torch.tensor(0.4))
    assert far[:, 0].std() > 1
    assert CautiousPolicy(belief, "1-of-20").decide([[50.0]]).action.tolist() == [1]


@pytest.mark.parametrize(
    "payoffs",
    [
        {"bad": {"lend": -9, "refuse": 0.1}, "good": {"lend": 1, "refuse": 0}},
        {"bad": {"lend": "-amount", "refuse": 0}, "good": {"lend": "0.1*amount", "refuse": -0.2}},
    ],
)
def test_other_payoffs_are_those_of_a_belief_trained_with_them(lender, payoffs):
    frame, labels, belief = lender
    trained, changed = fit_ensemble(frame, labels=labels, payoffs=payoffs, **QUICK), belief.with_payoffs(payoffs)
    novel = frame.assign(income=400)
    for rows in (frame, novel):
        for bounded in (True, False):
            assert torch.equal(trained.rewards(rows, bounded=bounded), changed.rewards(rows, bounded=bounded))
    assert trained.familiar == changed.familiar
    assert trained.actions == changed.actions
    assert json.dumps(trained.settings, sort_keys=True) == json.dumps(changed.settings, sort_keys=True)
    assert changed.diagnosis is None


def test_saved_and_loaded_with_its_payoffs(lender, tmp_path):
    frame, _, belief = lender
    changed = belief.with_payoffs({"bad": {"lend": "-amount"}, "good": {"lend": "amount"}})
    for number, kept in enumerate((belief, changed)):
        kept.save(tmp_path / str(number))
        loaded = RewardEnsemble.load(tmp_path / str(number))
        assert torch.equal(loaded.rewards(frame), kept.rewards(frame))
        assert (loaded.actions, loaded.labels, loaded.familiar) == (kept.actions, kept.labels, kept.familiar)
        again = loaded.with_payoffs(LOANS)
        assert torch.equal(again.rewards(frame), belief.rewards(frame))
        assert again.familiar == belief.familiar
    policy = CautiousPolicy(changed, "1-of-20")
    policy.save(tmp_path / "policy")
    same = CautiousPolicy.load(tmp_path / "policy").decide(frame)
    assert torch.equal(same.probabilities, policy.decide(frame).probabilities)


@pytest.mark.parametrize("part", ["labels", "payoffs"])
def test_damaged_labels_or_payoffs_are_refused(lender, tmp_path, part):
    lender[2].save(tmp_path)
    described = json.loads((tmp_path / "ensemble.json").read_text())
    for damaged in (3, {"names": ["a"], "counts": [1]}, {"actions": [], "table": [[1.0], ["x"]], "columns": {}}, [1]):
        settings = described["settings"] | {part: damaged}
        (tmp_path / "ensemble.json").write_text(json.dumps(described | {"settings": settings}))
        with pytest.raises(ValueError, match=r"damaged|checksum|labels"):
            RewardEnsemble.load(tmp_path)


def test_payoffs_that_depend_on_the_row_by_hand(lender):
    frame, _, belief = lender
    changed = belief.with_payoffs(
        {"bad": {"lend": "-amount", "refuse": 0}, "good": {"lend": "0.1*amount", "refuse": -1}}
    )
    likely = belief.probabilities(frame).double().mean(dim=0)
    amount = torch.tensor(frame["amount"].tolist()).double()
    expected = torch.stack([-likely[:, 0] * amount + 0.1 * likely[:, 1] * amount, -likely[:, 1]], dim=1)
    assert torch.allclose(changed.rewards(frame, bounded=False).double().mean(dim=0), expected, atol=1e-4)


def test_a_function_of_rows_is_the_table_that_it_computes(lender, tmp_path):
    frame, labels, belief = lender

    def costs(rows):
        nothing = np.zeros(len(rows["amount"]))
        return {
            "lend": np.stack([-rows["amount"], 0.1 * rows["amount"]], 1),
            "refuse": np.stack([nothing, nothing - 1], 1),
        }

    by_table = belief.with_payoffs(
        {"bad": {"lend": "-amount", "refuse": 0}, "good": {"lend": "0.1*amount", "refuse": -1}}
    )
    by_function = belief.with_payoffs(costs)
    assert by_function.actions == ("lend", "refuse")
    assert torch.equal(by_function.rewards(frame), by_table.rewards(frame))
    assert torch.equal(
        fit_ensemble(frame, labels=labels, payoffs=costs, **QUICK).rewards(frame), by_table.rewards(frame)
    )
    with pytest.raises(InvalidInputError, match="the function 'costs' cannot be saved"):
        by_function.save(tmp_path)


def test_a_function_sees_the_columns_as_they_were():
    frame, labels = applicants(60)
    seen = []

    def costs(rows):
        seen.append(rows)
        return np.zeros((len(rows["kind"]), 2, 2))

    fit_ensemble(frame, labels=labels, payoffs=costs, num_models=2, num_epochs=1, progress=False, validation_fraction=0)
    assert list(seen[0]) == ["income", "amount", "kind"]
    assert seen[0]["kind"].tolist() == frame["kind"].tolist()
    assert np.allclose(seen[0]["income"], frame["income"])


@pytest.mark.parametrize(
    "payoffs",
    [
        pd.DataFrame({"label": ["good", "bad"], "lend": [1, -4], "part": [0.5, -1], "refuse": [-0.1, 0]}),
        pd.DataFrame({"lend": [1, -4], "part": [0.5, -1], "refuse": [-0.1, 0]}, index=["good", "bad"]),
        {"label": {}} and {"good": LOANS["good"], "bad": LOANS["bad"]},
        np.array([[-4, -1, 0], [1, 0.5, -0.1]]),
    ],
    ids=["frame", "index", "dictionary", "array"],
)
def test_payoffs_may_come_in_any_form(lender, payoffs):
    frame, _, belief = lender
    assert torch.equal(belief.with_payoffs(payoffs).rewards(frame), belief.rewards(frame))


def test_labels_of_any_type():
    states = torch.linspace(-1, 1, 40)[:, None]
    is_right = states[:, 0] > 0
    options = {"num_models": 4, "num_epochs": 2, "progress": False, "payoffs": np.eye(2)}
    numbers = fit_ensemble(states, labels=is_right.long() * 8 + 2, **options)
    assert numbers.labels == ("2", "10")
    forms = {
        "floats": (is_right.double() * 8 + 2).numpy(),
        "texts": ["10" if right else "2" for right in is_right],
        "categories": pd.Categorical(["10" if right else "2" for right in is_right]),
        "column": pd.Series(["10" if right else "2" for right in is_right], dtype="category"),
    }
    for labels in forms.values():
        belief = fit_ensemble(states, labels=labels, **options)
        assert belief.labels == numbers.labels
        assert torch.equal(belief.parameters, numbers.parameters)


def test_rows_go_together_by_their_index():
    frame, labels = applicants(80)
    column = pd.Series(labels, index=frame.index)
    options = {"num_models": 2, "num_epochs": 2, "progress": False, "payoffs": LOANS}
    shuffled = column.sample(frac=1, random_state=0)
    first, second = (fit_ensemble(frame, labels=part, **options) for part in (column, shuffled))
    assert torch.equal(first.parameters, second.parameters)


def test_a_model_depends_on_its_number_alone(lender):
    frame, labels, belief = lender
    fewer = fit_ensemble(frame, labels=labels, payoffs=LOANS, **QUICK | {"num_models": 4})
    assert torch.equal(fewer.parameters, belief.parameters[:4])
    assert torch.equal(fewer.rewards(frame), belief.rewards(frame)[:4])


def test_a_row_does_not_depend_on_the_others(lender):
    frame, _, belief = lender
    changed = belief.with_payoffs({"bad": {"lend": "-amount", "refuse": 0}, "good": {"lend": 1, "refuse": 0}})
    for kept in (belief, changed):
        every = kept.rewards(frame, bounded=False)
        assert torch.equal(every[:, 7:8], kept.rewards(frame.iloc[7:8], bounded=False))
        assert torch.equal(every[:, 3:70], kept.rewards(frame.iloc[3:70], bounded=False))
        indices = torch.tensor([5, 0])
        assert torch.equal(kept.on(frame).rewards_for(indices), kept.rewards(frame)[indices])


def test_a_module_of_ones_own():
    states = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    belief = fit_ensemble(
        states,
        labels=(states[:, 0] > 0).long(),
        payoffs=np.eye(2),
        network=lambda: torch.nn.Linear(3, 2),
        learning_rate=0.05,
        **QUICK,
    )
    right = (belief.probabilities(states).mean(dim=0).argmax(dim=1) == (states[:, 0] > 0)).double().mean()
    assert right > 0.9


def test_images():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 100, size=(40, 28, 28), dtype=np.uint8)
    images[::2, :14] += 100
    labels = ["top", "plain"] * 20
    options = {"num_models": 2, "num_epochs": 10, "progress": False, "batch_size": 8}
    belief = fit_ensemble(
        images, labels=labels, payoffs={"top": {"a": 1, "b": 0}, "plain": {"a": 0, "b": 1}}, **options
    )
    assert belief.prior is None
    assert (belief.rewards(images).mean(dim=0).argmax(dim=1) == torch.tensor([0, 1] * 20)).double().mean() > 0.9


def test_weights_of_labels_change_the_probabilities():
    states = torch.zeros(90, 1)
    labels = ["a", "b", "b"] * 30
    options = {"payoffs": np.eye(2), "num_models": 2, "progress": False, "validation_fraction": 0}
    plain = fit_ensemble(states, labels=labels, **options).probabilities(states[:1]).mean(dim=0)[0]
    weighted = (
        fit_ensemble(states, labels=labels, loss_weights=[2, 1], **options).probabilities(states[:1]).mean(dim=0)[0]
    )
    assert plain[0] == pytest.approx(1 / 3, abs=0.03)
    assert weighted[0] == pytest.approx(1 / 2, abs=0.03)


def test_calibrate_on_fresh_rows_and_by_cross_fitting(lender):
    frame, labels, belief = lender
    fresh = calibrate(belief, frame.iloc[:80], at_most=0.3, progress=False)
    crossed = calibrate(belief, frame, labels=labels, at_most=0.3, folds=2, progress=False)
    assert fresh.num_states == 80
    assert crossed.num_states == len(frame)
    with pytest.raises(InvalidInputError, match="trained on labels"):
        calibrate(belief, frame, torch.zeros(len(frame), 3), progress=False)
    with pytest.raises(InvalidInputError, match="'ugly' did not occur in training"):
        calibrate(belief, frame, labels=["ugly", *labels[1:]], progress=False)


def test_only_sample_of_a_label_is_trained_on():
    states = torch.linspace(0, 1, 40)[:, None]
    belief = fit_ensemble(
        states, labels=["odd"] + ["usual"] * 39, payoffs=np.eye(2), validation_fraction=0.5, num_models=2, num_epochs=1,
        progress=False,
    )  # fmt: skip
    assert belief.labels == ("odd", "usual")
    assert belief.settings["labels"]["counts"][0] == 1


def test_unused_payoffs_are_named():
    frame, labels = applicants(60)
    with pytest.warns(TableWarning, match="the label 'ugly' never occurs in training"):
        belief = fit_ensemble(
            frame, labels=labels, payoffs=LOANS | {"ugly": {"lend": -9, "part": 0, "refuse": 0}},
            num_models=2, num_epochs=1, progress=False,
        )  # fmt: skip
    assert belief.labels == ("bad", "good")


def test_checkpoints_of_labels_are_not_those_of_rewards(tmp_path):
    states = torch.linspace(-1, 1, 40)[:, None]
    labels = (states[:, 0] > 0).long()
    options = {"num_models": 2, "num_epochs": 2, "progress": False, "checkpoint_dir": tmp_path, "prior": 0.0}
    first = fit_ensemble(states, labels=labels, payoffs=np.eye(2), **options)
    again = fit_ensemble(states, labels=labels, payoffs=2 * np.eye(2), **options)  # other payoffs, the same training
    assert torch.equal(first.parameters, again.parameters)
    with pytest.raises(ValueError, match="other"):
        fit_ensemble(states, torch.nn.functional.one_hot(labels).double(), **options)


def test_beliefs_and_training_travel_to_other_processes(lender):
    frame, labels, belief = lender
    there = pickle.loads(pickle.dumps(belief))
    assert torch.equal(there.rewards(frame), belief.rewards(frame))
    targets = torch.nn.functional.one_hot(torch.arange(20) % 2).double()
    problem = VectorLearner().label_problem(torch.randn(20, 3), targets, None)
    weights = torch.randn(16, problem.num_parameters, generator=torch.Generator().manual_seed(0))
    batch = MiniBatch(torch.arange(20).expand(16, -1))
    for mine, other in zip(
        problem.loss_and_gradient(weights, batch),
        pickle.loads(pickle.dumps(problem)).loss_and_gradient(weights, batch),
        strict=True,
    ):
        assert torch.equal(mine, other)
    with open_executor("local") as executor:
        elsewhere = fit_ensemble(frame, labels=labels, payoffs=LOANS, executor=executor, **QUICK)
    assert torch.equal(elsewhere.rewards(frame), belief.rewards(frame))


def test_decisions_in_blocks_are_those_of_all_rows():
    frame, labels = applicants(1500)
    belief = fit_ensemble(frame[:200], labels=labels[:200], payoffs=LOANS, **QUICK)
    changed = belief.with_payoffs({"bad": {"lend": "-amount", "refuse": 0}, "good": {"lend": 1, "refuse": 0}})
    policy = CautiousPolicy(changed, "1-of-20")
    every = policy.decide(frame)  # more than a block of rows
    assert torch.equal(every.probabilities[1400:], policy.decide(frame[1400:]).probabilities)


def test_a_learner_that_knows_no_labels_is_refused_by_name():
    class OnlyRewards:
        as_inputs = staticmethod(VectorLearner().as_inputs)
        learning_rate = staticmethod(VectorLearner().learning_rate)
        prior = staticmethod(VectorLearner().prior)
        problem = staticmethod(VectorLearner().problem)

    states = torch.zeros(20, 2)
    with pytest.raises(InvalidInputError, match="the learner OnlyRewards learns rewards only"):
        fit_ensemble(states, labels=[0, 1] * 10, payoffs=np.eye(2), network=OnlyRewards(), progress=False)
    assert fit_ensemble(states, torch.rand(20, 2), network=OnlyRewards(), **QUICK).settings["batch_size"] == 64


def test_chance_in_labels_is_no_concern_but_pure_chance_is():
    frame, labels = applicants(400)
    likely = fit_ensemble(frame, labels=labels, payoffs=LOANS, num_models=20, progress=False)
    assert not any("labels" in concern for concern in likely.diagnosis.concerns)
    rng = np.random.default_rng(0)
    pure = fit_ensemble(
        frame[["amount"]], labels=rng.choice(["bad", "good"], 400), payoffs=LOANS, num_models=20, progress=False
    )
    assert "no better than the labels' shares do" in pure.diagnosis.concerns[0]


def test_smoothing_is_undone():
    targets = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]).double()
    mixed = smoothed(targets, 0.1)
    assert torch.allclose(mixed[0], torch.tensor([0.925, 0.075]).double())  # 0.9 · 1 + 0.1 · 1/4, and 0.1 · 3/4
    assert torch.allclose(unsmoothed(mixed, targets.mean(dim=0), 0.1), targets)
    sure = unsmoothed(torch.tensor([0.999, 0.001]).double(), torch.tensor([0.25, 0.75]).double(), 0.1)
    assert sure.tolist() == [1.0, 0.0]
