"""Solving until a certificate says that no policy is better by more than a tolerance.

Three methods narrow the same bounds (`duel.Bounds`), each a generator that yields whenever the bounds were taken anew:

    learning         both players learn: any problem, any size; the gap falls about like 1/T (`solvers.learning`)
    double-oracle    a few MDP solves and small linear programs: the optimum, where doubts are shared (`solvers.double_oracle`)
    lp               one linear program: the optimum of a small problem (`solvers.exact`)

`auto` answers the mean of the models, learns a little, and lets the double oracle try from there as long as every few of
its rounds halve the gap. Most problems with shared doubts are solved by then, to the last digits. Otherwise learning goes
on; where even that stalls, the double oracle gets a longer turn and, in a small problem, the linear program the last word.
No step looks at a clock: one problem has one answer.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.errors import Argument, ConvergenceWarning
from cautious.progress import Progress
from cautious.solvers.double_oracle import improve
from cautious.solvers.duel import Bounds, Duel
from cautious.solvers.envelope import project
from cautious.solvers.exact import LARGEST_QUICK_PROGRAM, optimal_play, program_size
from cautious.solvers.learning import learn
from cautious.solvers.rewards import DenseRewards, Rewards, model_blocks
from cautious.types import Method

MOST_ITERATIONS = 5000
"""Of learning. What it reaches by then falls too slowly to wait for more."""

MOST_POLICIES = 200
"""Of the double oracle."""

PATIENCE, POLISHING_PATIENCE = 8, 3
"""Rounds in which the double oracle must halve the gap for `auto` to let it go on; and once the tolerance is reached."""

POLISHED = 1e-8
"""Share of the range of the rewards at which a gap needs no more work, whatever the tolerance."""

ROUNDING = 1e-13
"""Share of the largest reward below which a gap is rounding."""

SLOWEST = 0.9
"""Learning has stalled when twice as many iterations leave more than this share of the gap."""

UNREACHED = 1e-14
"""Occupancy of a state below which it is rounding, not a visit."""


class Target(NamedTuple):
    """When to stop."""

    unit: float
    """The range of the rewards."""
    limit: float
    """The widest gap that is good enough."""
    rounding: float
    """A gap that is as good as none."""

    @classmethod
    def of(cls, rewards: Rewards, tolerance: float) -> Target:
        """A gap of this share of the range of the rewards."""
        low, high = reward_range(rewards)
        rounding = ROUNDING * max(abs(low), abs(high))
        # A certificate evaluates the policy again, which moves the last digits: stay a little below what was promised.
        return cls(high - low, max((1 - 1e-6) * tolerance * (high - low), rounding), rounding)

    @property
    def polished(self) -> float:
        """A gap that needs no more work."""
        return max(min(self.limit, POLISHED * self.unit), self.rounding)


class Outcome(NamedTuple):
    """What one level's solving gave."""

    policy: Tensor
    """[S, A]."""
    mixture: Tensor
    """The adversary's reward function, which bounds every policy, [S, A]."""
    gap: float
    reached: bool
    """Whether the gap is within the limit."""
    interrupted: bool
    stages: list[str]
    """What was done, in words."""


def reward_range(rewards: Rewards) -> tuple[float, float]:
    """The lowest and the highest reward of all models; streamed ones are read once."""
    if isinstance(rewards, DenseRewards):
        low, high = torch.aminmax(rewards.tensor)
        return float(low), float(high)
    parts = [torch.aminmax(block) for _, block in model_blocks(rewards)]
    return min(float(low) for low, _ in parts), max(float(high) for _, high in parts)


def solve_duel(
    duel: Duel, method: Method, target: Target, progress: Progress | None = None, *, stopped: bool = False
) -> Outcome:
    """The best policy of one level, as near to the optimum as the target asks for.

    An interruption (Ctrl-C) ends the work; the best policy so far comes back. `stopped` says that there was one before:
    then the ordinary policy is all.
    """
    bounds, stages, interrupted = Bounds(duel), [], stopped
    report = _reporter(target, progress)
    try:
        for stage in _answer_mean(duel, bounds) if stopped else _PLANS[method](duel, bounds, target):
            stages.append(stage)
            report(bounds.gap)
    except KeyboardInterrupt as interruption:
        # Nothing is known yet; or it is a subclass, by which a program ends on other signals than Ctrl-C.
        if bounds.occupancy is None or bounds.weights is None or type(interruption) is not KeyboardInterrupt:
            raise
        interrupted = True
    assert bounds.weights is not None  # every plan's first stage takes both bounds
    mixture = duel.mixture(bounds.weights)
    policy = _stationary(duel, bounds, mixture)
    return Outcome(policy, mixture, bounds.gap, bounds.gap <= target.limit, interrupted, _counted(stages))


def warn_of_gap(outcome: Outcome, level: object, target: Target, tolerance: float) -> None:
    """Say which gap was reached where it is wider than the tolerance, and what to do."""
    share = outcome.gap / target.unit if target.unit else 0.0
    why = "was interrupted" if outcome.interrupted else "did not reach its tolerance"
    warning = ConvergenceWarning(
        f"{level}: solving {why}. The policy is certified within {outcome.gap:.3g} of the best, {share:.2g} of the range of "
        "the rewards; ",
        Argument("tolerance", tolerance),
        " of it was asked for. A larger tolerance accepts that; method='learning', 'double-oracle' or, in a small world, 'lp' "
        "may get further.",
    )
    warnings.warn(warning, stacklevel=2)


