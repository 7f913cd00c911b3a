"""The calibrated dial keeps its promise."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.stats
import torch

from cautious import CautiousPolicy, KofN, TabularMDP, calibrate
from cautious.errors import InvalidInputError
from cautious.ops.rates import binomial_p_value, more_states_needed
from cautious.policy.calibration import CalibrationWarning, above_p_value, mean_upper_bound
from cautious.policy.decision import departs, make_decision, total_variation


def belief_with(num_strange: int, num_states: int, num_models: int = 40) -> torch.Tensor:
    """A gamble that every model likes, except in the first states, where a few models hate it: help pays 0.2 everywhere."""
    rewards = torch.zeros(num_models, num_states, 2)
    rewards[:, :, 0], rewards[:, :, 1] = 1.0, 0.2
    rewards[: num_models // 8, :num_strange, 0] = -2.0
    return rewards


def test_it_finds_the_most_cautious_level_that_is_allowed():
    policy = CautiousPolicy(belief_with(30, 300), "1-of-5")
    loose = calibrate(policy, range(300), at_most=0.2)
    assert loose.level == KofN(1, 5)
    assert loose.rate <= loose.bound <= 0.2
    strict = calibrate(policy, range(300), at_most=0.02)
    assert strict.level.k > loose.level.k
    assert strict.tried[-1][2] > 0.05
    assert [name for name, _, _ in strict.tried] == [f"{k}-of-5" for k in range(5, 5 - len(strict.tried), -1)]


def test_the_ordinary_level_departs_never_in_an_mdp_too():
    mdp = TabularMDP(torch.full((30, 4, 30), 1 / 30), torch.full((30,), 1 / 30), 0.5)
    rewards = torch.tensor([1.0, 0.9995, 0.0, 0.0]).expand(6, 30, 4)  # two that the game does not tell apart in time
    policy = CautiousPolicy(rewards, "1-of-6", mdp=mdp, num_iterations=20)
    with pytest.warns(CalibrationWarning):
        found = calibrate(policy, range(30), at_most=0.001, progress=False)
    assert (found.level, found.rate, found.bound) == (KofN(6, 6), 0, 0)
    assert found.tried[0] == ("6-of-6", 0, 0)


def test_too_few_states_allow_nothing_but_the_ordinary_level():
    policy = CautiousPolicy(belief_with(0, 10), "1-of-5")
    with pytest.warns(CalibrationWarning, match="10 are too few .* at least 149"):
        found = calibrate(policy, range(10), at_most=0.02)
    assert found.level == KofN(5, 5)
    assert found.rate == found.bound == 0


@pytest.mark.parametrize(("at_most", "confidence", "needed"), [(0.1, 0.9, 22), (0.05, 0.95, 59)])
def test_the_number_asked_for_is_just_enough(at_most: float, confidence: float, needed: int):
    policy = CautiousPolicy(belief_with(0, needed, 4), "1-of-2", num_iterations=2)
    options = {"at_most": at_most, "confidence": confidence}
    assert calibrate(policy, range(needed), **options).level == KofN(1, 2)
    with pytest.warns(CalibrationWarning, match=f"at least {needed},"):
        assert calibrate(policy, range(needed - 1), **options).level == KofN(2, 2)


def test_models_that_differ_everywhere_allow_nothing_but_the_ordinary_level():
    generator = torch.Generator().manual_seed(0)
    policy = CautiousPolicy(torch.randn(20, 100, 3, generator=generator), "1-of-5", num_iterations=20)
    words = {
        "decisions": r"4-of-5 takes another action than ordinarily in 0\.\d+ of the 100 familiar states.*FallbackRule",
        "total-variation": r"4-of-5 departs by 0\.\d+ on the 100 familiar states",
    }
    for measure, match in words.items():
        with pytest.warns(CalibrationWarning, match=match):
            found = calibrate(policy, range(100), at_most=0.05, measure=measure, progress=False)
        assert (found.level, found.measure) == (KofN(5, 5), measure)


@pytest.mark.parametrize("at_most", [1e-12, 1e-300, 1e-320])
def test_a_rate_that_nobody_can_show_is_said_to_be_one(at_most: float):
    policy = CautiousPolicy(belief_with(0, 10, 4), "1-of-2", num_iterations=2)
    with pytest.warns(CalibrationWarning, match="no number of states is enough: allow more"):
        assert calibrate(policy, range(10), at_most=at_most, progress=False).level == KofN(2, 2)


def test_whoever_asks_is_told_how_far_it_is():
    told = []
    policy = CautiousPolicy(belief_with(1, 60, 8), "1-of-2", num_iterations=3)
    calibrate(policy, range(60), at_most=0.05, progress=lambda *step: told.append(step))
    assert told == [(1, 1)]  # one task


def test_whoever_asks_is_told_of_the_end_where_no_game_is_needed():
    told = []
    policy = CautiousPolicy(belief_with(0, 60, 4), "1-of-2", num_iterations=3)
    calibrate(policy, range(60), at_most=0.05, progress=lambda *step: told.append(step))
    assert told == [(1, 1)]


def test_the_p_value_is_that_of_a_binomial_or_better_and_never_lies():
    losses = torch.cat([torch.ones(3), torch.zeros(297)])
    assert above_p_value(losses, 0.05) <= np.e * scipy.stats.binom.cdf(3, 300, 0.05)
    assert above_p_value(losses, 0.01) == pytest.approx(1)
    bound = mean_upper_bound(losses, 0.05)
    assert 0.01 < bound < 0.05
    assert above_p_value(losses, bound) <= 0.05 < above_p_value(losses, bound - 1e-6)


@pytest.mark.parametrize("kind", ["binary", "even"])
def test_the_bound_holds_in_simulation(kind: str):
    """2,000 draws of 200 losses with a known mean: a 90 % bound fails, where the test at the mean itself rejects, in 10 %."""
    rng = np.random.default_rng(0)
    mean = 0.06
    draws = rng.random((2000, 200))
    losses = (draws < mean).astype(float) if kind == "binary" else draws * 2 * mean
    failures = sum(above_p_value(torch.from_numpy(row), mean) <= 0.1 for row in losses)
    assert failures <= 0.1 * 2000


def rates_of(losses: torch.Tensor) -> dict[int, float]:
    """What each k of k-of-4 does in all states, of losses [4, S] from 4-of-4 to 1-of-4."""
    return {4 - number: float(rate) for number, rate in enumerate(losses.mean(dim=1))}


@pytest.mark.parametrize("measure", ["decisions", "total-variation"])
def test_the_chosen_level_keeps_its_promise_in_simulation(measure: str):
    """400 draws of 150 familiar states from a world in which 1-of-4 departs in 8 % of states; 5 % is allowed.

    The chosen level may break the promise in 10 % of the draws at most. (What each level does in each state is computed
    once; the draws only pick states.)
    """
    world = belief_with(80, 1000)
    levels = [KofN(k, 4) for k in range(4, 0, -1)]
    policies, ordinary = policies_of(CautiousPolicy(world, "1-of-4", num_iterations=20), levels, range(1000))
    departing = departs(policies.argmax(dim=-1), ordinary).double()
    caution = total_variation(policies, ordinary)
    rates = rates_of(departing if measure == "decisions" else caution)
    assert rates[1] > 0.05
    rng = np.random.default_rng(1)
    broken = 0
    for _ in range(400):
        states = rng.integers(0, 1000, 150)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            known = Known(policies, ordinary)
            found = calibrate(known, states, at_most=0.05, confidence=0.9, measure=measure, progress=False)
        broken += rates[found.level.k] > 0.05
    assert broken <= 0.1 * 400


def policies_of(policy, levels, states):
    """The policy of each level, and the ordinary one beside it: [L, B, A] each."""
    decisions = policy.decide_at(levels, states)
    return (torch.stack([getattr(each, name) for each in decisions]) for name in ("probabilities", "ordinary"))


class Known(CautiousPolicy):
    """A policy of which it is known what each level does in each state."""

    def __init__(self, policies: torch.Tensor, ordinary: torch.Tensor) -> None:
        self.level, self._known = KofN(1, 4), (policies, ordinary)

    def decide_at(self, levels, states, **_):
        policies, ordinary = (part[:, torch.as_tensor(states)] for part in self._known)
        nothing = torch.zeros(policies.shape[1])
        return [make_decision(*pair, nothing) for pair in zip(policies, ordinary, strict=True)]


def test_a_decision_counts_only_if_another_action_is_taken():
    """Every level but the ordinary one puts 0.4 of its weight on another action, in each of 100 states: nothing departs."""
    ordinary = torch.tensor([1.0, 0.0]).expand(4, 100, 2)
    hedging = torch.tensor([0.6, 0.4]).expand(3, 100, 2)
    policy = Known(torch.cat([ordinary[:1], hedging]), ordinary)
    found = calibrate(policy, range(100), at_most=0.05, progress=False)
    assert (found.level, found.rate) == (KofN(1, 4), 0)
    with pytest.warns(CalibrationWarning, match=r"3-of-4 departs by 0\.4"):
        drawn = calibrate(policy, range(100), at_most=0.05, measure="total-variation", progress=False)
    assert drawn.level == KofN(4, 4)
    assert calibrate(policy, range(100), at_most=0.6, measure="total-variation", progress=False).level == KofN(1, 4)


def test_on_average_few_states_are_enough():
    """(departures + 1) / (states + 1) may be 5 %: 19 states with none departing, 39 with one; a confidence of 95 % takes 59."""
    policy = CautiousPolicy(belief_with(0, 40, 4), "1-of-2", num_iterations=2)
    options = {"at_most": 0.05, "guarantee": "average", "progress": False}
    found = calibrate(policy, range(19), **options)
    assert (found.level, found.bound, found.guarantee) == (KofN(1, 2), pytest.approx(0.05), "average")
    with pytest.warns(
        CalibrationWarning, match="18 are too few .* on average; give at least 19, 1 more, or allow more"
    ):
        assert calibrate(policy, range(18), **options).level == KofN(2, 2)
    one = CautiousPolicy(belief_with(1, 40), "1-of-5")
    assert calibrate(one, range(39), **options).level.k < 5
    many = CautiousPolicy(belief_with(30, 40), "1-of-5", num_iterations=50)
    assert calibrate(many, range(39), **options).level.k > calibrate(one, range(39), **options).level.k


@pytest.mark.parametrize("num_states", [25, 60])
def test_on_average_the_promise_is_kept_and_not_by_much(num_states: int):
    """1,000 draws: the level chosen departs, in all states, in 5 % on average at most; with a confidence it is far below."""
    world = belief_with(80, 1000)
    levels = [KofN(k, 4) for k in range(4, 0, -1)]
    policies, ordinary = policies_of(CautiousPolicy(world, "1-of-4", num_iterations=20), levels, range(1000))
    rates = rates_of(departs(policies.argmax(dim=-1), ordinary).double())
    known, rng = Known(policies, ordinary), np.random.default_rng(2)
    shares = []
    for _ in range(1000):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            states = rng.integers(0, 1000, num_states)
            found = calibrate(known, states, at_most=0.05, guarantee="average", progress=False)
        shares.append(rates[found.level.k])
    assert np.mean(shares) <= 0.05 + 2 * np.std(shares) / 1000**0.5
    assert max(shares) > 0.05  # not for every draw: that would take a confidence


def test_on_average_the_rate_is_the_levels_own():
    """3-of-4 departs in one state, 2-of-4 and 1-of-4 in another: two states count towards the promise, the rate is 1 / 100."""
    ordinary = torch.tensor([1.0, 0.0]).repeat(4, 100, 1)
    policies = ordinary.clone()
    policies[1, 0] = policies[2, 1] = policies[3, 1] = torch.tensor([0.0, 1.0])
    found = calibrate(Known(policies, ordinary), range(100), at_most=0.05, guarantee="average", progress=False)
    assert (found.level, found.rate, found.bound) == (KofN(1, 4), pytest.approx(0.01), pytest.approx(3 / 101))
    assert [rate for _, rate, _ in found.tried] == pytest.approx([0, 0.01, 0.01, 0.01])
    assert [expected for *_, expected in found.tried] == pytest.approx([0, 2 / 101, 3 / 101, 3 / 101])


def test_forty_states_are_told_what_they_can_show():
    """With none departing, 40 states rule out 1 - 0.05^(1/40) = 7.2 %; 5 % with confidence 1 - 0.95^40 = 0.87."""
    policy = CautiousPolicy(belief_with(0, 40, 4), "1-of-2", num_iterations=2)
    with pytest.warns(CalibrationWarning, match=r"40 show at most 0\.0722 .* at most 0\.05 with confidence 0\.871"):
        calibrate(policy, range(40), at_most=0.05, progress=False)
    assert calibrate(policy, range(40), at_most=0.0722, progress=False).level == KofN(1, 2)
    assert calibrate(policy, range(40), at_most=0.05, confidence=0.87, progress=False).level == KofN(1, 2)


def test_a_belief_is_calibrated_for_levels_of_twenty():
    class Agreed:
        num_models = 25

        def rewards(self, states):
            return torch.tensor([1.0, 0.0]).expand(25, len(states), 2)

    found = calibrate(Agreed(), torch.zeros(60, 1), progress=False)
    assert (found.level, found.at_most, found.num_states) == (KofN(1, 20), 0.05, 60)


def test_the_bound_of_decisions_is_clopper_and_pearsons():
    policy = CautiousPolicy(belief_with(3, 300), "1-of-5")
    found = calibrate(policy, range(300), at_most=0.2, progress=False)
    assert found.rate == pytest.approx(0.01)  # three of 300 depart
    exact = scipy.stats.binomtest(3, 300).proportion_ci(0.9, "exact").high  # two-sided at 90 %: 5 % above
    assert found.bound == pytest.approx(exact)
    assert found.tried[-1][2] == pytest.approx(scipy.stats.binom.cdf(3, 300, 0.2))


def test_bad_numbers_are_refused():
    policy = CautiousPolicy(belief_with(0, 10), "1-of-5")
    for name in ("at_most", "confidence"):
        with pytest.raises(InvalidInputError, match=name):
            calibrate(policy, range(10), **{name: 1.0})


@pytest.mark.parametrize(
    ("above", "total", "at_most", "more"),
    [
        (0, 40, 0.05, 19),  # 0.95^59 = 0.0485
        (0, 59, 0.05, 0),
        (1, 60, 0.05, 60),  # 2 of 120: P(Bin(120, 0.05) <= 2) = 0.0575, and 0.0471 for 2 of 124
        (3, 60, 0.05, None),  # as often as is allowed: never shown to be rarer
    ],
)
def test_how_many_more_states_show_a_rate(above, total, at_most, more):
    def passes(count, states):
        return binomial_p_value(count, states, at_most) <= 0.05

    found = more_states_needed(above, total, passes)
    if more == 60:  # by brute force
        assert passes(-(-above * (total + found) // total), total + found)
        assert not any(passes(-(-above * (total + fewer) // total), total + fewer) for fewer in range(found))
    else:
        assert found == more


def test_calibrate_says_how_many_more_states_allow_the_next_level():
    """Two models, of which one differs in one state of 40: 1-of-2 departs there, and 40 states cannot show 10 %."""
    rewards = torch.tensor([[1.0, 0.5]]).repeat(2, 40, 1).reshape(2, 40, 2)
    policy = CautiousPolicy(rewards, "1-of-2")
    with pytest.warns(CalibrationWarning, match="40 are too few .* give at least 59, 19 more, or allow more"):
        found = calibrate(policy, torch.arange(40), progress=False)
    assert (str(found.level), found.more_states) == ("2-of-2", 19)
    assert (
        calibrate(policy, torch.arange(40), at_most=0.1, progress=False).more_states is None
    )  # there is no next level
