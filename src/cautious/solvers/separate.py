"""The adversary of the single-state regime: every state is a problem of its own."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from cautious.ops.risk import ranked_weights, worst_k_mean
from cautious.solvers.batch import Batch, WindowedSum
from cautious.solvers.opponents import Ranked, Response
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


class SeparateOpponent:
    """Ranks the models in each state by that state's value alone."""

    def __init__(
        self, rewards: Rewards, batch: Batch, sampling: Sampling, seed: int, num_iterations: int, track_exact: bool
    ) -> None:
        """As `JointOpponent`; each state is a game of its own, so there is none to pass."""
        self._rewards = rewards
        self._batch = batch
        self._sampling = sampling
        self._ranks_all = track_exact or sampling is Sampling.EXACT
        self._queue = ModelQueue(batch.num_runs, rewards.num_models, seed)
        self._rank_weights = batch.rank_weights(rewards.num_models, rewards.device).unsqueeze(1)  # [B, 1, M]
        self._mixtures = WindowedSum(num_iterations)
        self._ranked: list[Ranked] = []
        size = 8 * rewards.num_models * rewards.num_states * rewards.num_actions
        self._keeps = size <= KEPT_BYTES and not rewards.streamed
        self._kept: dict[tuple[int, int], list[tuple[slice, Tensor]]] = {}

    def exact_value(self, policy: Tensor) -> Tensor:
        """Exact k-of-N value of each state over all M models, in float64: [B, S, A] -> [B, S]."""
        return self._answer_from_all(policy)[1]

    def respond(self, policy: Tensor, t: int) -> Response:
        """Answer iteration `t`'s policies [B, S, A], each state on its own."""
        if self._ranks_all:
            worst_k_reward, value = self._answer_from_all(policy)
            self._mixtures.add(worst_k_reward)
            self._ranked.append(Ranked(policy, value))
        if self._sampling is Sampling.QUEUE:
            worst_k_reward, value = self._answer_from_draw(policy, t)
        return Response(worst_k_reward, None, value)

    def settle(self, last: bool) -> list[Ranked]:
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
        answers = [self._answer_in(states, own[:, states], rank_weights) for states in chunks]
        mixed, values = (torch.cat(part, dim=1) for part in zip(*answers, strict=True))
        return mixed, values

    def _answer_in(self, states: slice, policy: Tensor, rank_weights: Tensor) -> tuple[Tensor, Tensor]:
        """The same for as many states as the working set holds, [b, s, A] and [b, s].

        Two passes over blocks of models: one for the returns that are ranked, one for the mixture.
        """
        returns = [_state_returns(block, policy) for _, block in self._blocks(states)]
        ranked = returns[0] if len(returns) == 1 else torch.cat(returns, dim=-1)  # [b, s, M]
        weights = ranked_weights(ranked, rank_weights)
        parts = [weights] if len(returns) == 1 else weights.split([part.shape[-1] for part in returns], dim=-1)
        mixtures = (_state_mixture(part, block) for part, (_, block) in zip(parts, self._blocks(states), strict=True))
        mixed = next(mixtures)
        for mixture in mixtures:
            mixed += mixture
        return mixed, (weights * ranked).sum(dim=-1)

    def _blocks(self, states: slice) -> Iterable[tuple[slice, Tensor]]:
        """All models in these states, a block at a time: (which, float64 rewards [m, s, A])."""
        if not self._keeps:
            return model_blocks(self._rewards, states)
        place = states.start, states.stop
        if place not in self._kept:
            self._kept[place] = list(model_blocks(self._rewards, states))
        return self._kept[place]

    def _answer_from_draw(self, policy: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """Worst-k reward [B, S, A] and its value [B, S] from the drawn models."""
        mixed, values = torch.empty_like(policy), torch.empty_like(policy[..., 0])
        for level, members in self._batch.groups():
            if level.n == self._rewards.num_models:  # whoever draws everything draws exactly
                mixed[members], values[members] = self._answer_from_all(policy, members)
                continue
            drawn = self._queue.draw(level, t)  # [R, N]
            for states in self._chunks(8 * drawn.numel() * policy.shape[2]):
                sampled_rewards = self._rewards.rewards_for(drawn.flatten(), states).unflatten(
                    0, drawn.shape
                )  # [R, N, s, A]
                returns = (sampled_rewards * policy[members, None, states].to(sampled_rewards.dtype)).sum(dim=-1)
                answer = worst_k_mean(sampled_rewards, returns, level.k)
                mixed[members, states], values[members, states] = answer
        return mixed, values

    def _chunks(self, bytes_a_state: int) -> list[slice]:
        """Slices that cover all states, each within the working set."""
        budget = STREAM_CHUNK_BYTES if self._rewards.streamed else CHUNK_BYTES
        if self._rewards.device.type != "cpu":
            budget = STREAM_CHUNK_BYTES
        size, total = max(1, budget // bytes_a_state), self._rewards.num_states
        return [slice(first, min(first + size, total)) for first in range(0, total, size)]


def _state_returns(block: Tensor, policy: Tensor) -> Tensor:
    """Each model's value in each state: rewards [m, s, A], policies [b, s, A] -> [b, s, m]."""
    if len(policy) == 1:  # one product, where the calls cost more than the numbers
        return (block * policy).sum(dim=-1).T.contiguous().unsqueeze(0)
    return torch.stack([(block * own).sum(dim=-1).T for own in policy.unbind()])


def _state_mixture(weights: Tensor, block: Tensor) -> Tensor:
    """Reward functions mixed in each state: weights [b, s, m], rewards [m, s, A] -> [b, s, A]."""
    by_state = block.transpose(0, 1)
    if len(weights) == 1:
        return torch.bmm(weights.transpose(0, 1).contiguous(), by_state).transpose(0, 1)
    return torch.stack([torch.bmm(own.unsqueeze(1).contiguous(), by_state).squeeze(1) for own in weights.unbind()])
