"""fit_ensemble on one's own data, and its look at the belief."""

from __future__ import annotations

import warnings
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from cautious import RewardEnsemble, fit_ensemble
from cautious.beliefs.diagnostics import BeliefWarning
from cautious.beliefs.fit import VectorLearner
from cautious.beliefs.networks.module import ModuleNetwork
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.beliefs.training.state import MiniBatch, ModuleTrainingProblem
from cautious.errors import BadFileError, InvalidInputError
from cautious_paper.networks.image import ImageNetwork

QUICK = {"num_models": 4, "num_epochs": 40, "batch_size": 16, "learning_rate": 0.01, "progress": False}


@pytest.fixture
def problem(generator) -> tuple[torch.Tensor, torch.Tensor]:
    states = torch.randn(120, 3, generator=generator)
    return states, torch.stack([states[:, 0], -states[:, 0], torch.full((120,), 0.3)], dim=1)


def test_models_learn_and_differ_more_where_nothing_is_familiar(problem):
    states, rewards = problem
    belief = fit_ensemble(states, rewards, **QUICK)
    assert belief.network.name == "vector"
    assert belief.diagnosis.error < 0.3 * belief.diagnosis.reward_deviation
    assert belief.diagnosis.concerns == ()
    near, far = (belief.rewards(place).std(dim=0).mean() for place in (states, states + 20))
    assert float(far) > 5 * float(near)


def test_a_model_is_the_same_in_any_company(problem):
    states, rewards = problem
    few, many = (
        fit_ensemble(states, rewards, validation_fraction=0, **QUICK | {"num_models": count, "num_epochs": 3})
        for count in (3, 21)
    )
    assert torch.equal(few.parameters, many.parameters[:3])

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 3))

    few, many = (
        fit_ensemble(
            states, rewards, network=network, validation_fraction=0, **QUICK | {"num_models": count, "num_epochs": 3}
        )
        for count in (3, 21)
    )
    assert torch.equal(few.parameters, many.parameters[:3])


def test_the_default_network_has_the_gradient_of_its_module(problem, generator):
    states, rewards = problem
    ours = VectorNetwork((3,), 3)
    theirs = ModuleNetwork(ours.module, states)
    weights = torch.from_numpy(np.stack([ours.init(np.random.default_rng(i)) for i in range(5)])).float()
    gaps = rewards.clone()
    gaps[::3, 1] = torch.nan
    batch = MiniBatch(torch.randint(120, (5, 10), generator=generator))
    importance = torch.tensor([1.0, 2.0, 0.5])
    mine, other = (
        ModuleTrainingProblem(network, states, gaps, importance).loss_and_gradient(weights, batch)
        for network in (ours, theirs)
    )
    for own, expected in zip(mine, other, strict=True):
        torch.testing.assert_close(own, expected, atol=1e-6, rtol=1e-5)  # float32, other order of summing


def test_what_was_not_tried_carries_no_loss(problem):
    """Logged feedback: one action a state. What is not known must not matter, whatever stands there."""
    states, rewards = problem
    tried = torch.arange(120) % 3
    logged = torch.full_like(rewards, torch.nan)
    logged[torch.arange(120), tried] = rewards[torch.arange(120), tried]
    belief = fit_ensemble(states, logged, **QUICK | {"num_epochs": 120})
    errors = belief.rewards(states).mean(dim=0) - rewards
    assert float(errors.square().mean().sqrt()) < 0.25
    untried = ~torch.isnan(logged)
    assert float(errors[~untried].square().mean().sqrt()) < 0.3


def test_the_one_state_that_knows_an_action_is_learned_from(problem):
    states, rewards = problem
    rare = rewards.clone()
    rare[:, 2], rare[7, 2] = torch.nan, 5.0
    options = QUICK | {"num_epochs": 60, "batch_size": 120, "validation_fraction": 0.9}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeliefWarning)  # too few to fit the rest
        belief = fit_ensemble(states, rare, **options)
    assert 0 < belief.diagnosis.num_states <= 108
    assert float(belief.rewards(states[7:8])[:, 0, 2].mean()) > 2  # from about nought


