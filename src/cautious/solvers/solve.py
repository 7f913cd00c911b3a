"""`solve_bandit` and `solve_mdp`: check what is asked for, run k-of-N CFR (`solvers.cfr`), return a `Solution`.

All defaults are defined here. `solve_bandit` and `solve_mdp` take the paper's settings (`PAPER`). `CautiousPolicy` and the
command line take exact rank weights (`USER`), so that the same question has the same answer. Iterations T, if none are given:

    solve_bandit, solve_mdp                                         100, as in the paper    `PAPER`
    CautiousPolicy: a game per state, on the CPU                    at most 300             `STATE_GAME_ITERATIONS`
    CautiousPolicy: an MDP, a GPU, or queue sampling                200                     `USER`
    cautious solve, where it does not decide by CautiousPolicy      1000                    `COMMAND_ITERATIONS`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cautious.mdp.tabular import TabularMDP, check_fits, parse_mdp
from cautious.parallel import single_threaded
from cautious.progress import Progress
from cautious.risk import Levels, parse_levels, weights_by_rank
from cautious.seeding import check_seed
from cautious.solvers.adversary import SolveBatch, queued
from cautious.solvers.cfr import BanditGame, CFROptions, Game, MDPGame, PerStateGame, Problem, minimise_regret
from cautious.solvers.rewards import Rewards, as_rewards
from cautious.solvers.solution import Solution, Trace
from cautious.types import ArrayLike, Regime, Sampling, Update
from cautious.validation import (
    as_distribution,
    as_float_tensor,
    check_callable,
    check_shape,
    parse_choice,
    parse_count,
    parse_flag,
)


class SolverDefaults(NamedTuple):
    """How to solve where nothing else is asked for."""

    sampling: Sampling
    num_iterations: int
    """T."""
    update: Update = Update.REGRET_MATCHING


PAPER = SolverDefaults(Sampling.QUEUE, num_iterations=100)
"""Section 4 and App. B.2."""
USER = SolverDefaults(Sampling.EXACT, num_iterations=200)
COMMAND_ITERATIONS = 1000
"""It is run once, so it may take longer for a smaller gap."""
STATE_GAME_ITERATIONS, STATE_GAME_TOLERANCE = 300, 1e-4
"""The tolerance is the gap, as a share of the range of the state's rewards, at which a game ends (`solvers.per_state`)."""

TRACKED_ENTRIES = {False: 2**24, True: 2**20}
"""By default exact values are tracked in every iteration where there are at most this many rewards M*S*A: one product with all
of them, or (True) in the single-state regime a sort of all models in every state."""


