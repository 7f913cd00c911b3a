"""The path that both solvers share: check the request, run the batch, shape the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.ops.risk import KofN
from cautious.progress import Progress
from cautious.seeding import check_seed
from cautious.solvers.adversary import Adversary
from cautious.solvers.batch import Batch
from cautious.solvers.cfr import CFRState, History, minimise_regret
from cautious.solvers.rewards import Rewards
from cautious.solvers.sampling import num_reshuffles
from cautious.solvers.solution import Solution, Trace
from cautious.types import Regime, Sampling, Update
from cautious.validation import check_callable, parse_choice, parse_count, parse_flag

Levels = KofN | str | Sequence[KofN | str]
"""One level, or several to be solved in one call."""

TRACKED_ENTRIES = {Regime.ALL_STATES: 2**24, Regime.SINGLE_STATE: 2**20}
"""Exact values are tracked in every iteration by default where there are at most this many rewards: one product with all
of them, or, in the single-state regime, a sort of all models in every state."""


REFINEMENTS = 20
"""Exact iterations that a certificate makes by itself where none were tracked."""


@dataclass(frozen=True)
class SolveOptions:
    """A checked request: what to solve, and how."""

    batch: Batch
    several_levels: bool
    several_runs: bool
    num_iterations: int
    sampling: Sampling
    update: Update
    seed: int
    progress: Progress | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Leading dimensions of the answer: (), (L,), (R,) or (L, R)."""
        levels = (len(self.batch.levels),) if self.several_levels else ()
        return levels + ((self.batch.num_runs,) if self.several_runs else ())

    @property
    def level(self) -> KofN | tuple[KofN, ...]:
        """The level, or the levels where several were asked for."""
        return self.batch.levels if self.several_levels else self.batch.levels[0]


def make_options(
    level: Levels,
    num_models: int,
    *,
    num_runs: int | None,
    num_iterations: int,
    sampling: str,
    update: str,
    seed: int,
    progress: Progress | None,
) -> SolveOptions:
    """Check everything that a user may get wrong about a request."""
    parsed = parse_levels(level)
    for one in parsed:
        one.rank_weights(num_models)  # says so if n exceeds the models there are
    check_seed(seed)
    check_callable(progress, "progress", "iterations done, iterations in all")
    return SolveOptions(
        batch=Batch(parsed, 1 if num_runs is None else parse_count(num_runs, "num_runs")),
        several_levels=isinstance(level, (list, tuple)),
        several_runs=num_runs is not None,
        num_iterations=parse_count(num_iterations, "num_iterations"),
        sampling=parse_choice(Sampling, sampling, "sampling"),
        update=parse_choice(Update, update, "update"),
        seed=seed,
        progress=progress,
    )


def parse_levels(level: Levels) -> tuple[KofN, ...]:
    """One level or several, each checked."""
    levels = tuple(level) if isinstance(level, (list, tuple)) else (level,)
    if not levels:
        raise InvalidInputError("level=[] names no level; pass one, such as '1-of-20', or a sequence of them.")
    return tuple(KofN.parse(one) for one in levels)


def tracks_exact(track_exact: bool | None, rewards: Rewards, regime: Regime) -> bool:
    """Whether to have exact values in every iteration: as asked, or where that is cheap; never by what is solved beside."""
    if track_exact is not None:
        return parse_flag(track_exact, "track_exact")
    entries = rewards.num_models * rewards.num_states * rewards.num_actions
    return not rewards.streamed and entries <= TRACKED_ENTRIES[regime]


def solve(
    request: SolveOptions,
    rewards: Rewards,
    make_opponent: Callable[[Sampling, int, bool], Adversary],
    best_return: Callable[[Tensor], Tensor],
    track_exact: bool,
    record: dict[str, Any],
) -> Solution:
    """Run the batch and wrap up what came out.

    Args:
        request: What to solve.
        rewards: The M reward functions.
        make_opponent: An opponent for (sampling, number of iterations, whether to track exact values).
        best_return: The ordinary optimum under reward functions: [B, S, A] -> [B], or [B, S] in the single-state regime.
        track_exact: Whether to compute exact values in every iteration.
        record: What else belongs into the solution's record.
    """
    shape = (request.batch.size, rewards.num_states, rewards.num_actions)

    def run(sampling: Sampling, num_iterations: int, track: bool) -> tuple[Adversary, CFRState, History]:
        adversary = make_opponent(sampling, num_iterations, track)
        state, history = minimise_regret(
            adversary,
            shape,
            rewards.device,
            num_iterations=num_iterations,
            update=request.update,
            progress=request.progress,
        )
        return adversary, state, history

    adversary, state, history = run(request.sampling, request.num_iterations, track_exact)
    average = history.average_policy()

    def best_policy() -> Tensor:
        for policy in (average, state.policy):
            history.update_best(policy, adversary.exact_value(policy))
        return _shaped(history.best_policy, request)

    def upper_bound(refine: int | None) -> Tensor:
        mixtures = [] if (tracked := adversary.average_rewards()) is None else list(tracked)
        if refine is not None or not mixtures:
            count = REFINEMENTS if refine is None else parse_count(refine, "refine")
            refined = run(Sampling.EXACT, count, True)[0].average_rewards()
            mixtures += [] if refined is None else list(refined)
        return torch.stack([best_return(mixture) for mixture in mixtures]).amin(dim=0)

    return Solution(
        policy=_shaped(state.policy, request),
        average_policy=_shaped(average, request),
        trace=_trace(history, request),
        level=request.level,
        record={**record, **_record(request, rewards)},
        _best_policy=best_policy,
        _exact_value=adversary.exact_value,
        _upper_bound=upper_bound,
    )


def _shaped(batch: Tensor, request: SolveOptions) -> Tensor:
    """[B, ...] as the answer's leading dimensions ask."""
    return batch.reshape(request.shape + batch.shape[1:])


def _trace(history: History, request: SolveOptions) -> Trace:
    columns = (history.sampled_value, history.exact_value, history.regret)
    return Trace(*(_shaped(column.T.contiguous(), request) for column in columns))


def _record(request: SolveOptions, rewards: Rewards) -> dict[str, Any]:
    reshuffles = [num_reshuffles(level, rewards.num_models, request.num_iterations) for level in request.batch.levels]
    return {
        "levels": [str(level) for level in request.batch.levels],
        "num_runs": request.batch.num_runs,
        "num_iterations": request.num_iterations,
        "num_models": rewards.num_models,
        "sampling": str(request.sampling),
        "update": str(request.update),
        "seed": int(request.seed),
        "reshuffles": reshuffles if request.sampling is Sampling.QUEUE else None,
    }
