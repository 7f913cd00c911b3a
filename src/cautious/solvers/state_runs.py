"""What games of single states have in common, wherever they are played: plans, draws, and the record of a run.

`solvers.per_state` plays on the CPU and `solvers.kernels.state_games` on a GPU, both by a plan of what each iteration does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.ops.regret import RULES, regret_matching_plus
from cautious.risk import weights_by_rank
from cautious.solvers.adversary import WINDOWS, ModelQueue, queued
from cautious.solvers.cfr import CFROptions, CFRResult, History, Problem, init
from cautious.types import Sampling, Update

SAMPLED, EXACT, REGRET = 0, 1, 2
"""Rows of a trace."""


class StateGames(NamedTuple):
    """Policies and bounds of the games of S states at L levels."""

    policy: Tensor
    """The best policy of each, [L, S, A]."""
    lower: Tensor
    """Its exact value, [L, S]."""
    upper: Tensor
    """Bound on every policy's value, [L, S]."""


class StateDecisions(NamedTuple):
    """What L levels do in S states, and how far the models differ there."""

    policies: Tensor
    """[L, S, A]; the ordinary policy where no model prefers another action, and at levels n-of-n."""
    ordinary: Tensor
    """The ordinary policy, [S, A]."""
    gaps: Tensor
    """How much better any policy could be, at most, [L, S]."""
    spread: Tensor
    """[S] (`beliefs.disagreement.disagreement`)."""


class Plan(NamedTuple):
    """What each of T iterations does, as compiled code and kernels take it."""

    steps: np.ndarray
    """The numbers of the update rule (`ops.regret.RegretStep`), [T, 4]."""
    weights: np.ndarray
    """How much the iteration counts in averages, [T]."""
    restarts: np.ndarray
    """Whether the average of each window of iterations begins anew, [T, W]; in iteration 0 all do."""


@lru_cache(maxsize=16)
def certified_plan(num_iterations: int) -> Plan:
    """The plan of games that end when they are certified: regret matching+, averages weighted by t.

    The averages of mixtures are over all iterations and since the last power of two, which forgets early answers to poor
    policies: they would loosen the bound.
    """
    t = np.arange(num_iterations)
    return Plan(
        np.array([regret_matching_plus(number) for number in range(num_iterations)]),
        t + 1.0,
        np.stack([t == 0, t & (t - 1) == 0], axis=1),
    )


def recorded_plan(update: Update, num_iterations: int) -> Plan:
    """The plan of a run that is recorded to its end: iterations count alike, and mixtures are averaged over `WINDOWS`."""
    t = np.arange(num_iterations)[:, None]
    steps = np.array([RULES[update](number) for number in range(num_iterations)])
    return Plan(steps, np.ones(num_iterations), (t == 0) | (t == window_starts(num_iterations)))


def window_starts(num_iterations: int) -> list[int]:
    """The first iteration of each of `WINDOWS`."""
    return [int(window * num_iterations) for window in WINDOWS]


class LevelRuns(NamedTuple):
    """The runs of one level."""

    members: slice
    """The part of the batch that these runs are."""
    rank_weights: Tensor
    """Exact weights [M]."""
    draws: Tensor
    """Models drawn [R, T, N]; [R, T, 0] where all are weighed by rank."""
    k: int
    """How many of the models drawn count; 0 where all are weighed by rank."""


def runs_of_levels(problem: Problem, options: CFROptions) -> list[LevelRuns]:
    """Every level's runs, with the draws of their queues."""
    num_models, num_runs, num_iterations = problem.rewards.num_models, problem.batch.num_runs, options.num_iterations
    queue, found = ModelQueue(num_runs, num_models, options.seed), []
    for level, members in problem.batch.groups():
        draws, k = torch.empty(num_runs, num_iterations, 0, dtype=torch.int64), 0
        if options.sampling is Sampling.QUEUE and queued(level).n < num_models:  # a draw of all models is exact
            drawn, k = queued(level), queued(level).k
            draws = torch.stack([queue.draw(drawn, t) for t in range(num_iterations)], dim=1)
        found.append(LevelRuns(members, weights_by_rank(level, num_models), draws.contiguous(), k))
    return found


class Record(NamedTuple):
    """What is kept of a batch of runs in S states."""

    policy: Tensor
    """The last iterate, [B, S, A]."""
    policy_sum: Tensor
    """Sum of the iterates, [B, S, A]."""
    best_policy: Tensor
    """The iterate of highest exact value, [B, S, A]."""
    best_value: Tensor
    """Exact value of that iterate, [B, S]."""
    mixture_sums: Tensor
    """Sums of the exact mixtures over each window, [W, B, S, A]; [0, B, S, A] where they are not tracked."""
    sampled: Tensor
    """The policies' values under the answers, summed over states, [T, B]."""
    exact: Tensor
    """Their exact values, summed over states, [T, B]."""
    largest_regret: Tensor
    """Largest cumulative regret so far over states and actions, [T, B]."""

    def result(self, problem: Problem, num_iterations: int) -> CFRResult:
        """The same as `solvers.cfr.minimise_regret_of_all` returns it."""
        history = History.empty(init(problem), num_iterations)
        history.occupancy_sum = history.policy_sum = self.policy_sum  # with d(s) = 1 the occupancy is the policy
        history.sampled_value, history.largest_regret = self.sampled / problem.rewards.num_states, self.largest_regret
        if not len(self.mixture_sums):
            return CFRResult(self.policy, history, None)
        history.exact_value = self.exact / problem.rewards.num_states
        history.best_policy, history.best_value = self.best_policy, self.best_value
        counts = [num_iterations - start for start in window_starts(num_iterations)]
        lengths = torch.tensor(counts, dtype=torch.float64, device=self.policy.device)[:, None, None, None]
        return CFRResult(self.policy, history, self.mixture_sums / lengths)
