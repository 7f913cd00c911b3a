"""The terrain world: its environments against the exact twin, seeds, checks of Gymnasium and Stable-Baselines3, its maps."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import stable_baselines3.common.env_checker
from gymnasium.utils.env_checker import check_env

import cautious_paper.worlds  # noqa: F401  (registers the ids)
from cautious import optimal_policy
from cautious.errors import InvalidInputError
from cautious_paper.worlds.terrains import (
    ACTIONS,
    DELIVERY,
    GOAL,
    KNOWN,
    SIZE,
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

    def integers(self, high: int, size: int) -> np.ndarray:
        return np.arange(size) % high


@pytest.mark.parametrize("slip", [0.0, 0.1, 0.5])
def test_steps_are_those_of_the_twin(slip):
    """In every state, for every action, exactly: 400 equal parts of [0, 1) hit each direction's share without a rest."""
    world = terrain_world(layout=1, slip=slip)
    expected = world.mdp.transitions.to_dense().numpy()
    true = world.state_rewards(world.kind_rewards)
    for state in range(world.num_states):
        for action in range(len(ACTIONS)):
            following, happened = world.step(np.full(400, state), np.full(400, action), EveryUniform())
            assert (happened["reward"] == float(true[state, action])).all()
            if state == cell_number(GOAL):  # the next parcel is drawn, from the parcels of the twin
                assert set(following) == set(np.flatnonzero(expected[state, action]))
                continue
            share = np.bincount(following, minlength=world.num_states) / 400
            assert np.allclose(share, expected[state, action], rtol=0, atol=1e-12)


def test_parcels_are_drawn_as_in_the_twin():
    world = terrain_world(layout=1)
    drawn = np.bincount(world.start(46_000, np.random.default_rng(0)), minlength=world.num_states) / 46_000
    chances = world.mdp.initial_state_dist.numpy()
    assert (np.abs(drawn - chances) <= 5 * np.sqrt(chances * (1 - chances) / 46_000) + 1e-12).all()
    assert (chances[world.kinds >= len(KNOWN)] == 0).all()
    assert (world.mdp.transitions.to_dense()[cell_number(GOAL), 0].numpy() == chances).all()


def test_a_way_by_hand():
    """Without slips: from the right edge four steps to the left lead to the depot, which pays."""
    env = gymnasium.make("cautious/Terrains-v0", slip=0.0).unwrapped
    env.reset(seed=0)
    env.state = np.array([cell_number((SIZE // 2, SIZE - 1))])
    steps = [env.step(3) for _ in range(5)]
    assert [reward for _, reward, *_ in steps] == [0.0, 0.0, 0.0, 0.0, DELIVERY]
    assert [info["delivery"] for *_, info in steps] == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert env.state[0] in env.world.parcels


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
    many = gymnasium.make_vec("cautious/Terrains-v0", num_envs=64, max_episode_steps=2)
    many.reset(seed=0)
    many.step(np.full(64, 2))
    seen, _, _, ended, _ = many.step(np.full(64, 2))
    assert ended.all()
    mask = np.arange(64) % 2 == 0
    again, _ = many.reset(options={"reset_mask": mask})
    assert (again[~mask] == seen[~mask]).all()
    assert (again[mask] != seen[mask]).any(axis=1).mean() > 0.8  # a new parcel may lie in the old cell
    assert (many.step(np.full(64, 2))[3] == ~mask).all()


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


def test_the_ordinary_optimum_pays_the_hand_worked_value():
    """No slips, all ground alike: a parcel d steps away is worth γ^d of one in the depot, which pays 5 and brings the next."""
    world = terrain_world(layout=1, slip=0.0)
    optimum = optimal_policy(world.mdp, world.state_rewards(np.zeros(world.num_kinds)))
    rows, columns = np.divmod(world.parcels, SIZE)
    later = np.mean(0.95 ** (abs(rows - SIZE // 2) + abs(columns - SIZE // 2)))
    depot = 0.05 * DELIVERY / (1 - 0.95 * later)
    assert float(optimum.expected_return) == pytest.approx(later * depot, abs=1e-12)


def test_bad_arguments_are_refused():
    for bad in ({"slip": 1.0}, {"num_unseen": 0}, {"layout": -1}):
        with pytest.raises(InvalidInputError, match=next(iter(bad)) if "layout" not in bad else "seed"):
            gymnasium.make("cautious/Terrains-v0", **bad)
    env = gymnasium.make("cautious/Terrains-v0").unwrapped
    env.reset(seed=0)
    with pytest.raises(InvalidInputError, match="0 up, 1 right"):
        env.step(5)
