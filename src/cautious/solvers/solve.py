"""`solve_bandit` and `solve_mdp`: check what is asked for, solve it, return a `Solution`.

Two families of solvers. The paper's iterates: k-of-N CFR (`solvers.cfr`), ``method="cfr"``. The newer ones stop when a
certificate says that no policy is better by more than a tolerance (`solvers.tolerance`); `solve_mdp` does so unless an
option of CFR is given.

The paper's algorithm has the paper's settings wherever it is asked for (`PAPER`: queue sampling, 100 iterations). All else is
solved to a tolerance: a gap of at most 1e-4 of the range of the rewards (`TOLERANCE`). `CautiousPolicy` plays the game of a
state to the same, in at most 300 iterations (`STATE_GAME_ITERATIONS`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.mdp.tabular import TabularMDP, check_fits, parse_mdp
from cautious.mdp.uncertain import UncertainMDP
from cautious.parallel import BlockExecutor, single_threaded
from cautious.progress import Progress, ProgressTracker, as_progress
from cautious.risk import Levels, RiskMeasure, parse_levels, weights_by_rank
from cautious.seeding import check_seed
from cautious.solvers.adversary import SolveBatch, queued
from cautious.solvers.cfr import BanditGame, CFROptions, Game, MDPGame, PerStateGame, Problem, minimise_regret
from cautious.solvers.duel import Duel
from cautious.solvers.own_optima import less_own_optima
from cautious.solvers.rewards import Rewards, as_rewards
from cautious.solvers.solution import Solution, Trace
from cautious.solvers.tolerance import Outcome, Target, solve_duel, warn_of_gap
from cautious.types import ArrayLike, Method, Objective, Regime, Sampling, Update
from cautious.validation import (
    as_distribution,
    as_float_tensor,
    as_number,
    check_callable,
    check_shape,
    parse_choice,
    parse_count,
    parse_flag,
)

if TYPE_CHECKING:
    from cautious.solvers.uncertain.solution import UncertainSolution


class CFRSettings(NamedTuple):
    """Settings of the paper's algorithm."""

    sampling: Sampling
    num_iterations: int
    """T."""
    update: Update

    def filled(self, num_iterations: int | None, sampling: str | None, update: str | None) -> tuple[int, str, str]:
        """What is given, and these settings for what is not."""
        return (
            self.num_iterations if num_iterations is None else num_iterations,
            self.sampling if sampling is None else sampling,
            self.update if update is None else update,
        )


PAPER = CFRSettings(Sampling.QUEUE, 100, Update.REGRET_MATCHING)
"""Section 4 and App. B.2."""
TOLERANCE = 1e-4
"""The certified gap at which solving ends, as a share of the range of the rewards."""
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
    tolerance: float | None = None,
    num_iterations: int | None = None,
    sampling: str | None = None,
    update: str | None = None,
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
        level: A risk measure (`cautious.risk`) or its text, such as ``"1-of-20"`` or ``"CVaR(0.1)"``; a sequence of them
            adds a leading dimension to every array of the solution. Queue sampling takes k-of-n alone.
        regime: ``"all-states"`` ranks the models by their value over the distribution of states; ``"single-state"``
            treats each state as a problem of its own, and is far more cautious.
        tolerance: In the all-states regime, if given: solve as `solve_mdp` does, until no policy can be better by more than
            this share of the range of the rewards, instead of the paper's algorithm with the three options that follow.
        num_iterations: T; 100 if not given.
        sampling: ``"queue"`` (the default) draws N models per iteration from a shuffled queue (the paper); ``"exact"`` weighs
            all M models by rank in every iteration: no sampling noise.
        update: ``"regret-matching"`` (the default), ``"regret-matching+"``, ``"as-printed"`` (Alg. 1 to the letter),
            ``"predictive-regret-matching+"`` or ``"discounted-regret-matching"`` (`ops.regret`).
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
    if tolerance is not None:
        share, of_cfr = _parse_tolerance(tolerance), _given(num_iterations, sampling, update, num_runs, track_exact)
        if of_cfr:
            raise InvalidInputError(f"{of_cfr[0]} and tolerance exclude each other; give one of them.")
        if isinstance(game, PerStateGame):
            raise InvalidInputError(
                'tolerance: regime="single-state" takes a number of iterations; CautiousPolicy(rewards, level, tolerance=...) '
                "plays each state until it is certified."
            )
        check_seed(seed)
        target = Target.of(table, share)
        return _solve_to_tolerance(game, table, level, Method.AUTO, share, target, progress, {"regime": str(kind)})
    chosen = PAPER.filled(num_iterations, sampling, update)
    options = SolveOptions(level, *chosen, num_runs, seed, track_exact, progress)
    return _solve(game, table, options, {"regime": str(kind)})


