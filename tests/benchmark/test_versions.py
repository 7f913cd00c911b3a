"""The benchmark's problems: none changes without a new version, and each is what its name says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cautious import InvalidInputError, TabularMDP, UncertainMDP
from cautious_paper import benchmark
from cautious_paper.benchmark.opinions import opinions
from cautious_paper.benchmark.prints import same
from cautious_paper.worlds.envs.toy_text import TAXI_WALLS, cliff_world, lake_world, taxi_world

PRINTS = json.loads((Path(__file__).parent / "prints.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("id", benchmark.IDS)
@pytest.mark.parametrize("split", benchmark.SPLITS)
def test_a_version_never_changes(id, split, monkeypatch, tmp_path):
    monkeypatch.setenv("CAUTIOUS_DATA", str(tmp_path))  # what images a user has makes no difference
    for seed in (0, 1):
        found = benchmark.fingerprint(benchmark.make(id, split, seed))
        assert same(found, PRINTS[f"{id} {split} {seed}"]), f"{id} is another problem now: give it the next version"


def test_a_print_notices_any_change():
    problem = benchmark.make("cliff-v1")
    before = benchmark.fingerprint(problem)
    assert same(before, benchmark.fingerprint(benchmark.make("cliff-v1")))
    assert not same(before, benchmark.fingerprint(benchmark.make("cliff-v1", seed=1)))
    problem.rewards[3, 4, 1] += 0.1
    assert not same(before, benchmark.fingerprint(problem))


@pytest.mark.parametrize("id", benchmark.IDS)
def test_each_problem_is_one(id):
    novel, familiar = benchmark.make(id, "novel", 3), benchmark.make(id, "familiar", 3)
    assert isinstance(novel.world, TabularMDP | UncertainMDP)
    shape = (novel.world.num_states, novel.world.num_actions)
    assert tuple(torch.as_tensor(novel.rewards).shape) == (60, *shape)
    if isinstance(novel.world, UncertainMDP):
        # little was seen of the novel world: its models are farther apart
        first = torch.eye(shape[1], dtype=torch.float64)[1].expand(shape)
        spread = [part.world.returns(first, part.rewards).std() for part in (novel, familiar)]
        assert spread[0] > 2 * spread[1]
        return
    assert novel.familiar is not None
    assert torch.equal(torch.as_tensor(novel.familiar.rewards), torch.as_tensor(familiar.rewards))
    for part in (novel, familiar):
        assert len(part.extras["features"]) == part.world.num_states
        assert part.extras["features"].shape[1] == part.extras["logged_features"].shape[1]
        assert 0 <= part.extras["action"] < part.world.num_actions
    # Models agree more where they were trained, and there they are right about what the ordinary policy meets.
    spread = [torch.as_tensor(part.rewards).std(dim=0).mean() for part in (novel, familiar)]
    assert spread[0] > spread[1]
    assert float(torch.as_tensor(novel.novelty).max()) > float(torch.as_tensor(familiar.novelty).max())


def test_bad_names_are_named():
    with pytest.raises(InvalidInputError, match="driving-v1"):
        benchmark.make("driving-v0")
    with pytest.raises(InvalidInputError, match="choose 'familiar' or 'novel'"):
        benchmark.make("driving-v1", split="test")
    with pytest.raises(InvalidInputError, match="seed"):
        benchmark.make("driving-v1", seed=-1)
    with pytest.raises(InvalidInputError, match="machine-v9"):
        benchmark.problems(["machine-v9"])


def test_opinions_follow_the_log_and_differ_elsewhere():
    """A Gaussian process by hand: the posterior of one row has mean k (k + s²)⁻¹ y and variance k - k² / (k + s²)."""
    features = np.array([[0.0], [5.0], [5.2], [50.0]])
    logged = np.repeat([[0.0], [1.0]], 50, axis=0)
    said = opinions(features, logged, np.repeat([0.0, 1.0], 50), 0, length=0.5, amplitude=1.0)
    assert said.shape == (60, 4)
    assert said[:, 0].std() < 0.05
    assert abs(said[:, 0].mean()) < 0.05
    assert 0.3 < said[:, 1].std() < 0.7  # amplitude 1 in deviations of .5
    correlation = np.corrcoef(said.T.numpy())
    assert correlation[1, 2] > 0.85  # near each other
    assert abs(correlation[1, 3]) < 0.35  # two sigma of 60 samples is .26
    assert float(said.min()) >= -1
    assert float(said.max()) <= 2
    more = opinions(features, logged, np.repeat([0.0, 1.0], 50), 1, length=0.5, amplitude=1.0)
    assert not torch.equal(said, more)


def test_the_toy_worlds_are_gymnasiums():
    lake = lake_world(["SF", "HG"], 0.9)
    right, down = 2, 1
    assert lake.mdp.transitions.to_dense()[0, right, 1] == 1
    assert float(lake.rewards[1, down]) == 1.0
    cliff = cliff_world(0.9)
    assert float(cliff.rewards[36, right - 1]) == -100  # from the start to the right is the cliff
    own, other = taxi_world(), taxi_world([(2, 2)])
    east, west = 2, 3
    cell = lambda row, column: (row * 5 + column) * 20  # noqa: E731
    for walls, world in ((TAXI_WALLS, own), (((2, 2),), other)):
        table = world.mdp.transitions.to_dense()
        for row in range(5):
            for column in range(4):
                open_way = (row, column) not in walls
                assert table[cell(row, column) + 7, east, cell(row, column + 1) + 7] == open_way
                assert table[cell(row, column + 1) + 7, west, cell(row, column) + 7] == open_way
    from gymnasium.envs.toy_text.taxi import TaxiEnv

    env = TaxiEnv()  # our own walls leave Gymnasium's table as it is
    for state in range(0, 500, 7):
        for action in range(4):
            assert own.mdp.transitions.to_dense()[state, action, env.P[state][action][0][1]] == 1
    with pytest.raises(InvalidInputError, match="no place for a wall"):
        taxi_world([(0, 4)])
