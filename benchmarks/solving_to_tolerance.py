"""Solving to a tolerance against a number of iterations: `python -m benchmarks.solving_to_tolerance [--figure] [NAME ...]`.

Each row solves one world at one level twice in the same process: 400 iterations of regret matching+ against exact answers
(what was advised before), then `solve_mdp` at its default tolerance. Gaps are certified and divided by the range of the
rewards; seconds are CPU seconds of one thread. Where the linear program can be run, a third solve at a tolerance of 1e-6 is
compared with it. Where 400 iterations would take many minutes ten are run, and their seconds count forty times.
The last line has the most memory that the process held. The largest row takes some minutes and 5 GB:

    python -m benchmarks.solving_to_tolerance "100,000 states, 2,000 models"

    --figure    draw docs/figures/solving.png instead: gap against seconds, by the paper's algorithm, regret matching+ and ours
    NAME        only problems whose name contains it
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from cautious import ConvergenceWarning, RewardEnsemble, Solution, TabularMDP, driving_world, solve_exact, solve_mdp
from cautious_paper.experiments.store import provenance_line

LEVELS = ("1-of-20", "5-of-20", "1-of-100")
BEFORE: dict[str, Any] = {"method": "cfr", "num_iterations": 400, "sampling": "exact", "update": "regret-matching+"}
LARGEST_REFEREE = 110_000
"""Rewards M*S*A up to which the linear program is run beside it: some seconds."""
LARGEST_BEFORE, FEW = 2**27, 10
"""Rewards M*S*A up to which all of the 400 iterations are run, and how many of them beyond."""
FIGURE = Path("docs/figures/solving.png")

Problem = tuple[TabularMDP, Tensor]


class Solved(NamedTuple):
    """A solution, its CPU seconds, and its best policy's certified gap and value."""

    solution: Solution
    seconds: float
    gap: float
    value: float


def timed(problem: Problem, level: str, **options: Any) -> Solved:
    """Solve, and certify apart from the time taken."""
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is in the table
        solution = solve_mdp(*problem, level, **options)
    taken = time.process_time() - started
    certificate = solution.certificate(solution.best_policy)
    return Solved(solution, taken, float(certificate.gap), float(certificate.lower))


def driving(num_drawn: int | None = None) -> Problem:
    """The novel driving world with the belief in the package, or with models drawn from a normal distribution fitted to it."""
    world = driving_world()
    rewards = RewardEnsemble.load("driving").rewards(world).double()
    if num_drawn is not None:
        mean = rewards.mean(dim=0)
        weights = normal(0, num_drawn, len(rewards)) / (len(rewards) - 1) ** 0.5
        rewards = mean + torch.einsum("nm,msa->nsa", weights, rewards - mean)
    return world.mdp, rewards


def terrains() -> Problem:
    """A map with six kinds of ground that no model has seen (docs/deep.md), 128 models."""
    from cautious_paper.beliefs.terrains import TerrainBelief, fit_terrain_belief
    from cautious_paper.worlds.terrains import terrain_world

    world = terrain_world()
    belief = TerrainBelief.of(world, fit_terrain_belief(num_models=128))
    cells = torch.from_numpy(world.observe(np.arange(world.num_states)))
    return world.mdp, belief.rewards(cells).double()


def gymnasium_world(name: str, num_models: int = 128, share: float = 0.2, **options: Any) -> Problem:
    """A Gymnasium world in which a fifth of the states is of four unseen kinds, whose rewards the models make up."""
    import gymnasium

    env = gymnasium.make(name, **options)
    mdp = TabularMDP.from_gymnasium(env, discount=0.95)
    num_states, random = int(env.observation_space.n), np.random.default_rng(0)  # type: ignore[attr-defined]
    kind = np.where(random.random(num_states) < share, random.integers(1, 5, num_states), 0)
    of_kind = np.concatenate([np.zeros((num_models, 1)), 10 * random.normal(size=(num_models, 4))], axis=1)
    by_state = -1 + 0.1 * random.normal(size=(num_models, num_states)) + of_kind[:, kind]
    return mdp, mdp.expected_rewards(torch.from_numpy(by_state)).double()


def random_world(
    num_states: int, num_models: int, doubts: str, discount: float = 0.99, dtype: torch.dtype = torch.float64
) -> Problem:
    """Four actions with four successors each; doubts of twelve shared kinds, or of every state's own."""
    random = np.random.default_rng(5)
    num_pairs = 4 * num_states
    rows, columns = np.repeat(np.arange(num_pairs), 4), random.integers(0, num_states, 4 * num_pairs)
    matrix = scipy.sparse.csr_array(
        (random.dirichlet(np.ones(4), num_pairs).ravel(), (rows, columns)), shape=(num_pairs, num_states)
    )
    mdp = TabularMDP(matrix, np.full(num_states, 1 / num_states), discount)
    common = 0.5 * normal(1, num_states, 4)
    if doubts == "own":
        return mdp, common + normal(4, num_models, num_states, 4)
    shown, opinions = 0.4 * normal(2, 12, 4 * num_states), normal(3, num_models, 12)
    rewards = torch.empty(num_models, num_states, 4, dtype=dtype)
    for part, block in zip(opinions.split(100), rewards.split(100), strict=True):  # one block is in float64 at a time
        block.copy_(common + (part @ shown).view(-1, num_states, 4))
    return mdp, rewards


def normal(seed: int, *shape: int) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


