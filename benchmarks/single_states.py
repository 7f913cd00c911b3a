"""The single-state regime of `solve_bandit`: iterations in compiled code against the same iterations in tensors.

python -m benchmarks.single_states [--behaviour] [--paper-size]

CPU seconds of both in one run, and how far their policies are apart. The paper's setting: 2,000 models, 11 actions, four levels
x ten runs, 100 iterations. Instead of that,

--behaviour   the numbers that the experiment `ask-for-help` prints about single images, by both ways: for the belief in the
              package (100 models trained at the paper's settings), with the levels and runs of scales "small" and "paper"
--paper-size  all of 10,000 states with random rewards, compiled
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from cautious import RewardEnsemble
from cautious.parallel import single_thread
from cautious.risk import parse_levels
from cautious.solvers.adversary import SolveBatch
from cautious.solvers.cfr import CFROptions, CFRResult, PerStateGame, Problem, minimise_regret_of_all
from cautious.solvers.recorded_states import minimise_regret_in_states
from cautious.solvers.rewards import as_rewards
from cautious.types import Sampling, Update
from cautious_paper.evaluation.image_behaviour import behaviour
from cautious_paper.experiments.images.settings import image_experiment_at
from cautious_paper.experiments.store import provenance_line
from cautious_paper.worlds.data import load_images
from cautious_paper.worlds.data.find import EMBEDDED

PAPER_LEVELS = ("1-of-20", "5-of-20", "10-of-20", "20-of-20")
CASES: dict[str, tuple[Any, ...]] = {
    "the paper's, queue, 4 levels x 10 runs": (2000, 200, PAPER_LEVELS, 10, 100, Sampling.QUEUE, False),
    "one level, one run, queue": (2000, 4000, ("1-of-20",), 1, 100, Sampling.QUEUE, False),
    "the same, exact values tracked": (2000, 100, ("1-of-20",), 1, 100, Sampling.QUEUE, True),
    "2,000 models, exact": (2000, 100, ("1-of-20",), 1, 100, Sampling.EXACT, True),
    "100 models, exact": (100, 500, ("1-of-20",), 1, 200, Sampling.EXACT, True),
    "one state, 100 models, exact": (100, 1, ("1-of-20",), 1, 200, Sampling.EXACT, True),
}


def _timed(iterate: Callable[[Problem, CFROptions], CFRResult], problem: Problem, options: CFROptions) -> Any:
    """The policies, and seconds of CPU time and of the clock."""
    iterate(problem, options._replace(num_iterations=2))
    began, started = time.perf_counter(), time.process_time()
    policy = iterate(problem, options).policy
    return policy, time.process_time() - started, time.perf_counter() - began


def bench_behaviour() -> None:
    """What the experiment prints about single images, in tensors and compiled."""
    belief = RewardEnsemble.load("ask-for-help")
    for scale in ("small", "paper"):
        experiment = image_experiment_at("ask-for-help", scale)
        options = CFROptions(experiment.num_iterations, Sampling.QUEUE, Update.REGRET_MATCHING, 0, False)
        for name in ("digits", "fashion"):
            images = load_images(name, "test", EMBEDDED)
            batch = SolveBatch(tuple(experiment.parsed_levels), experiment.num_runs)
            problem = Problem(PerStateGame(), as_rewards(belief.rewards(images.images)), batch)
            labels = images.labels if name == "digits" else None
            found, seconds = [], []
            for iterate in (minimise_regret_of_all, minimise_regret_in_states):
                with single_thread():
                    policy, cpu, _ = _timed(iterate, problem, options)
                shape = (len(batch.levels), batch.num_runs, *policy.shape[1:])
                measured = behaviour(policy.reshape(shape), experiment.image_task.help_action, labels)
                found.append({what: values.mean(dim=1).tolist() for what, values in measured.items()})  # over runs
                seconds.append(cpu)
            print(
                f"{scale}: {len(images):,} {name}, {batch.num_runs} runs, CPU seconds: tensors {seconds[0]:.2f}, compiled "
                f"{seconds[1]:.2f}, {seconds[0] / seconds[1]:.1f} x"
            )
            for what in found[0]:
                tensors, ours = ([f"{value:.4f}" for value in one[what]] for one in found)
                print(
                    f"  {what:<20} {' '.join(ours)}   {'the same' if ours == tensors else 'tensors ' + ' '.join(tensors)}"
                )


def bench_paper_size(num_states: int = 10_000) -> None:
    """All single images of a paper run: 2,000 models, four levels x ten runs, 100 iterations."""
    experiment = image_experiment_at("ask-for-help", "paper")
    rewards = torch.randn(2000, num_states, 11, generator=torch.Generator().manual_seed(0))
    problem = Problem(
        PerStateGame(), as_rewards(rewards), SolveBatch(tuple(experiment.parsed_levels), experiment.num_runs)
    )
    options = CFROptions(experiment.num_iterations, Sampling.QUEUE, Update.REGRET_MATCHING, 0, False)
    _, cpu, clock = _timed(minimise_regret_in_states, problem, options)
    print(f"{num_states:,} states, compiled: {cpu:.1f} s of CPU time, {clock:.1f} s on all cores")


def main() -> None:
    """Print a line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--behaviour", action="store_true", help="the experiment's numbers, by both ways")
    parser.add_argument("--paper-size", action="store_true", help="10,000 states at once")
    chosen = parser.parse_args()
    print(provenance_line(), flush=True)
    if chosen.behaviour:
        return bench_behaviour()
    if chosen.paper_size:
        return bench_paper_size()
    for name, (num_models, num_states, levels, runs, num_iterations, sampling, tracked) in CASES.items():
        rewards = torch.randn(num_models, num_states, 11, generator=torch.Generator().manual_seed(0))
        problem = Problem(PerStateGame(), as_rewards(rewards), SolveBatch(parse_levels(levels), runs))
        taken, policies = [], []
        for iterate in (minimise_regret_of_all, minimise_regret_in_states):
            with single_thread():
                options = CFROptions(num_iterations, sampling, Update.REGRET_MATCHING, 0, tracked)
                policy, cpu, _ = _timed(iterate, problem, options)
                policies.append(policy)
                taken.append(cpu)
        apart = float((policies[0] - policies[1]).abs().max())
        print(
            f"  {name:<40} {num_states:5,} states: tensors {taken[0]:7.3f} s of CPU time, compiled {taken[1]:7.3f} s, "
            f"{taken[0] / taken[1]:5.1f} x; policies at most {apart:.0e} apart",
            flush=True,
        )


if __name__ == "__main__":
    main()
