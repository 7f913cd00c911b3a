"""What levels do in many states, each of which is a problem of its own: predict, play, measure.

Where no model prefers another action than the ordinary one, the ordinary policy is the best at every level, and no game is
played. Elsewhere the k-of-N game of that state is played until its policy is certified (`solvers.per_state`; on a GPU
`solvers.kernels.state_games`).

What M models say about many states would be the largest array by far, so it is never kept: states are solved in blocks. Each
block is solved on one thread; threads, or the machines of a cluster (`cautious.executors`), share the blocks. The bits of a
state do not depend on its block.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.belief import TableBelief, opinions_of
from cautious.beliefs.ensemble import RewardEnsemble
from cautious.ops.sums import pairwise_sum
from cautious.parallel import BlockExecutor, is_forked, parallel_map, single_thread, single_threaded
from cautious.policy.decision import disagreement_of, has_disagreement, ordinary_policy
from cautious.progress import Progress, ProgressTracker, TitledProgress
from cautious.risk import RiskMeasure, is_mean, weights_by_rank
from cautious.solvers.kernels import plays_on_gpu
from cautious.solvers.solve import STATE_GAME_ITERATIONS, solve_bandit
from cautious.solvers.state_runs import StateDecisions
from cautious.types import Sampling
from cautious.validation import as_float_tensor, check_shape, check_size

ROWS_PER_BLOCK = 1024
"""States that a thread decides about at a time: enough to amortise calls, few enough for a true estimate of the time left."""
ROWS_PER_PIECE = 8192
"""States that a machine of a cluster is given at a time: some seconds of work."""


@dataclass(frozen=True)
class Games:
    """How the k-of-N game of a state is played."""

    num_iterations: int | None
    """At most so many iterations; None for `STATE_GAME_ITERATIONS`, or with queue sampling for the paper's number."""
    sampling: Sampling
    seed: int
    tolerance: float
    """A game ends when no policy can be better by more than this share of the range of the rewards in its state."""

    def play(self, rewards: Tensor, levels: Sequence[RiskMeasure], progress: Progress | None = None) -> StateDecisions:
        """What L levels do where the models say `rewards` [M, S, A].

        Level n-of-n, the mean of all models drawn, is the ordinary policy.
        """
        for level in levels:
            weights_by_rank(level, len(rewards))  # raises for a level that so many models cannot serve
        if not rewards.shape[1]:  # no state that can be judged
            nothing, none = torch.zeros(0, rewards.shape[2], dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
            num_levels = len(levels)
            return StateDecisions(nothing.expand(num_levels, -1, -1), nothing, none.expand(num_levels, -1), none)
        # Compiled games have exact weights; queues take the general solver, and a GPU its own kernels where they fit.
        on_gpu = rewards.device.type != "cpu" and plays_on_gpu(rewards.device, len(rewards), rewards.shape[2])
        is_compiled = self.sampling is Sampling.EXACT and not on_gpu
        if not is_compiled or all(is_mean(level, len(rewards)) for level in levels):
            return self._play_in_tensors(rewards, levels, progress)
        from cautious.solvers.per_state import decide_states  # loads the compiler

        most = self.num_iterations or STATE_GAME_ITERATIONS
        return decide_states(rewards.cpu(), levels, num_iterations=most, tolerance=self.tolerance, progress=progress)

    @single_threaded
    def _play_in_tensors(
        self, rewards: Tensor, levels: Sequence[RiskMeasure], progress: Progress | None
    ) -> StateDecisions:
        """As `play`, by operations on tensors."""
        # Begin with the ordinary policy everywhere, then replace it where a game is played.
        ordinary = ordinary_policy(rewards)
        policies, gaps = ordinary.repeat(len(levels), 1, 1), torch.zeros(len(levels), len(ordinary)).double()
        states = has_disagreement(rewards, ordinary).nonzero().flatten()
        cautious = [number for number, level in enumerate(levels) if not is_mean(level, len(rewards))]
        if cautious and len(states):
            games = self._play_each(
                rewards[:, states.to(rewards.device)], [levels[number] for number in cautious], progress
            )
            for number, policy, gap in zip(cautious, *games, strict=True):
                policies[number, states], gaps[number, states] = policy, gap
        elif progress is not None:
            progress(1, 1)
        return StateDecisions(policies, ordinary, gaps, disagreement_of(rewards))

    def _play_each(
        self, rewards: Tensor, levels: Sequence[RiskMeasure], progress: Progress | None
    ) -> tuple[Tensor, Tensor]:
        """The best policies of the games of b states [M, b, A]: policies [L, b, A], and their gaps [L, b]."""
        if self.sampling is Sampling.EXACT:  # on a GPU: elsewhere `play` has taken the compiled games
            from cautious.solvers.kernels.state_games import play_states_on_gpu  # needs Triton

            most = self.num_iterations or STATE_GAME_ITERATIONS
            games = play_states_on_gpu(
                rewards, levels, num_iterations=most, tolerance=self.tolerance, progress=progress
            )
            return games.policy.cpu(), (games.upper - games.lower).cpu()
        solution = solve_bandit(
            rewards,
            list(levels),
            regime="single-state",
            num_iterations=self.num_iterations,
            sampling=self.sampling,
            seed=self.seed,
            track_exact=True,
            progress=progress,
        )
        best = solution.best_policy
        return best.cpu(), solution.certificate(best).gap.cpu()


class SolvedStates(NamedTuple):
    """What L levels do in S states, and how sure the models are there."""

    policies: Tensor
    """The policy of each level, [L, S, A]."""
    ordinary: Tensor
    """The ordinary policy, [S, A]; in an MDP the one nearest to each level's policy, [L, S, A]."""
    gaps: Tensor
    """How much more k-of-N value any policy could have, at most, [L, S]; in an MDP that of the whole policy, in every state."""
    values: Tensor
    """Exact k-of-N values of the policies, [L, S]; in an MDP that of the whole policy, in every state."""
    spread: Tensor
    """How far the models differ, [S] (`beliefs.disagreement.disagreement`)."""
    too_large: Tensor
    """Rows whose predictions overflow, [B]: no model can judge them. The S other rows of the B that were given are solved."""

    @classmethod
    def empty(cls, num_levels: int, num_rows: int, num_actions: int) -> SolvedStates:
        """Room for what is found about B rows, all of them solved."""
        size = (num_levels, num_rows)
        zeros = partial(torch.zeros, dtype=torch.float64)
        policies, ordinary = zeros(*size, num_actions), zeros(num_rows, num_actions)
        return cls(
            policies, ordinary, zeros(size), zeros(size), zeros(num_rows), torch.zeros(num_rows, dtype=torch.bool)
        )

    def put(self, rows: slice, part: SolvedStates) -> None:
        """Write what was found about some of the rows in its place. Rows that overflow keep zeros until `solved`."""
        judged = torch.arange(rows.start, rows.stop)[~part.too_large]
        self.policies[:, judged], self.ordinary[judged], self.gaps[:, judged] = part[:3]
        self.values[:, judged], self.spread[judged], self.too_large[rows] = part[3:]

    def solved(self) -> SolvedStates:
        """The same without the rows that overflow."""
        if not bool(self.too_large.any()):
            return self
        judged = ~self.too_large
        of_levels = [part[:, judged] for part in (self.policies, self.gaps, self.values)]
        return SolvedStates(
            of_levels[0], self.ordinary[judged], of_levels[1], of_levels[2], self.spread[judged], self.too_large
        )


class _Answered(NamedTuple):
    """What a belief has said about the states that it was asked about."""

    answer: Any

    def rewards(self, states: Any) -> Any:
        """The answer."""
        return self.answer


def asked(belief: Any, states: Any) -> Any:
    """The belief. One of the user's is asked here, on all threads if it uses them, and its answer stands for it."""
    if isinstance(belief, (RewardEnsemble, TableBelief)):
        return belief
    with single_thread() if is_forked() else nullcontext():  # torch's other threads are not in a forked child
        return _Answered(opinions_of(belief, states))


def predict(belief: Any, states: Any) -> tuple[Tensor, Tensor]:
    """What the models say each action pays in the rows that they can judge, and which rows they cannot judge.

    Args:
        belief: A `RewardEnsemble`; or a belief of the user's, whose rewards are checked.
        states: B rows, as the belief takes them.

    Returns:
        Rewards [M, G, A], and the rows whose rewards overflow, [B]; G rows are left.
    """
    if not isinstance(belief, RewardEnsemble):
        rewards = as_float_tensor(belief.rewards(states), "belief")
        check_shape(rewards, "M S A", "belief")
        check_size(rewards, "belief")
        return rewards, torch.zeros(rewards.shape[1], dtype=torch.bool)
    if isinstance(states, Tensor) and not len(states):  # a network takes one row at least
        rewards = torch.empty(belief.num_models, 0, belief.num_actions, device=belief.parameters.device)
    else:
        rewards = belief.rewards(states, bounded=False)  # only the order of actions counts in a single decision
    too_large = overflowing(rewards)
    return (rewards[:, ~too_large] if bool(too_large.any()) else rewards), too_large


def overflowing(rewards: Tensor) -> Tensor:
    """States whose rewards [M, B, A] are no numbers, or so large that sums overflow, [B]."""
    limit = torch.finfo(rewards.dtype).max * 1e-10  # that of `check_size`
    low, high = torch.aminmax(rewards) if rewards.numel() else (0.0, 0.0)
    if -limit <= low and high <= limit:  # one pass where nothing is wrong
        return torch.zeros(rewards.shape[1], dtype=torch.bool)
    return ~(rewards.abs() <= limit).all(dim=0).all(dim=-1).cpu()


def solve_states(
    belief: Any,
    games: Games,
    states: Any,
    levels: Sequence[RiskMeasure],
    progress: Progress | None = None,
    executor: BlockExecutor | None = None,
) -> SolvedStates:
    """What L levels do in B states; arrays of many rows are solved in blocks.

    Args:
        belief: A `RewardEnsemble`, or anything with ``rewards(states) -> [M, B, A]``.
        games: How the game of a state is played.
        states: One row per state, as the belief takes them. Only arrays are solved in blocks, for a `RewardEnsemble` on the
            CPU: a GPU takes all rows in one call, and a belief of the user's is asked once.
        levels: L levels.
        progress: Called with (rows done, rows in all).
        executor: Where the blocks are solved; None for this process.
    """
    has_rows = isinstance(belief, RewardEnsemble) and isinstance(states, (Tensor, np.ndarray)) and states.ndim > 1
    on_gpu = has_rows and belief.parameters.device.type != "cpu"
    if not has_rows or (executor is None and (on_gpu or len(states) <= ROWS_PER_BLOCK)):
        return _solve_block(belief, games, states, levels, progress)
    # One array for all blocks: many small ones, each between the large arrays of the next block, would keep freed memory from
    # being used again, by more than they take themselves.
    found = SolvedStates.empty(len(levels), len(states), belief.num_actions)
    if progress is not None:
        progress(0, len(states))
    solve = _solve_here if executor is None else partial(_solve_elsewhere, executor)
    solve(found, belief, games, states, levels, progress)
    return found.solved()


def _solve_here(
    found: SolvedStates,
    belief: Any,
    games: Games,
    states: Any,
    levels: Sequence[RiskMeasure],
    progress: Progress | None,
) -> None:
    """Solve blocks on the threads of this process."""
    tracker, count = ProgressTracker(1, progress), len(states)
    blocks = [slice(first, min(first + ROWS_PER_BLOCK, count)) for first in range(0, count, ROWS_PER_BLOCK)]
    done = [0] * len(blocks)

    def solve(number: int) -> None:
        found.put(blocks[number], _solve_block(belief, games, states[blocks[number]], levels))
        done[number] = blocks[number].stop - blocks[number].start
        tracker.report(0, sum(done), count)

    parallel_map(solve, len(blocks), tracker.stop)


def _solve_elsewhere(
    executor: BlockExecutor,
    found: SolvedStates,
    belief: Any,
    games: Games,
    states: Any,
    levels: Sequence[RiskMeasure],
    progress: Progress | None,
) -> None:
    """Solve pieces of some blocks each on the workers of an executor."""
    pieces = [(first, states[first : first + ROWS_PER_PIECE]) for first in range(0, len(states), ROWS_PER_PIECE)]
    done = 0
    for (first, _), solved in executor.map(
        _solve_piece, (belief, games, tuple(levels)), pieces, device="cpu", title="solving"
    ):
        found.put(slice(first, first + len(solved.too_large)), solved)
        done += len(solved.too_large)
        if progress is not None:
            progress(done, len(states))


def _solve_piece(
    shared: tuple[Any, Games, tuple[RiskMeasure, ...]], piece: tuple[int, Any], progress: TitledProgress | None
) -> SolvedStates:
    """What L levels do in the states of a piece (its first row, its states), on a worker."""
    belief, games, levels = shared
    return solve_states(belief, games, piece[1], levels)


def _solve_block(
    belief: Any, games: Games, states: Any, levels: Sequence[RiskMeasure], progress: Progress | None = None
) -> SolvedStates:
    """Predict, play, measure. Rows whose predictions overflow are left out and marked."""
    rewards, too_large = predict(belief, states)
    played = games.play(rewards, levels, progress)
    # Values are those of `risk.risk_value`, summed in an order that no batch changes.
    models, values = rewards.cpu().double(), []
    for level, policy in zip(levels, played.policies, strict=True):
        returns = (
            pairwise_sum(models * policy, dim=-1).T.sort(dim=-1).values.T
        )  # [M, S], each state's from the worst on
        values.append(pairwise_sum(returns * weights_by_rank(level, len(models))[:, None]))
    return SolvedStates(*played[:3], torch.stack(values), played.spread, too_large)
