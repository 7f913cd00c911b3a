"""The Gymnasium environment: its own checker, seeds, and its dynamics sampled against the matrix."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import cautious_paper.worlds  # noqa: F401  (registers the ids)
from cautious.errors import InvalidInputError
from cautious_paper.worlds.driving_rules import START, pair_features


@pytest.mark.parametrize("options", [{}, {"novel": False}, {"appearance_probability": 1.0}])
@pytest.mark.parametrize("render_mode", ["ansi", "rgb_array"])
def test_it_passes_gymnasiums_own_check(options, render_mode):
    check_env(gymnasium.make("cautious/Driving-v0", render_mode=render_mode, **options).unwrapped)


def rollout(seed: int, length: int = 200) -> list[tuple[int, float]]:
    env = gymnasium.make("cautious/Driving-v0")
    env.reset(seed=seed)
    env.action_space.seed(seed)
    steps = [env.step(env.action_space.sample()) for _ in range(length)]
    assert not any(terminated or truncated for _, _, terminated, truncated, _ in steps)
    return [(observation, float(reward)) for observation, reward, *_ in steps]


def test_one_seed_gives_one_drive():
    assert rollout(3) == rollout(3)
    assert rollout(3) != rollout(4)


def test_it_starts_where_the_world_does_or_where_it_is_told():
    env = gymnasium.make("cautious/Driving-v0")
    observation, info = env.reset(seed=0)
    assert info["state"] == START
    assert env.unwrapped.world.states[observation] == START
    _, info = env.reset(options={"state": (1, 3, (0, 1), None)})
    assert info["state"] == (1, 3, (0, 1), None)
    with pytest.raises(InvalidInputError, match="not a state"):
        env.reset(options={"state": (9, 9, None, None)})


@pytest.mark.parametrize("state", [(2, 3, None, None), (1, 2, None, (0, 2)), (0, 1, (1, 0), None)])
def test_sampled_steps_agree_with_the_matrix(state):
    env = gymnasium.make("cautious/Driving-v0", appearance_probability=0.3).unwrapped
    world = env.world
    env.reset(seed=1)
    draws = 4000
    for action in range(5):
        counts = np.zeros(len(world.states))
        rewards = []
        for _ in range(draws):
            env._state = world.index(state)
            following, reward, *_ = env.step(action)
            counts[following] += 1
            rewards.append(reward)
        expected = world.mdp.transitions.to_dense()[world.index(state), action].numpy()
        assert (counts[expected == 0] == 0).all()
        spread = np.sqrt(draws * expected * (1 - expected))
        assert (np.abs(counts - draws * expected) <= 5 * spread + 1e-9).all()
        error = np.std(rewards) / np.sqrt(draws)
        assert abs(np.mean(rewards) - float(world.features["reward"][world.index(state), action])) <= 5 * error + 1e-9


def test_bad_arguments_are_refused():
    env = gymnasium.make("cautious/Driving-v0").unwrapped
    env.reset(seed=0)
    for action in (5, -1, "left", 1.5):
        with pytest.raises(InvalidInputError, match="0 accelerate, 1 brake"):
            env.step(action)
    with pytest.raises(InvalidInputError, match="appearance_probability"):
        gymnasium.make("cautious/Driving-v0", appearance_probability=0)
    from cautious_paper.worlds.envs.driving_env import DrivingEnv

    with pytest.raises(InvalidInputError, match="render_mode"):
        DrivingEnv(render_mode="human")


def test_many_cars_step_as_one_does():
    """The same draws lead to the same places, and pay the same."""
    many = gymnasium.make_vec("cautious/Driving-v0", num_envs=500, observation="features").unwrapped
    features, _ = many.reset(seed=2)
    assert (features == many._shown[many.world.index(START)]).all()
    actions = np.random.default_rng(0)
    for _ in range(30):
        before, chosen = many._states.copy(), actions.integers(0, 5, 500)
        draws = np.random.Generator(np.random.PCG64())
        draws.bit_generator.state = many.np_random.bit_generator.state
        uniform = draws.random((500, 1))[:, 0]
        features, rewards, terminated, truncated, infos = many.step(chosen)
        expected = [
            many.world.sample_next(int(s), int(a), float(u)) for s, a, u in zip(before, chosen, uniform, strict=True)
        ]
        assert (many._states == expected).all()
        assert (features == many._shown[expected]).all()
        assert not (terminated | truncated).any()
    happened = pair_features(many.world.states[before[0]], many.world.states[expected[0]])
    assert rewards[0] == happened["reward"]
    assert infos["collisions"][0] == happened["collisions"]


def test_some_cars_begin_again():
    many = gymnasium.make_vec("cautious/Driving-v0", num_envs=4)
    many.reset(seed=0)
    many.step(np.zeros(4, dtype=int))
    moved, _ = many.reset(options={"reset_mask": np.array([True, False, False, True])})
    assert (moved == many.reset()[0]).tolist() == [True, False, False, True]
    for wrong in ([0, 0], [0, 0, 0, 7]):
        with pytest.raises(InvalidInputError, match="4 whole numbers below 5"):
            many.step(np.array(wrong))
    with pytest.raises(InvalidInputError, match="observation"):
        gymnasium.make_vec("cautious/Driving-v0", num_envs=2, observation="pixels")
    with pytest.raises(InvalidInputError, match="not drawn"):
        gymnasium.make_vec("cautious/Driving-v0", num_envs=2, render_mode="ansi")
