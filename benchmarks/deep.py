"""KofNPPO on the driving world, judged by the exact solver: ten seeds, the coverage of its bounds, its cost beside plain PPO.

    python -m benchmarks.deep seeds [--out FILE] [--steps 750000] [--first-seed 100] [--num-seeds 10]
                                    [--levels 1-of-20 ...] [--critics many]
    python -m benchmarks.deep coverage
    python -m benchmarks.deep overhead

`seeds` appends each run to its file as soon as it is known; the same command goes on from there.

The learner has no table: its network sees 22 features of a state, and the environment is sampled.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO

from benchmarks.deep_critics import KofNPPOManyCritics
from cautious import KofN, KofNPPO, RewardEnsemble, driving_world, fit_ensemble, solve_mdp
from cautious.beliefs.belief import TableBelief
from cautious.rl.environments import VectorEnvAdapter
from cautious.rl.value import Value, bound_returns, default_horizon
from cautious_paper.experiments.store import provenance_line
from cautious_paper.worlds.driving import DrivingWorld
from cautious_paper.worlds.driving_features import driving_features, state_numbers_of

LEVELS = ("1-of-20", "5-of-20")
NUM_SEEDS, NUM_STEPS, NUM_ENVS = 10, 750_000, 64
FIRST_SEED = 100
"""Settings were chosen on seeds 0 to 2, so results are reported on others."""
CRITICS: dict[str, type[KofNPPO]] = {"one": KofNPPO, "many": KofNPPOManyCritics}
PPO_SETTINGS: dict[str, Any] = {
    "learning_rate": lambda progress: 1e-3 * progress,
    "n_steps": 64,
    "batch_size": 256,
    "n_epochs": 4,
    "device": "cpu",
}


@lru_cache(maxsize=1)
def shipped() -> tuple[DrivingWorld, torch.Tensor, np.ndarray]:
    """The novel world, what the shipped belief says about it [M, S, A], and what the network sees of each state [S, 22]."""
    world = driving_world(novel=True, appearance_probability=0.5)
    return world, RewardEnsemble.load("driving").rewards(world), driving_features(world.states)


def make_env() -> Any:
    """Many cars in the novel world."""
    return gymnasium.make_vec("cautious/Driving-v0", num_envs=NUM_ENVS, observation="features")


def make_agent(level: str, seed: int, kind: type[KofNPPO] = KofNPPO) -> KofNPPO:
    """As all of these measurements have it."""
    world, rewards, _ = shipped()
    belief = TableBelief(rewards, lambda features: state_numbers_of(world, features))
    entropy: dict[str, Any] = {"ent_coef": lambda progress: 0.05 * progress**2}
    return kind("MlpPolicy", make_env(), belief, level, seed=seed, **entropy, **PPO_SETTINGS)


def exact_value(policy: torch.Tensor, level: str) -> float:
    """The k-of-N value of a policy [S, A]."""
    world, rewards, _ = shipped()
    return float(KofN.parse(level).value(world.mdp.expected_return(policy, rewards)))


def optimum(level: str) -> tuple[float, float]:
    """The certified optimum lies between these."""
    world, rewards, _ = shipped()
    solution = solve_mdp(world.mdp, rewards, level, num_iterations=400, sampling="exact", update="regret-matching+")
    certificate = solution.certificate(solution.best_policy)
    return float(certificate.lower), float(certificate.upper)


def ordinary_value(level: str) -> float:
    """What the optimum of the mean reward is worth at a level."""
    world, rewards, _ = shipped()
    solution = solve_mdp(
        world.mdp, rewards, "20-of-20", num_iterations=400, sampling="exact", update="regret-matching+"
    )
    return exact_value(solution.best_policy, level)


def learn(level: str, seed: int, num_steps: int = NUM_STEPS, kind: type[KofNPPO] = KofNPPO) -> dict[str, Any]:
    """One run, judged exactly."""
    agent, features = make_agent(level, seed, kind), shipped()[2]
    began, cpu = time.perf_counter(), time.process_time()
    agent.learn(num_steps)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    policy = agent.probabilities(features)
    greedy = torch.nn.functional.one_hot(policy.argmax(dim=1), policy.shape[1]).double()
    return {
        "level": level,
        "seed": seed,
        "steps": agent.num_timesteps,
        "value": exact_value(policy, level),
        "greedy": exact_value(greedy, level),
        "seconds": round(took, 1),
        "cpu_seconds": round(cpu, 1),
        "run": provenance_line(),
    }


def seeds(path: Path, num_steps: int, levels: Sequence[str], which: range, kind: type[KofNPPO]) -> None:
    """All runs that the file does not hold yet, then the table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {(run["level"], run["seed"]) for run in done}
    for seed in which:
        for level in levels:
            if (level, seed) not in known:
                run = learn(level, seed, num_steps, kind)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(run) + "\n")
                done.append(run)
                print(run, flush=True)
    for level in levels:
        print("\n".join(summary(level, [run for run in done if run["level"] == level])))


