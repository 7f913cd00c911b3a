"""Made-up rows are far, and a belief that does not notice them is called blind; a good one is not."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from cautious import CautiousPolicy, RewardEnsemble, fit_ensemble
from cautious.beliefs.diagnostics import (
    BeliefWarning,
    NoveltyResponse,
    diagnose,
    made_up_rows,
    novelty_responses,
    probe_novelty,
    unfamiliar_states,
)
from cautious_paper.worlds.data import load_images

MODELS = 40


def clusters(count: int = 160, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two kinds of cases in five features that move together, as flowers and penguins are; right pays 1, help 0.4."""
    noise = torch.Generator().manual_seed(seed)
    kind = torch.arange(count) % 2
    size = 0.4 * torch.randn(count, 1, generator=noise)
    centres = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0], [4.0, 2.0, -3.0, 4.0, 1.0]])
    states = centres[kind] + size + 0.3 * torch.randn(count, 5, generator=noise)
    return states, torch.cat([torch.eye(2)[kind], torch.full((count, 1), 0.4)], dim=1)


class Knowing:
    """A belief that knows distances: right near the training rows, and one of its own guesses per model far from them."""

    num_models = MODELS

    def __init__(self, states: Tensor, rewards: Tensor) -> None:
        self._states, self._rewards = states.double(), rewards.double()
        self._guesses = torch.rand(MODELS, rewards.shape[1], generator=torch.Generator().manual_seed(1)).double()
        self._guesses[:, -1] = 0.4

    def rewards(self, states: Tensor, *, bounded: bool = True) -> Tensor:
        distance, nearest = torch.cdist(states.double(), self._states).min(dim=1)
        trust = (-((distance / 1.5) ** 2)).exp()[:, None]
        return trust * self._rewards[nearest] + (1 - trust) * self._guesses[:, None]


def test_made_up_rows_are_of_three_kinds_and_far():
    states, _ = clusters()
    kinds = made_up_rows(states, seed=2)
    assert list(kinds) == ["one feature moved", "between clusters", "features mixed"]
    assert all(len(rows) == 40 for rows in kinds.values())
    nearest = torch.cdist(states, states).fill_diagonal_(torch.inf).min(dim=1).values
    for rows in kinds.values():
        assert float(torch.cdist(rows.float(), states).min(dim=1).values.median()) > float(nearest.median())
    moved = kinds["one feature moved"]
    same = (moved.float()[:, None] - states[None]).abs() < 1e-6
    assert (same.sum(dim=2).amax(dim=1) == 4).all()  # four of five features as in a familiar row
    again = made_up_rows(states, seed=2)
    assert all(torch.equal(rows, again[name]) for name, rows in kinds.items())


def test_where_data_fill_their_range_nothing_lies_between():
    line = torch.linspace(0, 1, 200)[:, None]
    kinds = made_up_rows(line)
    assert len(kinds["between clusters"]) == len(kinds["features mixed"]) == 0
    constant = made_up_rows(torch.ones(10, 2))
    assert all(len(rows) == 0 for rows in constant.values())


def test_a_plain_ensemble_is_called_blind_and_the_words_say_what_to_do():
    with pytest.warns(BeliefWarning, match="blind to novelty") as caught:
        belief = fit_ensemble(*clusters(), num_models=MODELS, num_epochs=60, prior=0, progress=False)
    assert belief.diagnosis.unfamiliar_departures < 0.1
    assert belief.diagnosis.num_unfamiliar >= 20
    assert "FallbackRule" in str(caught[0].message)


def test_the_default_is_not_and_leaves_familiar_rows_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("error", BeliefWarning)
        belief = fit_ensemble(*clusters(), num_models=MODELS, num_epochs=60, progress=False)
    assert belief.diagnosis.unfamiliar_departures > 0.5
    fresh, _ = clusters(seed=1)
    assert float(CautiousPolicy(belief, "1-of-20").decide(fresh).departs.double().mean()) < 0.1


@pytest.mark.parametrize("task", ["linear", "waves", "classes", "one best action"])
def test_the_default_is_quiet_on_data_that_fill_their_range(task: str):
    states = torch.rand(200, 2, generator=torch.Generator().manual_seed(3))
    first, constant = states[:, 0], torch.full((200,), 0.4)
    rewards = {
        "linear": [first, 1 - first, constant],
        "waves": [torch.sin(6 * first), torch.cos(6 * first)],
        "classes": [(first < 0.5).float(), (first >= 0.5).float(), constant],
        "one best action": [1 + first, first, constant],
    }[task]
    with warnings.catch_warnings():
        warnings.simplefilter("error", BeliefWarning)
        fit_ensemble(states, torch.stack(rewards, dim=1), num_models=24, num_epochs=60, progress=False)


def test_a_belief_that_knows_distances_is_not():
    states, rewards = clusters()
    care = probe_novelty(Knowing(states, rewards), states)
    assert sum(kind.num_departing for kind in care) > 0.5 * sum(kind.num_rows for kind in care)
    opinions = Knowing(states, rewards).rewards(states)
    assert diagnose(opinions, rewards, torch.randn(MODELS, 10, 3), care).concerns == ()