@overload
def solve_mdp(
    mdp: UncertainMDP,
    rewards: Any,
    level: RiskMeasure | str,
    *,
    tolerance: float = TOLERANCE,
    objective: str = Objective.RETURN,
    memory: bool = False,
    executor: BlockExecutor | None = None,
    progress: Progress | bool | None = None,
) -> UncertainSolution: ...
@overload
def solve_mdp(
    mdp: TabularMDP,
    rewards: Any,
    level: Levels,
    *,
    method: str = Method.AUTO,
    tolerance: float = TOLERANCE,
    objective: str = Objective.RETURN,
    num_iterations: int | None = None,
    sampling: str | None = None,
    update: str | None = None,
    num_runs: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    track_exact: bool | None = None,
    progress: Progress | bool | None = None,
) -> Solution: ...
@single_threaded
def solve_mdp(
    mdp: TabularMDP | UncertainMDP,
    rewards: Any,
    level: Any,
    *,
    method: str = Method.AUTO,
    tolerance: float = TOLERANCE,
    objective: str = Objective.RETURN,
    memory: bool = False,
    executor: BlockExecutor | None = None,
    num_iterations: int | None = None,
    sampling: str | None = None,
    update: str | None = None,
    num_runs: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    track_exact: bool | None = None,
    progress: Progress | bool | None = None,
) -> Solution | UncertainSolution:
    """Policies that are robust at a level in a continuing MDP, each certified to a tolerance.

    Args:
        mdp: The world; all returns are normalised by (1 - discount). An `UncertainMDP`, whose dynamics are in doubt, too, goes
            with `tolerance`, `objective`, `memory`, `executor` and `progress` (`solvers.uncertain.solve.solve_uncertain`).
        rewards: What each of M models says each (state, action) pays, [M, S, A], in any form that `solve_bandit` takes.
        level: As in `solve_bandit`.
        method: ``"auto"`` chooses between ``"learning"``, ``"double-oracle"`` and ``"lp"`` (`solvers.tolerance`). ``"cfr"``
            is the paper's algorithm (section 5), and the one that the options from `num_iterations` to `num_runs` belong
            to: where one of them is given, "auto" is "cfr".
        tolerance: Solving ends when the certificate says that no policy can be better by more than this share of the range of
            the rewards. Method "cfr" does not look at it.
        objective: ``"return"``, or ``"regret"``: each model's returns less that model's own optimum (`solvers.own_optima`).
        memory: In an uncertain world: whether the policy may remember what it saw.
        executor: In an uncertain world: where the searches for policies run (`cautious.open_executor`); None for this process.
        num_iterations: T of the paper's algorithm; 100 if another of its options is given.
        sampling: ``"queue"`` (the paper, and the default of its algorithm) or ``"exact"``.
        update: As in `solve_bandit`.
        num_runs: Repeat with this many shuffles of the queue; adds a dimension.
        seed: Starts the shuffles.
        device: Where to compute; where the rewards are, if not given.
        track_exact: Of the paper's algorithm: whether every iteration also ranks all M models; by default where that is cheap.
        progress: Called as the work advances with (done, total); True prints a line. With a tolerance: how far the gap has
            fallen, in orders of magnitude. Ctrl-C ends the work early and returns the best policy so far.

    Returns:
        `Solution`; for one level and no `num_runs` its policies are plain [S, A]. ``certificate()`` bounds what is missing.

    Warns:
        ConvergenceWarning: The tolerance was not reached; the message has the gap that was.

    Two rooms, and two models that disagree which of them pays. Staying where one begins is worth 0.5 under both:

    >>> stay, move = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
    >>> world = TabularMDP([[stay[s], move[s]] for s in (0, 1)], [0.5, 0.5], 0.5)
    >>> models = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]])
    >>> solution = solve_mdp(world, models, "1-of-2")
    >>> solution.policy[:, 0].tolist(), float(solution.certificate().gap) < 1e-4
    ([1.0, 1.0], True)
    """
    given = _given(num_iterations, sampling, update, num_runs, track_exact)
    if isinstance(mdp, UncertainMDP):
        if given or method != Method.AUTO:
            raise InvalidInputError(f"{(given or ['method'])[0]}: an UncertainMDP has one solver, without this option.")
        from cautious.solvers.uncertain.solve import solve_uncertain  # loads numba, which other worlds do without

        return solve_uncertain(
            mdp,
            rewards,
            level,
            tolerance=tolerance,
            objective=objective,
            memory=memory,
            executor=executor,
            progress=progress,
        )
    if executor is not None:
        raise InvalidInputError(
            "executor: it shares the searches in an UncertainMDP; this world is solved by one process."
        )
    if parse_flag(memory, "memory"):
        raise InvalidInputError(
            "memory=True is for an UncertainMDP: where the dynamics are certain, memory is worth nothing."
        )
    mdp, table = parse_mdp(mdp), as_rewards(rewards, device)
    check_fits(mdp, table.num_models, table.num_states, table.num_actions)
    progress = as_progress(progress, "solving")
    aim, kind = parse_choice(Objective, objective, "objective"), parse_choice(Method, method, "method")
    if given and kind not in (Method.AUTO, Method.CFR):
        raise InvalidInputError(f'{given[0]} belongs to method="cfr", but method={str(kind)!r}; leave one of them out.')
    share = _parse_tolerance(tolerance)
    ranked = less_own_optima(mdp, table) if aim is Objective.REGRET else table
    game: Game = MDPGame(mdp, table.device)
    record: dict[str, Any] = {"discount": mdp.discount}
    if aim is Objective.REGRET:
        record["objective"] = str(aim)
    if given or kind is Method.CFR:
        chosen = PAPER.filled(num_iterations, sampling, update)
        options = SolveOptions(level, *chosen, num_runs, seed, track_exact, progress)
        return _solve(game, ranked, options, record)
    check_seed(seed)
    return _solve_to_tolerance(game, ranked, level, kind, share, Target.of(table, share), progress, record)