def test_images_take_the_papers_network():
    images = np.random.default_rng(0).integers(0, 256, (30, 28, 28)).astype(np.uint8)
    rewards = np.random.default_rng(1).random((30, 4))
    options = QUICK | {"num_epochs": 1, "num_models": 2, "validation_fraction": 0}
    belief = fit_ensemble(images, rewards, **options)
    assert belief.network == ImageNetwork(4)
    assert belief.diagnosis is None
    scaled = fit_ensemble(images / 255, rewards, network="image", **options)
    assert torch.equal(scaled.parameters, belief.parameters)
    flat = fit_ensemble(images / 255, rewards, network="vector", **options)
    assert flat.network.num_parameters == 784 * 64 + 64 + 64 * 64 + 64 + 64 * 4 + 4


def test_states_of_any_shape_go_in_and_are_found_again(generator, tmp_path):
    """The default network reads them as rows; whoever asks later passes them as they were."""
    states = torch.randn(40, 4, 3, generator=generator)
    belief = fit_ensemble(states, states[:, 0], **QUICK)
    assert belief.state_shape == (4, 3)
    assert belief.rewards(states).shape == (4, 40, 3)
    belief.save(tmp_path)
    assert torch.equal(RewardEnsemble.load(tmp_path).rewards(states), belief.rewards(states))
    with pytest.raises(InvalidInputError, match=r"\[S, 4, 3\]"):
        belief.rewards(states.flatten(1))


def test_an_interrupted_fit_goes_on(problem, tmp_path):
    states, rewards = problem
    whole = fit_ensemble(states, rewards, **QUICK)

    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done >= 20:
            raise Stop

    with pytest.raises(Stop):
        fit_ensemble(states, rewards, checkpoint_dir=tmp_path, **QUICK | {"progress": stop})
    rest = fit_ensemble(states, rewards, checkpoint_dir=tmp_path, **QUICK)
    assert torch.equal(rest.parameters, whole.parameters)
    with pytest.raises(BadFileError, match="data is"):
        fit_ensemble(states + 1, rewards, checkpoint_dir=tmp_path, **QUICK)


def test_a_vector_ensemble_is_found_again_and_a_module_with_its_function(problem, tmp_path):
    states, rewards = problem
    belief = fit_ensemble(states, rewards, validation_fraction=0, **QUICK | {"num_epochs": 2})
    belief.save(tmp_path / "vector")
    assert torch.equal(RewardEnsemble.load(tmp_path / "vector").rewards(states), belief.rewards(states))

    def network() -> nn.Module:
        return nn.Linear(3, 3)

    own = fit_ensemble(states, rewards, network=network, validation_fraction=0, **QUICK | {"num_epochs": 2})
    own.save(tmp_path / "own")
    with pytest.raises(BadFileError, match=r"network=\.\.\."):
        RewardEnsemble.load(tmp_path / "own")
    for given in (network, ModuleNetwork(network, states)):
        again = RewardEnsemble.load(tmp_path / "own", network=given)
        assert torch.equal(again.rewards(states), own.rewards(states))


def test_modules_that_cannot_be_stacked_are_refused_with_a_reason(problem):
    states, rewards = problem
    for network, reason in (
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), "batch normalisation"),
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 3)), "dropout"),
        (lambda: nn.Linear(5, 3), "inputs of shape"),
        (lambda: nn.ReLU(), "no parameters"),
        (lambda: "module", "torch module"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            fit_ensemble(states, rewards, network=network, **QUICK)


def test_bad_input_is_named(problem):
    states, rewards = problem
    for change, reason in (
        ({"inputs": states[:50]}, "S=50"),
        ({"inputs": states * torch.nan}, "finite"),
        ({"inputs": states[:, 0]}, r"one row per state.* states\[None\]"),
        ({"rewards": rewards[:, 0]}, r"\[S, A\], got \[120\]; give each action a column, with NaN"),
        ({"rewards": rewards * torch.inf}, "infinite"),
        ({"rewards": rewards + torch.tensor([0, torch.nan, 0])}, r"actions \[1\]"),
        ({"network": "large"}, "'auto', 'image', 'vector'"),
        ({"network": "image"}, "28"),
        ({"num_models": 0}, "num_models"),
        ({"learning_rate": -1}, "learning_rate"),
        ({"loss_weights": [1, 2]}, "loss_weights"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"device": "tpu9"}, "device"),
    ):
        options: dict = {"inputs": states, "rewards": rewards, **QUICK} | change
        with pytest.raises(InvalidInputError, match=reason):
            fit_ensemble(options.pop("inputs"), options.pop("rewards"), **options)


