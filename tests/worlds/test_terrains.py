"""The terrain world: its environments against the exact twin, seeds, checks of Gymnasium and Stable-Baselines3, its maps."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import stable_baselines3.common.env_checker
import torch
from gymnasium.utils.env_checker import check_env

import cautious  # noqa: F401  (registers the ids)
from cautious import optimal_policy
from cautious.errors import InvalidInputError
from cautious.worlds.terrains import (
    ACTIONS,
    DELIVERY,
    GOAL,
    KNOWN,
    SIZE,
    START,
    cell_number,
    logged_terrain_rewards,
    possible_truths,
    terrain_world,
)


@pytest.mark.parametrize("render_mode", ["ansi", "rgb_array"])
def test_it_passes_both_checks(render_mode):
    env = gymnasium.make("cautious/Terrains-v0", render_mode=render_mode)
    check_env(env.unwrapped)
    stable_baselines3.common.env_checker.check_env(env)


class EveryUniform:
    """Uniform numbers at the middles of equal parts of [0, 1): what a step does with each of them is its distribution."""

    def random(self, count: int) -> np.ndarray:
        return (np.arange(count) + 0.5) / count


@pytest.mark.parametrize("slip", [0.0, 0.1, 0.5])
def test_steps_are_those_of_the_twin(slip):
    """In every state, for every action, exactly: 400 equal parts of [0, 1) hit each direction's share without a rest."""
    world = terrain_world(layout=1, slip=slip)
    expected = world.mdp.transitions.to_dense().numpy()
    for state in range(world.num_states):
        for action in range(len(ACTIONS)):
            cells, actions = np.full(400, state), np.full(400, action)
            following, happened = world.step(cells, actions, EveryUniform())
            share = np.bincount(following, minlength=world.num_states) / 400
            assert np.allclose(share, expected[state, action], rtol=0, atol=1e-12)
            true = world.state_rewards(world.kind_rewards)[state, action]
            assert (happened["reward"] == float(true)).all()


def test_a_way_by_hand():
    """Without slips: eight steps to the right lead to the goal, which pays and leads back."""
    env = gymnasium.make("cautious/Terrains-v0", slip=0.0).unwrapped
    env.reset(seed=0)
    rewards = [env.step(1)[1] for _ in range(SIZE)]
    assert rewards[0] == KNOWN["road"]
    assert rewards[-1] == DELIVERY + KNOWN["road"]
    assert env.state.tolist() == [cell_number(START)]
    world = env.world
    assert rewards[1:-1] == [world.kind_rewards[world.kinds[cell_number((START[0], column))]] for column in range(1, 8)]


def rollout(seed: int) -> tuple[list, list]:
    env = gymnasium.make("cautious/Terrains-v0", layout=2)
    env.action_space.seed(seed)
    observations, rewards = [env.reset(seed=seed)[0]], []
    for _ in range(100):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        observations.append(observation)
        rewards.append(reward)
    assert truncated
    assert not terminated
    return np.stack(observations).tolist(), rewards


def test_one_seed_gives_one_rollout():
    assert rollout(3) == rollout(3)
    assert rollout(3) != rollout(4)


def test_many_copies_move_as_one_does():
    one = gymnasium.make("cautious/Terrains-v0", layout=2)
    many = gymnasium.make_vec("cautious/Terrains-v0", num_envs=1, layout=2)
    assert (one.reset(seed=5)[0] == many.reset(seed=5)[0][0]).all()
    for number in range(100):
        action = number % 4
        observation, reward, _, truncated, _ = one.step(action)
        seen, paid, _, ended, _ = many.step(np.array([action]))
        assert (reward, truncated) == (paid[0], ended[0])
        assert (observation == seen[0]).all()
    assert truncated


def test_only_the_copies_of_a_mask_start_anew():
    many = gymnasium.make_vec("cautious/Terrains-v0", num_envs=3, slip=0.0)
    start = many.reset(seed=0)[0]
    for _ in range(3):
        seen, *_ = many.step(np.full(3, 2))
    again, _ = many.reset(options={"reset_mask": np.array([True, False, True])})
    assert (again[[0, 2]] == start[[0, 2]]).all()
    assert (again[1] == seen[1]).all()
    assert not (seen == start).all(axis=1).any()


def test_half_of_the_unseen_kinds_are_harmful_and_each_lies_on_the_map():
    for layout in range(20):
        world = terrain_world(layout)
        assert world.harmful.sum() == 3
        assert len(set(world.kinds) - set(range(len(KNOWN)))) >= 5  # a patch may lie under others
        ring = np.ones((SIZE, SIZE), dtype=bool)
        ring[1:-1, 1:-1] = False
        assert (world.kinds[ring.ravel()] < len(KNOWN)).all()
    assert len({terrain_world(layout, num_unseen=1).harmful[0] for layout in range(20)}) == 2
    assert len(np.unique(possible_truths(6), axis=0)) == 20


def test_the_log_has_no_unseen_kind():
    kinds, rewards = logged_terrain_rewards(num_unseen=4)
    assert (kinds[:, len(KNOWN) :] == 0).all()
    assert np.allclose(rewards[:, 0], kinds[:, : len(KNOWN)] @ list(KNOWN.values()), rtol=0, atol=0.3)


def test_the_known_way_round_pays_the_hand_worked_value():
    """All unseen ground forbidden, no slips, mud inside: 4 up, 8 right, 4 down; goal on step 17, over 15 cells of gravel."""
    world = terrain_world(layout=1, slip=0.0)
    rewards = world.state_rewards(np.concatenate([list(KNOWN.values()), np.full(6, -100.0)]))
    inside = np.isin(world.kinds, [list(KNOWN).index("gravel")], invert=True)
    inside[[cell_number(START), cell_number(GOAL)]] = False
    rewards[torch.from_numpy(inside)] = -100.0
    gamma, value = 0.95, 0.0
    trip = [0.0, *[KNOWN["gravel"]] * 15, DELIVERY]
    value = sum(gamma**t * paid for t, paid in enumerate(trip)) / (1 - gamma ** len(trip))
    assert float(optimal_policy(world.mdp, rewards).expected_return) == pytest.approx((1 - gamma) * value, abs=1e-12)


def test_bad_arguments_are_refused():
    for bad in ({"slip": 1.0}, {"num_unseen": 0}, {"layout": -1}):
        with pytest.raises(InvalidInputError, match=next(iter(bad)) if "layout" not in bad else "seed"):
            gymnasium.make("cautious/Terrains-v0", **bad)
    env = gymnasium.make("cautious/Terrains-v0").unwrapped
    env.reset(seed=0)
    with pytest.raises(InvalidInputError, match="0 up, 1 right"):
        env.step(5)