PROBLEMS: dict[str, tuple[Callable[[], Problem], tuple[str, ...]]] = {
    "driving, shipped belief": (driving, LEVELS),
    "driving, 2,000 models": (partial(driving, 2000), LEVELS),
    "terrains": (terrains, LEVELS),
    "FrozenLake 8 x 8": (partial(gymnasium_world, "FrozenLake-v1", map_name="8x8"), LEVELS),
    "Taxi": (partial(gymnasium_world, "Taxi"), LEVELS),
    "CliffWalking": (partial(gymnasium_world, "CliffWalking"), LEVELS),
    "random, shared doubts, 200 states": (partial(random_world, 200, 128, "shared"), LEVELS),
    "random, own doubts, 200 states": (partial(random_world, 200, 128, "own"), LEVELS),
    "random, shared doubts, 2,000 states": (partial(random_world, 2000, 128, "shared"), LEVELS),
    "random, own doubts, 2,000 states": (partial(random_world, 2000, 128, "own"), LEVELS),
    "sparse, 10,000 states, 200 models": (partial(random_world, 10_000, 200, "shared", 0.9), LEVELS[:1]),
    "sparse, 10,000 states, 2,000 models": (partial(random_world, 10_000, 2000, "shared", 0.9), LEVELS[:1]),
    "sparse, 100,000 states, 100 models": (partial(random_world, 100_000, 100, "shared", 0.9), LEVELS[:1]),
    "sparse, 100,000 states, 2,000 models": (
        partial(random_world, 100_000, 2000, "shared", 0.9, torch.float32),
        LEVELS[:1],
    ),
}
"""Worlds by name, each with its levels."""


def row(name: str, problem: Problem, level: str) -> str:
    """One row of the table."""
    mdp, rewards = problem
    unit = float(rewards.max() - rewards.min())
    times = 1 if rewards.numel() <= LARGEST_BEFORE else BEFORE["num_iterations"] // FEW
    before = timed(problem, level, **BEFORE | {"num_iterations": BEFORE["num_iterations"] // times})
    ours = timed(problem, level)
    referee = ""
    if rewards.numel() <= LARGEST_REFEREE:
        best = float(solve_exact(mdp, rewards, level).certificate().lower)
        finest = timed(problem, level, tolerance=1e-6)
        referee = f"{finest.gap / unit:.0e}, off by {abs(best - finest.value) / unit:.0e}, {finest.seconds:.2f} s"
    [stages] = ours.solution.record["stages"]
    size = " x ".join(f"{size:,}" for size in rewards.shape)
    return (
        f"| {name} | {size} | {level} | {before.gap / unit:.1e}{'' if times == 1 else f' after {FEW}'} | "
        f"{times * before.seconds:.2f} | {ours.gap / unit:.1e} | {ours.seconds:.2f} | "
        f"{ours.seconds / (times * before.seconds):.2f} | {'; '.join(stages)} | {referee} |"
    )


def table(names: list[str]) -> Iterator[str]:
    """The rows of all problems, or of those whose names contain one of `names`."""
    yield "| world | M x S x A | level | gap, 400 iterations | s | gap, ours | s | ratio of s | by | at 1e-6, and the LP |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, (make, levels) in PROBLEMS.items():
        if not names or any(part in name for part in names):
            problem = make()
            for level in levels:
                yield row(name, problem, level)


def curves(problem: Problem, level: str) -> dict[str, list[tuple[float, float]]]:
    """(CPU seconds, gap as a share of the range) by method, for more and more iterations or smaller and smaller tolerances."""
    unit = float(problem[1].max() - problem[1].min())
    iterations = {"method": "cfr", "sampling": "exact"}
    ways: dict[str, list[dict[str, Any]]] = {
        "regret matching (the paper)": [iterations | {"num_iterations": n} for n in (25, 50, 100, 200, 400, 800)],
        "regret matching+": [
            iterations | {"num_iterations": n, "update": "regret-matching+"} for n in (25, 50, 100, 200, 400, 800)
        ],
        "ours, to a tolerance": [{"tolerance": 10.0**-n} for n in (2, 3, 4, 5, 6)],
    }
    found = {}
    for name, settings in ways.items():
        solved = [timed(problem, level, **options) for options in settings]
        found[name] = [(one.seconds, max(one.gap / unit, 1e-9)) for one in solved]
    return found


def draw() -> None:
    """Gap against seconds in three worlds."""
    import matplotlib.pyplot as plt

    chosen = ("driving, shipped belief", "random, shared doubts, 200 states", "random, own doubts, 200 states")
    figure, axes = plt.subplots(1, len(chosen), figsize=(11, 3.2), sharey=True, layout="constrained")
    for axis, name in zip(axes, chosen, strict=True):
        for method, points in curves(PROBLEMS[name][0](), "1-of-20").items():
            axis.loglog(*zip(*points, strict=True), marker="o", markersize=3, label=method)
        axis.set(title=name, xlabel="CPU seconds")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("certified gap / range of rewards")
    axes[-1].legend(fontsize=8)
    figure.savefig(FIGURE, dpi=110)
    print(f"wrote {FIGURE}")


def main() -> None:
    """Print the table, or draw the figure."""
    torch.set_num_threads(1)
    print(provenance_line())
    if "--figure" in sys.argv[1:]:
        draw()
        return
    for line in table(sys.argv[1:]):
        print(line, flush=True)
    print(f"\nmemory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB at most")


if __name__ == "__main__":
    main()