def _auto(duel: Duel, bounds: Bounds, target: Target) -> Iterator[str]:
    """As the module says."""
    yield from _answer_mean(duel, bounds)
    if bounds.gap <= target.polished:
        return
    learning = learn(duel, bounds, MOST_ITERATIONS)
    yield _learned(next(learning))
    yield from _while_it_pays(_oracle(duel, bounds, target), bounds, target)
    if bounds.gap <= target.limit:
        return
    gaps: list[tuple[int, float]] = []
    for t in learning:
        yield _learned(t)
        if bounds.gap <= target.limit:
            return
        gaps.append((t, bounds.gap))
        if any(t >= 2 * early >= 400 and bounds.gap > SLOWEST * gap for early, gap in gaps[-7:]):
            break
    yield from _while_it_pays(_oracle(duel, bounds, target), bounds, target, patience=2 * PATIENCE)
    if bounds.gap > target.limit and program_size(duel) <= LARGEST_QUICK_PROGRAM:
        yield from _by_program(duel, bounds, target)


def _by_learning(duel: Duel, bounds: Bounds, target: Target) -> Iterator[str]:
    """Learning alone."""
    for t in learn(duel, bounds, MOST_ITERATIONS):
        yield _learned(t)
        if bounds.gap <= target.limit:
            return


def _by_oracles(duel: Duel, bounds: Bounds, target: Target) -> Iterator[str]:
    """The double oracle alone, from a few iterations of learning."""
    yield _learned(next(learn(duel, bounds, MOST_ITERATIONS)))
    for stage in _oracle(duel, bounds, target):
        yield stage
        if bounds.gap <= target.limit:
            return


def _by_program(duel: Duel, bounds: Bounds, target: Target) -> Iterator[str]:
    """One linear program."""
    occupancy, weights = optimal_play(duel)
    bounds.offer_policy(occupancy, duel.returns(occupancy))
    bounds.offer_weights(project(weights, duel.rank_weights))  # the program's rounding may leave the envelope
    yield "linear program"


_PLANS: dict[Method, Callable[[Duel, Bounds, Target], Iterator[str]]] = {
    Method.AUTO: _auto,
    Method.LEARNING: _by_learning,
    Method.DOUBLE_ORACLE: _by_oracles,
    Method.LP: _by_program,
}


def _answer_mean(duel: Duel, bounds: Bounds) -> Iterator[str]:
    """The ordinary policy: the optimum where no model is worse than another, and a bound in any case."""
    answer, _ = bounds.offer_weights(np.full(len(duel.rank_weights), 1 / len(duel.rank_weights)))
    occupancy = duel.evaluate(answer).occupancy[0]
    bounds.offer_policy(occupancy, duel.returns(occupancy))
    yield "ordinary policy"


def _oracle(duel: Duel, bounds: Bounds, target: Target) -> Iterator[str]:
    for number in improve(duel, bounds, target.unit, MOST_POLICIES):
        yield f"double oracle, {number} policies"


def _while_it_pays(stages: Iterator[str], bounds: Bounds, target: Target, patience: int = PATIENCE) -> Iterator[str]:
    """Stages, until the gap needs no more work or some stages in a row did not halve it."""
    gaps = [bounds.gap]
    for stage in stages:
        yield stage
        gaps.append(bounds.gap)
        rounds = POLISHING_PATIENCE if bounds.gap <= target.limit else patience
        if bounds.gap <= target.polished or (len(gaps) > rounds and gaps[-1] > gaps[-1 - rounds] / 2):
            return


def _learned(iterations: int) -> str:
    return f"learning, {iterations} iterations"


def _counted(stages: list[str]) -> list[str]:
    """Each kind of stage once, with its last count."""
    return list({stage.split(",")[0]: stage for stage in stages}.values())


def _stationary(duel: Duel, bounds: Bounds, mixture: Tensor) -> Tensor:
    """One policy with the best occupancy, π(a|s) = x(s,a) / Σ_b x(s,b); where x does not come, the answer to the mixture."""
    assert bounds.occupancy is not None
    total = bounds.occupancy.sum(dim=-1, keepdim=True)
    reached = total > UNREACHED
    elsewhere = torch.zeros_like(bounds.occupancy) if bool(reached.all()) else duel.best(mixture)[0]
    return torch.where(reached, bounds.occupancy / torch.where(reached, total, 1), elsewhere)


def _reporter(target: Target, progress: Progress | None) -> Callable[[float], None]:
    """Tells a progress, in thousandths, how many of the orders of magnitude from the first gap to the limit are done."""
    first, most = 0.0, 0

    def report(gap: float) -> None:
        nonlocal first, most
        first = first or max(gap, target.limit)
        if progress is None:
            return
        if gap <= target.limit or first <= target.limit or target.limit <= 0:
            most = 1000
        else:
            most = max(most, int(1000 * math.log(first / gap) / math.log(first / target.limit)))
        progress(min(most, 1000), 1000)

    return report
