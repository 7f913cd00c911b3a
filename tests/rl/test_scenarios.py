"""ScenarioPPO where the answer is known by hand, and what it does with environments and levels that cannot serve."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv

from cautious import (
    BadFileError,
    FewModelsWarning,
    InvalidInputError,
    KofNPPO,
    ScenarioEnv,
    ScenarioPPO,
    StepHistory,
    UncertainMDP,
)
from cautious.rl.scenarios import ScenarioVecEnv

SMALL: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 128,
    "n_epochs": 4,
    "learning_rate": 1e-2,
    "gamma": 0.8,
    "seed": 0,
    "device": "cpu",
}
PAYS = np.array([[0.2, 1.0]] * 15 + [[0.2, -0.4]] * 5)
"""Twenty scenarios of one state: action 0 pays 0.2 in all; action 1 pays 1 in fifteen and -0.4 in five, 0.65 on average."""


class Arms(gymnasium.Env[Any, Any]):
    """One state; what an action pays depends on the hidden scenario, and the episode may end after some steps."""

    def __init__(self, pays: Any = PAYS, ends_after: Any = None, as_dict: bool = False, heeds: bool = True) -> None:
        self.pays, self.heeds = np.asarray(pays), heeds
        self.ends_after = np.full(len(self.pays), 10**9) if ends_after is None else np.asarray(ends_after)
        place = spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = spaces.Dict({"place": place}) if as_dict else place
        self.action_space = spaces.Discrete(self.pays.shape[1])

    def _shown(self) -> Any:
        place = np.zeros(2, dtype=np.float32)
        return {"place": place} if isinstance(self.observation_space, spaces.Dict) else place

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.scenario = (options or {}).get("scenario", 0) if self.heeds else 0
        self.steps = 0
        return self._shown(), {}

    def step(self, action):
        self.steps += 1
        paid = float(self.pays[self.scenario, int(action)])
        return self._shown(), paid, bool(self.steps >= self.ends_after[self.scenario]), False, {}


def copies(make: Any, num_envs: int = 20) -> SyncVectorEnv:
    return SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


def agent_for(
    level: str, make: Any = Arms, num_scenarios: int = 20, num_envs: int = 20, **settings: Any
) -> ScenarioPPO:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewModelsWarning)
        return ScenarioPPO("MlpPolicy", copies(make, num_envs), num_scenarios, level, **{**SMALL, **settings})


class TestAnswersKnownByHand:
    def test_the_worst_scenarios_make_it_careful(self):
        agent = agent_for("5-of-20").learn(3200)
        assert agent.probabilities(np.zeros((1, 2)))[0, 0] > 0.95
        value = agent.value(40, seed=0)
        assert value.lower <= 0.2 <= value.upper + 0.04
        assert value.estimate == pytest.approx(0.2, abs=0.04)

    def test_the_mean_of_the_scenarios_is_plain_domain_randomisation(self):
        agent = agent_for("20-of-20", even_share=1.0).learn(3200)
        assert agent.probabilities(np.zeros((1, 2)))[0, 1] > 0.95
        assert agent.standings.weights == pytest.approx(np.full(20, 0.05))

    def test_returns_are_those_of_each_scenario(self):
        """A policy that takes action 1 for sure; scenario m ends after m + 1 steps: 1 - γ^(m + 1), normalised."""
        ends = np.arange(1, 21)
        agent = agent_for("5-of-20", lambda: Arms(np.ones((20, 2)), ends), smoothing=0.05)
        expected = 1 - 0.8**ends
        found = agent.returns(40, seed=0)
        assert found.estimate == pytest.approx(expected)
        assert found.num_episodes == 2  # of each scenario
        for _ in range(30):
            agent.collect_rollouts(agent.env, _no_callback(agent), agent.rollout_buffer, agent.n_steps)
        errors = agent.standings.returns - expected  # of some hundred episodes each
        assert np.abs(errors).max() < 0.1
        assert abs(errors.mean()) < 0.02

    def test_without_random_stops_too(self):
        ends = np.arange(1, 21)
        agent = agent_for("5-of-20", lambda: Arms(np.ones((20, 2)), ends), random_stops=False)
        for _ in range(10):
            agent.collect_rollouts(agent.env, _no_callback(agent), agent.rollout_buffer, agent.n_steps)
        assert agent.standings.returns == pytest.approx(1 - 0.8**ends, abs=0.02)

    def test_weights_undo_the_choice_of_scenarios(self):
        """Factors of a scenario's episodes add up to its weight, 1 / M each, however often it was played."""
        agent = agent_for("20-of-20")
        env = agent.vec_env
        assert isinstance(env, ScenarioVecEnv)
        counted = np.zeros(20)
        for _ in range(60):
            env.shares = np.arange(1, 21) / 210
            agent._last_obs = None
            agent._start_over()
            with agent._recorder.recording():
                for _ in range(10):
                    agent.env.step(np.zeros(20, dtype=int))
            steps = agent._recorder.take()
            factors = agent.step_weights(steps, np.full(20, 0.05)) * (steps.ages == 0)
            counted += np.bincount(steps.observations["scenario"], factors, 20)
        assert counted / counted.sum() == pytest.approx(np.full(20, 0.05), abs=0.01)

    def test_the_certificate_has_the_tables_answer(self):
        world = UncertainMDP(np.ones((20, 1, 2, 1)), [1.0], 0.8)
        rewards = torch.from_numpy(PAYS)[:, None]
        agent = agent_for("5-of-20", even_share=0.5)
        with pytest.warns(FewModelsWarning):
            found = agent.certificate(world, rewards, np.zeros((1, 2)))
        risky = float(agent.probabilities(np.zeros((1, 2)))[0, 1])
        assert float(found.lower) == pytest.approx(0.2 - 0.6 * risky)  # the five worst: 0.2 - 0.6 p
        assert float(found.upper) == pytest.approx(0.2)


