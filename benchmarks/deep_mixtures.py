"""Rules for the models' weights in `KofNPPO`: the ranking, smoothed, against an adversary that learns by gradient steps.

    python -m benchmarks.deep_mixtures run [--out FILE] [--processes 7] [--seconds 540] [--seeds 100 ... 109]
    python -m benchmarks.deep_mixtures choose [--out FILE]
    python -m benchmarks.deep_mixtures table [--out FILE]

`run` appends each run to its file as soon as it is known, begins none that would not end within `--seconds`, and goes on from
the file. In each run the exact value of the policy is taken after every twentieth of its steps. `choose` names the learning
rule that was best on the seeds 0 to 2; it is judged on others.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from torch import Tensor

from benchmarks.deep import NUM_STEPS, PPO_SETTINGS, exact_value, make_env, optimum, shipped
from benchmarks.deep_learned import ENTROPY, NUM_ENVS, TERRAINS_PPO, FallingEntropy
from cautious import KofN, KofNPPO, LearnedMixture, Mixture, RankedMixture, solve_mdp
from cautious.beliefs.belief import TableBelief
from cautious_paper.beliefs.terrains import TerrainBelief
from cautious_paper.experiments.store import provenance_line
from cautious_paper.worlds.driving_features import state_numbers_of
from cautious_paper.worlds.terrains import terrain_world

CHOICE, SEEDS = range(3), range(100, 110)
"""Seeds on which the step is chosen, and those on which it is judged."""
CURVE = 20
"""How many times in a run the exact value is taken."""
SHARE = 0.98
"""Of the certified optimum, which a run is to reach."""


RULES: dict[str, Callable[[], Mixture]] = {
    "ranked": RankedMixture,
    "learned 0.2": lambda: LearnedMixture(0.2),
    "learned 0.5": lambda: LearnedMixture(0.5),
    "learned 1": lambda: LearnedMixture(1.0),
}
"""The default first."""


class Task(NamedTuple):
    """A world with its level, and how an agent is made and judged there."""

    name: str
    steps: int
    seconds: float
    """About how long a run takes, by which no run is begun that would not end in time."""
    make: Callable[[int, Mixture], KofNPPO]
    judge: Callable[[KofNPPO], float]
    """Share of the certified optimum."""
    callback: Callable[[], BaseCallback | None]


def driving_task(level: str) -> Task:
    """The driving world of docs/deep.md."""
    best: list[float] = []

    def make(seed: int, mixture: Mixture) -> KofNPPO:
        world, rewards, _ = shipped()
        belief = TableBelief(rewards, lambda features: state_numbers_of(world, features))
        entropy: dict[str, Any] = {"ent_coef": lambda progress: 0.05 * progress**2}
        return KofNPPO("MlpPolicy", make_env(), belief, level, mixture=mixture, seed=seed, **entropy, **PPO_SETTINGS)

    def judge(agent: KofNPPO) -> float:
        if not best:
            best.append(optimum(level)[1])
        return exact_value(agent.probabilities(shipped()[2]), level) / best[0]

    return Task(f"driving {level}", NUM_STEPS, 90, make, judge, lambda: None)


@lru_cache(maxsize=1)
def doubts() -> Tensor:
    """What 100 models say about each kind of ground, [M, K]."""
    from benchmarks.deep_comparison import independent

    return independent(6)


def terrains_task(layout: int, steps: int = 150_000, level: str = "1-of-20") -> Task:
    """A map of docs/deep-comparison.md."""
    best: list[float] = []

    def make(seed: int, mixture: Mixture) -> KofNPPO:
        env = gymnasium.make_vec("cautious/Terrains-v0", num_envs=NUM_ENVS, layout=layout)
        belief = TerrainBelief(terrain_world(layout), doubts())
        return KofNPPO("MlpPolicy", env, belief, level, mixture=mixture, seed=seed, device="cpu", **TERRAINS_PPO)

    def judge(agent: KofNPPO) -> float:
        world = terrain_world(layout)
        rewards = world.state_rewards(doubts())
        if not best:
            best.append(float(solve_mdp(world.mdp, rewards, level).certificate().upper))
        policy = agent.probabilities(world.observe(np.arange(world.num_states)))
        return float(KofN.parse(level).value(world.mdp.expected_return(policy, rewards))) / best[0]

    return Task(f"terrains {layout}", steps, 60, make, judge, lambda: FallingEntropy(ENTROPY))


TASKS = {
    task.name: task
    for task in (
        driving_task("1-of-20"),
        driving_task("5-of-20"),
        *(terrains_task(layout, steps) for layout, steps in ((0, 150_000), (1, 300_000), (3, 150_000))),
    )
}


class Curve(BaseCallback):
    """Takes the share of the optimum at even distances."""

    def __init__(self, task: Task) -> None:
        """Keep what judges."""
        super().__init__()
        self.task = task
        self.points: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= (len(self.points) + 1) * self.task.steps / CURVE:
            assert isinstance(self.model, KofNPPO)
            self.points.append((self.num_timesteps, round(self.task.judge(self.model), 5)))


def learn(job: tuple[str, str, int]) -> dict[str, Any]:
    """One run: a task, a rule and a seed."""
    torch.set_num_threads(1)
    (name, rule, seed), task = job, TASKS[job[0]]
    began, cpu = time.perf_counter(), time.process_time()
    curve, more = Curve(task), task.callback()
    agent = task.make(seed, RULES[rule]())
    agent.learn(task.steps, callback=CallbackList([curve, *([more] if more else [])]))
    return {
        "task": name,
        "rule": rule,
        "seed": seed,
        "steps": agent.num_timesteps,
        "share": round(task.judge(agent), 5),
        "curve": curve.points,
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "run": provenance_line(),
    }


def rows_of(path: Path) -> list[dict[str, Any]]:
    """What is known already."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def run(options: argparse.Namespace) -> None:
    """All runs that the file does not hold yet, as far as time allows."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    known = {(row["task"], row["rule"], row["seed"]) for row in rows_of(options.out)}
    jobs = [(task, rule, seed) for seed in options.seeds for task in options.tasks for rule in options.rules]
    waiting = [job for job in jobs if job not in known]
    running: list[Any] = []
    end = time.monotonic() + options.seconds
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        while waiting or running:
            while waiting and len(running) < options.processes:
                job = waiting.pop(0)
                if time.monotonic() + TASKS[job[0]].seconds < end:
                    running.append(pool.apply_async(learn, (job,)))
            for result in [result for result in running if result.ready()]:
                row = result.get()
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print({name: row[name] for name in ("task", "rule", "seed", "share", "seconds")}, flush=True)
                running.remove(result)
            time.sleep(0.2)


def first_step(row: dict[str, Any]) -> float:
    """Steps after which the share is reached and kept up to the end of the run; infinite if it is not."""
    below = [step for step, share in row["curve"] if share < SHARE]
    after = [step for step, share in row["curve"] if share >= SHARE and step > max(below, default=0)]
    return min(after, default=row["steps"] if row["share"] >= SHARE else float("inf"))


def chosen(rows: Sequence[dict[str, Any]]) -> str:
    """The rule other than the default with the largest mean share on the seeds that are for choosing."""
    shares = {rule: [row["share"] for row in rows if row["rule"] == rule and row["seed"] in CHOICE] for rule in RULES}
    return max(
        (rule for rule in RULES if rule != "ranked" and shares[rule]), key=lambda rule: statistics.mean(shares[rule])
    )


def interval(ahead: Sequence[float]) -> str:
    """A 95 % bootstrap interval of the mean over seeds."""
    drawn = np.random.default_rng(0).integers(len(ahead), size=(10_000, len(ahead)))
    low, high = np.percentile(np.array(ahead)[drawn].mean(axis=1), [2.5, 97.5])
    return f"[{low:+.4f}, {high:+.4f}]"


def table(rows: Sequence[dict[str, Any]]) -> None:
    """Each task and rule: final share, runs that reach 98 %, steps until then; and the rules against the first, by seed."""
    for task in dict.fromkeys(row["task"] for row in rows):
        of_rules = {
            rule: {row["seed"]: row for row in rows if (row["task"], row["rule"]) == (task, rule)} for rule in RULES
        }
        for rule, runs in of_rules.items():
            if not runs.keys() & of_rules["ranked"].keys():
                continue
            shares = sorted(row["share"] for row in runs.values())
            steps = sorted(map(first_step, runs.values()))
            both = sorted(runs.keys() & of_rules["ranked"].keys())
            ahead = [runs[seed]["share"] - of_rules["ranked"][seed]["share"] for seed in both]
            reached = sum(step < float("inf") for step in steps)
            print(
                f"{task:16} {rule:12} {len(runs):3} runs: median share {statistics.median(shares):.4f}, lowest "
                f"{shares[0]:.4f}; 98 % in {reached}, median after {statistics.median(steps):,.0f} steps; ahead of ranked by "
                f"{statistics.mean(ahead):+.4f} {interval(ahead)} on average, in {sum(x > 0 for x in ahead)} of {len(ahead)}"
            )


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["run", "choose", "table"])
    parser.add_argument("--out", type=Path, default=Path("results/deep/mixtures.jsonl"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES)[:2])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=540)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part == "run":
        print(provenance_line(), flush=True)
        run(options)
    if options.part == "choose":
        print(chosen(rows_of(options.out)))
    else:
        rows = rows_of(options.out)
        for name, seeds in (("choice", CHOICE), ("judged", SEEDS)):
            print(name)
            table([row for row in rows if row["seed"] in seeds])


if __name__ == "__main__":
    main()
