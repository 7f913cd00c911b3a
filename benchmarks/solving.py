"""k-of-N solving against the plain ways: sweeps for every reward function, and a Python loop over states."""

from __future__ import annotations

import resource
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from cautious import TabularMDP, driving_world, solve_bandit, solve_mdp
from cautious.ops.regret import instantaneous_regret, regret_matching, uniform_policy
from cautious.risk import KofN
from cautious_paper.timing.measures import LEVEL, seconds
from cautious_paper.timing.plain import numpy_loop_over_states, sweep_iterations


def sparse_world(num_states: int = 784, num_actions: int = 5, num_successors: int = 10, seed: int = 0) -> TabularMDP:
    """A random sparse MDP of the driving world's size; with no structure, so that its LU factors fill up."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(num_states * num_actions), num_successors)
    columns = rng.integers(0, num_states, len(rows))
    values = rng.dirichlet(np.ones(num_successors), num_states * num_actions).ravel()
    matrix = scipy.sparse.csr_array((values, (rows, columns)), shape=(num_states * num_actions, num_states))
    return TabularMDP(matrix, np.full(num_states, 1 / num_states), 0.99)


def torch_loop_over_states(rewards: Tensor, level: KofN, num_states: int, num_iterations: int) -> None:
    """The single-state regime state by state with torch."""
    for state in range(num_states):
        policy = uniform_policy(1, rewards.shape[2])
        cumulative = torch.zeros_like(policy)
        for t in range(num_iterations):
            sampled = rewards[t * level.n : (t + 1) * level.n, state].double()
            worst = torch.argsort(sampled @ policy[0], stable=True)[: level.k]
            cumulative += instantaneous_regret(sampled[worst].mean(dim=0, keepdim=True), policy)
            policy = regret_matching(cumulative)


def bench_mdp() -> list[str]:
    """On a sparse MDP of the driving world's size."""
    return against_sweeps("sparse MDP", sparse_world())


def bench_driving(num_models: int = 2000, num_iterations: int = 100) -> list[str]:
    """On the novel driving world itself, whose factors stay sparse; and everything the paper solved there."""
    mdp = driving_world(novel=True, appearance_probability=0.5).mdp
    lines = against_sweeps("novel driving world", mdp, num_models, num_iterations)
    levels = [f"{k}-of-20" for k in (1, 2, 4, 5, 10, 20)]
    rewards = random_rewards(mdp, num_models)
    whole = seconds(lambda: solve_mdp(mdp, rewards, levels, num_runs=5, num_iterations=num_iterations))
    return [*lines, f"  ours, the paper's 6 levels x 5 runs      {whole:9.2f} s   (the paper: 30 x 3 minutes)"]


def random_rewards(mdp: TabularMDP, num_models: int) -> Tensor:
    """[M, S, A], the same ones each time."""
    shape = num_models, mdp.num_states, mdp.num_actions
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def against_sweeps(name: str, mdp: TabularMDP, num_models: int = 2000, num_iterations: int = 100) -> list[str]:
    """100 iterations of k-of-N, against Bellman sweeps for every sampled model (a few iterations, scaled up)."""
    rewards = random_rewards(mdp, num_models)
    solve_mdp(mdp, rewards, LEVEL, num_iterations=2)  # warm up: threads, factor choice
    tracked = seconds(lambda: solve_mdp(mdp, rewards, LEVEL, num_iterations=num_iterations))
    untracked = seconds(lambda: solve_mdp(mdp, rewards, LEVEL, num_iterations=num_iterations, track_exact=False))
    few = 2
    sweeps = seconds(lambda: sweep_iterations(mdp, rewards.numpy(), LEVEL, few)) / few * num_iterations
    size = f"S={mdp.num_states} A={mdp.num_actions}, M={num_models}, N=20, T={num_iterations}"
    return [
        f"{name}, {size}, one level, one run",
        f"  sweeps to 1e-6 for each of N rewards     {sweeps:9.2f} s   (measured on {few} iterations)",
        f"  ours, exact value of every iterate       {tracked:9.2f} s   {sweeps / tracked:7.0f} x",
        f"  ours, sampled models only                {untracked:9.2f} s   {sweeps / untracked:7.0f} x",
    ]


