"""How quickly other simulators step, beside the worlds of this package: random actions, steps per CPU second.

    pip install highway-env minigrid
    python -m benchmarks.deep_simulators

Whether an experiment of a few hundred thousand steps per agent is feasible depends on this number alone.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import cautious_paper.worlds.envs  # noqa: F401  registers our ids
from cautious_paper.experiments.store import provenance_line

NUM_ENVS = 64
SECONDS = 5.0
SINGLE = {"highway_env": ("merge-v1", "two-way-v0"), "minigrid": ("MiniGrid-Empty-8x8-v0",)}
"""Package, and the environments that it registers."""


def speed(step: Callable[[], int]) -> float:
    """Steps per CPU second, when `step` makes and counts some."""
    step()  # what is built on first use
    count, began = 0, time.process_time()
    while time.process_time() - began < SECONDS:
        count += step()
    return count / (time.process_time() - began)


def vector_speed(name: str) -> float:
    """Of a vector environment of this package, whose episodes go on."""
    env: Any = gymnasium.make_vec(name, num_envs=NUM_ENVS)
    env.reset(seed=0)
    rng = np.random.default_rng(0)

    def step() -> int:
        ended = np.logical_or(*env.step(rng.integers(env.single_action_space.n, size=NUM_ENVS))[2:4])
        if ended.any():
            env.reset(options={"reset_mask": ended})
        return NUM_ENVS

    return speed(step)


def single_speed(name: str) -> float:
    """Of one environment, reset where an episode ends."""
    env: Any = gymnasium.make(name)
    env.reset(seed=0)
    rng = np.random.default_rng(0)

    def step() -> int:
        _, _, terminated, truncated, _ = env.step(int(rng.integers(env.action_space.n)))
        if terminated or truncated:
            env.reset()
        return 1

    return speed(step)


def main() -> None:
    """Measure all that are installed."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # highway-env opens a display otherwise
    warnings.simplefilter("ignore")
    print(f"{provenance_line()}, one thread")
    for name in ("cautious/WideDriving-v0", "cautious/Terrains-v0"):
        print(f"{name:28} {vector_speed(name):10,.0f} steps per CPU second, {NUM_ENVS} at once", flush=True)
    for package, names in SINGLE.items():
        try:
            importlib.import_module(package)
        except ImportError:
            print(f"{package} is not installed")
            continue
        version = importlib.metadata.version(package.replace("_", "-"))
        for name in names:
            print(f"{name:28} {single_speed(name):10,.0f} steps per CPU second, {package} {version}", flush=True)


if __name__ == "__main__":
    main()