def summary(level: str, runs: list[dict[str, Any]]) -> list[str]:
    """A level's runs against its optimum."""
    lower, upper = optimum(level)
    shares = sorted(run["value"] / upper for run in runs)
    greedy = sorted(run["greedy"] / upper for run in runs)
    in_order = ", ".join(f"{100 * run['value'] / upper:.2f}" for run in runs)
    return [
        f"{level}: certified optimum {lower:.4f} to {upper:.4f}; the ordinary optimum is worth {ordinary_value(level):.4f}",
        f"  {len(runs)} seeds of {runs[0]['steps']:,} steps: median {statistics.median(shares):.2%} of the optimum, lowest "
        f"{shares[0]:.2%}, second lowest {shares[1]:.2%}, highest {shares[-1]:.2%}",
        f"  seed by seed, in %: {in_order}",
        f"  most likely actions: median {statistics.median(greedy):.2%}, lowest {greedy[0]:.2%}",
        f"  CPU seconds: median {statistics.median(run['cpu_seconds'] for run in runs):.0f}; wall: "
        f"{statistics.median(run['seconds'] for run in runs):.0f} (other work on the machine)",
    ]


def coverage(num_repetitions: int = 200, num_episodes: int = NUM_ENVS) -> None:
    """How often bounds from fresh episodes hold the exact value, at both levels and by both methods; a half-learned policy."""
    _, rewards, features = shipped()
    span = float(rewards.min()), float(rewards.max())
    agent = make_agent(LEVELS[0], 0).learn(100_000)
    exact = {level: exact_value(agent.probabilities(features), level) for level in LEVELS}
    found: dict[tuple[str, str], list[Value]] = {
        (level, how): [] for level in LEVELS for how in ("Student", "Bernstein")
    }
    for seed in range(num_repetitions):
        episodes = agent.episodes(num_episodes, seed=seed)
        for level, how in found:
            returns = bound_returns(episodes, 0.95, span if how == "Bernstein" else None)
            found[level, how].append(Value(*(float(KofN.parse(level).value(side)) for side in returns[:3])))
    for (level, how), values in found.items():
        above = sum(value.lower <= exact[level] for value in values)
        within = sum(value.lower <= exact[level] <= value.upper for value in values)
        below = exact[level] - statistics.mean(value.lower for value in values)
        bias = statistics.mean(value.estimate for value in values) - exact[level]
        print(
            f"{level}, {how}, {num_episodes} episodes of {default_horizon(agent.gamma)} steps: exact {exact[level]:.4f}; "
            f"lower bound holds in {above} of {num_repetitions}, both in {within}; lower bound {below:.3f} below on average; "
            f"estimate off by {bias:+.4f} on average",
            flush=True,
        )


def overhead(num_steps: int = 65_536, num_models: int = 100) -> None:
    """Steps per CPU second of plain PPO and of KofNPPO, same network, same environment, same settings."""
    world, rewards, features = shipped()
    table = TableBelief(rewards[:num_models], lambda seen: state_numbers_of(world, seen))
    models = fit_ensemble(
        features, world.features["reward"], num_models=num_models, num_epochs=1, batch_size=784, progress=False
    )
    kinds = {
        "plain PPO": lambda: PPO("MlpPolicy", VectorEnvAdapter(make_env()), seed=0, **PPO_SETTINGS),
        f"KofNPPO, {num_models} models, a table": lambda: KofNPPO(
            "MlpPolicy", make_env(), table, "1-of-20", seed=0, **PPO_SETTINGS
        ),
        f"KofNPPO, {num_models} models, a table, a critic for each": lambda: KofNPPOManyCritics(
            "MlpPolicy", make_env(), table, "1-of-20", seed=0, **PPO_SETTINGS
        ),
        f"KofNPPO, {num_models} models, networks (RewardEnsemble)": lambda: KofNPPO(
            "MlpPolicy", make_env(), models, "1-of-20", seed=0, **PPO_SETTINGS
        ),
    }
    for name, make in kinds.items():
        speeds = []
        for _ in range(3):
            agent, began = make(), time.process_time()
            agent.learn(num_steps)
            speeds.append(num_steps / (time.process_time() - began))
        print(f"{name:55} {max(speeds):8,.0f} steps per CPU second (best of 3)", flush=True)


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["seeds", "coverage", "overhead"])
    parser.add_argument("--out", type=Path, default=Path("results/deep/seeds.jsonl"), help="of seeds")
    parser.add_argument("--steps", type=int, default=NUM_STEPS, help="of seeds")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of seeds")
    parser.add_argument("--num-seeds", type=int, default=NUM_SEEDS, help="of seeds: from the first one on")
    parser.add_argument("--levels", nargs="+", default=LEVELS, help="of seeds")
    parser.add_argument(
        "--critics", choices=CRITICS, default="one", help="of seeds: for the mixture, or for each model"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{provenance_line()}, one thread")
    if options.part == "seeds":
        which = range(options.first_seed, options.first_seed + options.num_seeds)
        seeds(options.out, options.steps, options.levels, which, CRITICS[options.critics])
    elif options.part == "coverage":
        coverage()
    else:
        overhead()


if __name__ == "__main__":
    main()
