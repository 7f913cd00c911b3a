"""Rollouts of KofNPPO at their edges: ends of episodes, normalisation, squashed actions, callbacks and seeds."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from small_worlds import Bandit, Line
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from cautious import KofNPPO
from cautious.errors import InvalidInputError

SMALL = {"n_steps": 64, "batch_size": 64, "n_epochs": 1, "gamma": 0.9, "seed": 0, "device": "cpu"}
DOUBT = np.array([[[0.2, 1.0]], [[0.2, -0.4]]])


class Crashes(gymnasium.Env[Any, Any]):
    """A random number and a flag, which is 1 in the last observation of an episode only."""

    action_space = spaces.Discrete(2)

    def __init__(self, as_dict: bool = False) -> None:
        box = spaces.Box(-100, 100, (2,), np.float32)
        self.observation_space = spaces.Dict({"all": box}) if as_dict else box

    def _shown(self, crashed: bool) -> Any:
        shown = np.array([self.np_random.normal(), crashed], np.float32)
        return {"all": shown} if isinstance(self.observation_space, spaces.Dict) else shown

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._shown(False), {}

    def step(self, action):
        crashed = bool(self.np_random.random() < 0.2)
        return self._shown(crashed), 0.0, crashed, False, {}


class Kept:
    """Pays what follows, and keeps what it was asked about."""

    def __init__(self) -> None:
        self.actions: list[np.ndarray] = []
        self.following: list[np.ndarray] = []

    def step_rewards(self, observations, actions, following):
        following = following["all"] if isinstance(following, dict) else following
        self.actions.append(actions)
        self.following.append(following)
        return np.stack([following[:, 0], -following[:, 0]])


def normalized(as_dict: bool = False) -> VecNormalize:
    return VecNormalize(DummyVecEnv([lambda: Crashes(as_dict)] * 2), norm_reward=False)


class Asks(BaseCallback):
    """Asks for the value at one place of each rollout."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place, self.values = place, []

    def _ask(self, place: str) -> None:
        if place == self.place:
            self.values.append(self.model.value(4).estimate)

    def _on_training_start(self) -> None:
        self._ask("training start")

    def _on_rollout_start(self) -> None:
        self._ask("rollout start")

    def _on_rollout_end(self) -> None:
        self._ask("rollout end")

    def _on_step(self) -> bool:
        self._ask("step")
        return True


class TestVecNormalize:
    @pytest.mark.parametrize("as_dict", [False, True])
    def test_a_belief_sees_the_last_observation_as_it_was(self, as_dict):
        """A flag that is 1 only at ends is far outside of what is normal: VecNormalize clips it."""
        belief, policy = Kept(), "MultiInputPolicy" if as_dict else "MlpPolicy"
        agent = KofNPPO(policy, normalized(as_dict), belief, "1-of-2", **SMALL).learn(256)
        agent.value(4)
        assert set(np.concatenate(belief.following)[:, 1]) == {0, 1}

    def test_looking_for_a_gap_leaves_the_agent_as_it_was(self):
        agent = KofNPPO("MlpPolicy", normalized(), Kept(), "1-of-2", **SMALL).learn(128)
        place = np.array([[1.0, 0.0]], np.float32)
        before = agent.probabilities(place)
        agent.gap_found(256, num_episodes=4)
        assert torch.equal(agent.probabilities(place), before)
        assert agent.get_vec_normalize_env().training


class TestBounds:
    @pytest.mark.parametrize("reward", [1.0, -1.0])
    @pytest.mark.parametrize("known", [False, True])
    def test_they_hold_where_episodes_end_after_the_cut(self, reward, known):
        class Eleven(Bandit):
            """Ends after eleven steps."""

            def reset(self, *, seed=None, options=None):
                self.steps = 0
                return super().reset(seed=seed)

            def step(self, action):
                self.steps += 1
                return 0, 0.0, self.steps >= 11, False, {}

        agent = KofNPPO("MlpPolicy", Eleven(), np.full((2, 1, 2), reward), "1-of-2", **SMALL)
        value = agent.value(100, horizon=10, reward_range=(reward, reward) if known else None)
        assert value.lower <= reward * (1 - 0.9**11) <= value.upper
        if not known:  # nothing is random: ten steps are known, the rest is between nothing and the reward for ever
            assert sorted(map(abs, value[1:])) == pytest.approx([1 - 0.9**10, 1])


class TestActions:
    def test_squashed_ones_are_those_that_were_taken(self):
        taken = []

        class Wide(Line):
            action_space = spaces.Box(0, 10, (1, 2), np.float32)

            def step(self, action):
                taken.append(action)
                return super().step(action)

        belief = Kept()
        options = {"use_sde": True, "policy_kwargs": {"squash_output": True}}
        KofNPPO("MlpPolicy", Wide(), belief, "1-of-2", **options, **SMALL).learn(64)
        assert np.array_equal(belief.actions[-1], np.stack(taken))

    def test_without_a_future_every_step_counts(self):
        agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", **{**SMALL, "gamma": 0.0}).learn(64)
        chosen = agent.rollout_buffer.actions.ravel().astype(int)
        assert agent.standings.returns == pytest.approx(DOUBT[:, 0, chosen].mean(axis=1))


class TestCallbacks:
    @pytest.mark.parametrize("place", ["training start", "rollout start", "rollout end"])
    def test_a_value_between_rollouts_lets_learning_go_on(self, place):
        asks, belief = Asks(place), Kept()
        agent = KofNPPO("MlpPolicy", DummyVecEnv([Line]), belief, "1-of-2", **SMALL).learn(192, callback=asks)
        assert len(asks.values) == (1 if place == "training start" else 3)
        assert agent.standings.num_rollouts == 3
        assert agent.num_timesteps == 192

    def test_a_value_amid_a_rollout_is_refused(self):
        agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", **SMALL)
        with pytest.raises(InvalidInputError, match="_on_rollout_end"):
            agent.learn(64, callback=Asks("step"))
        assert agent.value(4).lower <= 0.2  # a rollout that was broken off is over


class TestSeeds:
    def test_one_seed_gives_the_same_starts_and_the_same_gap(self):
        def numbers() -> tuple[Any, ...]:
            agent = KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", num_starts=2, **SMALL).learn(128)
            return (
                *agent.start_values,
                *agent.gap_found(64, num_episodes=4),
                *agent.probabilities([0]).ravel().tolist(),
            )

        assert numbers() == numbers()

    @pytest.mark.parametrize("use_sde", [False, True])
    def test_values_of_continuous_actions(self, use_sde):
        agent = KofNPPO("MlpPolicy", Line(), Kept(), "1-of-2", use_sde=use_sde, **SMALL)
        state = torch.get_rng_state()
        first, second = (agent.value(4, seed=seed) for seed in (1, 2))
        assert agent.value(4, seed=1) == first != second
        assert torch.equal(torch.get_rng_state(), state)
