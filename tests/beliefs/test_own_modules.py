"""fit_ensemble on modules of one's own: frozen parts, unfinished work of another module, PyTorch's default type."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from cautious import RewardEnsemble, driving_world, fit_ensemble
from cautious.errors import BadFileError

QUICK = {"num_models": 3, "num_epochs": 3, "progress": False, "validation_fraction": 0}


@pytest.fixture
def problem(generator) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(40, 3, generator=generator), torch.randn(40, 2, generator=generator)


def small(activation: type[nn.Module] = nn.Tanh) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), activation(), nn.Linear(8, 2))


def with_frozen_part() -> nn.Module:
    module = small()
    nn.init.constant_(module[0].weight, 0.1)
    module[0].requires_grad_(False)
    return module


def test_frozen_parameters_stay_what_they_are(problem, tmp_path):
    states, rewards = problem
    belief = fit_ensemble(states, rewards, network=with_frozen_part, weight_decay=0.1, prior=0, **QUICK)
    assert belief.parameters.shape == (3, 8 * 2 + 2)
    plain = with_frozen_part()
    with torch.no_grad():
        plain[0].bias.copy_(belief.network._module[0].bias)  # of the module that all models share
        nn.utils.vector_to_parameters(belief.parameters[1], plain[2].parameters())
        assert torch.allclose(
            plain(states), belief.rewards(states)[1], rtol=0, atol=1e-6
        )  # float32, another order of sums
    assert torch.equal(plain[0].weight, torch.full((8, 3), 0.1))
    belief.save(tmp_path)
    again = RewardEnsemble.load(tmp_path, network=with_frozen_part)
    assert torch.equal(again.rewards(states), belief.rewards(states))


@pytest.mark.parametrize(
    "other",
    [
        lambda: nn.Sequential(nn.Linear(3, 10, bias=False), nn.Tanh(), nn.Linear(10, 2, bias=False)),
        lambda: small(nn.ReLU),
    ],
    ids=["as many weights", "the same weights"],
)
def test_unfinished_work_of_another_module_is_refused(problem, tmp_path, other):
    states, rewards = problem
    belief = fit_ensemble(states, rewards, network=small, checkpoint_dir=tmp_path, **QUICK)
    assert sum(part.numel() for part in other().parameters()) == belief.parameters.shape[1]
    with pytest.raises(BadFileError, match=r"another training run \(network is 'module Sequential \w{16}' there"):
        fit_ensemble(states, rewards, network=other, checkpoint_dir=tmp_path, **QUICK)
    again = fit_ensemble(states, rewards, network=small, checkpoint_dir=tmp_path, **QUICK)
    assert torch.equal(again.parameters, belief.parameters)


def test_unfinished_work_does_not_depend_on_addresses(problem, tmp_path):
    class Printing(nn.Linear):
        def extra_repr(self) -> str:
            return repr(object())

    states, rewards = problem
    for _ in range(2):
        fit_ensemble(states, rewards, network=lambda: Printing(3, 2), checkpoint_dir=tmp_path, **QUICK)


@pytest.fixture
def float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def beliefs(states: torch.Tensor, rewards: torch.Tensor, images: np.ndarray) -> list[RewardEnsemble]:
    return [
        fit_ensemble(states, rewards, **QUICK),
        fit_ensemble(states, rewards, network=small, **QUICK),
        fit_ensemble(images, rewards, **QUICK),
    ]


def test_pytorchs_default_type_does_not_matter(problem, request):
    states, rewards = problem
    images = np.random.default_rng(0).integers(0, 256, (40, 28, 28), dtype=np.uint8)
    usual, shipped = beliefs(states, rewards, images), RewardEnsemble.load("driving").rewards(driving_world())
    request.getfixturevalue("float64_by_default")
    for before, after in zip(usual, beliefs(states, rewards, images), strict=True):
        assert torch.equal(before.parameters, after.parameters)
    assert usual[2].rewards(images).dtype == torch.float32
    assert torch.equal(RewardEnsemble.load("driving").rewards(driving_world()), shipped)


def test_images_in_a_list_are_images(problem):
    rewards = problem[1]
    images = np.random.default_rng(0).integers(0, 256, (40, 28, 28), dtype=np.uint8)
    expected = fit_ensemble(images, rewards, **QUICK).parameters
    for given in (list(images), list(torch.from_numpy(images)), list(images / 255)):
        assert torch.equal(fit_ensemble(given, rewards, **QUICK).parameters, expected)


def test_other_frozen_parameters_are_not_taken_for_those_it_was_trained_with(problem, tmp_path):
    def constant(value: float) -> nn.Module:
        module = with_frozen_part()
        nn.init.constant_(module[0].weight, value)
        return module

    fit_ensemble(*problem, network=lambda: constant(0.1), **QUICK).save(tmp_path)
    with pytest.raises(BadFileError, match="other untrained than the one given"):
        RewardEnsemble.load(tmp_path, network=lambda: constant(0.9))


def test_a_part_that_a_module_shares_stays_its_owners(problem):
    states, rewards = problem
    shared = nn.Linear(3, 8).double().requires_grad_(False)
    network = lambda: nn.Sequential(shared, nn.Tanh(), nn.Linear(8, 2))  # noqa: E731
    belief = fit_ensemble(states, rewards, network=network, **QUICK)
    assert shared.weight.dtype == torch.float64
    before = belief.rewards(states)
    nn.init.zeros_(shared.weight)
    assert torch.equal(belief.rewards(states), before)
