"""Decisions a second in Stable-Baselines3's `evaluate_policy` loop, one observation at a time, on CartPole.

python -m benchmarks.evaluate_policy [--steps 1000]

It uses public names alone, so that it also runs with the source of an earlier commit: PYTHONPATH=OTHER/src. The belief is
untrained in effect (one epoch on random rewards): its models differ about nearly every observation, which is the slow case.
"""

from __future__ import annotations

import argparse
import inspect
import time
import warnings
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.evaluation import evaluate_policy

from cautious import CautiousPolicy, fit_ensemble


def main() -> None:
    """Print decisions a second, of the loop and of the processor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="decisions at least")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    rng = np.random.default_rng(0)
    states, rewards = rng.normal(size=(400, 4)), rng.normal(size=(400, 2))
    has_priors = "prior" in inspect.signature(fit_ensemble).parameters
    for prior in (0.0, 0.75) if has_priors else (0.0,):
        own: dict[str, Any] = {"prior": prior} if has_priors else {}
        belief = fit_ensemble(states, rewards, num_models=100, num_epochs=1, progress=False, **own)
        policy = CautiousPolicy(belief, "1-of-20")
        environment = gymnasium.make("CartPole-v1")
        evaluate_policy(policy, environment, n_eval_episodes=1)  # compiles, loads
        steps, started, used = 0, time.perf_counter(), time.process_time()
        while steps < options.steps:
            _, lengths = evaluate_policy(policy, environment, n_eval_episodes=5, return_episode_rewards=True)
            steps += int(np.sum(lengths))
        seconds, cpu = time.perf_counter() - started, time.process_time() - used
        print(
            f"prior {prior:g}: {steps} decisions, {steps / seconds:.0f} a second, {steps / cpu:.0f} a second of CPU time",
            flush=True,
        )


if __name__ == "__main__":
    main()
