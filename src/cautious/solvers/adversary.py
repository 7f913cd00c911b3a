"""The adversary of k-of-N: which mixture of reward functions it sets against a policy (Alg. 1, lines 6 to 8).

    V_m = Σ_s,a x(s,a) r_m(s,a)        value of the policy under model m, x its occupancy        (line 7)
    r̄(s,a) = Σ_m w_m r_m(s,a)          mixture; the weight w_m depends on the rank of V_m alone  (line 8)

Two ways to weigh. The paper's queue draws N models and gives 1/k to the k worst of them (line 6). Exact weights rank all M
models and give each the weight that it has on average over all draws of N (`rank_weights`): no sampling noise.
The queue is defined for `KofN` alone, exact weights for every risk measure (`cautious.risk`).

Two ways to rank. `JointAdversary` ranks the models by the value of the whole policy (all-states regime, MDPs).
`PerStateAdversary` ranks them in each state anew, by that state's value alone (single-state regime). Both have the same
methods: `respond` in each iteration, `pop_exact_values` for the history, `average_mixtures` for the certificate. Only exact
weights are points of the risk envelope (`solvers.certificate`), so only they are averaged: 1/k on k drawn models is in general
no convex combination of permuted rank weights, only its average over all draws is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cautious.ops.linear import BatchMatrix
from cautious.ops.sums import pairwise_mean
from cautious.parallel import parallel_map
from cautious.risk import (
    KofN,
    RiskMeasure,
    as_k_of_n,
    ranked_weights,
    weights_by_rank,
    worst_k_mean,
    worst_k_of,
)
from cautious.seeding import make_rng
from cautious.solvers.rewards import Rewards, model_blocks
from cautious.types import Sampling

BACKLOG_ENTRIES = 2**20
"""Occupancies that wait for their exact values hold at most about this many entries per member of the batch."""

CHUNK_BYTES = 2**22
"""Working set of one vectorised piece of the single-state regime: enough to amortise calls, little enough for the cache."""

STREAM_CHUNK_BYTES = 2**29
"""The same where every piece reads a stream again, so that few large pieces are cheaper than many small ones."""

KEPT_BYTES = 2**26
"""Rewards of at most this size in float64 are cut into pieces once, not in every iteration: for a few states the cutting
takes longer than the ranking."""

WINDOWS = (0.0, 0.5, 0.75)
"""Mixtures are averaged over all iterations, the last half and the last quarter. Each average is a point of the risk
envelope, so the lowest of the three bounds holds; the later windows leave out early answers to poor policies."""


class SolveBatch(NamedTuple):
    """What is solved together: every run of every level; member l*R + r is run r of level l."""

    levels: tuple[RiskMeasure, ...]
    num_runs: int

    @property
    def size(self) -> int:
        """B = levels x runs."""
        return len(self.levels) * self.num_runs

    def groups(self) -> Iterator[tuple[RiskMeasure, slice]]:
        """Each level with the members that are its runs."""
        for number, level in enumerate(self.levels):
            yield level, slice(number * self.num_runs, (number + 1) * self.num_runs)

    def rank_weights(self, num_models: int, device: torch.device) -> Tensor:
        """Exact weights by rank, [B, M]."""
        weights = torch.stack([weights_by_rank(level, num_models) for level in self.levels])
        return weights.repeat_interleave(self.num_runs, dim=0).to(device)


def queued(level: RiskMeasure) -> KofN:
    """The level, for the queue, which draws n models at a time; raises for other measures than `KofN`."""
    return as_k_of_n(level, 'sampling="queue" draws n of the models; pass sampling="exact", which serves every level')


class ModelQueue:
    """Which models each iteration of each run draws: shuffle all, take N at a time, shuffle again when fewer are left.

    A draw depends on (seed, run, iteration, n, M) alone, so it does not change with what else is solved in the same
    call; levels share the shuffles of a run, which makes them comparable. Within one shuffle no model comes twice: with
    M >= N T models none is ever drawn twice in a run, as in the paper (deviation D3 says what happens below that).
    """

    def __init__(self, num_runs: int, num_models: int, seed: int) -> None:
        """Prepare the queues of R runs over M models."""
        self._num_runs = num_runs
        self._num_models = num_models
        self._seed = seed
        self._shuffles: dict[int, Tensor] = {}

    def draw(self, level: KofN, t: int) -> Tensor:
        """Model indices [R, N] of iteration `t`, by model number: ties then break as in the exact ranking."""
        draws_per_shuffle = self._num_models // level.n
        first = (t % draws_per_shuffle) * level.n
        return self._shuffle(t // draws_per_shuffle)[:, first : first + level.n].sort(dim=1).values

    def _shuffle(self, number: int) -> Tensor:
        """The `number`-th shuffle of every run, [R, M]; the last few are kept, since levels with other n lag behind."""
        if number not in self._shuffles:
            if len(self._shuffles) >= 8:
                self._shuffles.pop(min(self._shuffles))
            orders = [
                make_rng(self._seed, "queue", run, number).permutation(self._num_models)
                for run in range(self._num_runs)
            ]
            self._shuffles[number] = torch.stack([torch.from_numpy(order) for order in orders])
        return self._shuffles[number]


class WindowedSum:
    """Sums of one term per iteration over each of `WINDOWS`."""

    def __init__(self, num_iterations: int) -> None:
        """Prepare for T additions."""
        self._first = [int(window * num_iterations) for window in WINDOWS]
        self._num_iterations = num_iterations
        self._count = 0
        self._sums: list[Tensor] = []

    def add(self, term: Tensor) -> None:
        """Add the next term."""
        if not self._sums:
            self._sums = [torch.zeros_like(term) for _ in WINDOWS]
        for total, first in zip(self._sums, self._first, strict=True):
            if self._count >= first:
                total += term
        self._count += 1

    def averages(self) -> Tensor | None:
        """The average of each window, [W, ...]; None if nothing was added."""
        if not self._sums:
            return None
        counts = [self._num_iterations - first for first in self._first]
        return torch.stack([total / count for total, count in zip(self._sums, counts, strict=True)])


class Response(NamedTuple):
    """The adversary's answer to a batch of policies."""

    reward: Tensor
    """r̄, the worst-k reward W_μ of Alg. 1, [B, S, A]."""
    value: Tensor
    """The policy's value under it: [B], or [B, S] in the single-state regime."""


