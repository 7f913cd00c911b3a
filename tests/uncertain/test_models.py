"""Where the models of an uncertain world come from."""

from __future__ import annotations

import gzip

import gymnasium
import numpy as np
import pytest
import torch

from cautious import BadFileError, CoverageWarning, InvalidInputError, MissingFileError, TabularMDP
from cautious.mdp.models import dirichlet_models, models_of_parameter, read_models, resampled_models


def test_whole_episodes_share_their_doubt():
    """Good seasons lift all states together: returns of resampled models spread, those of independent rows hardly do."""
    rng = np.random.default_rng(0)
    num_states, episodes = 20, []
    for _ in range(12):
        luck = rng.random() < 0.5  # of the whole season
        episodes.append([(s, 0, float(luck), (s + 1) % num_states) for s in range(num_states)])
    shared = resampled_models(episodes, 200, 0.9)
    policy = np.ones((num_states, 1))
    spread = shared.world.returns(policy, shared.rewards).std()
    share = np.mean([episode[0][2] for episode in episodes])
    # The mean of 12 draws, with one step of the whole log beside them.
    assert float(spread) == pytest.approx(np.sqrt(share * (1 - share) / 12) * 12 / 13, rel=0.15)
    assert float(shared.world.returns(policy, shared.rewards).mean()) == pytest.approx(share, abs=0.05)
    again = resampled_models(episodes, 3, 0.9)
    assert torch.equal(again.rewards, shared.rewards[:3])  # model m depends on (seed, m) alone


def test_a_pair_that_was_never_tried_stays_and_pays_the_least():
    models = resampled_models([[(0, 0, 1.0, 1), (1, 0, -2.0, 0)]], 2, 0.9, num_actions=2)
    assert models.world.transitions[:, 0, 1].tolist() == [[1.0, 0.0]] * 2
    assert models.rewards[:, :, 1].tolist() == [[-2.0, -2.0]] * 2
    assert models.world.initial_state_dist.tolist() == [1.0, 0.0]


def test_dirichlet_rows_have_the_moments_of_their_counts():
    counts = np.array([[[6.0, 3.0, 0.0]], [[0.0, 0.0, 0.0]], [[0.0, 0.0, 5.0]]])
    world = dirichlet_models(counts, 4000, [1, 0, 0], 0.9, prior=1.0)
    row = world.transitions[:, 0, 0]
    assert row.mean(dim=0).tolist() == pytest.approx([7 / 11, 4 / 11, 0], abs=0.01)
    assert float(row[:, 0].var()) == pytest.approx(7 * 4 / 11**2 / 12, rel=0.1)
    assert world.transitions[0, 1, 0].tolist() == [0.0, 1.0, 0.0]
    assert world.transitions[0, 2, 0].tolist() == [0.0, 0.0, 1.0]


def test_an_estimate_of_a_gymnasium_environment_has_visits_to_draw_from():
    lake = gymnasium.make("FrozenLake-v1", is_slippery=True)
    with pytest.warns(CoverageWarning):
        estimate = TabularMDP.from_gymnasium(gymnasium.wrappers.TransformReward(lake, lambda r: r), 0.95, num_steps=500)
    world = dirichlet_models(estimate, 50, prior=0.0)
    assert len(world) == 50
    tried = estimate.coverage.visits > 30
    assert torch.allclose(world.transitions.mean(dim=0)[tried], estimate.transitions.to_dense()[tried], atol=0.06)
    with pytest.raises(InvalidInputError, match="exact"):
        dirichlet_models(TabularMDP([[[1.0]]], [1.0], 0.9), 5)


def test_one_model_per_value_of_a_parameter():
    models = models_of_parameter(lambda p: ([[[1 - p, p]], [[0, 1]]], [[p], [0]]), [0.2, 0.7], [1, 0], 0.9, horizon=2)
    assert models.world.transitions[:, 0, 0, 1].tolist() == [0.2, 0.7]
    assert models.rewards[:, 0, 0].tolist() == [0.2, 0.7]


def test_published_files_are_read(tmp_path):
    text = "idstatefrom,idaction,idstateto,idoutcome,probability,reward\n"
    text += "0,0,0,7,0.25,4\n0,0,1,7,0.75,0\n1,0,1,7,1,1\n0,0,1,9,0.99999,2\n1,0,1,9,1,1\n"
    (tmp_path / "models.csv").write_text(text)
    with gzip.open(tmp_path / "models.csv.gz", "wt") as file:
        file.write(text)
    for name in ("models.csv", "models.csv.gz"):
        models = read_models(tmp_path / name, [1, 0], 0.9)
        assert models.world.transitions[:, 0, 0].tolist() == [[0.25, 0.75], [0.0, 1.0]]
        assert models.rewards[:, :, 0].tolist() == [[1.0, 1.0], [2.0, 1.0]]
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadFileError, match="idoutcome"):
        read_models(tmp_path / "bad.csv", [1, 0], 0.9)
    with pytest.raises(MissingFileError):
        read_models(tmp_path / "none.csv", [1, 0], 0.9)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: resampled_models([], 3, 0.9), "empty"),
        (lambda: resampled_models([[(0, 0.5, 1.0, 0)]], 3, 0.9), "whole numbers"),
        (lambda: resampled_models([[(0, 0, np.nan, 0)]], 3, 0.9), "finite"),
        (lambda: resampled_models([[(0, 0, 1.0, 5)]], 3, 0.9, num_states=2), "not below num_states=2"),
        (lambda: resampled_models([[(0, 0, 1.0, 0)]], 3, 0.9, prior=-1), "prior"),
        (lambda: dirichlet_models(-np.ones((2, 1, 2)), 3, [1, 0], 0.9), "positive"),
        (lambda: models_of_parameter(lambda p: p, [], [1], 0.9), "there are none"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(InvalidInputError, match=says):
        call()
