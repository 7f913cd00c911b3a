"""The places of `KofNPPO` that may be overridden, each by an answer that can be told from the default's."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from small_worlds import Bandit, Line
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from cautious import KofNPPO, LearnedMixture, RankedMixture, Steps
from cautious.errors import BadFileError, InvalidInputError, OtherRunError

SMALL = {
    "n_steps": 64,
    "batch_size": 64,
    "n_epochs": 4,
    "learning_rate": 3e-3,
    "gamma": 0.9,
    "seed": 0,
    "device": "cpu",
}
DOUBT = np.array([[[0.2, 1.0]], [[0.2, -0.4]]])
"""Two models of one state: action 0 pays 0.2 for sure, action 1 pays 1 or -0.4."""


class Hopeful:
    """Always believes the second best model, whatever the level; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def weights(self, returns, rank_weights, last):
        self.asked += 1
        assert rank_weights.tolist() in ([1, 0], [0.5, 0.5])  # the second of two starts begins with the mean
        assert (last is None) == (self.asked == 1)
        return np.eye(len(returns))[returns.argmax()]


class Counting(Hopeful):
    """The same, and a file can hold it."""

    def arrays(self):
        return {"asked": np.array([self.asked])}

    def restore(self, arrays):
        self.asked = int(arrays["asked"][0])


def bandit(kind: type[KofNPPO] = KofNPPO, **more: Any) -> KofNPPO:
    return kind("MlpPolicy", Bandit(), DOUBT, "1-of-2", **{**SMALL, **more})


class TestMixture:
    def test_ones_own_rule_decides_what_is_learned(self):
        """The default takes the sure action (`test_kofn_ppo`); the best model is for the doubtful one."""
        agent = bandit(mixture=Hopeful()).learn(2500)
        assert agent.probabilities([0])[0, 1] > 0.9
        assert agent.mixture.asked == agent.standings.num_rollouts == 40

    def test_each_start_has_a_fresh_one(self):
        given = Hopeful()
        agent = bandit(mixture=given, num_starts=2).learn(256)  # two rollouts in each
        assert given.asked == 2
        assert agent.mixture.asked == 2

    def test_what_has_no_weights_is_refused(self):
        with pytest.raises(InvalidInputError, match="mixture is a float; pass an object with weights"):
            bandit(mixture=0.5)


class TestStepRewards:
    def test_a_step_may_pay_by_what_happened(self):
        """One model believes the environment, which pays -1000 for action 1; the belief would gamble at "2-of-2"."""

        class Believing(KofNPPO):
            def step_rewards(self, steps: Steps) -> np.ndarray:
                assert set(steps.rewards[steps.actions == 1]) <= {-1000.0}
                assert set(steps.rewards[steps.actions == 0]) <= {0.0}
                return super().step_rewards(steps) + np.stack([steps.rewards, 0 * steps.rewards]) / 1000

        agent = Believing("MlpPolicy", Bandit(), DOUBT, "2-of-2", **SMALL).learn(2500)
        assert agent.probabilities([0])[0, 0] > 0.9
        assert agent.value(4).estimate == pytest.approx(0.2, abs=0.05)  # values ask the same place

    def test_steps_say_what_happened(self):
        seen: list[Steps] = []

        class Keeping(KofNPPO):
            def step_rewards(self, steps: Steps) -> np.ndarray:
                seen.append(steps)
                return super().step_rewards(steps)

        belief = np.zeros((2, 1, 2))
        envs = DummyVecEnv([lambda: gymnasium.wrappers.TimeLimit(Bandit(), 5)] * 3)
        Keeping("MlpPolicy", envs, belief, "1-of-2", **{**SMALL, "n_steps": 10, "batch_size": 30}).learn(30)
        (steps,) = seen
        assert steps.environments.tolist() == [0, 1, 2] * 10
        assert steps.ages.reshape(10, 3)[:, 1].tolist() == [0, 1, 2, 3, 4] * 2
        assert steps.ended.reshape(10, 3)[:, 1].tolist() == [False] * 4 + [True] + [False] * 4 + [True]
        assert (steps.rewards == -1000.0 * steps.actions).all()
        assert len(steps.infos) == 30
        assert all(
            ("terminal_observation" in info) == ended for info, ended in zip(steps.infos, steps.ended, strict=True)
        )


