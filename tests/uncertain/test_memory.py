"""Policies that remember: what they do in an episode earns what `returns` says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cautious import UncertainMDP, UncertainSolution, solve_mdp

pytestmark = pytest.mark.filterwarnings("ignore::cautious.errors.FewModelsWarning")


def test_the_first_step_tells_which_door_pays():
    """Model m opens door m for sure after a bell rings m. With memory one hears it: 1 in both models, without it 1/2."""
    bell, doors, room, end = 0, (1, 2), 3, 4
    chance = np.zeros((2, 5, 2, 5))
    chance[[0, 1], bell] = np.eye(5)[list(doors)][:, None]
    chance[:, doors, :, room] = 1  # both rings lead to one room, where nothing tells them apart
    chance[:, [room, end], :, end] = 1
    world = UncertainMDP(chance, np.eye(5)[bell], 1.0, horizon=3)
    pays = np.zeros((2, 5, 2))
    pays[0, room, 0] = pays[1, room, 1] = 3
    without, with_memory = (solve_mdp(world, pays, "1-of-2", memory=memory) for memory in (False, True))
    assert without.returns().tolist() == pytest.approx([0.5, 0.5])
    assert with_memory.returns().tolist() == pytest.approx([1.0, 1.0])
    assert float(with_memory.certificate().gap) < 1e-9
    for model in (0, 1):
        episode = with_memory.memory.begin(seed=0)
        episode.act(bell)
        episode.act(doors[model])
        assert episode.posterior[model] == 1
        assert episode.act(room) == model


def test_simulated_episodes_earn_what_returns_says():
    rng = np.random.default_rng(0)
    chance = rng.dirichlet(np.full(3, 0.3), size=(4, 3, 2))
    rewards = rng.normal(size=(4, 3, 2))
    world = UncertainMDP(chance, [1, 0, 0], 0.9, horizon=4)
    solution = solve_mdp(world, rewards, "2-of-4", memory=True)
    # Held-out models, some of whose steps none of the solved ones allow: the fallback policy takes over.
    other = rng.dirichlet(np.full(3, 0.5), size=(2, 3, 2))
    held_out = UncertainMDP(other, [0.5, 0.5, 0], 0.9, horizon=4)
    for where, models in ((chance, world), (other, held_out)):
        said = solution.returns(models, rewards[: len(models)])
        for model in range(2):
            earned = []
            for number in range(3000):
                episode, total = solution.memory.begin(number), 0.0
                state = rng.choice(3, p=models.initial_state_dist.numpy())
                for t in range(4):
                    action = episode.act(state)
                    total += 0.9**t * rewards[model, state, action] / models.normaliser
                    state = rng.choice(3, p=where[model, state, action])
                earned.append(total)
            assert np.mean(earned) == pytest.approx(float(said[model]), abs=4 * np.std(earned) / len(earned) ** 0.5)


def test_plans_are_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(1)
    world = UncertainMDP(rng.dirichlet(np.full(3, 0.3), size=(4, 3, 2)), [1, 0, 0], 0.9, horizon=3)
    solution = solve_mdp(world, rng.normal(size=(4, 3, 2)), "1-of-4", memory=True)
    solution.save(tmp_path)
    again = UncertainSolution.load(tmp_path)
    assert torch.equal(again.returns(), solution.returns())
    plans = [one.memory.begin(seed=2) for one in (solution, again)]
    assert [plans[0].act(state) for state in (0, 1, 2)] == [plans[1].act(state) for state in (0, 1, 2)]


def test_one_seed_draws_one_plan():
    world = UncertainMDP(
        torch.softmax(torch.randn(5, 3, 2, 3, generator=torch.Generator().manual_seed(0)), -1), [1, 0, 0], 0.8
    )
    solution = solve_mdp(world, torch.eye(3)[:, :2], "1-of-5", memory=True, tolerance=0.01)
    actions = [[episode.act(state) for state in (0, 1, 2, 0)] for episode in map(solution.memory.begin, (3, 3))]
    assert actions[0] == actions[1]
