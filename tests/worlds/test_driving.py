"""The driving world against hand-worked steps and independently computed check values."""

from __future__ import annotations

import copy
from collections import Counter

import numpy as np
import pytest
import torch

from cautious import optimal_policy
from cautious.errors import InvalidInputError
from cautious.ops.regret import uniform_policy
from cautious_paper.worlds.driving import DrivingWorld, driving_world
from cautious_paper.worlds.driving_picture import as_picture, as_text
from cautious_paper.worlds.driving_rules import (
    ACTIONS,
    START,
    DrivingState,
    car_moves,
    network_image,
    obstacle_moves,
    pair_features,
    step_events,
)

STATISTICS = ("speed", "collisions", "collision_speed", "lane_changes")


def speeds(world: DrivingWorld) -> torch.Tensor:
    return torch.tensor([state.speed for state in world.states])


def statistic(world: DrivingWorld, policy: torch.Tensor, name: str) -> float:
    return float(world.mdp.expected_return(policy, world.features[name]))


def reward_histogram(world: DrivingWorld) -> dict[int, int]:
    return dict(sorted(Counter(world.pair_rewards.int().tolist()).items()))


class TestCounts:
    def test_familiar(self):
        world = driving_world(novel=False, appearance_probability=0.2)
        assert (len(world.states), world.mdp.num_states * world.mdp.num_actions) == (256, 1280)
        assert world.mdp.dynamics.matrix.nnz == 2322
        assert len(world.pairs) == len(world.every_pair) == 1714
        assert torch.bincount(speeds(world)[world.pairs[:, 0]]).tolist() == [128, 396, 582, 608]
        columns = torch.tensor([state.column for state in world.states])
        assert torch.bincount(columns[world.pairs[:, 0]]).tolist() == [390, 467, 467, 390]
        what = [step_events(world.states[s], world.states[t]) for s, t in world.pairs.tolist()]
        assert (sum(o.collisions > 0 for o in what), sum(o.offroad for o in what)) == (284, 934)
        expected = {-10: 60, -9: 84, -7: 30, -6: 72, -4: 92, -3: 212, -2: 200, -1: 120, 0: 160, 1: 200, 2: 288, 3: 196}
        assert reward_histogram(world) == expected
        per_pair = np.bincount(np.diff(world.mdp.dynamics.matrix.indptr))
        assert {n: int(c) for n, c in enumerate(per_pair) if c} == {1: 902, 2: 120, 3: 120, 4: 104, 9: 20, 16: 14}

    def test_novel(self):
        world = driving_world(novel=True, appearance_probability=0.2)
        assert (len(world.states), world.mdp.num_states * world.mdp.num_actions) == (784, 3920)
        assert world.mdp.dynamics.matrix.nnz == 7680
        assert len(world.pairs) == 5674
        assert torch.bincount(speeds(world)[world.pairs[:, 0]]).tolist() == [392, 1266, 1938, 2078]
        what = [step_events(world.states[s], world.states[t]) for s, t in world.pairs.tolist()]
        counts = [
            sum(o.collisions > 0 for o in what),
            sum(o.collisions == 2 for o in what),
            sum(o.offroad for o in what),
            sum(o.collisions > 0 and not o.offroad for o in what),
        ]
        assert counts == [1202, 16, 3088, 504]
        expected = {
            -10: 232,
            -9: 156,
            -7: 112,
            -6: 132,
            -4: 378,
            -3: 992,
            -2: 908,
            -1: 486,
            0: 476,
            1: 544,
            2: 738,
            3: 520,
        }
        assert reward_histogram(world) == expected
        per_pair = np.bincount(np.diff(world.mdp.dynamics.matrix.indptr))
        assert {n: int(c) for n, c in enumerate(per_pair) if c} == {
            1: 3218,
            3: 240,
            5: 240,
            7: 168,
            9: 20,
            25: 20,
            49: 14,
        }

    @pytest.mark.parametrize(("novel", "states", "pairs", "entries"), [(False, 60, 218, 300), (True, 192, 830, 1122)])
    def test_lock_step_at_certain_appearance(self, novel, states, pairs, entries):
        world = driving_world(novel, 1.0)
        assert len(world.pairs) == pairs
        reached = world.pairs[:, 0].unique()
        assert len(reached) == states
        rows = (reached[:, None] * 5 + torch.arange(5)).flatten().numpy()
        assert int(np.diff(world.mdp.dynamics.matrix.indptr)[rows].sum()) == entries

    def test_everything_familiar_is_in_the_novel_world(self):
        familiar, novel = driving_world(False), driving_world(True)
        assert set(familiar.states) <= set(novel.states)
        named = [{(w.states[s], w.states[t]) for s, t in w.pairs.tolist()} for w in (familiar, novel)]
        assert named[0] <= named[1]
        for state, following in named[1] - named[0]:
            seen = [state.left, state.right, following.left, following.right]
            assert any(obstacle is not None and obstacle[1] in (1, 2) for obstacle in seen)