class Scenarios(KofNPPO):
    """Environment e is scenario e % 2: what model m pays counts in scenario m alone."""

    def rollout_returns(self, steps, rewards):
        mine = steps.environments % 2 == np.arange(2)[:, None]  # [M, B]
        begun = (mine & (steps.ages == 0)).sum(axis=1)
        return (1 - self.gamma) * (mine * rewards) @ self.discounts(steps), np.maximum(begun, 1)

    def paid_rewards(self, steps, rewards, weights):
        return rewards[steps.environments % 2, np.arange(len(steps.ages))]

    def step_weights(self, steps, weights):
        return 2 * weights[steps.environments % 2]


class Advantages(BaseCallback):
    """Keeps what PPO is about to learn from."""

    def __init__(self) -> None:
        super().__init__()
        self.advantages: list[np.ndarray] = []
        self.rewards: list[np.ndarray] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.advantages.append(self.model.rollout_buffer.advantages.copy())
        self.rewards.append(self.model.rollout_buffer.rewards.copy())


class TestScenarios:
    def test_a_scenario_counts_its_own_steps_and_only_bad_ones_teach(self):
        """Scenario 1's model pays less for everything: it has all the weight, and scenario 0 teaches nothing."""
        table = np.stack([np.ones((1, 2)), np.zeros((1, 2))])
        kept = Advantages()
        envs = DummyVecEnv([lambda: gymnasium.wrappers.TimeLimit(Bandit(), 8)] * 4)
        settings = {**SMALL, "reward_scale": 1.0}
        agent = Scenarios("MlpPolicy", envs, table, "1-of-2", **settings).learn(256, callback=kept)
        # Eight steps of reward one, then the episode ends: (1 - γ) Σ_{t<8} γ^t = 1 - γ^8.
        assert agent.standings.returns == pytest.approx([1 - 0.9**8, 0])
        assert agent.standings.weights.tolist() == [0, 1]
        assert (kept.advantages[0][:, [0, 2]] == 0).all()
        assert (kept.advantages[0][:, [1, 3]] != 0).all()
        # A truncated episode's last reward includes what the critic expects afterwards.
        assert (kept.rewards[0][:7] == np.array([1, 0, 1, 0])).all()

    @pytest.mark.parametrize(
        ("method", "answer", "message"),
        [
            ("step_rewards", np.zeros((3, 64)), r"Wrong.step_rewards: expected shape \[M, B\] with M=2 with B=64"),
            ("step_rewards", np.full((2, 64), np.nan), "Wrong.step_rewards: .*not finite"),
            ("rollout_returns", (np.zeros(2), np.zeros(1)), r"Wrong.rollout_returns: expected shape \[M\] with M=2"),
            ("paid_rewards", np.zeros(3), r"Wrong.paid_rewards: expected shape \[B\] with B=64"),
            ("step_weights", np.zeros((64, 1)), r"Wrong.step_weights: expected shape \[B\] with B=64"),
        ],
    )
    def test_answers_of_another_shape_are_refused_by_name(self, method, answer, message):
        kind = type("Wrong", (KofNPPO,), {method: lambda self, *arguments: answer})
        with pytest.raises(InvalidInputError, match=message):
            bandit(kind).learn(64)


class TestLogs:
    def test_what_is_learned_has_a_key_of_its_own(self, capsys):
        kept: dict[str, float] = {}

        class Watch(BaseCallback):
            def _on_step(self) -> bool:
                return True

            def _on_rollout_end(self) -> None:
                kept.update(self.model.logger.name_to_value)

        agent = bandit(mixture=RankedMixture(1.0), verbose=1).learn(64, callback=Watch())
        printed = capsys.readouterr().out
        assert "ep_rew_mean is the environment's own reward, from which nothing is learned" in printed
        assert "learned_reward" in printed
        actions = agent.rollout_buffer.actions.ravel().astype(int)
        means = DOUBT[:, 0, actions].mean(axis=1)
        assert kept["cautious/learned_reward"] == pytest.approx(means.min())
        assert kept["cautious/adversary_lag"] == pytest.approx(0, abs=1e-12)
        agent = bandit(mixture=Hopeful()).learn(64, callback=Watch())
        returns = agent.standings.returns  # all the weight is on the better of two models
        assert kept["cautious/adversary_lag"] == pytest.approx(returns.max() - returns.min())
        assert returns.max() > returns.min()
        assert capsys.readouterr().out == ""


