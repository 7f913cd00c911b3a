"""CautiousPolicy in Stable-Baselines3's own evaluation, the real library."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
import torch

import cautious_paper.worlds  # noqa: F401  (registers the ids)
from cautious import CautiousPolicy, RewardEnsemble, driving_world
from cautious_paper.networks.image import ImageNetwork

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own imports
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")


def short(name: str, steps: int, **options):
    return lambda: gymnasium.wrappers.TimeLimit(gymnasium.make(name, **options).unwrapped, steps)


def test_a_trained_belief_earns_what_it_should_on_familiar_digits():
    policy = CautiousPolicy(RewardEnsemble.load("ask-for-help"), "1-of-20", num_iterations=50)
    env = vec_env.DummyVecEnv([short("cautious/AskForHelp-v0", 10)])
    env.seed(0)
    mean, _ = evaluation.evaluate_policy(policy, env, n_eval_episodes=2, warn=False)
    assert mean > 8.5  # ten images, each worth 1 if named: 97 % of the time at this level


def test_observations_by_name_come_in_any_order():
    network = ImageNetwork(11, help_bit=True)
    weights = torch.from_numpy(np.stack([network.init(np.random.default_rng(i)) for i in range(20)])).float()
    policy = CautiousPolicy(RewardEnsemble(network, weights), "1-of-20", num_iterations=5)
    env = vec_env.DummyVecEnv([short("cautious/HelpIfAvailable-v0", 3)] * 2)
    rewards, lengths = evaluation.evaluate_policy(
        policy, env, n_eval_episodes=2, warn=False, return_episode_rewards=True
    )
    assert lengths == [3, 3]
    assert len(rewards) == 2


def test_driving_by_its_table():
    world = driving_world(novel=False)
    belief = world.features["reward"].expand(4, -1, -1)
    policy = CautiousPolicy(belief, "1-of-2", mdp=world.mdp, num_iterations=30)
    env = vec_env.DummyVecEnv([short("cautious/Driving-v0", 40, novel=False)])
    mean, _ = evaluation.evaluate_policy(policy, env, n_eval_episodes=1, warn=False)
    assert mean > 100  # near full speed: 40 steps of up to 3 rows
