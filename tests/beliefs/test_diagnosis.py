"""The look at a belief: poor ones and narrow ones are called so, and nothing else is."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cautious import RewardEnsemble, fit_ensemble
from cautious.beliefs.diagnostics import BeliefWarning, diagnose, moved_rows, shared_doubt, unfamiliar_states
from cautious_paper.worlds.data import load_images
from cautious_paper.worlds.image_tasks import ask_for_help_rewards

QUICK: dict[str, Any] = {"num_models": 4, "num_epochs": 40, "batch_size": 16, "learning_rate": 0.01, "progress": False}


@pytest.fixture
def problem(generator) -> tuple[Tensor, Tensor]:
    states = torch.randn(120, 3, generator=generator)
    return states, torch.stack([states[:, 0], -states[:, 0], torch.full((120,), 0.3)], dim=1)


def fitted_quietly(*data: Tensor, **options: Any) -> RewardEnsemble:
    with warnings.catch_warnings():
        warnings.simplefilter("error", BeliefWarning)
        return fit_ensemble(*data, **QUICK | options)


def test_a_belief_that_has_not_learned_is_called_poor(problem):
    with pytest.warns(BeliefWarning, match="do not fit"):
        fit_ensemble(*problem, **QUICK | {"num_epochs": 1, "learning_rate": 1e-5})


def test_a_linear_model_of_a_linear_world_is_narrow(problem):
    """The data has one solution, every model finds it, and agrees on every state there could be."""
    options = QUICK | {"num_epochs": 250, "batch_size": 108, "learning_rate": 0.05}
    with pytest.warns(BeliefWarning, match="agree everywhere"):
        belief = fit_ensemble(*problem, network=lambda: nn.Linear(3, 3), prior=0, **options)
    assert belief.diagnosis.unfamiliar_disagreement < 1e-3


def test_one_model_many_times_is_narrow(problem):
    _, rewards = problem
    said = rewards.expand(5, 120, 3) + 0.2
    (sentence,) = diagnose(said, rewards, said).concerns
    assert "agree everywhere" in sentence
    assert sentence.index("wider prior") < sentence.index("different weights")  # the cure that works first


def test_agreement_where_familiar_alone_is_no_concern(generator):
    """Four kinds of tiles, learned almost perfectly: the models agree on them, and not on what they never saw."""
    kinds = torch.tensor([[1.0, -1, -1, 0], [-1, 1, -1, 0], [1, -1, 1, 0], [0, 0, 1, 1]])
    number = torch.arange(200) % 4
    states = kinds[number] + 0.02 * torch.randn(200, 4, generator=generator)
    belief = fitted_quietly(states, torch.tensor([0.0, -1, 1, 0])[number][:, None], num_epochs=300, batch_size=180)
    found = belief.diagnosis
    assert (
        found.disagreement < 0.15 * found.reward_deviation
    )  # they do agree where familiar; one row of 20 is a little odd
    assert found.unfamiliar_disagreement > 5 * found.disagreement


def test_ordinary_beliefs_raise_no_concern(problem, generator):
    fitted_quietly(*problem)
    corner = torch.arange(120) % 4
    states = torch.stack([corner % 2, corner // 2], dim=1) + 0.1 * torch.randn(120, 2, generator=generator)
    fitted_quietly(states, torch.eye(4)[corner])
    line = torch.linspace(-1, 1, 60)[:, None]
    fitted_quietly(line, torch.cat([torch.sin(3 * line), line], dim=1))


def test_digits_raise_no_concern():
    digits = load_images("digits", "train")
    rewards = ask_for_help_rewards(digits.labels[:600]).float()
    vectors = digits.images[:600].flatten(1) / 255
    fitted_quietly(vectors, rewards, num_epochs=10, learning_rate=3e-3)
    shipped, test = RewardEnsemble.load("ask-for-help"), load_images("digits", "test")
    made_up = shipped.rewards(unfamiliar_states(digits.images)[::20])
    found = diagnose(shipped.rewards(test.images[:20]), ask_for_help_rewards(test.labels[:20]), made_up)
    assert found.concerns == ()
    assert found.unfamiliar_disagreement > 3 * found.disagreement


def test_made_up_states_mix_and_go_beyond(generator):
    first = torch.rand(50, 1, generator=generator)
    states = torch.cat(
        [first, first, torch.full((50, 1), 7.0)], dim=1
    )  # two features that are always equal, one constant
    made_up = unfamiliar_states(states, seed=3)
    mixed, beyond = made_up.split(len(made_up) // 2)
    assert torch.isin(mixed[:, 0], first).all()
    assert (mixed[:, 0] != mixed[:, 1]).float().mean() > 0.9
    assert float(beyond[:, 0].min()) < float(first.min()) - 0.5
    assert float(beyond[:, 0].max()) > float(first.max()) + 0.5
    assert made_up[:, 2].unique().tolist() == [7.0]
    assert torch.equal(unfamiliar_states(states, seed=3), made_up)
    images = torch.randint(0, 256, (30, 28, 28), generator=generator, dtype=torch.uint8)
    assert unfamiliar_states(images).shape == (len(made_up), 28, 28)
    assert unfamiliar_states(images).dtype == torch.uint8


class Ordered(nn.Module):
    """Looks its input up in a table: it cannot take a number that is not in it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.table(inputs[:, 0].long())


