"""Networks, learners and beliefs of one's own beside the library's: found by what is passed, never by what a file says."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from cautious import BadFileError, InvalidInputError, RewardEnsemble, fit_ensemble
from cautious.beliefs.fit import VectorLearner
from cautious.beliefs.networks.base import NETWORKS, Calls, named
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.io.arrays import load_json, save_json


class Linear:
    """A network with nothing beside what the protocol asks for."""

    name = "linear"
    num_actions, num_parameters, state_shape = 2, 6, (3,)

    def describe(self) -> dict[str, Any]:
        return {"features": 3}

    def init(self, rng: np.random.Generator) -> np.ndarray:
        return rng.normal(size=6)

    def as_states(self, states: Any) -> tuple[torch.Tensor]:
        return (torch.as_tensor(states, dtype=torch.float32),)

    def predict(self, parameters: torch.Tensor, *states: torch.Tensor) -> torch.Tensor:
        return states[0] @ parameters.unflatten(1, (3, 2))


def test_a_network_needs_no_more_than_the_protocol(tmp_path):
    weights = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    states = np.random.default_rng(0).normal(size=(100, 3))
    belief = RewardEnsemble(Linear(), weights)
    expected = torch.einsum("sf,mfa->msa", torch.tensor(states).float(), weights.unflatten(1, (3, 2)))
    torch.testing.assert_close(belief.rewards(states), expected)  # 20 models and 100 rows are no multiples of a block
    torch.testing.assert_close(belief.on(states).rewards_for([7, 2]), expected[[7, 2]])
    belief.save(tmp_path)
    assert torch.equal(RewardEnsemble.load(tmp_path, network=Linear()).rewards(states), belief.rewards(states))
    with pytest.raises(BadFileError, match="pass the function"):
        RewardEnsemble.load(tmp_path)


def test_a_network_says_how_it_is_called():
    class Wide(Linear):
        block, reward_dtype = {"cpu": (4, 10)}, torch.float64

    assert Calls.of(Linear()) == Calls()
    assert Calls.of(Wide()) == Calls(block={"cpu": (4, 10)}, reward_dtype=torch.float64)
    belief = RewardEnsemble(Wide(), torch.ones(5, 6))
    assert belief.rewards(torch.ones(23, 3)).tolist() == [[[3.0, 3.0]] * 23] * 5
    assert belief.rewards(torch.ones(23, 3)).dtype == torch.float64


@pytest.mark.parametrize(
    "name", ["this", "this:s", "antigravity:main", "cautious_paper.cli.demo:Demo", None, ["vector"]]
)
def test_a_file_cannot_name_what_is_imported(tmp_path, name):
    RewardEnsemble(VectorNetwork((3,), 2), torch.zeros(2, VectorNetwork((3,), 2).num_parameters)).save(tmp_path)
    described = load_json(tmp_path / "ensemble.json")
    files = described.pop("files")
    save_json(tmp_path / "ensemble.json", described | {"network": name}, files)
    before = set(sys.modules)
    with pytest.raises(BadFileError, match="not one that this version builds"):
        RewardEnsemble.load(tmp_path)
    assert sys.modules.keys() <= before


def test_every_network_of_the_table_is_there_under_its_name():
    for name in NETWORKS:
        kind = named(NETWORKS, name)
        assert kind.name == name
        assert callable(kind.read)


def test_a_learner_of_ones_own_is_the_network():
    states = torch.linspace(-1, 1, 40)[:, None]
    rewards = torch.cat([states, -states], dim=1)
    options: dict[str, Any] = {"num_models": 3, "num_epochs": 3, "progress": False}
    own = fit_ensemble(states, rewards, network=VectorLearner(), **options)
    assert torch.equal(own.parameters, fit_ensemble(states, rewards, network="vector", **options).parameters)
    with pytest.raises(InvalidInputError, match="is not known"):
        fit_ensemble(states, rewards, network="transformer", **options)