def bench_single_state(num_states: int = 10_000, num_models: int = 2000, num_iterations: int = 100) -> list[str]:
    """The single-state regime on 10,000 states, against loops over states (a few states, scaled up)."""
    rewards = torch.randn(num_models, num_states, 11, generator=torch.Generator().manual_seed(0))
    solve_bandit(rewards[:, :100], LEVEL, regime="single-state", num_iterations=2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours = seconds(lambda: solve_bandit(rewards, LEVEL, regime="single-state", num_iterations=num_iterations))
    extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    few = 20
    torch_loop = seconds(lambda: torch_loop_over_states(rewards, LEVEL, few, num_iterations)) / few * num_states
    numpy_loop = seconds(lambda: numpy_loop_over_states(rewards.numpy(), LEVEL, few, num_iterations)) / few * num_states
    lines = [f"single-state regime, S={num_states} A=11, M={num_models}, N=20, T={num_iterations}, one level, one run"]
    lines.append(f"  Python loop over states, torch           {torch_loop:9.2f} s   (measured on {few} states)")
    lines.append(f"  Python loop over states, numpy           {numpy_loop:9.2f} s   (measured on {few} states)")
    lines.append(
        f"  ours                                     {ours:9.2f} s   {torch_loop / ours:7.0f} x, {numpy_loop / ours:.0f} x"
    )
    lines.append(f"  memory beyond the rewards                {extra:9.2f} GiB")
    return lines


def bench_batch() -> list[str]:
    """Four levels x ten runs in one call, against forty calls."""
    rewards = torch.randn(500, 2000, 11, generator=torch.Generator().manual_seed(0))
    levels = ["1-of-20", "1-of-10", "5-of-10", "10-of-10"]
    lines = ["four levels x ten runs, S=2,000 A=11, M=500, T=25"]
    for regime in ("all-states", "single-state"):
        options: dict[str, Any] = {"regime": regime, "num_iterations": 25}
        one = seconds(partial(solve_bandit, rewards, levels, num_runs=10, **options))
        calls = [partial(solve_bandit, rewards, level, seed=run, **options) for level in levels for run in range(10)]
        forty = sum(seconds(call) for call in calls)
        lines.append(f"  {regime:<14} one call {one:7.2f} s, forty calls {forty:7.2f} s   {forty / one:5.1f} x")
    return lines


def bench_growth() -> list[str]:
    """How time grows with S, M and T, each doubled twice; linear growth reads 1 2 4."""
    lines = ["growth (time relative to the first; linear is 1.0 2.0 4.0)"]

    def row(name: str, sizes: tuple[int, ...], work: Callable[[int], object]) -> None:
        work(sizes[0])
        times = [min(seconds(partial(work, size)) for _ in range(3)) for size in sizes]
        ratios = "  ".join(f"{t / times[0]:5.2f}" for t in times)
        lines.append(f"  {name:<44} {' '.join(f'{size:>7}' for size in sizes)}   {ratios}   ({times[0]:.3f} s)")

    base = torch.randn(2000, 8000, 11, generator=torch.Generator().manual_seed(0))
    single: dict[str, Any] = {"regime": "single-state", "num_iterations": 40}
    row("single-state queue, S", (2000, 4000, 8000), lambda n: solve_bandit(base[:, :n], LEVEL, **single))
    row(
        "single-state queue, T",
        (25, 50, 100),
        lambda n: solve_bandit(base[:, :2000], LEVEL, regime="single-state", num_iterations=n),
    )
    row(
        "single-state exact, M",
        (500, 1000, 2000),
        lambda n: solve_bandit(base[:n, :200], LEVEL, regime="single-state", sampling="exact", num_iterations=5),
    )
    row(
        "all-states exact, S",
        (1000, 2000, 4000),
        lambda n: solve_bandit(base[:500, :n], LEVEL, sampling="exact", num_iterations=10),
    )
    row(
        "all-states exact, M",
        (500, 1000, 2000),
        lambda n: solve_bandit(base[:n, :1000], LEVEL, sampling="exact", num_iterations=10),
    )
    mdp = sparse_world()
    rewards = torch.randn(4000, 784, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    row("MDP queue, T", (10, 20, 40), lambda n: solve_mdp(mdp, rewards[:1000], LEVEL, num_iterations=n))
    row(
        "MDP exact, M (factorisation does not grow)",
        (1000, 2000, 4000),
        lambda n: solve_mdp(mdp, rewards[:n], LEVEL, sampling="exact", num_iterations=10),
    )
    worlds = {n: sparse_world(n) for n in (400, 800, 1600)}
    beliefs = {n: torch.randn(500, n, 5, generator=torch.Generator().manual_seed(0)) for n in worlds}
    row(
        "MDP queue, S (sparse, without structure)",
        (400, 800, 1600),
        lambda n: solve_mdp(worlds[n], beliefs[n], LEVEL, num_iterations=20),
    )
    return lines
