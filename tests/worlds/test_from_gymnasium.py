"""Models of Gymnasium environments: exact where they offer a table, estimated where not."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from cautious import TabularMDP, driving_world, optimal_policy
from cautious.errors import InvalidInputError
from cautious.worlds.from_gymnasium import read_model


@pytest.mark.parametrize(("name", "size"), [("FrozenLake", 17), ("Taxi", 501), ("CliffWalking", 49)])
def test_the_table_is_read_exactly(name: str, size: int):
    env = gymnasium.make(max(known for known in gymnasium.registry if known.startswith(f"{name}-v")))
    model = read_model(env)
    mdp = TabularMDP.from_gymnasium(env, discount=0.9)
    assert (mdp.num_states, mdp.num_actions) == (size, env.action_space.n)
    dense = model.transitions.to_dense().reshape(size, -1, size)
    rng = np.random.default_rng(0)
    for _ in range(200):
        state, action = int(rng.integers(size - 1)), int(rng.integers(env.action_space.n))
        expected, reward = torch.zeros(size, dtype=torch.float64), 0.0
        for chance, following, paid, ends in env.unwrapped.P[state][action]:
            expected[size - 1 if ends else following] += chance
            reward += chance * paid
        assert torch.equal(dense[state, action], expected)
        assert float(model.rewards[state, action]) == pytest.approx(reward)
    assert bool((dense[-1, :, -1] == 1).all())
    assert model.rewards[-1].tolist() == [0] * env.action_space.n


def test_frozen_lake_has_its_known_value():
    """Without slipping, the goal is six steps away: value γ⁵ at the start, unnormalised."""
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    model = read_model(env)
    mdp = TabularMDP.from_gymnasium(env, discount=0.9)
    assert float(optimal_policy(mdp, model.rewards).expected_return) / (1 - 0.9) == pytest.approx(0.9**5)


def test_driving_comes_out_as_it_is():
    env = gymnasium.make("cautious/Driving-v0", novel=False)
    world = driving_world(novel=False)
    mdp = TabularMDP.from_gymnasium(env, discount=0.99)
    assert torch.equal(mdp.transitions.to_dense(), world.mdp.transitions.to_dense())


class Walk(gymnasium.Env):
    """Three places in a row, no table: right moves on with probability 0.8, and the third place ends the episode."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        if action == 1 and self.np_random.random() < 0.8:
            self.place += 1
        return self.place, float(self.place == 2), self.place == 2, False, {}


def test_without_a_table_the_model_is_estimated():
    with pytest.raises(InvalidInputError, match="num_steps"):
        TabularMDP.from_gymnasium(Walk())
    model = read_model(Walk(), num_steps=4000, seed=1)
    dense = model.transitions.to_dense().reshape(4, 2, 4)
    # about 1,000 tries a pair: four deviations of 0.013
    assert float(dense[0, 1, 1]) == pytest.approx(0.8, abs=0.06)
    assert float(dense[1, 1, 3]) == pytest.approx(0.8, abs=0.06)
    assert dense[0, 0].tolist() == [1, 0, 0, 0]
    assert dense[2, 0].tolist() == [0, 0, 1, 0]  # the end is never left: no try, so it stays
    assert int(model.visits[2].sum()) == 0
    assert float(model.rewards[1, 1]) == pytest.approx(0.8, abs=0.06)
    again = read_model(Walk(), num_steps=4000, seed=1)
    assert torch.equal(again.transitions.to_dense(), model.transitions.to_dense())


def test_continuous_spaces_are_refused():
    with pytest.raises(InvalidInputError, match="discrete"):
        TabularMDP.from_gymnasium(gymnasium.make("CartPole-v1"), num_steps=10)
