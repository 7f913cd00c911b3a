"""MDPs from 400 to 100,000 sparse states: CPU milliseconds of one iteration of `solve_mdp`, stage by stage.

python -m benchmarks.large_worlds [--states 401 10000 100000] [--models 100]

Two kinds of world: successors at random, which mixes quickly and is solved by a series of sparse products; and a grid with
slips, which is solved by a sparse factorisation.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse
import torch

from cautious import TabularMDP, solve_mdp
from cautious.ops.bellman import PolicyEvaluation
from cautious.solvers.rewards import DenseRewards
from cautious_paper.experiments.store import provenance_line

ACTIONS, DISCOUNT = 4, 0.95
STAGES: dict[str, tuple[Any, str]] = {
    "factorise": (PolicyEvaluation, "__init__"),
    "occupancy": (PolicyEvaluation, "occupancy"),
    "returns of all models": (DenseRewards, "returns"),
    "mixture": (DenseRewards, "mixture"),
    "action values": (PolicyEvaluation, "action_values"),
}


def random_world(num_states: int) -> TabularMDP:
    """Three successors of every pair, anywhere."""
    rng = np.random.default_rng(0)
    pairs = num_states * ACTIONS
    rows, columns = np.repeat(np.arange(pairs), 3), rng.integers(num_states, size=3 * pairs)
    chances = rng.dirichlet(np.ones(3), size=pairs).ravel()
    return _world(scipy.sparse.csr_array((chances, (rows, columns)), shape=(pairs, num_states)))


def grid_world(num_states: int) -> TabularMDP:
    """A square: each move succeeds with 0.9, and stays where it is otherwise or at the edge."""
    side = int(num_states**0.5)
    count = side * side
    y, x = np.divmod(np.arange(count), side)
    targets = [
        np.clip(y + dy, 0, side - 1) * side + np.clip(x + dx, 0, side - 1)
        for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0))
    ]
    moved = np.stack(targets, axis=1).ravel()
    stayed, rows = np.repeat(np.arange(count), ACTIONS), np.arange(count * ACTIONS)
    chances = np.concatenate([np.full(count * ACTIONS, 0.9), np.full(count * ACTIONS, 0.1)])
    places = (np.tile(rows, 2), np.concatenate([moved, stayed]))
    return _world(scipy.sparse.csr_array((chances, places), shape=(count * ACTIONS, count)))


def _world(transitions: scipy.sparse.csr_array) -> TabularMDP:
    count = transitions.shape[1]
    return TabularMDP(transitions, np.full(count, 1 / count), DISCOUNT)


def stages(mdp: TabularMDP, num_models: int, num_iterations: int) -> dict[str, float]:
    """CPU seconds of an iteration: of each stage, and of everything."""
    shape = (num_models, mdp.num_states, mdp.num_actions)
    rewards = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    solve_mdp(mdp, rewards, "1-of-20", num_iterations=1, sampling="exact")  # orders, allocates
    taken = dict.fromkeys(STAGES, 0.0)

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            result = work(*args, **kwargs)
            taken[name] += time.process_time() - started
            return result

        return call

    patches = [patch.object(kind, name, timed(stage, getattr(kind, name))) for stage, (kind, name) in STAGES.items()]
    for one in patches:
        one.start()
    started = time.process_time()
    solve_mdp(mdp, rewards, "1-of-20", num_iterations=num_iterations, sampling="exact")
    total = time.process_time() - started
    for one in patches:
        one.stop()
    return {name: own / num_iterations for name, own in (*taken.items(), ("all", total))}


def main() -> None:
    """Print a line per world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, nargs="+", default=[401, 10_000, 100_000])
    parser.add_argument("--models", type=int, default=100)
    options = parser.parse_args()
    print(
        f"{provenance_line()}; CPU milliseconds per iteration, {options.models} models, {ACTIONS} actions", flush=True
    )
    for kind, world in (("random", random_world), ("grid", grid_world)):
        for count in options.states:
            mdp = world(count)
            found = stages(mdp, options.models, max(2, 20_000 // count))
            parts = ", ".join(f"{name} {1e3 * own:.1f}" for name, own in found.items())
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"  {kind:<7} {mdp.num_states:7,} states: {parts}; so far {memory:.2f} GiB at most", flush=True)


if __name__ == "__main__":
    main()
