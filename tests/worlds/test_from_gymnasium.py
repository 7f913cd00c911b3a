"""Models of Gymnasium environments: exact where they offer a table, estimated where not."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
import torch

from cautious import CautiousPolicy, Solution, TabularMDP, driving_world, optimal_policy, solve_mdp
from cautious.errors import CoverageWarning, InvalidInputError
from cautious.mdp.coverage import FEW
from cautious.mdp.from_gymnasium import read_model


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


def test_continuous_spaces_are_refused_with_the_ways_out():
    with pytest.raises(InvalidInputError, match=r"discrete.*DiscretizeObservation.*KofNPPO.*CautiousPolicy"):
        TabularMDP.from_gymnasium(gymnasium.make("CartPole-v1"), num_steps=10)
    with pytest.raises(InvalidInputError, match=r"its actions are Box.*DiscretizeAction"):
        TabularMDP.from_gymnasium(gymnasium.make("Pendulum-v1"), num_steps=10)


class Cells(gymnasium.ObservationWrapper):
    """A user's own discretising wrapper."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Discrete(5)

    def observation(self, observation):
        return min(4, int((observation[0] + 1.2) / 0.36))


def test_wrappers_are_taken_as_they_are():
    with pytest.warns(CoverageWarning, match="less often"):
        mdp = TabularMDP.from_gymnasium(Cells(gymnasium.make("MountainCar-v0")), num_steps=20)
    assert (mdp.num_states, mdp.num_actions) == (5, 3)  # no end was reached
    assert repr(mdp).endswith("estimated from 20 steps)")


class Backwards(gymnasium.ActionWrapper):
    def action(self, action):
        return 3 - action


def test_a_wrapper_that_may_change_the_world_hides_its_table():
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    turned = Backwards(lake)
    with pytest.raises(InvalidInputError, match=r"wrapper Backwards.*num_steps.*env\.unwrapped"):
        TabularMDP.from_gymnasium(turned)
    estimated = read_model(turned, num_steps=3000, seed=0).transitions.to_dense().reshape(17, 4, 17)
    exact = read_model(lake).transitions.to_dense().reshape(17, 4, 17)
    assert torch.equal(estimated[0], exact[0].flip(0))
    assert not torch.equal(estimated[0], exact[0])


def test_coverage_counts_marks_and_warns():
    with pytest.warns(CoverageWarning, match=r"never \(taken to stay where they are\).*prior=1") as caught:
        mdp = TabularMDP.from_gymnasium(Walk(), num_steps=2, seed=0)
    assert caught[0].filename == __file__  # the caller's own line
    visits = read_quietly(Walk(), 2, 0).visits
    coverage = mdp.coverage
    assert coverage.num_steps == 2
    assert torch.equal(coverage.visits[: len(visits)], visits)
    assert bool(coverage.untried.any())
    assert coverage.entered.tolist()[2:] in (
        [False],
        [False, False],
    )  # arriving there ends the episode; then the end itself
    assert torch.equal(coverage.hardly_tried, coverage.entered[:, None] & (coverage.visits < FEW))
    assert not bool((coverage.untried & (coverage.visits > 0)).any())


def read_quietly(env, num_steps, seed, **options):
    with pytest.warns(CoverageWarning):
        return read_model(env, num_steps, seed, **options)


def test_enough_tries_bring_no_warning():
    assert read_model(Walk(), num_steps=4000, seed=1).coverage.untried.sum() == 0


def test_the_prior_lets_untried_pairs_do_what_others_did_there():
    """By hand: with pseudo-counts κ, P(s'|s,a) = (n(s,a,s') + κ n(s,s')/n(s)) / (n(s,a) + κ)."""
    lake = Backwards(gymnasium.make("FrozenLake-v1", is_slippery=False))
    plain, with_prior = (read_quietly(lake, 60, 3, prior=prior) for prior in (0, 2))
    size = len(plain.initial_state_dist)
    before, after = (model.transitions.to_dense().reshape(size, 4, size) for model in (plain, with_prior))
    visits = plain.visits.double()
    assert int((visits[0] > 0).sum()) > 1
    in_state = (visits[0, :, None] * before[0]).sum(dim=0) / visits[0].sum()
    for action in range(4):
        expected = (visits[0, action] * before[0, action] + 2 * in_state) / (visits[0, action] + 2)
        assert torch.allclose(after[0, action], expected, rtol=0, atol=1e-12)
    assert torch.allclose(after.sum(dim=-1), torch.ones(size, 4).double(), rtol=0, atol=1e-12)


def test_a_policy_explores_where_random_actions_do_not_get():
    def right(state):
        return 1

    class Long(Walk):
        observation_space = gymnasium.spaces.Discrete(40)

        def step(self, action):
            self.place = min(39, self.place + 1) if action == 1 else max(0, self.place - 2)
            return self.place, 0.0, False, False, {}

    random, explored = (read_quietly(Long(), 500, 0, explore=explore).coverage for explore in (None, right))
    assert int(explored.entered.sum()) > 2 * int(random.entered.sum())
    with pytest.raises(InvalidInputError, match="explore chose action 7; there are 2"):
        read_model(Long(), 500, 0, explore=lambda state: 7)


def test_an_observation_outside_of_its_space_is_named():
    class Broken(Walk):
        def step(self, action):
            return 5, 0.0, False, False, {}

    with pytest.raises(InvalidInputError, match=r"observation 5 lies outside of Discrete\(3\)"):
        read_model(Broken(), 10)


