"""`KofNPPO` in the worlds that were written for it: it learns, and one seed gives one agent."""

from __future__ import annotations

import gymnasium
import numpy as np
import torch

from cautious import KofNPPO
from cautious_paper.beliefs.terrains import TerrainBelief
from cautious_paper.worlds.terrains import DISCOUNT, KNOWN, terrain_world

SETTINGS = {
    "n_steps": 16,
    "batch_size": 256,
    "n_epochs": 8,
    "gamma": DISCOUNT,
    "gae_lambda": 0.9,
    "learning_rate": 4e-3,
}


def learned(num_steps: int) -> tuple[KofNPPO, np.ndarray]:
    world = terrain_world(layout=0)
    doubts = np.random.default_rng(0).normal(-0.3, 0.7, (20, 6))
    belief = TerrainBelief(world, np.concatenate([np.tile(list(KNOWN.values()), (20, 1)), doubts], axis=1))
    env = gymnasium.make_vec("cautious/Terrains-v0", num_envs=32, layout=0)
    agent = KofNPPO("MlpPolicy", env, belief, "1-of-20", seed=0, device="cpu", ent_coef=0.02, **SETTINGS)
    return agent.learn(num_steps), world.observe(np.arange(world.num_states))


def test_it_learns_to_carry_parcels_without_a_table():
    """Random steps are worth less than nothing; the exact optimum is the upper bound of the certificate."""
    agent, observations = learned(30_000)
    found = agent.certificate(terrain_world(layout=0).mdp, observations)
    assert found.upper >= found.lower
    assert float(found.lower) > 0.5 * float(found.upper) > 0


def test_one_seed_gives_one_agent():
    (one, observations), (other, _) = learned(1024), learned(1024)
    assert torch.equal(one.probabilities(observations), other.probabilities(observations))
