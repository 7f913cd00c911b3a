"""The single-state regime of `solve_bandit`: iterations in compiled code against the same iterations in tensors.

python -m benchmarks.single_states

CPU seconds of both in one run, and how far their policies are apart. The paper's setting: 2,000 models, 11 actions, four levels
x ten runs, 100 iterations.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from cautious.experiments.store import provenance_line
from cautious.ops.risk import parse_levels
from cautious.parallel import single_thread
from cautious.solvers.adversary import SolveBatch
from cautious.solvers.cfr import CFROptions, PerStateGame, Problem, minimise_regret_of_all
from cautious.solvers.per_state_cfr import minimise_regret_in_states
from cautious.solvers.rewards import as_rewards
from cautious.types import Sampling, Update

PAPER_LEVELS = ("1-of-20", "5-of-20", "10-of-20", "20-of-20")
CASES: dict[str, tuple[Any, ...]] = {
    "the paper's, queue, 4 levels x 10 runs": (2000, 200, PAPER_LEVELS, 10, 100, Sampling.QUEUE, False),
    "one level, one run, queue": (2000, 4000, ("1-of-20",), 1, 100, Sampling.QUEUE, False),
    "the same, exact values tracked": (2000, 100, ("1-of-20",), 1, 100, Sampling.QUEUE, True),
    "2,000 models, exact": (2000, 100, ("1-of-20",), 1, 100, Sampling.EXACT, True),
    "100 models, exact": (100, 500, ("1-of-20",), 1, 200, Sampling.EXACT, True),
    "one state, 100 models, exact": (100, 1, ("1-of-20",), 1, 200, Sampling.EXACT, True),
}


def main() -> None:
    """Print a line per case."""
    print(provenance_line(), flush=True)
    for name, (num_models, num_states, levels, runs, num_iterations, sampling, tracked) in CASES.items():
        rewards = torch.randn(num_models, num_states, 11, generator=torch.Generator().manual_seed(0))
        problem = Problem(PerStateGame(), as_rewards(rewards), SolveBatch(parse_levels(levels), runs))
        taken, policies = [], []
        for iterate in (minimise_regret_of_all, minimise_regret_in_states):
            with single_thread():
                options = CFROptions(num_iterations, sampling, Update.REGRET_MATCHING, 0, tracked)
                iterate(problem, options._replace(num_iterations=2))
                started = time.process_time()
                policies.append(iterate(problem, options).policy)
                taken.append(time.process_time() - started)
        apart = float((policies[0] - policies[1]).abs().max())
        print(
            f"  {name:<40} {num_states:5,} states: tensors {taken[0]:7.3f} s of CPU time, compiled {taken[1]:7.3f} s, "
            f"{taken[0] / taken[1]:5.1f} x; policies at most {apart:.0e} apart",
            flush=True,
        )


if __name__ == "__main__":
    main()
