"""The wide road: at the paper's sizes it is the driving world; its size is counted; its environments."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import stable_baselines3.common.env_checker
from gymnasium.utils.env_checker import check_env

import cautious_paper.worlds  # noqa: F401  (registers the ids)
from cautious.errors import InvalidInputError
from cautious_paper.worlds.driving import driving_world
from cautious_paper.worlds.driving_rules import ACTIONS, DrivingState, pair_features
from cautious_paper.worlds.wide_driving import HIDDEN, WideDriving


def paper_sizes(novel: bool = True, probability: float = 0.5) -> WideDriving:
    return WideDriving(novel, probability, num_lanes=2, num_rows=3, obstacles_per_half=1)


def as_row(state: DrivingState) -> list[int]:
    places = [(HIDDEN, 0) if obstacle is None else obstacle for obstacle in (state.left, state.right)]
    return [state.column, state.speed, *(row for row, _ in places), *(column for _, column in places)]


def as_state(row: np.ndarray) -> DrivingState:
    column, speed, *places = (int(number) for number in row)
    left, right = ((None if places[i] == HIDDEN else (places[i], places[i + 2])) for i in (0, 1))
    return DrivingState(column, speed, left, right)


@pytest.mark.parametrize(("novel", "count"), [(True, 784), (False, 256)])
def test_at_the_papers_sizes_it_has_as_many_states(novel, count):
    assert paper_sizes(novel).num_states == count == len(driving_world(novel).states)


def test_its_states_are_too_many_for_a_table_and_counted():
    """Two interchangeable obstacles per half in one column of two rows: {hidden, 0, 1} twice, 6 pairs; 4 columns, 3 speeds."""
    assert WideDriving(novel=False, num_lanes=2, num_rows=2, obstacles_per_half=2).num_states == 4 * 3 * 6**2
    assert WideDriving().num_states >= 10**9


@pytest.mark.parametrize("novel", [True, False])
def test_at_the_papers_sizes_it_drives_by_the_same_rules(novel):
    """Every (state, action), 40 draws each: next states are possible ones, and the events are those of the scalar rules."""
    world, wide = driving_world(novel), paper_sizes(novel)
    rng = np.random.default_rng(0)
    transitions = world.mdp.transitions.to_dense().numpy()
    rows = np.repeat([as_row(state) for state in world.states], 40, axis=0)
    for action in range(len(ACTIONS)):
        following, happened = wide.step(rows, np.full(len(rows), action), rng)
        for number in range(len(rows)):
            before, after = as_state(rows[number]), as_state(following[number])
            assert transitions[world.index(before), action, world.index(after)] > 0
            events = pair_features(before, after)
            for name, values in happened.items():
                assert values[number] == events[name], (before, after, name)


def test_obstacles_appear_as_often_as_in_the_exact_world():
    world, wide, draws = driving_world(True, 0.3), paper_sizes(True, 0.3), 20_000
    state = DrivingState(2, 3, None, (0, 2))
    rows = np.repeat([as_row(state)], draws, axis=0)
    following, _ = wide.step(rows, np.full(draws, 4), np.random.default_rng(1))
    counts = np.zeros(len(world.states))
    for row, count in zip(*np.unique(following, axis=0, return_counts=True), strict=True):
        counts[world.index(as_state(row))] += count
    expected = world.mdp.transitions.to_dense()[world.index(state), 4].numpy()
    assert (np.abs(counts - draws * expected) <= 5 * np.sqrt(draws * expected * (1 - expected)) + 1e-9).all()


def test_what_is_seen_by_hand():
    wide = paper_sizes()
    seen = wide.observe(np.array([as_row(DrivingState(1, 2, (0, 1), (2, 2)))]))[0]
    speed, free, ditch, near, column, board = np.split(seen, np.cumsum([4, 9, 9, 9, 4]))
    assert speed.argmax() == 2
    assert column.argmax() == 1
    assert ditch.reshape(3, 3).tolist() == [[1, 0, 0]] * 3
    assert near.reshape(3, 3).tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert free.reshape(3, 3).tolist() == [[0, 0, 1], [0, 1, 1], [0, 1, 0]]
    assert board.reshape(3, 4).tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize("render_mode", ["ansi", "rgb_array"])
def test_it_passes_both_checks(render_mode):
    env = gymnasium.make("cautious/WideDriving-v0", render_mode=render_mode)
    check_env(env.unwrapped)
    stable_baselines3.common.env_checker.check_env(env)


def drive(seed: int) -> list[float]:
    many = gymnasium.make_vec("cautious/WideDriving-v0", num_envs=4)
    many.reset(seed=seed)
    actions = np.random.default_rng(0).integers(5, size=(200, 4))
    return [float(number) for row in actions for number in many.step(row)[1]]


def test_one_seed_gives_one_drive():
    assert drive(1) == drive(1)
    assert drive(1) != drive(2)


def test_bad_sizes_are_refused():
    for bad in ({"num_lanes": 5}, {"num_rows": 0}, {"appearance_probability": 0.0}, {"obstacles_per_half": -1}):
        with pytest.raises(InvalidInputError, match=next(iter(bad))):
            WideDriving(**bad)