class TestScenarioEnv:
    def test_environments_become_one(self):
        env = ScenarioEnv([Arms(PAYS[m : m + 1]) for m in (0, 19)])
        check_env(env)
        for scenario, paid in ((0, 1.0), (1, -0.4)):
            _, info = env.reset(seed=0, options={"scenario": scenario})
            assert info["scenario"] == scenario
            assert env.step(1)[1] == paid

    def test_without_the_option_a_scenario_is_drawn(self):
        env = ScenarioEnv(lambda m: Arms(PAYS[m : m + 1]), 20)
        drawn = [env.reset(seed=0)[1]["scenario"]] + [env.reset()[1]["scenario"] for _ in range(199)]
        again = [env.reset(seed=0)[1]["scenario"]] + [env.reset()[1]["scenario"] for _ in range(199)]
        assert drawn == again
        assert set(drawn) == set(range(20))

    def test_a_list_of_environments_is_learned_in(self):
        agent = ScenarioPPO(
            "MlpPolicy", [Arms(row[None]) for row in PAYS], 20, "20-of-20", **{**SMALL, "batch_size": 32}
        )
        assert agent.learn(64).num_timesteps == 64


class TestAsStableBaselines:
    def test_observations_need_not_say_the_scenario(self):
        agent = agent_for("20-of-20").learn(640)
        one, _ = agent.predict(np.zeros(2), deterministic=True)
        several, _ = agent.predict(np.zeros((3, 2)), deterministic=True)
        assert one.shape == ()
        assert several.shape == (3,)
        mean, _ = evaluate_policy(agent, gymnasium.wrappers.TimeLimit(Arms(), 5), 2, warn=False)
        assert np.isfinite(mean)

    def test_the_policy_does_not_see_the_scenario_and_the_critic_does(self):
        agent = agent_for("5-of-20").learn(640)
        shown = {"scenario": np.arange(20), "observation": np.zeros((20, 2), dtype=np.float32)}
        probabilities = agent.shown_probabilities(shown)
        assert (probabilities == probabilities[0]).all()
        with torch.no_grad():
            values = agent.policy.predict_values(agent.policy.obs_to_tensor(shown)[0])
        assert float(values.std()) > 0

    def test_continuous_actions_and_several_starts_serve(self):
        env = ScenarioEnv(lambda m: gymnasium.make("Pendulum-v1", g=8 + 0.1 * m), 20)
        settings = {**SMALL, "n_steps": 64, "batch_size": 64, "num_starts": 2}
        agent = ScenarioPPO("MlpPolicy", env, 20, "20-of-20", **settings).learn(128)
        assert len(agent.start_values) == 2
        assert agent.predict(np.zeros(3))[0].shape == (1,)
        assert agent.value(40, horizon=5, seed=1) == agent.value(40, horizon=5, seed=1)

    def test_held_out_scenarios_are_another_environment(self):
        agent = agent_for("5-of-20")
        agent.set_env(copies(lambda: Arms(PAYS + 3)))
        assert agent.value(40, seed=0).estimate > 2
        assert agent.learn(640).standings.returns.min() > 2

    def test_dictionaries_serve(self):
        agent = agent_for("20-of-20", lambda: Arms(as_dict=True)).learn(640)
        assert agent.probabilities({"place": np.zeros((4, 2))}).shape == (4, 2)

    def test_a_saved_agent_decides_the_same(self, tmp_path):
        agent = agent_for("5-of-20", even_share=0.5).learn(640)
        agent.save(tmp_path / "agent")
        with pytest.warns(FewModelsWarning):
            again = ScenarioPPO.load(tmp_path / "agent", copies(Arms), 20)
        there = np.random.default_rng(0).normal(size=(5, 2))
        assert torch.equal(again.probabilities(there), agent.probabilities(there))
        assert again.even_share == 0.5
        assert again.standings.weights == pytest.approx(agent.standings.weights)
        assert again.value(40, seed=3) == agent.value(40, seed=3)
        with pytest.raises(InvalidInputError, match="ScenarioPPO"):
            KofNPPO.load(tmp_path / "agent", Arms(), np.zeros((20, 1, 2)))

    def test_a_run_that_was_stopped_ends_with_the_same_bits(self, tmp_path):
        def learned(folder: str, stop_after: int | None = None) -> ScenarioPPO:
            agent = agent_for("5-of-20")
            pieces = _Stop(stop_after) if stop_after else None
            with contextlib.suppress(KeyboardInterrupt):
                agent.learn(2560, pieces, checkpoint_dir=tmp_path / folder, checkpoint_every=640)
            return agent

        whole = learned("whole")
        learned("stopped", stop_after=1500)
        resumed = learned("stopped")
        for name, tensor in whole.policy.state_dict().items():
            assert torch.equal(tensor, resumed.policy.state_dict()[name]), name

    def test_equal_seeds_learn_the_same(self):
        one, other = (agent_for("5-of-20").learn(1280) for _ in range(2))
        assert torch.equal(one.probabilities(np.zeros((1, 2))), other.probabilities(np.zeros((1, 2))))