class TestFiles:
    def test_a_mixture_that_no_file_can_hold_is_refused_before_learning(self, tmp_path):
        agent = bandit(mixture=Hopeful())
        with pytest.raises(InvalidInputError, match="a file cannot hold where a Hopeful stands; give it the methods"):
            agent.learn(64, checkpoint_dir=tmp_path)
        assert agent.num_timesteps == 0
        with pytest.raises(InvalidInputError, match="Hopeful"):
            agent.save(tmp_path / "agent")
        assert not (tmp_path / "agent").exists()

    def test_one_that_says_where_it_stands_is_kept(self, tmp_path):
        bandit(mixture=Counting()).learn(192).save(tmp_path)
        with pytest.raises(InvalidInputError, match=r"weighted by a Counting.*load\(..., mixture=Counting\(...\)\)"):
            KofNPPO.load(tmp_path, Bandit(), DOUBT)
        again = KofNPPO.load(tmp_path, Bandit(), DOUBT, mixture=Counting())
        assert again.mixture.asked == 3

        class Counted(Counting):
            def arrays(self):
                return {"asked": np.zeros(2)}

        Counted.__name__ = "Counting"
        with pytest.raises(BadFileError, match=r"state\.asked"):
            KofNPPO.load(tmp_path, Bandit(), DOUBT, mixture=Counted())

    def test_the_learned_mixture_is_kept(self, tmp_path):
        agent = bandit(mixture=LearnedMixture(0.1)).learn(192)
        agent.save(tmp_path)
        again = KofNPPO.load(tmp_path, Bandit(), DOUBT, mixture=LearnedMixture(0.1))
        assert again.mixture.centre.tolist() == agent.mixture.centre.tolist()
        assert again.learn(64).standings.weights.shape == (2,)

    def test_checkpoints_go_on_with_the_same_bits(self, tmp_path):
        class Killed(Exception):
            pass

        class Kill(BaseCallback):
            def _on_step(self) -> bool:
                if self.num_timesteps >= 200:
                    raise Killed
                return True

        whole = bandit(mixture=Counting()).learn(256, checkpoint_dir=tmp_path / "whole", checkpoint_every=64)
        with pytest.raises(Killed):
            bandit(mixture=Counting()).learn(256, Kill(), checkpoint_dir=tmp_path / "killed", checkpoint_every=64)
        again = bandit(mixture=Counting()).learn(256, checkpoint_dir=tmp_path / "killed", checkpoint_every=64)
        assert again.mixture.asked == whole.mixture.asked == 4
        assert torch.equal(again.probabilities([0]), whole.probabilities([0]))
        with pytest.raises(OtherRunError):
            bandit().learn(256, checkpoint_dir=tmp_path / "killed", checkpoint_every=64)

    def test_a_subclass_is_loaded_by_its_own_name(self, tmp_path):
        bandit(Scenarios).save(tmp_path)
        with pytest.raises(InvalidInputError, match=r"holds a Scenarios.*load it by Scenarios.load\(...\)"):
            KofNPPO.load(tmp_path, Bandit(), DOUBT)
        assert type(Scenarios.load(tmp_path, Bandit(), DOUBT)) is Scenarios


class TestContinuousActions:
    def test_the_way_out_that_the_message_names_runs(self):
        """A belief about five pushes of a point: two models, both for the strongest push to the left."""

        class Pushes:
            def rewards(self, observations):
                pay = -np.linspace(-1, 1, 5)
                return np.broadcast_to(pay, (2, len(observations), 5)).copy()

        with pytest.raises(InvalidInputError) as refused:
            KofNPPO("MlpPolicy", Line(), Pushes(), "1-of-2", **SMALL)
        way_out = "env = gymnasium.wrappers.DiscretizeAction(env, bins=5)"
        assert way_out in str(refused.value)
        names = {"gymnasium": gymnasium, "env": Line()}
        exec(way_out, names)
        agent = KofNPPO("MlpPolicy", names["env"], Pushes(), "1-of-2", **SMALL).learn(2500)
        assert int(agent.predict(np.zeros(1, np.float32), deterministic=True)[0]) == 0

    def test_actions_without_bounds_cannot_be_numbered_that_way(self):
        class Endless(Line):
            action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)

        with pytest.raises(InvalidInputError, match=r"they have no bounds\. Or give the belief a method step_rewards"):
            KofNPPO("MlpPolicy", Endless(), DOUBT, "1-of-2", **SMALL)