class _BaseAdversary:
    """What both adversaries keep: rewards, levels, the queue, exact weights by rank and exact values not handed out yet."""

    def __init__(
        self,
        rewards: Rewards,
        batch: SolveBatch,
        *,
        sampling: Sampling = Sampling.EXACT,
        seed: int = 0,
        num_iterations: int = 1,
        track_exact: bool = False,
    ) -> None:
        """Prepare to answer.

        Args:
            rewards: The M reward functions.
            batch: Levels and runs solved together.
            sampling: The paper's queue, or exact rank weights.
            seed: Starts the queues.
            num_iterations: How many answers will be asked for.
            track_exact: Whether to rank all M models in every iteration even if only the drawn ones answer.
        """
        self.tracks_exact = track_exact or sampling is Sampling.EXACT
        self._rewards = rewards
        self._batch = batch
        self._sampling = sampling
        self._queue = ModelQueue(batch.num_runs, rewards.num_models, seed)
        self._rank_weights = batch.rank_weights(rewards.num_models, rewards.device)  # [B, M]
        self._sums = WindowedSum(num_iterations)
        self._exact_values: list[Tensor] = []

    def pop_exact_values(self, last: bool) -> list[Tensor]:
        """Exact values ([B], or [B, S]) of earlier iterates, in order, each handed out once; after the `last` one all."""
        known, self._exact_values = self._exact_values, []
        return known


