"""`Decision.disagreement`: in units of familiar states, wherever a policy and its belief go."""

from __future__ import annotations

import pytest
import torch

from cautious import CautiousPolicy, Decision, RewardEnsemble, TabularMDP, fit_ensemble
from cautious.beliefs.disagreement import FamiliarDisagreement, disagreement, in_units_of
from cautious.errors import BadFileError, InvalidInputError
from cautious.io.arrays import load_json, save_json
from cautious.policy.decision import departs, disagreement_of


def cases(count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def belief() -> RewardEnsemble:
    states = cases(400, 0)
    rewards = torch.stack([states[:, 0], -states[:, 0], torch.full((400,), 0.3)], dim=1)
    return fit_ensemble(states, rewards, num_models=10, num_epochs=15, progress=False)


def test_an_array_has_the_unit_of_its_rewards_until_familiar_states_are_named():
    """Two models; in state s they differ by ±s about the first action of two, √(s² / 2)."""
    size = torch.arange(30.0)
    models = torch.zeros(2, 30, 2)
    models[0, :, 0], models[1, :, 0] = size, -size
    plain = CautiousPolicy(models, "1-of-2")
    assert plain.familiar is None
    assert plain.decide([0, 4]).disagreement.tolist() == pytest.approx([0, 8**0.5])
    policy = CautiousPolicy(
        models, "1-of-2", familiar_states=range(1, 20)
    )  # 19 states: the largest is the 95 % quantile
    assert policy.familiar.unit == pytest.approx((19**2 / 2) ** 0.5)
    assert policy.decide([0, 19, 29]).disagreement.tolist() == pytest.approx([0, 1, 29 / 19])


def test_about_five_in_a_hundred_fresh_familiar_states_exceed_one(belief):
    policy = CautiousPolicy(belief, "1-of-5")
    fresh = policy.decide(cases(2000, 1)).disagreement
    assert 0.01 < float((fresh > 1).double().mean()) < 0.12  # the quantile of 40 states is not exact
    far = policy.decide(cases(200, 2) * 6).disagreement
    assert float((far > 1).double().mean()) > 0.9


def test_it_goes_where_the_models_go(belief, tmp_path):
    states = cases(20, 3)
    expected = CautiousPolicy(belief, "1-of-5").decide(states).disagreement
    belief.save(tmp_path / "belief")
    CautiousPolicy(belief, "1-of-5").save(tmp_path / "policy")
    again = RewardEnsemble.load(tmp_path / "belief")
    assert again.familiar == belief.familiar
    assert again.diagnosis == belief.diagnosis
    for same in (belief.to("cpu"), belief.on(states), again):
        assert torch.equal(CautiousPolicy(same, "1-of-5").decide(states).disagreement, expected)
    assert torch.equal(CautiousPolicy.load(tmp_path / "policy").decide(states).disagreement, expected)


def test_familiar_states_of_ones_own_are_saved_too(belief, tmp_path):
    policy = CautiousPolicy(belief, "1-of-5", familiar_states=cases(50, 4) * 3)
    assert policy.familiar.unit > belief.familiar.unit
    policy.save(tmp_path)
    assert CautiousPolicy.load(tmp_path).familiar == policy.familiar


def test_a_belief_without_familiar_states_has_the_unit_of_its_rewards(belief, tmp_path):
    belief.save(tmp_path)
    found = load_json(tmp_path / "ensemble.json")
    files = found.pop("files")
    without = {name: entry for name, entry in found.items() if name not in ("familiar", "diagnosis")}
    save_json(tmp_path / "ensemble.json", without, files)
    again = RewardEnsemble.load(tmp_path)
    assert again.familiar is None
    states = cases(5, 5)
    expected = disagreement(belief.rewards(states, bounded=False))
    assert torch.equal(CautiousPolicy(again, "1-of-5").decide(states).disagreement, expected)


def test_a_unit_of_too_few_states_is_left_out_of_files_of_before(belief, tmp_path):
    belief.save(tmp_path)
    found = load_json(tmp_path / "ensemble.json")
    files = found.pop("files")
    save_json(tmp_path / "ensemble.json", {**found, "familiar": [0.1, 0.2, 0.3]}, files)
    assert RewardEnsemble.load(tmp_path).familiar is None


@pytest.mark.parametrize("entry", ["familiar", "diagnosis"])
@pytest.mark.parametrize("value", ["text", [1.0, "a"], {"concerns": 3}])
def test_what_no_belief_would_write_is_refused(belief, tmp_path, entry, value):
    belief.save(tmp_path)
    found = load_json(tmp_path / "ensemble.json")
    files = found.pop("files")
    save_json(tmp_path / "ensemble.json", {**found, entry: value}, files)
    with pytest.raises(BadFileError, match=entry):
        RewardEnsemble.load(tmp_path)


def test_without_states_kept_back_nothing_is_familiar():
    states = cases(60, 6)
    options = {"num_models": 3, "num_epochs": 2, "progress": False}
    assert fit_ensemble(states, states, **options, validation_fraction=0).familiar is None
    assert fit_ensemble(states[:50], states[:50] * 0, **options).familiar is None  # five are too few
    assert len(fit_ensemble(states, states * 0, **options).familiar.spreads) == 6


def test_in_an_mdp_it_is_about_each_states_rewards():
    mdp = TabularMDP([[[0.0, 1.0]], [[1.0, 0.0]]], [1.0, 0.0], 0.9)
    models = torch.tensor([[[1.0], [0.0]], [[3.0], [0.0]]])
    assert CautiousPolicy(models, "1-of-2", mdp=mdp).decide([0, 1, 0]).disagreement.tolist() == [1, 0, 1]


def test_more_states_than_a_file_should_hold_are_thinned_evenly():
    spreads = torch.arange(5000.0)
    kept = FamiliarDisagreement.of(spreads)
    assert len(kept.spreads) == 1000
    assert kept.unit == pytest.approx(FamiliarDisagreement(tuple(spreads.tolist())).unit, rel=0.01)


def test_models_that_agree_on_everything_familiar_have_no_finite_unit():
    unit = FamiliarDisagreement((0.0,) * 6)
    assert in_units_of(unit, torch.tensor([0.0, 0.1])).tolist() == [0, float("inf")]


def test_a_share_has_its_threshold():
    spread = FamiliarDisagreement(tuple(float(n) for n in range(1, 100)))  # the 95th of 99 is the unit
    assert spread.threshold(0.05) == pytest.approx(1)
    assert spread.threshold(0.2) == pytest.approx(80 / 95)
    with pytest.raises(InvalidInputError, match="at_most=1"):
        spread.threshold(1)


def test_rewards_from_a_stream_have_the_same_spread(generator):
    rewards = torch.randn(7, 5, 3, generator=generator)

    class Source:
        num_models = 7

        def rewards_for(self, indices):
            return rewards[indices]

    assert torch.allclose(disagreement_of(Source()), disagreement(rewards))


def test_an_action_departs_if_it_is_none_of_the_ordinary_ones():
    ordinary = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    assert departs(torch.tensor([1, 2, 1]), ordinary).tolist() == [False, False, True]
    assert departs(torch.tensor([[1, 2, 1], [2, 1, 0]]), ordinary).tolist() == [
        [False, False, True],
        [True, True, False],
    ]
    gamble_or_help = torch.tensor([[[1.0, 0.25]], [[0.0, 0.25]]])
    decision = CautiousPolicy(gamble_or_help, "1-of-2").decide([0])
    assert decision.departs.tolist() == [True]


def test_too_few_familiar_states_are_refused():
    with pytest.raises(InvalidInputError, match="fewer than 6"):
        CautiousPolicy(torch.rand(4, 5, 2), "1-of-2", familiar_states=[0, 1])


def test_a_decision_made_by_hand_says_that_it_does_not_know():
    decision = Decision(
        torch.tensor([0]), torch.ones(1, 1), torch.zeros(1), torch.ones(1, 1), lambda: torch.ones(2, 1, 1)
    )
    assert decision.disagreement.isnan()
    assert decision.opinions().shape == (2, 1, 1)


def test_a_belief_of_ones_own_may_call_something_else_familiar():
    class Own:
        familiar = "yes"

        def rewards(self, states):
            return torch.zeros(2, len(states), 2)

    policy = CautiousPolicy(Own(), "1-of-2")
    assert policy.familiar is None
    assert policy.decide(torch.zeros(3, 1)).disagreement.tolist() == [0, 0, 0]