def test_numbers_of_states_may_begin_elsewhere():
    class Shifted(Walk):
        observation_space = gymnasium.spaces.Discrete(3, start=10)
        action_space = gymnasium.spaces.Discrete(2, start=1)

        def reset(self, **options):
            return super().reset(**options)[0] + 10, {}

        def step(self, action):
            place, *rest = super().step(action - 1)
            return (place + 10, *rest)

    ours, plain = read_model(Shifted(), 4000, 1), read_model(Walk(), 4000, 1)
    assert torch.equal(ours.transitions.to_dense(), plain.transitions.to_dense())


def test_the_certificate_says_that_the_world_is_estimated(tmp_path):
    with pytest.warns(CoverageWarning):
        mdp = TabularMDP.from_gymnasium(Walk(), num_steps=9, seed=0)
    rewards = torch.rand(30, 4, 2, generator=torch.Generator().manual_seed(0))
    solution = solve_mdp(mdp, rewards, "1-of-20", num_iterations=5, sampling="exact")
    certificate = solution.certificate()
    assert certificate.estimated is mdp.coverage
    assert "about the estimated world only: estimated from 9 steps" in str(certificate)
    solution.save(tmp_path)
    again = Solution.load(tmp_path).certificate()
    assert str(again) == str(certificate)
    exact = TabularMDP(mdp.transitions, mdp.initial_state_dist, mdp.discount)
    known = solve_mdp(exact, rewards, "1-of-20", num_iterations=5, sampling="exact").certificate()
    assert known.estimated is None
    assert "estimated" not in str(known)
    assert float(known.gap) == float(certificate.gap)


def test_rewards_of_the_next_state_are_paid_where_episodes_end():
    """FrozenLake pays 1 for entering the goal, which ends the episode: its own table of expected rewards comes out."""
    lake = gymnasium.make("FrozenLake-v1")
    mdp, known = TabularMDP.from_gymnasium(lake), read_model(lake).rewards
    goal = torch.zeros(16)
    goal[15] = 1
    entering = mdp.expected_rewards(goal)
    assert torch.allclose(entering[:15], known[:15], rtol=0, atol=1e-12)
    assert entering[16].tolist() == [0, 0, 0, 0]
    assert torch.equal(mdp.expected_rewards(torch.cat([goal, torch.zeros(1)])), entering)
    of_steps = goal.expand(16, 4, 16)
    assert torch.equal(mdp.expected_rewards(of_steps), entering)
    assert torch.equal(mdp.expected_rewards(torch.stack([of_steps, 2 * of_steps]))[1], 2 * entering)


def test_a_saved_world_still_knows_its_ends(tmp_path):
    mdp = TabularMDP.from_gymnasium(gymnasium.make("FrozenLake-v1"), 0.9)
    policy = CautiousPolicy(torch.rand(20, 17, 4, generator=torch.Generator().manual_seed(0)), "1-of-20", mdp=mdp)
    policy.save(tmp_path)
    again = CautiousPolicy.load(tmp_path).mdp
    entering = torch.arange(16.0)
    assert torch.equal(again.expected_rewards(entering), mdp.expected_rewards(entering))


class Listed(gymnasium.Env):
    """Three places with a table, whose numbers begin at 10 and those of its actions at 1; does not say where it starts."""

    observation_space = gymnasium.spaces.Discrete(3, start=10)
    action_space = gymnasium.spaces.Discrete(2, start=1)

    def __init__(self, starts):
        self.starts = starts
        self.P = {
            state: {1: [(1.0, state, 0.0, False)], 2: [(1.0, min(12, state + 1), 1.0, state == 11)]}
            for state in (10, 11, 12)
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return int(self.np_random.choice(self.starts)), {}


def test_a_table_without_a_start_is_asked_by_resets():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        known = read_model(Listed([11]))  # always the same: exact, and no warning
    assert known.initial_state_dist.tolist() == [0, 1, 0, 0]
    with pytest.warns(
        CoverageWarning, match=r"no initial_state_distrib.*1,000 resets, which showed 2 states"
    ) as caught:
        mdp = TabularMDP.from_gymnasium(Listed([11, 11, 11, 12]))
    assert caught[0].filename == __file__
    assert mdp.initial_state_dist.tolist() == pytest.approx([0, 0.75, 0.25, 0], abs=0.055)  # four deviations of 0.0137
    with pytest.warns(CoverageWarning):
        assert torch.equal(read_model(Listed([11, 11, 11, 12])).initial_state_dist, mdp.initial_state_dist)
    said = Listed([11, 12])
    said.initial_state_distrib = [0.5, 0.5, 0]
    assert read_model(said).initial_state_dist.tolist() == [0.5, 0.5, 0, 0]


def test_a_table_may_count_from_elsewhere():
    model = read_model(Listed([10]))
    dense = model.transitions.to_dense().reshape(4, 2, 4)
    assert dense.argmax(dim=-1).tolist() == [[0, 1], [1, 3], [2, 2], [3, 3]]
    assert model.rewards.tolist() == [[0, 1], [0, 1], [0, 1], [0, 0]]
    assert (model.endings.pair.tolist(), model.endings.entered.tolist()) == ([3], [2])
    lacking = Listed([10])
    del lacking.P[12][2]
    with pytest.raises(InvalidInputError, match=r"P\[12\]\[2\] is missing.*start=10"):
        read_model(lacking)