class TestStepHistory:
    def test_what_was_seen_and_done_is_in_the_observation(self):
        env = StepHistory(gymnasium.make("FrozenLake-v1", is_slippery=False), 2)
        check_env(env)
        first, _ = env.reset(seed=0)
        assert np.flatnonzero(first).tolist() == [0]  # place 0, and nothing before
        second = env.step(2)[0]  # to the right: place 1
        assert np.flatnonzero(second).tolist() == [1, 16 + 0, 16 + 16 + 2]
        env.step(0)
        third = env.step(1)[0]  # left, down: places 0 and 4
        assert np.flatnonzero(third).tolist() == [4, 16 + 0, 16 + 16 + 1, 36 + 1, 36 + 16 + 0]
        assert np.flatnonzero(env.reset()[0]).tolist() == [0]

    def test_memory_pays_where_the_past_tells_the_scenario(self):
        """The arm that paid pays again: one that cannot remember has 1/2, one that keeps or leaves an arm has more."""

        class Signs(Arms):
            def step(self, action):
                shown, paid, ended, cut, info = super().step(action)
                return shown + np.float32(paid), paid, ended, cut, info

        pays = np.array([[1.0, 0.0], [0.0, 1.0]] * 10)
        blind = agent_for("20-of-20", lambda: Arms(pays))
        settings = {"n_steps": 64, "learning_rate": lambda left: 5e-3 * left}
        remembers = agent_for("20-of-20", lambda: StepHistory(Signs(pays), 1), **settings).learn(10_000)
        assert blind.value(400, seed=0).upper == pytest.approx(0.5, abs=0.15)
        assert remembers.value(400, seed=0).estimate > 0.8  # the best has 0.1 + 0.8 = 0.9


