"""Features and rewards in any units: the default network learns them, keeps them, and depends on nothing else."""

from __future__ import annotations

import json

import pytest
import torch

from cautious import RewardEnsemble, fit_ensemble
from cautious.beliefs.fit import VectorLearner
from cautious.beliefs.networks.base import restored
from cautious.beliefs.networks.vector import Standardizer, VectorNetwork
from cautious.errors import BadFileError

QUICK = {"num_models": 3, "num_epochs": 25, "batch_size": 16, "progress": False}
SCALES = torch.tensor([1e-3, 1.0, 1e3, 1e5])
SHIFTS = torch.tensor([0.0, 5.0, -4e3, 1e6])


@pytest.fixture
def problem(generator) -> tuple[torch.Tensor, torch.Tensor]:
    states = torch.randn(150, 4, generator=generator)
    return states, torch.stack([states[:, 0] + states[:, 3], states[:, 1] - states[:, 2]], dim=1)


def test_raw_units_are_learned_as_well_as_standardised_ones(problem):
    states, rewards = problem
    plain = fit_ensemble(states, rewards, **QUICK)
    raw = fit_ensemble(states * SCALES + SHIFTS, rewards * 5e4, **QUICK)
    assert plain.diagnosis.error < 0.4 * plain.diagnosis.reward_deviation
    assert raw.diagnosis.error / 5e4 == pytest.approx(plain.diagnosis.error, rel=0.02)  # float32 of 1e6 + 1e5 x
    assert raw.diagnosis.concerns == ()
    torch.testing.assert_close(raw.losses / 5e4**2, plain.losses, rtol=0.02, atol=0)  # in the rewards' units, squared


def test_units_are_saved_and_found_again(problem, tmp_path):
    states, rewards = problem
    belief = fit_ensemble(
        states * SCALES + SHIFTS, rewards * 5e4, **QUICK | {"num_epochs": 2, "validation_fraction": 0}
    )
    belief.save(tmp_path)
    again = RewardEnsemble.load(tmp_path)
    assert torch.equal(again.rewards(states * SCALES), belief.rewards(states * SCALES))
    assert again.network.describe() == belief.network.describe()
    assert belief.network.describe()["units"]["reward"] > 1e4


def test_a_model_in_raw_units_is_the_same_in_any_company(problem):
    states, rewards = problem
    few, many = (
        fit_ensemble(states * SCALES, rewards, validation_fraction=0, **QUICK | {"num_models": count, "num_epochs": 2})
        for count in (2, 18)
    )
    assert torch.equal(few.parameters, many.parameters[:2])


def test_what_is_constant_has_scale_one():
    states = torch.tensor([[0.1, 2.0], [0.1, 6.0], [0.1, 4.0]])
    rewards = torch.tensor([[3.0, torch.nan], [torch.nan, 3.0], [3.0, 3.0]])
    found = Standardizer.of(states, rewards)
    assert found.shift == pytest.approx((0.1, 4.0))
    assert found.scale == pytest.approx((1.0, (8 / 3) ** 0.5))
    assert found.reward == 1.0
    (rows,) = VectorNetwork((2,), 2, units=found).as_states([[1.1, 4.0]])
    torch.testing.assert_close(rows, torch.tensor([[1.0, 0.0]]))


@pytest.mark.parametrize("offset", [1.7e9, -3e12])
def test_a_large_offset_costs_nothing(problem, offset):
    """Seconds since 1970, say: float32 tells them apart by two minutes."""
    states, rewards = problem
    plain = fit_ensemble(states.double() * 50, rewards, **QUICK)
    far = fit_ensemble(states.double() * 50 + offset, rewards, **QUICK)
    assert plain.diagnosis.error < 0.4 * plain.diagnosis.reward_deviation
    assert far.diagnosis.error == pytest.approx(plain.diagnosis.error, rel=0.02)
    moved = far.rewards(states.double() * 50 + offset)
    torch.testing.assert_close(moved, plain.rewards(states.double() * 50), rtol=0, atol=0.05)


def test_what_is_constant_but_for_rounding_is_nothing_to_a_network(generator):
    steps = torch.randint(-1, 2, (50, 1), generator=generator)
    for constant, dtype in ((1e9, torch.float32), (1e18, torch.float64), (0.1, torch.float64)):
        own = torch.full((50, 1), constant, dtype=dtype)
        rows = own + steps * torch.finfo(dtype).eps * constant / 2
        network = VectorNetwork((1,), 2, units=Standardizer.of(rows, torch.rand(50, 2)))
        assert float(network.as_states(rows)[0].abs().max()) < 1e-6


def test_features_in_float32_have_the_same_bits_in_float64(problem):
    states, rewards = problem
    one, other = (
        fit_ensemble(kind, rewards, **QUICK | {"num_epochs": 2, "validation_fraction": 0})
        for kind in (states, states.double())
    )
    assert torch.equal(one.parameters, other.parameters)
    assert torch.equal(one.rewards(states), one.rewards(states.double()))


def test_unfinished_work_belongs_to_its_units(generator):
    """States that differ by a shift are the same to the network, but not to whoever asks later."""
    states, rewards = (torch.randint(-8, 8, (32, count), generator=generator).float() for count in (4, 2))
    problems = [
        VectorLearner().problem(*data, None, each_action=False) for data in ((states, rewards), (states + 16, rewards))
    ]
    assert torch.equal(problems[0]._inputs, problems[1]._inputs)
    assert problems[0].fingerprint != problems[1].fingerprint


def test_wrong_units_are_refused(tmp_path):
    described = json.loads(json.dumps({"network": "vector", **VectorNetwork((2,), 2).describe()}))
    assert restored(described, tmp_path).describe() == VectorNetwork((2,), 2).describe()
    good = described["units"]
    for wrong in (
        None,
        7,
        {},
        good | {"shift": [0.0]},
        good | {"scale": [1.0, 0.0]},
        good | {"reward": -1.0},
        good | {"scale": "ab"},
        good | {"shift": [0.0, "1"]},
    ):
        with pytest.raises(BadFileError, match="units must be"):
            restored(described | {"units": wrong}, tmp_path)