class TestSteps:
    def test_the_car(self):
        assert car_moves(1, 2, "accelerate") == (1, 3, 2)
        assert car_moves(1, 3, "accelerate") == (1, 3, 3)
        assert car_moves(1, 0, "brake") == (1, 0, 0)
        assert car_moves(1, 2, "cruise") == (1, 2, 2)
        assert car_moves(1, 2, "right") == (2, 2, 1)
        assert car_moves(1, 1, "left") == (0, 1, 0)
        assert car_moves(0, 2, "left") == (0, 2, 2)  # a wall: as cruising
        assert car_moves(3, 1, "right") == (3, 1, 1)
        assert car_moves(2, 0, "left") == (2, 0, 0)  # no momentum

    def test_obstacles_come_nearer_and_leave(self):
        assert list(obstacle_moves((0, 1), 2, (0, 1), 0.2)) == [((2, 1), 1.0)]
        assert list(obstacle_moves((1, 1), 2, (0, 1), 0.2)) == [(None, 1.0)]

    def test_one_hidden_obstacle_at_distance_three(self):
        chances = dict(obstacle_moves(None, 3, (0, 1), 0.2))
        expected = {(2, 0): 0.1, (2, 1): 0.1, (1, 0): 0.08, (1, 1): 0.08, (0, 0): 0.064, (0, 1): 0.064, None: 0.512}
        assert chances == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("state", "action", "reward", "collisions", "successors", "largest"),
        [
            ((2, 3, None, None), "cruise", 2.4, 0.1, 49, 0.8**6),
            ((2, 1, None, (1, 2)), "cruise", -1, 1, 3, 0.8),
            ((1, 2, (0, 1), None), "right", 1, 0, 3, 0.8),
            ((1, 3, (2, 1), (1, 2)), "right", -4, 1, 1, 1),
            ((1, 3, (1, 1), (0, 2)), "right", -10, 2, 1, 1),
            ((0, 2, (2, 0), None), "left", -2, 0, 5, 0.64),
            ((2, 1, (2, 1), None), "left", -2, 1, 1, 1),
            ((2, 0, None, None), "left", 0, 0, 1, 1),
        ],
    )
    def test_single_steps(self, state, action, reward, collisions, successors, largest):
        world = driving_world(True, 0.2)
        place = world.index(state), ACTIONS.index(action)
        assert float(world.features["reward"][place]) == pytest.approx(reward, abs=1e-12)
        assert float(world.features["collisions"][place]) == pytest.approx(collisions, abs=1e-12)
        row = world.mdp.dynamics.matrix[[place[0] * 5 + place[1]]]
        assert row.nnz == successors
        assert row.max() == pytest.approx(largest, abs=1e-12)

    def test_collisions_by_hand(self):
        def hits(state, following):
            return step_events(DrivingState(*state), DrivingState(*following)).collisions

        assert hits((2, 2, None, (1, 2)), (2, 2, None, None)) == 1  # passed and gone
        assert hits((2, 2, None, (0, 2)), (2, 2, None, (2, 2))) == 1  # reached
        assert hits((2, 1, None, (2, 2)), (2, 1, None, None)) == 0  # was under the car already
        assert hits((2, 3, None, None), (2, 3, None, (2, 2))) == 1  # out of the dark, right there
        assert hits((2, 3, None, None), (2, 3, None, (2, 3))) == 0
        assert hits((1, 1, None, (2, 2)), (2, 1, None, (2, 2))) == 1  # alongside, in the target lane
        assert hits((2, 1, (1, 1), None), (2, 1, (2, 1), None)) == 0  # passing in another lane is free
        assert hits((2, 0, None, (2, 2)), (2, 0, None, (2, 2))) == 0  # a standing car hits nothing