class TestBadInput:
    def test_few_scenarios_in_the_tail_are_said(self):
        with pytest.warns(FewModelsWarning, match="1-of-20 over 20 scenarios looks at about 1 of them"):
            ScenarioPPO("MlpPolicy", copies(Arms), 20, "1-of-20", **SMALL)

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"num_scenarios": 1}, "num_scenarios=1"),
            ({"num_scenarios": 0}, "num_scenarios=0"),
            ({"level": "1-of-30"}, "n=30 exceeds the 20 models"),
            ({"even_share": 0}, r"even_share=0 must lie in \(0, 1\]"),
            ({"policy": "LstmPolicy"}, "pass one of 'MlpPolicy'"),
            ({"env": 3}, "pass the id of a Gymnasium environment"),
            ({"env": [Arms(PAYS[:1])] * 5}, "num_scenarios=20, but the environment has 5"),
            ({"env": DummyVecEnv([Arms])}, "passes no options to reset"),
            ({"env": Arms(heeds=False)}, "scenarios 0, 3, 5, 8, 11, 14, 16, 19 look alike for 100 steps"),
        ],
    )
    def test_what_cannot_serve_is_refused(self, change, says):
        given = {"policy": "MlpPolicy", "env": Arms(), "num_scenarios": 20, "level": "20-of-20", **SMALL, **change}
        with pytest.raises(InvalidInputError, match=says):
            ScenarioPPO(**given)

    def test_other_spaces_say_which_scenario(self):
        with pytest.raises(
            InvalidInputError, match=r"observations of scenario 1 are Dict.* those of scenario 0 are Box"
        ):
            ScenarioEnv([Arms(), Arms(as_dict=True)])
        late = ScenarioEnv(lambda m: Arms(np.zeros((1, 2 + (m == 7)))), 20)
        with pytest.raises(InvalidInputError, match=r"actions of scenario 7 are Discrete\(3\)"):
            late.reset(options={"scenario": 7})
        with pytest.raises(InvalidInputError, match="scenario 20; there are 20"):
            late.reset(options={"scenario": 20})

    def test_a_scenario_that_is_shown_is_not_hidden(self):
        class Shows(Arms):
            def __init__(self) -> None:
                super().__init__(as_dict=True)
                self.observation_space = spaces.Dict({"scenario": spaces.Box(-1, 1, (2,), np.float32)})

        with pytest.raises(InvalidInputError, match="is not hidden"):
            ScenarioPPO("MlpPolicy", Shows(), 20, "20-of-20", **SMALL)

    def test_an_environment_that_says_another_scenario_is_refused(self):
        class Lies(Arms):
            def reset(self, *, seed=None, options=None):
                shown, _ = super().reset(seed=seed, options=options)
                return shown, {"scenario": 0}

        with pytest.raises(InvalidInputError, match=r"was asked for scenario 3, and says that it plays \[0\]"):
            ScenarioPPO("MlpPolicy", Lies(), 20, "20-of-20", **SMALL)

    def test_no_gap_is_looked_for(self):
        with pytest.raises(InvalidInputError, match="certificate"):
            agent_for("20-of-20").gap_found(100)

    def test_a_damaged_file_is_refused(self, tmp_path):
        agent = agent_for("20-of-20")
        agent.save(tmp_path / "agent")
        file = tmp_path / "agent" / "agent.json"
        file.write_text(file.read_text().replace('"even_share": 0.25', '"even_share": 2'))
        with pytest.raises(BadFileError):
            ScenarioPPO.load(tmp_path / "agent", copies(Arms), 20)


class _Stop:
    """A callback that stops a run as an interrupt would, after some steps."""

    def __new__(cls, after: int) -> Any:
        from stable_baselines3.common.callbacks import BaseCallback

        class Stop(BaseCallback):
            def _on_step(self) -> bool:
                if self.num_timesteps >= after:
                    raise KeyboardInterrupt
                return True

        return Stop()


def _no_callback(agent: ScenarioPPO) -> Any:
    """What `collect_rollouts` wants where nothing is to be called."""
    if agent._last_obs is None:
        agent._setup_learn(1)
    return agent._init_callback(None)
