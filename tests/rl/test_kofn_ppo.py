"""KofNPPO where the answer is known, and as Stable-Baselines3's users use it."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from small_worlds import Bandit, Line, TableVectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from cautious import KofN, KofNPPO, RewardEnsemble, driving_world, solve_exact
from cautious.beliefs.belief import TableBelief
from cautious.errors import BadFileError, InvalidInputError
from cautious.rl.random_stops import RandomStops
from cautious_paper.worlds.driving_features import driving_features, state_numbers_of

SMALL = {
    "n_steps": 64,
    "batch_size": 64,
    "n_epochs": 4,
    "learning_rate": 3e-3,
    "gamma": 0.9,
    "seed": 0,
    "device": "cpu",
}
FADING = {**SMALL, "learning_rate": lambda progress: 1e-3 * progress}
TABLE = {**SMALL, "n_steps": 32, "batch_size": 128}

DOUBT = np.array([[[0.2, 1.0]], [[0.2, -0.4]]])
"""Two models of one state: action 0 pays 0.2 for sure, action 1 pays 1 or -0.4, 0.3 on average."""
HEDGE = np.array([[[0.2, 1.0, -0.4]], [[0.2, -0.4, 1.0]]])
"""Half action 1, half action 2 pays 0.3 whichever model is right: better than what is known."""


class TestAnswersKnownByHand:
    def test_the_worst_model_makes_it_careful(self):
        agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", **SMALL).learn(3000)
        assert agent.probabilities([0])[0, 0] > 0.95
        assert agent.value(20, horizon=50).estimate == pytest.approx(0.2, abs=0.03)

    def test_the_mean_of_the_models_is_the_ordinary_policy(self):
        agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "2-of-2", **SMALL).learn(3000)
        assert agent.probabilities([0])[0, 1] > 0.95

    def test_doubts_that_cancel_are_mixed(self):
        agent = KofNPPO("MlpPolicy", Bandit(3), HEDGE, "1-of-2", **FADING).learn(6000)
        policy = agent.probabilities([0])[0]
        assert float(KofN(1, 2).value(torch.from_numpy(HEDGE[:, 0]) @ policy)) > 0.22  # 0.2 is known, 0.3 the optimum

    def test_a_small_world_is_solved(self, random_problem):
        mdp, rewards = random_problem(num_states=5, num_actions=3, num_models=6)
        level = KofN(1, 3)
        settings = {**TABLE, "learning_rate": lambda progress: 3e-3 * progress}
        agent = KofNPPO("MlpPolicy", TableVectorEnv(mdp), rewards, level, **settings)
        before = agent.certificate(mdp, np.arange(5)).lower
        agent.learn(40_000)
        certificate = agent.certificate(mdp, np.arange(5))
        best = solve_exact(mdp, rewards, level)
        optimum = float(level.value(mdp.expected_return(best.policy, rewards)))
        assert certificate.lower <= optimum + 1e-9 <= certificate.upper + 2e-9
        assert float(certificate.lower - before) > 0.9 * float(optimum - before)


class TestValue:
    def test_the_bounds_hold_as_often_as_they_say(self, random_problem):
        mdp, rewards = random_problem(num_states=4, num_actions=2, num_models=5)
        agent = KofNPPO("MlpPolicy", TableVectorEnv(mdp, num_envs=20), rewards, "1-of-3", **TABLE)
        exact = float(agent.level.value(mdp.expected_return(agent.probabilities(np.arange(4)), rewards)))
        values = [agent.value(20, seed=number) for number in range(200)]
        assert sum(value.lower <= exact for value in values) >= 190
        assert sum(value.lower <= exact <= value.upper for value in values) >= 190
        assert (
            np.mean([value.upper - value.lower for value in values]) < 1.0
        )  # not by being vacuous: rewards span about 5

    def test_more_episodes_tell_more(self, random_problem):
        mdp, rewards = random_problem(num_states=4, num_actions=2, num_models=5)
        agent = KofNPPO("MlpPolicy", TableVectorEnv(mdp, num_envs=20), rewards, "1-of-3", **TABLE)
        few, many = (agent.value(number, seed=1) for number in (20, 320))
        assert many.upper - many.lower < 0.4 * (few.upper - few.lower)
        known = agent.value(320, seed=1, reward_range=(float(rewards.min()), float(rewards.max())))
        assert known.lower < many.lower <= many.upper < known.upper  # fewer assumptions, wider
        assert known.estimate == many.estimate

    def test_an_end_pays_nothing_and_a_cut_is_not_an_end(self):
        """One step pays 1, then the episode ends: (1 - γ) · 1. Cut after one step it would be worth up to 1."""
        from cautious import TabularMDP

        mdp = TabularMDP(np.array([[[0.0, 1.0]], [[0.0, 1.0]]]), [1.0, 0.0], 0.9)
        rewards = np.ones((2, 2, 1))
        ending = KofNPPO("MlpPolicy", TableVectorEnv(mdp, 4, last=1), rewards, "1-of-2", **TABLE)
        assert ending.value(4) == pytest.approx((0.1, 0.1, 0.1))
        lasting = KofNPPO("MlpPolicy", TableVectorEnv(mdp, 4), rewards, "1-of-2", **TABLE)
        rest = 0.9**66  # the default horizon; the rest may end at once
        assert lasting.value(4) == pytest.approx((1, 1 - rest, 1))
        cut = lasting.value(4, horizon=1, reward_range=(0, 1))
        assert cut.lower <= 0.1
        assert cut.upper >= 1

    def test_a_gap_that_is_there_is_found(self):
        agent = KofNPPO("MlpPolicy", Bandit(3), HEDGE, "1-of-2", **SMALL)
        found = agent.gap_found(2000, num_episodes=4)
        # The mean of both models: 0.3 for either doubtful action; a uniform policy has 0.27 at best.
        assert found.response.estimate == pytest.approx(0.3, abs=0.02)
        assert found.gap == pytest.approx(found.response.estimate - found.value.estimate)
        assert found.gap > 0


class TestAsStableBaselines:
    def test_the_environments_pass_its_own_check(self):
        check_env(gymnasium.make("cautious/Driving-v0", observation="features").unwrapped)
        check_env(RandomStops(gymnasium.make("cautious/Driving-v0").unwrapped, 0.99), skip_render_check=True)

    def test_evaluate_policy_pays_the_environments_own_reward(self):
        agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", **SMALL).learn(3000)
        mean, _ = evaluate_policy(agent, gymnasium.wrappers.TimeLimit(Bandit(), 5), 2, warn=False)
        assert mean == 0  # five times action 0
        own, _ = evaluate_policy(agent, agent.get_env(), 2, warn=False, deterministic=False)
        assert own <= 0

    def test_callbacks_see_paid_rewards_and_can_stop(self):
        seen = []

        class Watch(BaseCallback):
            def _on_rollout_end(self):
                seen.append(self.model.rollout_buffer.rewards.copy())

            def _on_step(self):
                return self.num_timesteps < 130

        agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", reward_scale=1.0, random_stops=False, **SMALL)
        agent.learn(1000, callback=Watch())
        assert agent.num_timesteps == 130
        assert len(seen) == 2
        # A point of the risk envelope of DOUBT; the environment's own reward would be -1000.
        assert (seen[0] >= -0.41).all()
        assert (seen[0] <= 1.01).all()

    def test_one_seed_gives_one_policy(self):
        def learned(seed: int) -> torch.Tensor:
            env = gymnasium.make_vec("cautious/Driving-v0", num_envs=4)
            rewards = driving_world().features["reward"].expand(3, -1, -1)
            agent = KofNPPO("MlpPolicy", env, rewards, "1-of-2", **{**SMALL, "seed": seed}).learn(512)
            return agent.probabilities(np.arange(784))

        assert torch.equal(learned(3), learned(3))
        assert not torch.equal(learned(3), learned(4))

    def test_several_starts_keep_the_best(self):
        agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", num_starts=3, **SMALL).learn(1500)
        assert len(agent.start_values) == 3
        assert agent.num_timesteps >= 1500
        assert agent.value(8).estimate == pytest.approx(max(agent.start_values), abs=0.25)

    def test_an_annealed_start_goes_from_all_models_to_the_worst(self):
        agent = KofNPPO("MlpPolicy", Bandit(), np.repeat(DOUBT, 10, axis=0), "1-of-20", **SMALL)
        agent.annealing, levels = True, []
        for remaining in (1.0, 0.75, 0.5, 0.0):
            agent._current_progress_remaining = remaining
            levels.append(agent._present_level().k)
        assert levels == [20, 4, 1, 1]


class TestBeliefs:
    def test_continuous_actions_are_paid_by_the_step(self):
        class Places:
            """Two models: far right pays 1 or -1; far left 0.5 for sure."""

            def step_rewards(self, observations, actions, following):
                assert actions.shape == (len(observations), 1)
                assert np.abs(actions).max() <= 1
                place = following[:, 0]
                right = np.maximum(place, 0)
                return np.stack([sign * right + 0.5 * np.maximum(-place, 0) for sign in (1, -1)])

        agent = KofNPPO("MlpPolicy", Line(), Places(), "1-of-2", **{**SMALL, "n_steps": 256}).learn(4000)
        action, _ = agent.predict(np.array([0.0], dtype=np.float32), deterministic=True)
        assert action[0] < -0.3
        assert agent.value(4).lower < agent.value(4).upper
        with pytest.raises(InvalidInputError, match="requires a Discrete action space"):
            agent.probabilities(np.zeros((1, 1)))

    def test_a_belief_sees_what_the_environment_shows(self):
        """Also where the network sees normalised observations, or several by name."""
        shown = []

        class Kept:
            def step_rewards(self, observations, actions, following):
                shown.append(observations)
                return np.zeros((2, len(actions)))

        env = VecNormalize(DummyVecEnv([Line, Line]), norm_reward=False)
        KofNPPO("MlpPolicy", env, Kept(), "1-of-2", **SMALL).learn(128)
        places = np.concatenate(shown)
        assert np.abs(places).max() <= 1
        assert places.std() > 0.2
        shown.clear()
        KofNPPO("MultiInputPolicy", Line(as_dict=True), Kept(), "1-of-2", **SMALL).learn(64)
        assert shown[-1]["place"].shape == (64, 1)

    def test_what_comes_after_the_last_step_is_not_the_next_episode(self):
        jumps = []

        class Kept:
            def step_rewards(self, observations, actions, following):
                jumps.append(np.abs(following - observations).max())
                return np.zeros((2, len(actions)))

        KofNPPO("MlpPolicy", DummyVecEnv([Line]), Kept(), "1-of-2", **SMALL).learn(128)
        assert max(jumps) <= 0.2 + 1e-6

    def test_features_show_the_state(self):
        for novel in (False, True):
            world = driving_world(novel=novel)
            features = driving_features(world.states)
            assert (state_numbers_of(world, features) == np.arange(len(world.states))).all()
            assert (features.sum(axis=1) == 4).all()
        with pytest.raises(InvalidInputError, match="shows no state"):
            state_numbers_of(driving_world(novel=False), features)

    def test_the_shipped_belief_about_driving_in_features(self):
        world = driving_world()
        rewards = RewardEnsemble.load("driving").rewards(world)
        belief = TableBelief(rewards, lambda features: state_numbers_of(world, features))
        env = gymnasium.make_vec("cautious/Driving-v0", num_envs=16, observation="features")
        agent = KofNPPO("MlpPolicy", env, belief, "1-of-20", **{**SMALL, "gamma": 0.99, "batch_size": 512})
        features = driving_features(world.states)

        def exact() -> float:
            return float(agent.level.value(world.mdp.expected_return(agent.probabilities(features), rewards)))

        before = exact()
        agent.learn(30_000)
        assert exact() > before + 0.5
        value = agent.value(32, seed=0)
        assert value.lower <= exact() <= value.upper


class TestFiles:
    def test_a_saved_agent_decides_and_learns_on(self, tmp_path):
        agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", policy_kwargs={"net_arch": [16, 16]}, **SMALL).learn(
            500
        )
        agent.save(tmp_path / "agent")
        again = KofNPPO.load(tmp_path / "agent", Bandit(), DOUBT)
        assert torch.equal(again.probabilities([0]), agent.probabilities([0]))
        assert (str(again.level), again.gamma, again.n_steps) == ("1-of-2", 0.9, 64)
        assert (again.standings.weights == agent.standings.weights).all()
        again.learn(2500, reset_num_timesteps=False)
        assert again.num_timesteps > 2500
        assert again.probabilities([0])[0, 0] > 0.9
        agent.save(tmp_path / "agent")  # over the first
        assert len(list((tmp_path / "agent").iterdir())) == 2

    def test_schedules_end_at_zero_and_a_file_has_where_they_begin(self, tmp_path):
        rates = []
        options = {**SMALL, "learning_rate": lambda progress: rates.append(progress) or 1e-3 * progress}
        agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", ent_coef=lambda progress: 0.1 * progress, **options)
        agent.learn(100)  # two rollouts of 64
        assert min(rates) == 0
        assert agent.ent_coef == 0
        agent.save(tmp_path)
        again = KofNPPO.load(tmp_path, Bandit(), DOUBT)
        assert (again.learning_rate, again.ent_coef) == (1e-3, 0.1)

    def test_what_a_file_cannot_hold_is_asked_for(self, tmp_path):
        options = {"policy_kwargs": {"activation_fn": torch.nn.ReLU}}
        agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", **options, **SMALL)
        agent.save(tmp_path)
        with pytest.raises(InvalidInputError, match="activation_fn"):
            KofNPPO.load(tmp_path, Bandit(), DOUBT)
        again = KofNPPO.load(tmp_path, Bandit(), DOUBT, **options)
        assert torch.equal(again.probabilities([0]), agent.probabilities([0]))

    def test_damaged_and_other_files_are_refused(self, tmp_path):
        agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", **SMALL)
        agent.save(tmp_path)
        with pytest.raises(InvalidInputError, match=r"Discrete\(3\)"):
            KofNPPO.load(tmp_path, Bandit(3), HEDGE)
        weights = next(tmp_path.glob("weights-*"))
        content = bytearray(weights.read_bytes())
        content[-5] ^= 255
        weights.write_bytes(content)
        with pytest.raises(BadFileError, match="checksum"):
            KofNPPO.load(tmp_path, Bandit(), DOUBT)


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"belief": np.zeros((2, 1, 3))}, "A=2"),
            ({"belief": np.full((2, 1, 2), np.nan)}, "finite"),
            ({"belief": 3}, r"rewards\(observations\)"),
            ({"level": "1-of-3"}, "exceeds the 2 models"),
            ({"level": "most"}, "1-of-20"),
            ({"gamma": 1.0}, "gamma"),
            ({"smoothing": 0}, "smoothing"),
            ({"reward_scale": -1}, "reward_scale"),
            ({"num_starts": 0}, "num_starts"),
            ({"env": 7}, "Gymnasium"),
            ({"env": Line()}, "step_rewards"),
            ({"env": gymnasium.vector.SyncVectorEnv([Bandit])}, "AutoresetMode.DISABLED"),
        ],
    )
    def test_it_is_named(self, change, message):
        given = {"env": Bandit(), "belief": DOUBT, "level": "1-of-2", **SMALL, **change}
        env, belief, level = (given.pop(name) for name in ("env", "belief", "level"))
        with pytest.raises(InvalidInputError, match=message):
            KofNPPO("MlpPolicy", env, belief, level, **given)

    def test_rewards_that_break_on_the_way(self):
        class Breaks:
            calls = 0

            def rewards(self, observations):
                self.calls += 1
                return np.full((2, len(observations), 2), np.nan if self.calls > 1 else 0.0)

        agent = KofNPPO("MlpPolicy", Bandit(), Breaks(), "1-of-2", **SMALL)
        with pytest.raises(InvalidInputError, match="not finite"):
            agent.learn(64)

    def test_arguments_of_value(self):
        agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", **SMALL)
        for options, message in (
            ({"num_episodes": 1}, "num_episodes"),
            ({"confidence": 1.0}, "confidence"),
            ({"horizon": 0}, "horizon"),
            ({"num_episodes": 2, "reward_range": (0.5, 1)}, "a model paid"),
            ({"num_episodes": 2, "reward_range": 3}, "two numbers"),
        ):
            with pytest.raises(InvalidInputError, match=message):
                agent.value(**options)