@dataclass(frozen=True)
class SolveOptions:
    """How to solve, checked; what `solve_bandit` and `solve_mdp` have in common."""

    level: Levels
    num_iterations: int
    sampling: Sampling | str
    update: Update | str
    num_runs: int | None
    seed: int
    track_exact: bool | None
    progress: Progress | None

    def __post_init__(self) -> None:
        """Raise `InvalidInputError` for a value that breaks its rule."""
        levels = parse_levels(self.level)
        checked = {
            "level": levels if isinstance(self.level, (list, tuple)) else levels[0],
            "seed": check_seed(self.seed),
            "num_runs": None if self.num_runs is None else parse_count(self.num_runs, "num_runs"),
            "num_iterations": parse_count(self.num_iterations, "num_iterations"),
            "sampling": parse_choice(Sampling, self.sampling, "sampling"),
            "update": parse_choice(Update, self.update, "update"),
            "track_exact": None if self.track_exact is None else parse_flag(self.track_exact, "track_exact"),
        }
        check_callable(self.progress, "progress", "iterations done, iterations in all")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def batch(self) -> SolveBatch:
        """Levels and runs that are solved together."""
        return SolveBatch(parse_levels(self.level), self.num_runs or 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Leading dimensions of the answer: (), (L,), (R,) or (L, R)."""
        levels = (len(self.batch.levels),) if isinstance(self.level, tuple) else ()
        return levels + (() if self.num_runs is None else (self.num_runs,))


@single_threaded
def solve_bandit(
    rewards: Any,
    level: Levels,
    *,
    regime: str = "all-states",
    num_iterations: int = PAPER.num_iterations,
    sampling: str = PAPER.sampling,
    update: str = PAPER.update,
    state_dist: ArrayLike | None = None,
    num_runs: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    track_exact: bool | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Policies that are robust at a k-of-N level in a contextual bandit (Alg. 1).

    Args:
        rewards: What each of M models says each action pays, [M, S, A]: a tensor, a numpy array (memory-mapped too), or
            anything with ``num_models`` and ``rewards_for(indices) -> [N, S, A]``.
        level: A risk measure (`cautious.risk`) or its text, such as ``"1-of-20"`` or ``"CVaR(0.1)"``; a sequence of them adds a
            leading dimension to every array of the solution. Queue sampling takes k-of-n alone.
        regime: ``"all-states"`` ranks the models by their value over the distribution of states; ``"single-state"``
            treats each state as a problem of its own, and is far more cautious.
        num_iterations: T.
        sampling: ``"queue"`` draws N models per iteration from a shuffled queue (the paper); ``"exact"`` weighs all M
            models by rank in every iteration: no sampling noise.
        update: ``"regret-matching"``, ``"regret-matching+"`` or ``"as-printed"`` (Alg. 1 to the letter).
        state_dist: How likely each state is, [S]; uniform if not given. In the single-state regime it has no effect.
        num_runs: Repeat with this many shuffles of the queue; adds a dimension. Run r is the same alone or among others.
        seed: Starts the shuffles.
        device: Where to compute; where the rewards are, if not given.
        track_exact: Whether every iteration also ranks all M models, for `Trace.exact_value`, `best_policy` and a tight
            certificate. By default wherever that is cheap.
        progress: Called as the work advances with (done, total).

    Returns:
        `Solution`; for one level and no `num_runs` its policies are plain [S, A].

    Help pays 0.25 for sure; the gamble pays 1 under half of the models. Ordinarily one gambles, cautiously one asks:

    >>> models = torch.tensor([[[1.0, 0.25]], [[0.0, 0.25]]])
    >>> solution = solve_bandit(models, ["2-of-2", "1-of-2"], sampling="exact")
    >>> solution.policy[0, 0].tolist(), bool(solution.policy[1, 0, 1] > 0.8)
    ([1.0, 0.0], True)
    """
    table = as_rewards(rewards, device)
    kind = parse_choice(Regime, regime, "regime")
    distribution = _state_distribution(state_dist, table)
    game = BanditGame(distribution) if kind is Regime.ALL_STATES else PerStateGame()
    options = SolveOptions(level, num_iterations, sampling, update, num_runs, seed, track_exact, progress)
    return _solve(game, table, options, {"regime": str(kind)})


@single_threaded
def solve_mdp(
    mdp: TabularMDP,
    rewards: Any,
    level: Levels,
    *,
    num_iterations: int = PAPER.num_iterations,
    sampling: str = PAPER.sampling,
    update: str = PAPER.update,
    num_runs: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    track_exact: bool | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Policies that are robust at a k-of-N level in a continuing MDP (section 5 of the paper).

    Each iteration factorises I - γP_π once: its transpose gives the occupancy, with which the returns of all M models are
    one product; a second solve gives the action values under the worst-k reward.

    Args:
        mdp: The world; all returns are normalised by (1 - discount).
        rewards: What each of M models says each (state, action) pays, [M, S, A], in any form that `solve_bandit` takes.
        level: As in `solve_bandit`, and so are all the others.
        num_iterations: T.
        sampling: ``"queue"`` (the paper) or ``"exact"``.
        update: ``"regret-matching"``, ``"regret-matching+"`` or ``"as-printed"``.
        num_runs: Repeat with this many shuffles of the queue; adds a dimension.
        seed: Starts the shuffles.
        device: Where to compute; where the rewards are, if not given.
        track_exact: Whether every iteration also ranks all M models; by default wherever that is cheap.
        progress: Called as the work advances with (done, total).

    Returns:
        `Solution`; for one level and no `num_runs` its policies are plain [S, A].
    """
    mdp, table = parse_mdp(mdp), as_rewards(rewards, device)
    check_fits(mdp, table.num_models, table.num_states, table.num_actions)
    options = SolveOptions(level, num_iterations, sampling, update, num_runs, seed, track_exact, progress)
    return _solve(MDPGame(mdp, table.device), table, options, {"discount": mdp.discount})


def _solve(game: Game, rewards: Rewards, options: SolveOptions, record: dict[str, Any]) -> Solution:
    """Run k-of-N CFR and give what it returns the leading dimensions that were asked for."""
    problem = Problem(game, rewards, options.batch)
    for level in problem.batch.levels:
        weights_by_rank(level, rewards.num_models)  # raises for a level that these models cannot serve
        if options.sampling is Sampling.QUEUE:
            queued(level)
    sampling, update = Sampling(options.sampling), Update(options.update)
    track_exact = options.track_exact
    if track_exact is None:  # where it is cheap, whatever else is solved in the same call
        entries = rewards.num_models * rewards.num_states * rewards.num_actions
        track_exact = not rewards.streamed and entries <= TRACKED_ENTRIES[game.per_state]
    how = CFROptions(options.num_iterations, sampling, update, options.seed, track_exact, options.progress)
    result = minimise_regret(problem, how)

    def shaped(batch: Tensor) -> Tensor:
        return batch.reshape(options.shape + batch.shape[1:])  # [B, ...] -> [L, R, ...], as asked for

    history = result.history
    columns = (history.sampled_value, history.exact_value, history.largest_regret)  # [T, B]
    record |= {
        "levels": [str(level) for level in problem.batch.levels],
        "num_runs": problem.batch.num_runs,
        "num_iterations": options.num_iterations,
        "num_models": rewards.num_models,
        "sampling": str(sampling),
        "update": str(update),
        "seed": options.seed,
        "reshuffles": None if sampling is Sampling.EXACT else _reshuffles(problem, options.num_iterations),
    }
    return Solution(
        policy=shaped(result.policy),
        average_policy=shaped(history.average_policy()),
        trace=Trace(*(shaped(column.T.contiguous()) for column in columns)),
        level=problem.batch.levels if isinstance(options.level, tuple) else problem.batch.levels[0],
        record=record,
        problem=problem,
        mixtures=result.mixtures,
        best_iterate=(history.best_policy, history.best_value),
    )


def _reshuffles(problem: Problem, num_iterations: int) -> list[int]:
    """How often the queue of M models ran out and was shuffled again in T iterations, per level."""
    return [(num_iterations - 1) // (problem.rewards.num_models // queued(level).n) for level in problem.batch.levels]


def _state_distribution(state_dist: ArrayLike | None, rewards: Rewards) -> Tensor:
    """The given distribution over states, checked, or the uniform one: [S]."""
    if state_dist is None:
        return torch.full((rewards.num_states,), 1 / rewards.num_states, dtype=torch.float64, device=rewards.device)
    check_shape(as_float_tensor(state_dist, "state_dist"), "S", "state_dist", S=rewards.num_states)
    return as_distribution(state_dist, "state_dist", rewards.device)