class TestValues:
    @pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
    def test_familiar_optimum(self, p):
        world = driving_world(False, p)
        best = optimal_policy(world.mdp, world.features["reward"])
        assert float(best.expected_return) == pytest.approx(2.940399, abs=5e-7)
        values = best.action_values.max(dim=-1).values
        summary = [float(values.mean()), float(values.min()), float(values.max())]
        assert summary == pytest.approx([2.941524, 2.87, 3.0], abs=5e-7)
        assert statistic(world, best.policy, "speed") == pytest.approx(2.940399, abs=5e-7)
        assert statistic(world, best.policy, "collisions") == statistic(world, best.policy, "offroad") == 0
        start = best.action_values[world.index(START)]
        assert start.tolist() == pytest.approx([2.940399, 2.910995, 2.910995, 2.910995, 2.910995], abs=5e-7)
        ties = (best.action_values > values[:, None] - 1e-9).sum(dim=-1)
        assert int((ties == 1).sum()) == 224
        expected = {0: 2.940399, 1: 2.9701, 2: 2.99, 3: 3.0}
        for state, value in zip(world.states, values.tolist(), strict=True):
            if state.column in (1, 2):
                assert value == pytest.approx(expected[state.speed], abs=5e-7)

    # p: v*, mean over states, then speed, collisions, collision speed, lane changes of the optimal policy,
    # then value, collisions, collision speed of never steering, then the value of the uniform policy.
    NOVEL = {  # noqa: RUF012
        0.05: (2.576208, 2.565595, 2.940162, 0.060623, 0.181858, 0.000239, 2.575802, 0.060848, 0.182298, -0.622824),
        0.1: (2.324297, 2.313067, 2.939938, 0.098486, 0.295411, 0.024819, 2.317079, 0.104050, 0.311660, -0.736808),
        0.2: (2.011487, 1.999170, 2.939526, 0.133121, 0.399188, 0.129662, 1.980604, 0.160293, 0.479897, -0.891974),
        0.3: (1.847048, 1.833938, 2.937303, 0.156965, 0.470397, 0.149462, 1.779230, 0.194018, 0.580584, -0.991838),
        0.5: (1.670907, 1.655353, 2.928506, 0.185602, 0.553718, 0.150163, 1.572634, 0.228778, 0.683882, -1.110254),
        0.8: (1.590257, 1.576890, None, 0.127532, 0.346909, None, 1.479514, 0.244788, 0.730443, -1.195765),
        1.0: (1.479209, 1.566282, 2.134261, 0.082497, 0.164994, 0.325064, 1.472662, 0.246256, 0.733868, -1.223880),
    }

    @pytest.mark.parametrize("p", NOVEL)
    def test_novel_optimum(self, p):
        world, expected = driving_world(True, p), self.NOVEL[p]
        best = optimal_policy(world.mdp, world.features["reward"])
        found = [float(best.expected_return), float(best.action_values.max(dim=-1).values.mean())]
        found += [statistic(world, best.policy, name) for name in STATISTICS]
        blind = torch.zeros_like(best.policy)
        blind[:, ACTIONS.index("accelerate")] = 1
        found += [statistic(world, blind, name) for name in ("reward", "collisions", "collision_speed")]
        found.append(statistic(world, uniform_policy(784, 5), "reward"))
        for ours, theirs in zip(found, expected, strict=True):
            assert theirs is None or ours == pytest.approx(theirs, abs=6e-7)
        assert statistic(world, best.policy, "offroad") == pytest.approx(0, abs=1e-12)

    def test_where_optimal_policies_tie_their_speed_is_a_range(self):
        # At p = 0.8 braking and cruising tie in 28 states; the slowest and the fastest optimal policy bracket the rest.
        world = driving_world(True, 0.8)
        best = optimal_policy(world.mdp, world.features["reward"])
        tied = best.action_values >= best.action_values.max(dim=-1, keepdim=True).values - 1e-9
        highest = 4 - tied.flip(-1).to(torch.uint8).argmax(dim=-1)
        fastest = torch.nn.functional.one_hot(highest, 5).double()
        slow, fast = (statistic(world, policy, "speed") for policy in (best.policy, fastest))
        assert (slow, fast) == pytest.approx((2.612376, 2.632253), abs=1e-6)
        assert slow < 2.623784 < fast
        assert statistic(world, fastest, "reward") == pytest.approx(1.590257, abs=6e-7)

    def test_uniform_policy_all_statistics(self):
        names = ("speed", "distance", "collisions", "collision_speed", "offroad", "offroad_spaces", "lane_changes")
        expected = {
            False: (1.383718, 1.168743, 0.085956, 0.200019, 0.529546, 0.817990, 0.214975),
            True: (1.383718, 1.168743, 0.090728, 0.212369, 0.529546, 0.817990, 0.214975),
        }
        for novel, values in expected.items():
            world = driving_world(novel, 0.2)
            policy = uniform_policy(len(world.states), 5)
            found = [statistic(world, policy, name) for name in names]
            assert found == pytest.approx(values, abs=6e-7)
        rewards = {0.1: -0.721563, 0.2: -0.867273, 0.5: -1.070779}
        for p, value in rewards.items():
            assert statistic(driving_world(False, p), uniform_policy(256, 5), "reward") == pytest.approx(
                value, abs=6e-7
            )


