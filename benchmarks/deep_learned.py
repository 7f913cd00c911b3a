"""The rules of `benchmarks/deep_rules.py` learned by PPO, and levels of k-of-N on the road that no table holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor

from benchmarks.deep_rules import avoiding, broil_level, measures, penalised, ranked_in_each_state, thresholds
from cautious import KofN, KofNPPO, RewardEnsemble, optimal_policy, solve_mdp
from cautious.risk import risk_value
from cautious_paper.beliefs.terrains import TerrainBelief
from cautious_paper.beliefs.wide_driving import WideDrivingBelief, fit_wide_driving_belief
from cautious_paper.experiments.store import provenance_line
from cautious_paper.worlds.terrains import DISCOUNT, TerrainWorld, terrain_world

NUM_ENVS = 64
TERRAINS_PPO: dict[str, Any] = {
    "n_steps": 16,
    "batch_size": 512,
    "n_epochs": 8,
    "gamma": DISCOUNT,
    "gae_lambda": 0.95,
    "learning_rate": lambda left: 4e-3 * left,
    "reward_scale": 1.0,
}
"""Chosen on maps 0 and 1 with seeds 0 and 1; `gae_lambda` and the entropy bonus on maps 1 and 2 with seeds 0 to 2."""
ENTROPY = 0.2
"""Entropy bonus at the beginning, in deviations of advantages; it falls to nothing over the first four fifths. With 0.06
policies settle early."""

WIDE_ENVS, WIDE_STEPS, WIDE_DISCOUNT = 64, 400_000, 0.97
WIDE_PPO: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 512,
    "n_epochs": 6,
    "gamma": WIDE_DISCOUNT,
    "gae_lambda": 0.9,
    "learning_rate": lambda left: 2e-3 * left,
    "reward_scale": 0.2,
}
WIDE_LEVELS = ("1-of-20", "5-of-20", "20-of-20")
JUDGED_CARS, JUDGED_STEPS = 400, 250
"""Fresh rollouts by which a policy on the wide road is judged."""


class FallingEntropy(BaseCallback):
    """An entropy bonus that falls linearly: explore first, be exact at the end."""

    def __init__(self, first: float) -> None:
        """Keep the bonus at the beginning."""
        super().__init__()
        self.first = first

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        done = 1 - self.model._current_progress_remaining
        self.model.ent_coef = self.first * max(0.0, 1 - 1.25 * done)  # type: ignore[attr-defined]


def learned_rules(kind_rewards: Tensor, seed: int) -> Iterator[tuple[str, str, Tensor, KofN]]:
    """Rule, dial, what its models say about each kind [M, K], and its level; a rule of one reward function has one model."""
    alone = KofN(1, 1)
    for level in ("1-of-20", "5-of-20"):
        yield "k-of-N", level, kind_rewards, KofN.parse(level)
    for c in (0.5, 1.0, 2.0):
        yield "mean - c std", f"c={c:g}", penalised(kind_rewards, c)[None], alone
    yield "ensemble mean", "", kind_rewards.mean(dim=0)[None], alone
    yield "BROIL", "λ=0.5, α=0.95", kind_rewards, broil_level(0.5, 0.95)
    yield "one-step ranking", "1-of-20", ranked_in_each_state(kind_rewards, "1-of-20")[None], alone
    yield "novelty, avoids", "all", avoiding(kind_rewards, thresholds(kind_rewards)[-1])[None], alone
    yield "one model", "", kind_rewards[seed % len(kind_rewards)][None], alone


def learn_terrains(
    layout: int,
    kind_rewards: Tensor,
    level: KofN,
    seed: int,
    num_steps: int,
    entropy: float = ENTROPY,
    kind: type[KofNPPO] = KofNPPO,
) -> tuple[TerrainWorld, Tensor, float]:
    """A learned policy [S, A] on a map, and the seconds of processor time it took."""
    world = terrain_world(layout)
    env = gymnasium.make_vec("cautious/Terrains-v0", num_envs=NUM_ENVS, layout=layout)
    started = time.process_time()
    agent = kind("MlpPolicy", env, TerrainBelief(world, kind_rewards), level, seed=seed, device="cpu", **TERRAINS_PPO)
    agent.learn(num_steps, callback=FallingEntropy(entropy))
    return world, agent.probabilities(world.observe(np.arange(world.num_states))), time.process_time() - started


def share_of_optimum(world: TerrainWorld, policy: Tensor, kind_rewards: Tensor, level: KofN) -> float:
    """The exact value of a policy for its own objective, as a share of the optimum."""
    rewards = world.state_rewards(kind_rewards)
    if len(rewards) == 1:
        best = optimal_policy(world.mdp, rewards[0]).expected_return
        return float(world.mdp.expected_return(policy, rewards[0]) / best)
    solution = solve_mdp(world.mdp, rewards, level, sampling="exact", update="regret-matching+", num_iterations=300)
    return float(solution.exact_value(policy) / solution.exact_value(solution.best_policy))


def learned_rows(
    layout: int,
    kind_rewards: Tensor,
    seeds: range,
    known: set[tuple[Any, ...]],
    only: str | None,
    num_steps: int,
    entropy: float,
    kind: type[KofNPPO],
) -> Iterator[Any]:
    """Each rule, learned with each seed and judged exactly in the twin, but for what is known."""
    for seed in seeds:
        for rule, dial, of_rule, level in learned_rules(kind_rewards, seed):
            if (layout, rule, dial, seed, num_steps) in known or (only and f"{rule} {dial}" != only):
                continue
            world, policy, seconds = learn_terrains(layout, of_rule, level, seed, num_steps, entropy, kind)
            share = share_of_optimum(world, policy, of_rule, level)
            found = {name: round(value, 5) for name, value in measures(world, policy).items()}
            yield {
                "map": layout,
                "rule": rule,
                "dial": dial,
                "seed": seed,
                "share of optimum": round(share, 5),
                "steps": num_steps,
                "seconds": round(seconds, 1),
                **found,
                "run": provenance_line(),
            }


def wide_belief(folder: Path) -> WideDrivingBelief:
    """The belief about the wide road, trained once."""
    if not (folder / "ensemble.json").exists():
        fit_wide_driving_belief().save(folder)
    return WideDrivingBelief(RewardEnsemble.load(folder))


def judge_wide(agent: KofNPPO, probability: float, seed: int) -> dict[str, float]:
    """Mean speed, collisions and collision speed per step over fresh rollouts, discounted and normalised."""
    env: Any = gymnasium.make_vec(
        "cautious/WideDriving-v0",
        num_envs=JUDGED_CARS,
        max_episode_steps=JUDGED_STEPS,
        appearance_probability=probability,
    )
    seen, _ = env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    names = ("reward", "speed", "collisions", "collision_speed", "offroad")
    totals = dict.fromkeys(names, 0.0)
    weight = 1 - WIDE_DISCOUNT
    for _ in range(JUDGED_STEPS):
        chances = agent.probabilities(seen).numpy().cumsum(axis=1)
        actions = np.minimum((chances <= rng.random((len(seen), 1)) * chances[:, -1:]).sum(axis=1), 4)
        seen, rewards, _, _, infos = env.step(actions)
        for name in names:
            totals[name] += weight * float((rewards if name == "reward" else infos[name]).mean())
        weight *= WIDE_DISCOUNT
    return {name: round(value, 5) for name, value in totals.items()}


def wide_rows(folder: Path, probability: float, seeds: range, known: set[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Each level, learned with each seed and judged by fresh rollouts, but for what is known."""
    belief = wide_belief(folder)
    for seed in seeds:
        for level in WIDE_LEVELS:
            if (level, seed) in known:
                continue
            env = gymnasium.make_vec("cautious/WideDriving-v0", num_envs=WIDE_ENVS, appearance_probability=probability)
            started = time.process_time()
            agent = KofNPPO("MlpPolicy", env, belief, level, seed=seed, device="cpu", **WIDE_PPO)
            agent.learn(WIDE_STEPS, callback=FallingEntropy(0.02))
            seconds = time.process_time() - started
            found = judge_wide(agent, probability, seed=1000 + seed)
            value = risk_value(agent.level, agent.standings.returns)
            yield {
                "level": level,
                "seed": seed,
                "steps": WIDE_STEPS,
                "seconds": round(seconds, 1),
                "k-of-N value": round(float(value), 5),
                **found,
            }