def test_where_caution_gains_nothing_no_row_counts():
    """One action is always best: whatever a row is like, there is nothing to be careful about."""
    states, _ = clusters()
    rewards = torch.stack([torch.ones(160), 0.3 * torch.rand(160, generator=torch.Generator().manual_seed(0))], dim=1)
    assert [kind.num_rows for kind in probe_novelty(Knowing(states, rewards), states)] == [0, 0, 0]


def test_nor_where_the_ordinary_policy_asks_already():
    states, rewards = clusters()

    class Asks(Knowing):
        def rewards(self, states: Tensor, *, bounded: bool = True) -> Tensor:
            said = super().rewards(states)
            said[:, :, -1] = torch.where(said[:, :, 0].std(dim=0) > 0.01, 0.9, 0.4)
            return said

    assert sum(kind.num_rows for kind in probe_novelty(Asks(states, rewards), states)) < 20


def test_of_many_models_whole_pairs_are_asked():
    """Models 2j and 2j + 1 are off by opposite amounts, as priors are: half of each pair would all err the same way."""
    states, rewards = clusters()

    class Paired(Knowing):
        num_models = 400

        def rewards(self, states: Tensor, *, bounded: bool = True) -> Tensor:
            known = super().rewards(states)[0]
            far = torch.cdist(states.double(), self._states).amin(dim=1)[:, None] > 1e-6
            pair = torch.tensor([[2.5, 2.0, 0.4], [-0.5, -2.0, 0.4]]).double()
            return torch.where(far, pair.repeat(200, 1)[:, None], known)

    care = probe_novelty(Paired(states, rewards), states)
    assert sum(kind.num_rows for kind in care) >= 20
    assert all(kind.num_departing == kind.num_rows for kind in care)  # on average the first is best; half say -0.5


def test_fewer_models_than_1_of_20_draws_are_not_looked_at():
    states, rewards = clusters()
    with warnings.catch_warnings():
        warnings.simplefilter("error", BeliefWarning)
        belief = fit_ensemble(states, rewards, num_models=19, num_epochs=30, progress=False)
    assert belief.diagnosis.num_unfamiliar == 0
    assert belief.diagnosis.unfamiliar_departures != belief.diagnosis.unfamiliar_departures  # not known


def test_images_are_looked_at_too():
    digits = load_images("digits", "train")
    belief = RewardEnsemble.load("ask-for-help")
    made_up = belief.rewards(unfamiliar_states(digits.images))
    known = belief.rewards(load_images("digits", "test").images[:40])
    mixed, shuffled = novelty_responses(known, {"mixed": made_up[:, :40], "shuffled": made_up[:, 100:140]})
    assert shuffled.num_departing > 0.9 * shuffled.num_rows > 0
    assert mixed.num_departing > 0.2 * mixed.num_rows > 0


def test_a_share_of_few_rows_is_no_concern():
    targets = torch.randn(30, 2, generator=torch.Generator().manual_seed(1))
    rewards = targets + 0.2 * torch.randn(MODELS, 30, 2, generator=torch.Generator().manual_seed(0))
    few = diagnose(rewards, targets, rewards, (NoveltyResponse("features mixed", 19, 0),))
    many = diagnose(rewards, targets, rewards, (NoveltyResponse("features mixed", 20, 4),))
    enough = diagnose(rewards, targets, rewards, (NoveltyResponse("features mixed", 20, 5),))
    assert [len(found.concerns) for found in (few, many, enough)] == [0, 1, 0]
    assert enough.departures == (("features mixed", 0.25, 20),)


def test_one_kind_that_goes_by_unnoticed_is_named():
    """Pooled, the share is 75 of 120; of features mixed it is 2 of 40, which a share over all kinds would hide."""
    targets = torch.randn(30, 2, generator=torch.Generator().manual_seed(1))
    rewards = targets + 0.2 * torch.randn(MODELS, 30, 2, generator=torch.Generator().manual_seed(0))

    def concerns(**departing: int) -> tuple[str, ...]:
        care = [NoveltyResponse(name.replace("_", " "), 40, number) for name, number in departing.items()]
        return diagnose(rewards, targets, rewards, tuple(care)).concerns

    (found,) = concerns(one_feature_moved=37, between_clusters=36, features_mixed=2)
    assert "blind to a kind of novelty: on 40 made-up rows" in found
    assert "(features mixed)" in found
    assert "in 5 %" in found
    assert concerns(one_feature_moved=37, between_clusters=36, features_mixed=4) == ()
    assert concerns(one_feature_moved=37, between_clusters=1, features_mixed=35) == ()  # inside, models interpolate
    (pooled,) = concerns(one_feature_moved=2, between_clusters=20, features_mixed=2)
    assert "blind to novelty: on 120 made-up rows" in pooled