def test_thousands_of_short_epochs():
    states = torch.eye(4)
    belief = fit_ensemble(
        states,
        states,
        num_models=2,
        num_epochs=1500,
        batch_size=4,
        learning_rate=1e-3,
        progress=False,
        validation_fraction=0,
    )
    assert float(belief.losses.max()) < 1e-2


def test_models_are_not_read_into_other_layers_with_as_many_weights(tmp_path):
    def layers(first: int, second: int, name: str = "{}") -> nn.Module:
        parts = [nn.Linear(2, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 2)]
        return nn.Sequential(OrderedDict((name.format(number), part) for number, part in enumerate(parts)))

    states = torch.rand(5, 2)
    own = ModuleNetwork(lambda: layers(3, 4), states)
    RewardEnsemble(own, torch.rand(2, own.num_parameters)).save(tmp_path / "own")
    for given in (lambda: layers(4, 3), lambda: layers(3, 4, "layer {}")):
        other = ModuleNetwork(given, states)
        for network in (given, other):
            with pytest.raises(BadFileError, match=r"'parameters' of its network differs.*; the first that differs is"):
                RewardEnsemble.load(tmp_path / "own", network=network)
    RewardEnsemble.load(tmp_path / "own", network=own)
    vector = VectorNetwork((2,), 2, (3, 4))
    RewardEnsemble(vector, torch.rand(2, vector.num_parameters)).save(tmp_path / "vector")
    with pytest.raises(BadFileError, match="'hidden' of its network differs"):
        RewardEnsemble.load(tmp_path / "vector", network=VectorNetwork((2,), 2, (4, 3)))


@pytest.mark.parametrize(
    ("shape", "network", "expected"),
    [((2,), "auto", 0.01), ((9,), "vector", 0.01), ((6, 6), "auto", 0.005), ((28, 28), "auto", 0.0016)],
)
def test_a_learning_rate_that_is_not_given_suits_the_network(shape: tuple[int, ...], network: str, expected: float):
    states = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
    belief = fit_ensemble(states, torch.eye(4), network=network, num_models=2, num_epochs=1, progress=False)
    assert belief.settings["learning_rate"] == pytest.approx(expected)


def test_a_module_of_ones_own_gets_the_usual_learning_rate():
    belief = fit_ensemble(
        torch.eye(4), torch.eye(4), network=lambda: torch.nn.Linear(4, 4), num_models=2, num_epochs=1, progress=False
    )
    assert belief.settings["learning_rate"] == 0.001


@pytest.mark.parametrize(
    ("rows", "expected"), [(40, (100, 64)), (2000, (100, 64)), (5000, (20, 64)), (50_000, (6, 64)), (10**6, (2, 64))]
)
def test_epochs_and_batches_by_the_number_of_rows(rows, expected):
    assert VectorLearner().schedule(torch.empty(rows, 1), of_labels=False) == expected
    of_labels = VectorLearner().schedule(torch.empty(rows, 1), of_labels=True)
    assert of_labels == (expected if rows > 2000 else ({40: 120, 2000: 30}[rows], 64))


def test_few_rows_are_trained_as_they_always_were():
    states = torch.linspace(-1, 1, 30)[:, None]
    plain = fit_ensemble(states, states**2, num_models=2, progress=False)
    said = fit_ensemble(states, states**2, num_models=2, num_epochs=100, batch_size=64, progress=False)
    assert torch.equal(plain.parameters, said.parameters)
    assert (plain.settings["num_epochs"], plain.settings["batch_size"]) == (100, 64)


def test_many_rows_are_trained_in_fewer_passes():
    states = torch.linspace(-1, 1, 2400)[:, None]
    belief = fit_ensemble(states, torch.cat([states, -states], dim=1), num_models=2, progress=False)
    assert (belief.settings["num_epochs"], belief.settings["batch_size"]) == (29, 64)
    assert belief.diagnosis.error < 0.05
    module = fit_ensemble(
        states, states, network=lambda: torch.nn.Linear(1, 1), num_models=1, progress=False, validation_fraction=0,
        num_epochs=1,
    )  # fmt: skip
    assert module.settings["batch_size"] == 64
