"""The adversary of the single-state regime: every state is a problem of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from cautious.ops.risk import KofN, ranked_weights, worst_k_mean
from cautious.parallel import parallel_map
from cautious.solvers.adversary import EvaluatedPolicy, Response
from cautious.solvers.batch import Batch, WindowedSum
from cautious.solvers.rewards import Rewards, model_blocks
from cautious.solvers.sampling import ModelQueue
from cautious.types import Sampling

CHUNK_BYTES = 2**22
"""Working set of one vectorised piece of the single-state regime: enough to amortise calls, little enough for cache."""

STREAM_CHUNK_BYTES = 2**29
"""The same where every piece asks a stream again, so that few large pieces are cheaper than many small ones."""


KEPT_BYTES = 2**26
"""Rewards of at most this size in float64 are cut into pieces once, instead of in every iteration: for a few states the
cutting takes longer than the ranking."""


class PerStateAdversary:
    """Ranks the models in each state by that state's value alone."""

    def __init__(
        self, rewards: Rewards, batch: Batch, sampling: Sampling, seed: int, num_iterations: int, track_exact: bool
    ) -> None:
        """As `JointAdversary`; each state is a game of its own, so there is none to pass."""
        self._rewards = rewards
        self._batch = batch
        self._sampling = sampling
        self._ranks_all = track_exact or sampling is Sampling.EXACT
        self._queue = ModelQueue(batch.num_runs, rewards.num_models, seed)
        self._rank_weights = batch.rank_weights(rewards.num_models, rewards.device).unsqueeze(1)  # [B, 1, M]
        self._mixtures = WindowedSum(num_iterations)
        self._ranked: list[EvaluatedPolicy] = []
        size = 8 * rewards.num_models * rewards.num_states * rewards.num_actions
        self._keeps = size <= KEPT_BYTES and not rewards.streamed
        self._kept: dict[tuple[int, int], list[Tensor]] = {}

    def exact_value(self, policy: Tensor) -> Tensor:
        """Exact k-of-N value of each state over all M models, in float64: [B, S, A] -> [B, S]."""
        return self._answer_from_all(policy)[1]

    def respond(self, policy: Tensor, t: int) -> Response:
        """Answer iteration `t`'s policies [B, S, A], each state on its own."""
        if self._ranks_all:
            worst_k_reward, value = self._answer_from_all(policy)
            self._mixtures.add(worst_k_reward)
            self._ranked.append(EvaluatedPolicy(policy, value))
        if self._sampling is Sampling.QUEUE:
            worst_k_reward, value = self._answer_from_draw(policy, t)
        return Response(worst_k_reward, None, value)

    def flush_exact_values(self, last: bool) -> list[EvaluatedPolicy]:
        """Iterates whose exact values are known by now, in order."""
        settled, self._ranked = self._ranked, []
        return settled

    def average_rewards(self) -> Tensor | None:
        """Averages of the exact mixtures of reward functions in each state, [W, B, S, A]."""
        return self._mixtures.averages()

    def _answer_from_all(self, policy: Tensor, only: slice | None = None) -> tuple[Tensor, Tensor]:
        """Exact mixture [b, S, A] and value [b, S] from all M models, for all members or those of a slice."""
        own, rank_weights = (policy, self._rank_weights) if only is None else (policy[only], self._rank_weights[only])
        chunks = self._chunks(2 * 8 * self._rewards.num_models * (own.shape[2] + own.shape[0]))
        if len(chunks) == 1:
            return self._answer_in(chunks[0], own, rank_weights)
        answers = self._map_chunks(lambda states: self._answer_in(states, own[:, states], rank_weights), chunks)
        mixed, values = (torch.cat(part, dim=1) for part in zip(*answers, strict=True))
        return mixed, values

    def _answer_in(self, states: slice, policy: Tensor, rank_weights: Tensor) -> tuple[Tensor, Tensor]:
        """The same for as many states as the working set holds, [b, s, A] and [b, s].

        Two passes over blocks of models, if there are several: one for the returns that are ranked, one for the mixture.
        """
        returns = []
        for block in self._blocks(states):
            returns.append(_state_returns(block, policy))
        again = [block] if len(returns) == 1 else self._blocks(states)
        ranked = returns[0] if len(returns) == 1 else torch.cat(returns, dim=-1)  # [b, s, M]
        weights = ranked_weights(ranked, rank_weights)
        parts = [weights] if len(returns) == 1 else weights.split([part.shape[-1] for part in returns], dim=-1)
        mixtures = (_state_mixture(part, own) for part, own in zip(parts, again, strict=True))
        mixed = next(mixtures)
        for mixture in mixtures:
            mixed += mixture
        return mixed, (mixed * policy).sum(dim=-1)  # the mean of the returns by weight: both sums are linear

    def _blocks(self, states: slice) -> Iterable[Tensor]:
        """All models in these states, a block at a time: float64 rewards [s, A, m]."""
        place = states.start, states.stop
        if place in self._kept:
            return self._kept[place]
        # Models side by side, so that a sum over them, or over actions, has one order wherever a state stands. Where blocks
        # end must not depend on the number of states either; a piece of an array on the CPU has few enough of them.
        counted = 1 if self._rewards.device.type == "cpu" and not self._rewards.streamed else None
        blocks = (block.permute(1, 2, 0).contiguous() for _, block in model_blocks(self._rewards, states, counted))
        if not self._keeps:
            return blocks
        return self._kept.setdefault(place, list(blocks))

    def _answer_from_draw(self, policy: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """Worst-k reward [B, S, A] and its value [B, S] from the drawn models."""
        mixed, values = torch.empty_like(policy), torch.empty_like(policy[..., 0])
        for level, members in self._batch.groups():
            if level.n == self._rewards.num_models:  # whoever draws everything draws exactly
                mixed[members], values[members] = self._answer_from_all(policy, members)
                continue
            drawn = self._queue.draw(level, t)  # [R, N]
            chunks = self._chunks(8 * drawn.numel() * policy.shape[2])

            def answer(states: slice, level: KofN = level, members: slice = members, drawn: Tensor = drawn) -> Any:
                sampled_rewards = self._rewards.rewards_for(drawn.flatten(), states).unflatten(0, drawn.shape)
                own = policy[members, None, states].to(sampled_rewards.dtype)
                returns = (sampled_rewards * own).sum(dim=-1)  # [R, N, s]
                return worst_k_mean(sampled_rewards, returns, level.k)

            for states, (reward, value) in zip(chunks, self._map_chunks(answer, chunks), strict=True):
                mixed[members, states], values[members, states] = reward, value
        return mixed, values

    def _map_chunks(self, answer: Callable[[slice], Any], chunks: list[slice]) -> list[Any]:
        """The answer in each chunk of states; on the CPU one chunk a thread, unless they share a source of rewards."""
        if self._rewards.device.type == "cpu" and not self._rewards.streamed:
            return parallel_map(lambda number: answer(chunks[number]), len(chunks))
        return [answer(states) for states in chunks]

    def _chunks(self, bytes_a_state: int) -> list[slice]:
        """Slices that cover all states, each within the working set."""
        budget = STREAM_CHUNK_BYTES if self._rewards.streamed else CHUNK_BYTES
        if self._rewards.device.type != "cpu":
            budget = STREAM_CHUNK_BYTES
        size, total = max(1, budget // bytes_a_state), self._rewards.num_states
        return [slice(first, min(first + size, total)) for first in range(0, total, size)]


def _state_returns(block: Tensor, policy: Tensor) -> Tensor:
    """Each model's value in each state: rewards [s, A, m], policies [b, s, A] -> [b, s, m]."""
    if len(policy) == 1:  # one product, where the calls cost more than the numbers
        return (block * policy[0].unsqueeze(-1)).sum(dim=1).unsqueeze(0)
    return torch.stack([(block * own.unsqueeze(-1)).sum(dim=1) for own in policy.unbind()])


def _state_mixture(weights: Tensor, block: Tensor) -> Tensor:
    """Reward functions mixed in each state: weights [b, s, m], rewards [s, A, m] -> [b, s, A].

    Products and sums, and no matrix product, which would round by a state's place among others.
    """
    if len(weights) == 1:
        return (block * weights[0].unsqueeze(1)).sum(dim=-1).unsqueeze(0)
    return torch.stack([(block * own.unsqueeze(1)).sum(dim=-1) for own in weights.unbind()])
