"""Many states, a block at a time: what M models say about all of them would be the largest array by far, and is not kept.

A block is predicted and solved on one thread, and the blocks are divided among the threads, or among the machines of a cluster
(`cautious.executors`). A state's bits do not depend on its block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from cautious.ops.sums import pairwise_sum
from cautious.parallel import parallel_map
from cautious.policy.bad_rows import overflowing
from cautious.progress import Progress, ProgressTracker, TitledProgress
from cautious.risk import RiskMeasure, weights_by_rank

if TYPE_CHECKING:
    from cautious.policy.policy import CautiousPolicy

Shared = TypeVar("Shared")
Piece = TypeVar("Piece")
Result = TypeVar("Result")

ROWS_PER_BLOCK = 1024
"""States that a thread decides about at a time: enough to amortise calls, few enough for a true estimate of the time left."""
ROWS_PER_PIECE = 8192
"""States that a machine of a cluster is given at a time: some seconds of work."""


class SolvedStates(NamedTuple):
    """What L levels do in S states, and how sure the models are there."""

    policies: Tensor
    """[L, S, A]."""
    ordinary: Tensor
    """[S, A]."""
    gaps: Tensor
    """[L, S]."""
    values: Tensor
    """Exact k-of-N values of the policies, [L, S]."""
    spread: Tensor
    """How far the models differ, [S] (`ops.disagreement.model_spread`)."""
    too_large: Tensor
    """Which of the B rows that were given no model can judge, their predictions overflowing, [B]; the S others are solved."""

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
        """What was found about some of the rows, in its place; what overflows keeps zeros until `solved`."""
        judged = torch.arange(rows.start, rows.stop)[~part.too_large]
        self.policies[:, judged], self.ordinary[judged], self.gaps[:, judged] = part[:3]
        self.values[:, judged], self.spread[judged], self.too_large[rows] = part[3:]

    def solved(self) -> SolvedStates:
        """The same without rows that overflow."""
        if not bool(self.too_large.any()):
            return self
        judged = ~self.too_large
        of_levels = [part[:, judged] for part in (self.policies, self.gaps, self.values)]
        return SolvedStates(
            of_levels[0], self.ordinary[judged], of_levels[1], of_levels[2], self.spread[judged], self.too_large
        )


class BlockExecutor(Protocol):
    """What gives out pieces of work, in this process or elsewhere (`cautious.executors`)."""

    def map(
        self,
        work: Callable[[Shared, Piece, TitledProgress | None], Result],
        shared: Shared,
        pieces: Sequence[Piece],
        *,
        device: torch.device | str,
        title: str,
        progress: TitledProgress | None = None,
    ) -> Iterator[tuple[Piece, Result]]:
        """Yield each piece with ``work(shared, piece, progress)`` as soon as it is finished, in any order.

        Args:
            work: A module-level function.
            shared: What all pieces need.
            pieces: What differs.
            device: The kind of device that a piece needs.
            title: Names all pieces together, for `progress`.
            progress: Called as the work advances.
        """
        ...


def solve_in_blocks(
    policy: CautiousPolicy,
    states: Any,
    levels: Sequence[RiskMeasure],
    progress: Progress | None = None,
    executor: BlockExecutor | None = None,
) -> SolvedStates:
    """Solve all states, as `CautiousPolicy.solve_states` does, without the rewards of all of them at once.

    Args:
        policy: Its belief and settings.
        states: One row per state, as the belief takes them, [S, ...].
        levels: L of them.
        progress: Called with (rows done, rows in all).
        executor: What gives out the blocks; this process if there is none.
    """
    count = len(states)
    if executor is not None:
        return _solve_elsewhere(policy, states, levels, progress, executor)
    tracker = ProgressTracker(1, progress)
    blocks = [slice(first, min(first + ROWS_PER_BLOCK, count)) for first in range(0, count, ROWS_PER_BLOCK)]
    done = [0] * len(blocks)

    # One array for all blocks: many small ones, each between the large arrays of the next block, would keep freed memory from
    # being used again, by more than they take themselves.
    found = SolvedStates.empty(len(levels), count, policy.belief.num_actions)

    def solve(number: int) -> None:
        found.put(blocks[number], solve_block(policy, states[blocks[number]], levels))
        done[number] = blocks[number].stop - blocks[number].start
        tracker.report(0, sum(done), count)

    if progress is not None:
        progress(0, count)
    parallel_map(solve, len(blocks), tracker.stop)
    return found.solved()


def solve_block(
    policy: CautiousPolicy, states: Any, levels: Sequence[RiskMeasure], progress: Progress | None = None
) -> SolvedStates:
    """Solve some states: predict, play, measure. Those whose predictions overflow are left out and marked."""
    rewards = policy.belief.rewards(states)
    too_large = overflowing(rewards)
    if bool(too_large.any()):
        rewards = rewards[:, ~too_large]
    return with_values(rewards, levels, *policy.solve_states(rewards, levels, progress), too_large)


def with_values(
    rewards: Tensor,
    levels: Sequence[RiskMeasure],
    policies: Tensor,
    ordinary: Tensor,
    gaps: Tensor,
    spread: Tensor,
    too_large: Tensor,
) -> SolvedStates:
    """What `CautiousPolicy.solve_states` returned for rewards [M, S, A], with the policies' values.

    Values as of `risk.risk_value`, but summed in an order that no batch changes.
    """
    models = rewards.cpu().double()
    values = []
    for level, own in zip(levels, policies, strict=True):
        returns = pairwise_sum(models * own, dim=-1).T.sort(dim=-1).values.T  # [M, S], each state's from the worst on
        values.append(pairwise_sum(returns * weights_by_rank(level, len(models))[:, None]))
    return SolvedStates(policies, ordinary, gaps, torch.stack(values), spread, too_large)


class _Piece(NamedTuple):
    number: int
    states: Any


def _solve_elsewhere(
    policy: CautiousPolicy,
    states: Any,
    levels: Sequence[RiskMeasure],
    progress: Progress | None,
    executor: BlockExecutor,
) -> SolvedStates:
    count = len(states)
    firsts = range(0, count, ROWS_PER_PIECE)
    pieces = [_Piece(number, states[first : first + ROWS_PER_PIECE]) for number, first in enumerate(firsts)]
    found = SolvedStates.empty(len(levels), count, policy.belief.num_actions)
    done = 0
    if progress is not None:
        progress(0, count)
    results = executor.map(_solve_piece, (policy, tuple(levels)), pieces, device="cpu", title="solving")
    for piece, solved in results:
        first = piece.number * ROWS_PER_PIECE
        found.put(slice(first, first + len(solved.too_large)), solved)
        done += len(solved.too_large)
        if progress is not None:
            progress(done, count)
    return found.solved()


def _solve_piece(
    shared: tuple[CautiousPolicy, tuple[RiskMeasure, ...]], piece: _Piece, progress: TitledProgress | None
) -> SolvedStates:
    """On a worker: the piece in blocks, as at home."""
    return solve_in_blocks(shared[0], piece.states, shared[1])