class TestProperties:
    def test_left_and_right_are_alike(self):
        world = driving_world(True, 0.3)
        values = optimal_policy(world.mdp, world.features["reward"]).action_values.max(dim=-1).values

        def mirrored(obstacle):
            return None if obstacle is None else (obstacle[0], 3 - obstacle[1])

        for index, state in enumerate(world.states):
            other = (3 - state.column, state.speed, mirrored(state.right), mirrored(state.left))
            assert abs(float(values[index] - values[world.index(other)])) < 1e-12

    def test_every_state_can_be_reached(self):
        for novel in (False, True):
            world = driving_world(novel, 0.3)
            assert len(world.pairs[:, 0].unique()) == len(world.states)

    def test_the_reward_is_a_function_of_two_states_and_zero_at_a_standstill(self):
        world = driving_world(True, 0.3)
        assert len(world.every_pair.unique(dim=0)) == len(world.every_pair)
        still = speeds(world)[world.pairs[:, 0]] == 0
        assert bool((world.pair_rewards[still] == 0).all())
        assert (int(world.pair_rewards.min()), int(world.pair_rewards.max())) == (-10, 3)
        by_pair = torch.tensor([pair_features(world.states[s], world.states[t])["reward"] for s, t in world.every_pair])
        assert torch.allclose(world.expected(by_pair.double()), world.features["reward"], rtol=0, atol=1e-12)

    @pytest.mark.parametrize("p", [0, -0.1, 1.1, float("nan"), "often", None])
    def test_an_impossible_appearance_probability_is_refused(self, p):
        with pytest.raises(InvalidInputError, match="appearance_probability"):
            driving_world(True, p)

    @pytest.mark.parametrize(
        "state",
        [(4, 0, None, None), (2, 4, None, None), (2, 0, (0, 2), None), (2, 0, None, (3, 3)), (2, 0), "start", None],
    )
    def test_what_is_no_state_is_refused(self, state):
        with pytest.raises(InvalidInputError, match="not a state of the novel driving world"):
            driving_world(True).index(state)

    def test_an_unknown_action_is_refused(self):
        with pytest.raises(InvalidInputError, match="'fly' is not known; choose one of accelerate"):
            car_moves(1, 1, "fly")


def test_what_the_network_sees():
    image = network_image(DrivingState(1, 2, (2, 1), (0, 3)))  # the car on an obstacle, another far right
    pavement, ditch, car, obstacle = image
    assert ditch.tolist() == [[1, 0, 0, 1]] * 3
    assert car.nonzero().tolist() == [[2, 1]]
    assert obstacle.nonzero().tolist() == [[0, 3], [2, 1]]
    assert pavement.tolist() == [[0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0]]


def test_pictures():
    state = DrivingState(2, 2, (0, 1), (2, 2))
    assert as_text(state) == "~#.~ \n~..~|\n~.X~|"
    picture = as_picture(state, size=8)
    assert picture.shape == (24, 40, 3)
    assert tuple(picture[4, 12]) == (214, 48, 49)
    assert tuple(picture[20, 36]) == (46, 184, 92)


def test_what_one_does_to_its_tensors_is_not_seen_by_another():
    for name in ("pairs", "pair_rewards", "every_pair"):
        getattr(driving_world(False), name).zero_()
        assert getattr(driving_world(False), name).abs().sum() > 0
    driving_world(False).features["reward"].zero_()
    assert driving_world(False).features["reward"].abs().sum() > 0
    driving_world(False).features.clear()
    assert "reward" in copy.deepcopy(driving_world(False)).features