def test_a_module_that_cannot_leave_its_range_is_trained_all_the_same():
    numbers = torch.arange(100) % 5
    belief = fitted_quietly(numbers[:, None].float(), torch.eye(5)[numbers][:, :2], network=Ordered, num_epochs=60)
    assert belief.diagnosis.error < 0.2


def test_states_where_nothing_is_known_are_not_kept_back(problem):
    """There is nothing to compare them with: a look at them alone would find no fault in any belief."""
    states, rewards = problem
    few, more = rewards.clone(), rewards.clone()
    few[5:] = torch.nan
    more[40:] = torch.nan
    assert fitted_quietly(states, few, num_epochs=1).diagnosis is None  # a tenth of five
    found = fitted_quietly(states, more).diagnosis
    assert found.num_states == 4
    assert 0 < found.error < 0.5


def test_single_models_that_are_worse_than_the_mean_reward_are_named():
    """Two hundred models, each off by two deviations of its own: their mean is good, a single one is worse than no model."""
    random = np.random.default_rng(5)
    targets = torch.from_numpy(random.normal(size=(100, 2)))
    models = targets + 2 * torch.from_numpy(random.normal(size=(200, 100, 2)))
    found = diagnose(models, targets, torch.randn(200, 20, 2, generator=torch.Generator().manual_seed(0)))
    assert any("single models are worse than no model" in concern for concern in found.concerns)
    quiet = diagnose(targets + 0.2 * (models - targets), targets, models[:, :20])
    assert not any("single models" in concern for concern in quiet.concerns)


def test_one_doubt_for_all_that_is_new_is_named():
    """Models with one height each for everything far away, and models for which every feature is a doubt of its own."""
    random = np.random.default_rng(6)
    rows = torch.from_numpy(random.normal(size=(100, 4)))
    moved = moved_rows(rows)
    assert moved.shape == (4, 4)
    heights = torch.from_numpy(random.normal(size=(100, 1)))
    slopes = torch.from_numpy(random.normal(size=(100, 4)))
    one = heights[:, None] * moved.norm(dim=1)[None, :, None]
    many = (slopes @ moved.T)[..., None]
    assert shared_doubt(one) > 0.99
    assert abs(shared_doubt(many)) < 0.35  # six correlations of 100 models
    targets = torch.zeros(10, 1)
    named = diagnose(torch.randn(100, 10, 1), targets, one, shared=shared_doubt(one))
    assert any("all that is new is one doubt" in concern for concern in named.concerns)
    assert not any("one doubt" in c for c in diagnose(torch.randn(100, 10, 1), targets, one, shared=0.5).concerns)