class JointAdversary(_BaseAdversary):
    """Ranks the models by the value of the whole policy."""

    def __init__(self, rewards: Rewards, batch: SolveBatch, **options: Any) -> None:
        """As `_BaseAdversary`; sums are those of the weights of the models, [B, M]."""
        super().__init__(rewards, batch, **options)
        self._unranked: list[Tensor] = []
        # Ranking many iterates at a time is one wide product instead of many narrow ones.
        self._backlog = max(1, min(32, BACKLOG_ENTRIES // (rewards.num_states * rewards.num_actions)))

    def respond(self, occupancy: Tensor, t: int) -> Response:
        """Answer iteration `t`'s policies, given their occupancies x(s,a) [B, S, A]."""
        if self._sampling is Sampling.EXACT:
            returns = self._rewards.returns(occupancy)  # V, [B, M]
            weights, value = _rank(returns, self._rank_weights)
            self._sums.add(weights)
            self._exact_values.append(value)
            return Response(self._rewards.mixture(weights), value)
        if self.tracks_exact:
            self._unranked.append(occupancy)
        answers = [
            self._respond_to_runs(occupancy[members], queued(level), t)  # [R, S, A] and [R]
            for level, members in self._batch.groups()
        ]
        rewards, values = zip(*answers, strict=True)
        return Response(torch.cat(rewards), torch.cat(values))

    def _respond_to_runs(self, occupancy: Tensor, level: KofN, t: int) -> tuple[Tensor, Tensor]:
        """Mean of the k worst of the N drawn models for each run of a level, and the policy's value under it."""
        drawn = self._queue.draw(level, t).to(occupancy.device)  # [R, N]
        if 8 * level.n >= self._rewards.num_models and not self._rewards.streamed:
            # A draw is a good part of all models: products with all of them, weight 0 for those that do not count.
            sampled = self._rewards.returns(occupancy).gather(1, drawn)  # [R, N]
            worst = worst_k_of(sampled, level.k)  # [R, k]
            weights = torch.zeros(len(drawn), self._rewards.num_models, dtype=torch.float64, device=drawn.device)
            weights.scatter_(1, drawn.gather(1, worst), 1 / level.k)
            return self._rewards.mixture(weights), pairwise_mean(sampled.gather(1, worst), dim=-1)
        rewards, values = [], []
        for x, indices in zip(occupancy, drawn, strict=True):
            block = self._rewards.rewards_for(indices).double().flatten(1)  # [N, S*A]
            returns = BatchMatrix(block).dot(x.flatten().unsqueeze(0))[0]  # [N]
            worst = worst_k_of(returns, level.k)
            rewards.append(pairwise_mean(block[worst]).view_as(x))
            values.append(pairwise_mean(returns[worst]))
        return torch.stack(rewards), torch.stack(values)

    def pop_exact_values(self, last: bool) -> list[Tensor]:
        """As `_BaseAdversary`, once enough iterates wait to be ranked together."""
        if len(self._unranked) >= self._backlog or (last and self._unranked):
            by_member = torch.stack(self._unranked, dim=1)  # [B, w, S, A]
            # One product per member with a fixed width, so that its bits do not depend on the rest of the batch.
            ranked = [
                _rank(self._rewards.returns(occupancies, width=self._backlog), weights)
                for occupancies, weights in zip(by_member, self._rank_weights, strict=True)
            ]
            weights, values = (torch.stack(part, dim=1) for part in zip(*ranked, strict=True))  # [w, B, M], [w, B]
            for weight in weights:
                self._sums.add(weight)
            self._exact_values += values
            self._unranked.clear()
        return super().pop_exact_values(last)

    def exact_value(self, occupancy: Tensor) -> Tensor:
        """Exact k-of-N value over all M models, in float64: [B, S, A] -> [B]."""
        return _rank(self._rewards.returns(occupancy, precise=True), self._rank_weights)[1]

    def average_mixtures(self) -> Tensor | None:
        """Averages of the exact mixtures r̄ over each window, [W, B, S, A]; None if none were tracked."""
        weights = self._sums.averages()  # [W, B, M]
        if weights is None:
            return None
        return self._rewards.mixture(weights.flatten(0, 1), precise=True).unflatten(0, weights.shape[:2])


def _rank(returns: Tensor, rank_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Exact weights [..., M] of the models for given returns [..., M], and the exact value [...]."""
    weights = ranked_weights(returns, rank_weights)
    return weights, (weights * returns).sum(dim=-1)


class PerStateAdversary(_BaseAdversary):
    """Ranks the models in each state anew: every state is a game of its own, in which x(s,a) is the policy π(a|s)."""

    def __init__(self, rewards: Rewards, batch: SolveBatch, **options: Any) -> None:
        """As `_BaseAdversary`; sums are those of the mixtures, [B, S, A]."""
        super().__init__(rewards, batch, **options)
        self._rank_weights = self._rank_weights.unsqueeze(1)  # [B, 1, M], the same in every state
        size = 8 * rewards.num_models * rewards.num_states * rewards.num_actions
        self._keeps_pieces = size <= KEPT_BYTES and not rewards.streamed
        self._pieces: dict[tuple[int, int], list[Tensor]] = {}

    def respond(self, policy: Tensor, t: int) -> Response:
        """Answer iteration `t`'s policies [B, S, A], in each state by the models that are worst there."""
        if not self.tracks_exact:
            return self._respond_with_drawn(policy, t)
        exact = self._respond_with_all(policy)
        self._sums.add(exact.reward)
        self._exact_values.append(exact.value)
        return exact if self._sampling is Sampling.EXACT else self._respond_with_drawn(policy, t)

    def _respond_with_drawn(self, policy: Tensor, t: int) -> Response:
        """Mean of the k worst of the N drawn models in each state, [B, S, A], and its value [B, S]."""
        mixed, values = torch.empty_like(policy), torch.empty_like(policy[..., 0])
        for measure, members in self._batch.groups():
            level = queued(measure)
            if level.n == self._rewards.num_models:  # a draw of all models is exact
                mixed[members], values[members] = self._respond_with_all(policy, members)
                continue
            drawn = self._queue.draw(level, t)  # [R, N]
            chunks = self._chunks(8 * drawn.numel() * policy.shape[2])

            def answer(states: slice, level: KofN = level, members: slice = members, drawn: Tensor = drawn) -> Any:
                sampled_rewards = self._rewards.rewards_for(drawn.flatten(), states).unflatten(0, drawn.shape)
                policies = policy[members, None, states].to(sampled_rewards.dtype)  # [R, 1, s, A]
                returns = (sampled_rewards * policies).sum(dim=-1)  # V, [R, N, s]
                return worst_k_mean(sampled_rewards, returns, level.k)

            for states, (reward, value) in zip(chunks, self._map_chunks(answer, chunks), strict=True):
                mixed[members, states], values[members, states] = reward, value
        return Response(mixed, values)

    def _respond_with_all(self, policy: Tensor, only: slice | None = None) -> Response:
        """Exact mixture [b, S, A] and value [b, S] from all M models, for all members or those of a slice."""
        members = slice(None) if only is None else only
        policies, rank_weights = policy[members], self._rank_weights[members]
        chunks = self._chunks(2 * 8 * self._rewards.num_models * (policies.shape[2] + policies.shape[0]))
        if len(chunks) == 1:
            return self._rank_states(chunks[0], policies, rank_weights)
        answers = self._map_chunks(lambda states: self._rank_states(states, policies[:, states], rank_weights), chunks)
        return Response(*(torch.cat(part, dim=1) for part in zip(*answers, strict=True)))

    def _rank_states(self, states: slice, policy: Tensor, rank_weights: Tensor) -> Response:
        """The same for as many states as the working set holds, [b, s, A] and [b, s].

        Two passes over blocks of models, if there are several: one for the returns that are ranked, one for the mixture.
        """
        returns = []
        for block in self._blocks(states):
            returns.append(_state_returns(block, policy))
        again = [block] if len(returns) == 1 else self._blocks(states)
        ranked = returns[0] if len(returns) == 1 else torch.cat(returns, dim=-1)  # V, [b, s, M]
        weights = ranked_weights(ranked, rank_weights)
        parts = [weights] if len(returns) == 1 else weights.split([part.shape[-1] for part in returns], dim=-1)
        mixtures = (_state_mixture(part, block) for part, block in zip(parts, again, strict=True))
        mixed = next(mixtures)
        for mixture in mixtures:
            mixed += mixture
        return Response(mixed, (mixed * policy).sum(dim=-1))  # Σ_m w_m V_m, as both sums are linear

    def _blocks(self, states: slice) -> Iterable[Tensor]:
        """All models in these states, a block at a time: float64 rewards [s, A, m]."""
        key = states.start, states.stop
        if key in self._pieces:
            return self._pieces[key]
        # Models side by side, so that a sum over them, or over actions, has one order wherever a state stands. Where blocks
        # end must not depend on the number of states either; a piece of an array on the CPU has few enough of them.
        counted = 1 if self._rewards.device.type == "cpu" and not self._rewards.streamed else None
        blocks = (block.permute(1, 2, 0).contiguous() for _, block in model_blocks(self._rewards, states, counted))
        return self._pieces.setdefault(key, list(blocks)) if self._keeps_pieces else blocks

    def _map_chunks(self, answer: Callable[[slice], Any], chunks: list[slice]) -> list[Any]:
        """The answer in each chunk of states; on the CPU one chunk per thread, unless they share a source of rewards."""
        if self._rewards.device.type == "cpu" and not self._rewards.streamed:
            return parallel_map(lambda number: answer(chunks[number]), len(chunks))
        return [answer(states) for states in chunks]

    def _chunks(self, bytes_per_state: int) -> list[slice]:
        """Slices that cover all states, each within the working set."""
        on_cpu = self._rewards.device.type == "cpu"
        budget = CHUNK_BYTES if on_cpu and not self._rewards.streamed else STREAM_CHUNK_BYTES
        size, total = max(1, budget // bytes_per_state), self._rewards.num_states
        return [slice(first, min(first + size, total)) for first in range(0, total, size)]

    def exact_value(self, policy: Tensor) -> Tensor:
        """Exact k-of-N value of each state over all M models, in float64: [B, S, A] -> [B, S]."""
        return self._respond_with_all(policy).value

    def average_mixtures(self) -> Tensor | None:
        """Averages of the exact mixtures r̄ over each window, [W, B, S, A]; None if none were tracked."""
        return self._sums.averages()


def _state_returns(block: Tensor, policy: Tensor) -> Tensor:
    """Each model's value in each state: rewards [s, A, m], policies [b, s, A] -> [b, s, m]."""
    if len(policy) == 1:  # one product, where the calls cost more than the numbers
        return (block * policy[0].unsqueeze(-1)).sum(dim=1).unsqueeze(0)
    return torch.stack([(block * member.unsqueeze(-1)).sum(dim=1) for member in policy.unbind()])


def _state_mixture(weights: Tensor, block: Tensor) -> Tensor:
    """Reward functions mixed in each state: weights [b, s, m], rewards [s, A, m] -> [b, s, A].

    Products and sums, not a matrix product, which would round differently depending on a state's position in the batch.
    """
    if len(weights) == 1:
        return (block * weights[0].unsqueeze(1)).sum(dim=-1).unsqueeze(0)
    return torch.stack([(block * member.unsqueeze(1)).sum(dim=-1) for member in weights.unbind()])


Adversary = JointAdversary | PerStateAdversary