def _given(*options: Any) -> list[str]:
    """Names of the options of the paper's algorithm that are given, in the order of their names below."""
    names = ("num_iterations", "sampling", "update", "num_runs", "track_exact")
    return [name for name, value in zip(names, options, strict=True) if value is not None]


def _parse_tolerance(tolerance: float) -> float:
    if not 0 < as_number(tolerance) < 1:
        raise InvalidInputError(
            f"tolerance={tolerance!r} must lie between 0 and 1, both excluded: the gap, as a share of the range of the rewards."
        )
    return float(tolerance)


def _solve_to_tolerance(
    game: Game,
    rewards: Rewards,
    level: Levels,
    method: Method,
    tolerance: float,
    target: Target,
    progress: Progress | None,
    record: dict[str, Any],
) -> Solution:
    """Solve one level after the other by a newer method (`solvers.tolerance`)."""
    check_callable(progress, "progress", "steps done, steps in all")
    levels = parse_levels(level)
    tracker = ProgressTracker(len(levels), progress)
    outcomes: list[Outcome] = []
    for one in levels:
        duel = Duel(game, rewards, weights_by_rank(one, rewards.num_models).numpy())
        stopped = bool(outcomes) and outcomes[-1].interrupted  # then levels to come get their ordinary policy alone
        outcomes.append(solve_duel(duel, method, target, tracker.next_call(), stopped=stopped))
        if not outcomes[-1].reached:
            warn_of_gap(outcomes[-1], one, target, tolerance)
    several = isinstance(level, (list, tuple))
    policy, mixture = (torch.stack([getattr(outcome, name) for outcome in outcomes]) for name in ("policy", "mixture"))
    shaped = policy if several else policy[0]
    nothing = torch.empty(*shaped.shape[:-2], 0, dtype=torch.float64)
    return Solution(
        policy=shaped,
        average_policy=shaped,
        trace=Trace(nothing, nothing, nothing),
        level=levels if several else levels[0],
        record=record
        | {
            "method": str(method),
            "tolerance": tolerance,
            "levels": list(map(str, levels)),
            "num_models": rewards.num_models,
            "stages": [outcome.stages for outcome in outcomes],
            "gaps": [outcome.gap for outcome in outcomes],
        },
        problem=Problem(game, rewards, SolveBatch(levels, 1)),
        mixtures=mixture.unsqueeze(0),  # [1, L, S, A]
    )


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
