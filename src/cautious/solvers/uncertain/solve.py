"""`solve_uncertain`: checks, the double oracle from below, the revealed-model tree from above; `solve_mdp` calls it."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np
import torch

from cautious.errors import InvalidInputError
from cautious.mdp.uncertain import UncertainMDP, parse_uncertain
from cautious.parallel import BlockExecutor, single_threaded
from cautious.progress import SECONDS_BETWEEN_LINES, Progress
from cautious.risk import RiskMeasure, parse_level, warn_of_few, weights_by_rank
from cautious.solvers.uncertain.memory import memory_mixture
from cautious.solvers.uncertain.oracle import DoubleOracle
from cautious.solvers.uncertain.problem import UncertainProblem
from cautious.solvers.uncertain.revealed import BestBound, MemorySearch, RevealedTree, tighten
from cautious.solvers.uncertain.solution import PolicyMixture, UncertainSolution
from cautious.validation import as_float_tensor, as_number, check_callable, look_up, parse_flag

TOLERANCE = 1e-4
"""The gap, as a share of the range of the rewards, at which a solution is good enough."""
OBJECTIVES = {"return": False, "regret": True}


@single_threaded
def solve_uncertain(
    world: UncertainMDP,
    rewards: Any,
    level: RiskMeasure | str,
    *,
    tolerance: float = TOLERANCE,
    objective: str = "return",
    memory: bool = False,
    executor: BlockExecutor | None = None,
    progress: Progress | bool | None = None,
) -> UncertainSolution:
    """A mixture of policies of high value at a level over the models of an uncertain world, with bounds for every policy.

    The best policy is NP-hard to find, so what comes back is what a search found (`oracle`), its exact value, and a bound that
    no policy exceeds, with memory or without (`revealed`). An interrupt (Ctrl-C) returns the best so far.

    Args:
        world: The world; a `TabularMDP` is one of a single model.
        rewards: What each (state, action) pays: [S, A] in all models, or one per model, [M, S, A]. In a world of one model
            [M, S, A] are M models that differ in their rewards alone.
        level: One level, of any risk measure.
        tolerance: Stop when the gap is at most this share of the range of the rewards. Otherwise the search ends when nothing
            improves any more, and `certificate()` says how large the gap is.
        objective: ``"return"``; or ``"regret"``: each model's returns are taken less that model's own optimum.
        memory: Whether the policy may remember: `UncertainSolution.memory` then follows a tree of histories; certificate and
            returns are its own.
        executor: Where the searches for policies run, such as the Ray cluster of `cautious.open_executor`, with the same bits;
            None for the threads of this process.
        progress: True prints both bounds on standard error; or a function called as the gap closes with (done, total). The
            first call of an installation compiles for some seconds before that.

    Warns:
        FewModelsWarning: The tail that the level looks at has fewer than ten models (`risk.FEW_MODELS`).

    One model says that the bridge holds, the other that it breaks; the way around pays half as much in both. Where three
    of four models say that it holds, one ordinarily crosses; cautiously one goes around:

    >>> across, around, away = [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]
    >>> holds, breaks = ([[first, around], [away] * 2, [away] * 2, [away] * 2] for first in (across, away))
    >>> world = UncertainMDP(30 * [holds] + 10 * [breaks], [1, 0, 0, 0], 1.0, horizon=2)
    >>> pays = [[0, 0], [2, 2], [1, 1], [0, 0]]
    >>> for level in ("1-of-1", "1-of-4"):
    ...     solution = solve_uncertain(world, pays, level)
    ...     print(solution.returns()[[0, -1]].tolist(), float(solution.certificate().gap))
    [1.0, 0.0] 0.0
    [0.5, 0.5] 0.0
    """
    world = parse_uncertain(world)
    level = parse_level(level)
    table = as_float_tensor(rewards, "rewards", "cpu").double()
    if len(world) == 1 and table.dim() == 3 and len(table) > 1:
        world = world.subset([0] * len(table))
    scaled = world.scaled_rewards(table)
    if not 0 <= as_number(tolerance) < 1:
        raise InvalidInputError(f"tolerance={tolerance!r} must be in [0, 1): a share of the range of the rewards.")
    if not isinstance(progress, bool):
        check_callable(progress, "progress", "steps done, steps in all")
    rank_weights = weights_by_rank(level, len(world)).numpy()
    warn_of_few(
        level, len(world), "models", "judge the policy on models that were held out: solution.returns(other_world)"
    )
    problem = UncertainProblem(
        world.dynamics, scaled, rank_weights, world.horizon, look_up(OBJECTIVES, objective, "objective")
    )
    close = float(tolerance) * float(table.max() - table.min())
    shown = _BoundsProgress(progress, close)
    shown.begin()
    tree = RevealedTree(problem)
    most = problem.best_returns - problem.offset
    bound = BestBound(problem.value(most), problem.ranked(most))  # the model is revealed at once
    oracle = DoubleOracle(problem, executor)
    remembers = parse_flag(memory, "memory")
    search, interrupted = None, False
    try:
        oracle.run(lambda found: shown.report(found.value, bound.upper) <= close)
        search = MemorySearch(tree, oracle)
        bound = tighten(tree, search, close, None if remembers else oracle.equilibrium.value, shown.report)
        while remembers and search.answer(close / 100):
            pass
    except KeyboardInterrupt:
        interrupted = True
    shown.end()
    support = oracle.support
    mixture = PolicyMixture(
        torch.from_numpy(oracle.equilibrium.mixture[support]),
        _as_policies(world, [oracle.policies[k] for k in support]),
    )
    remembering = None if not remembers or search is None else memory_mixture(world, tree, search, oracle)
    return UncertainSolution(
        mixture=mixture,
        memory=remembering,
        level=level,
        objective=objective,
        world=world,
        rewards=table,
        weights=torch.from_numpy(bound.weights),
        upper=bound.upper,
        depth=tree.depth,
        num_histories=tree.num_nodes,
        best_returns=torch.from_numpy(problem.best_returns),
        record={
            "method": "double oracle",
            "num_models": len(world),
            "tolerance": float(tolerance),
            "num_policies_found": len(oracle.policies),
            "interrupted": interrupted,
            "value_with_memory": oracle.equilibrium.value if search is None else search.equilibrium.value,
        },
    )


def _as_policies(world: UncertainMDP, policies: list[np.ndarray]) -> torch.Tensor:
    """Policies [T, S, A] as [K, T, S, A], or stationary ones as [K, S, A]."""
    stacked = torch.from_numpy(np.array(policies))
    return stacked[:, 0] if world.horizon is None else stacked


class _BoundsProgress:
    """Both bounds, for whoever watches."""

    STEPS = 1000

    def __init__(self, progress: Progress | bool | None, close: float) -> None:
        self._progress = progress
        self._close = max(close, 1e-300)
        self._first_gap: float | None = None
        self._done = 0
        self._last = -math.inf

    def begin(self) -> None:
        """Say that the work begins, before anything is compiled."""
        if self._progress is True:
            print("solving; the first call of an installation compiles for some seconds", file=sys.stderr, flush=True)

    def report(self, lower: float, upper: float) -> float:
        """Show the bounds; returns the gap."""
        gap = max(upper - lower, 0.0)
        if callable(self._progress):
            first = self._first_gap = self._first_gap or max(gap, self._close)
            whole = math.log(first / self._close) or 1.0
            share = math.log(first / max(gap, self._close)) / whole
            self._done = max(self._done, min(int(self.STEPS * share), self.STEPS - 1))
            self._progress(self._done, self.STEPS)
        elif self._progress:
            terminal, now = sys.stderr.isatty(), time.monotonic()
            if terminal or now - self._last >= SECONDS_BETWEEN_LINES:
                self._last = now
                line = f"lower {lower:.6g}, upper {upper:.6g}, gap {gap:.3g}"
                print(f"\r{line:<60}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)
        return gap

    def end(self) -> None:
        """The search is over, whatever the gap."""
        if callable(self._progress):
            self._progress(self.STEPS, self.STEPS)
        elif self._progress and sys.stderr.isatty():
            print(file=sys.stderr)
