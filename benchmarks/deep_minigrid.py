"""KofNPPO on the terrains as MiniGrid shows them, judged by the exact twin.

    pip install minigrid
    python -m benchmarks.deep_minigrid [--seeds 5] [--map 0]

The network sees where the agent is in MiniGrid's full image; settings are those of the other learned policies
(`benchmarks.deep_learned`).
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from typing import Any

import gymnasium
import numpy as np
import torch
from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv

from benchmarks.deep_comparison import LEARNED_SEEDS, independent
from benchmarks.deep_learned import ENTROPY, NUM_ENVS, TERRAINS_PPO, FallingEntropy
from cautious import KofNPPO
from cautious.beliefs.diagnostics import BeliefWarning
from cautious.rl.random_stops import RandomStops
from cautious_paper.beliefs.terrains import MINIGRID_AGENT, TerrainBelief
from cautious_paper.experiments.store import provenance_line
from cautious_paper.worlds.terrains import DISCOUNT, terrain_world

LEVEL, NUM_STEPS = "1-of-20", 150_000


class AgentPlace(BaseFeaturesExtractor):
    """From full images, which Stable-Baselines3 turns into [B, 3, 11, 11], to where the agent is, [B, 121], one-hot.

    On one map nothing else ever changes.
    """

    def __init__(self, observation_space: Any) -> None:
        """The number of features is that of cells."""
        super().__init__(observation_space, int(np.prod(observation_space.shape[1:])))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Features of images."""
        return (observations[:, 0] == MINIGRID_AGENT).flatten(1).float()


def make_env(layout: int) -> Any:
    """One carrier, seen from above, whose episodes end by chance alone."""
    env = gymnasium.make("cautious/TerrainsMiniGrid-v0", layout=layout, max_steps=10**9)
    return ImgObsWrapper(FullyObsWrapper(env))


def images(layout: int) -> np.ndarray:
    """What the carrier sees in each cell, [S, 11, 11, 3]."""
    env = make_env(layout)
    env.reset(seed=0)
    field, seen = env.unwrapped, []
    for cell in range(field.world.num_states):
        field.go_to(cell)
        seen.append(env.observation(env.env.observation(field.gen_obs())))
    return np.stack(seen)


def learn(layout: int, seed: int) -> tuple[float, float]:
    """Share of the certified optimum, and CPU seconds."""
    world, began = terrain_world(layout), time.process_time()
    env = DummyVecEnv([lambda: RandomStops(make_env(layout), DISCOUNT)] * NUM_ENVS)
    belief = TerrainBelief(world, independent(6))
    # Numbers in MiniGrid's images are names of things, not brightnesses.
    network: dict[str, Any] = {"normalize_images": False, "features_extractor_class": AgentPlace}
    agent = KofNPPO("MlpPolicy", env, belief, LEVEL, seed=seed, device="cpu", policy_kwargs=network, **TERRAINS_PPO)
    agent.learn(NUM_STEPS, callback=FallingEntropy(ENTROPY))
    seconds = time.process_time() - began
    certificate = agent.certificate(world.mdp, images(layout))
    return float(certificate.lower / certificate.upper), seconds


def main() -> None:
    """Learn and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help=f"how many, from {LEARNED_SEEDS[0]} on")
    parser.add_argument("--map", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore", BeliefWarning)
    torch.set_num_threads(1)
    print(f"{provenance_line()}, one thread", flush=True)
    independent(6)  # trained once, before the clock runs
    runs = []
    for seed in LEARNED_SEEDS[: options.seeds]:
        runs.append(learn(options.map, seed))
        print(
            f"map {options.map}, {LEVEL}, seed {seed}: {runs[-1][0]:.2%} of the optimum, {runs[-1][1]:.0f} CPU s",
            flush=True,
        )
    shares, seconds = zip(*runs, strict=True)
    print(
        f"median {statistics.median(shares):.2%}, lowest {min(shares):.2%}, CPU seconds {statistics.median(seconds):.0f}"
    )


if __name__ == "__main__":
    main()
