"""The adversary of k-of-N: for the current policy, which mixture of reward models to answer with.

`JointAdversary` ranks models by the return of the whole policy (all-states regime, MDPs); `solvers.per_state_adversary` ranks
them in every state anew (single-state regime). Both answer with the worst-k reward of Alg. 1 line 8, in the form of action
values, and keep the average of the *exact* mixtures, which is what a certificate needs.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from cautious.ops.linear import BatchMatrix
from cautious.ops.risk import ranked_weights, worst_k_of
from cautious.ops.sums import pairwise_mean
from cautious.solvers.batch import Batch, WindowedSum
from cautious.solvers.games import Game
from cautious.solvers.rewards import Rewards
from cautious.solvers.sampling import ModelQueue
from cautious.types import Sampling

BACKLOG_ENTRIES = 2**20
"""Occupancies that wait to be ranked hold at most about this many entries a member."""


class Response(NamedTuple):
    """One iteration's answer to a batch of policies; value shapes are [B], or [B, S] in the single-state regime."""

    action_values: Tensor
    """[B, S, A] under the mixture answered with."""
    occupancy: Tensor | None
    """[B, S]; None where every state is a problem of its own."""
    sampled_value: Tensor
    """Mean return under the k worst of the sampled models."""


class EvaluatedPolicy(NamedTuple):
    """A policy of an earlier iteration, and its exact k-of-N value over all M models."""

    policy: Tensor
    value: Tensor


class Adversary(Protocol):
    """What the algorithm needs of an adversary."""

    def respond(self, policy: Tensor, t: int) -> Response:
        """Answer iteration `t`'s policies [B, S, A]."""
        ...

    def flush_exact_values(self, last: bool) -> list[EvaluatedPolicy]:
        """Iterates whose exact values are known by now, in order; all that are left after the last iteration."""
        ...

    def exact_value(self, policy: Tensor) -> Tensor:
        """Exact k-of-N value over all M models: [B, S, A] -> [B], or [B, S] where each state is its own problem."""
        ...

    def average_rewards(self) -> Tensor | None:
        """Averages of the exact mixtures so far, [W, B, S, A]: points of the risk envelope."""
        ...


class JointAdversary:
    """Ranks the models by the return of the whole policy."""

    def __init__(
        self,
        game: Game,
        rewards: Rewards,
        batch: Batch,
        sampling: Sampling,
        seed: int,
        num_iterations: int,
        track_exact: bool,
    ) -> None:
        """Prepare to answer.

        Args:
            game: Evaluates policies.
            rewards: The M reward functions.
            batch: Levels and runs solved together.
            sampling: The paper's queue, or exact rank weights.
            seed: Starts the queues.
            num_iterations: How many answers will be asked for.
            track_exact: Whether to rank all M models in every iteration even if only the drawn ones answer.
        """
        self._game = game
        self._rewards = rewards
        self._batch = batch
        self._sampling = sampling
        self._tracks = track_exact
        self._queue = ModelQueue(batch.num_runs, rewards.num_models, seed)
        self._rank_weights = batch.rank_weights(rewards.num_models, rewards.device)
        self._weights = WindowedSum(num_iterations)
        self._unranked: list[tuple[Tensor, Tensor]] = []
        self._ranked: list[EvaluatedPolicy] = []
        # Ranking many iterates at a time is one wide product instead of many narrow ones.
        self._backlog = max(1, min(32, BACKLOG_ENTRIES // (rewards.num_states * rewards.num_actions)))

    def exact_value(self, policy: Tensor) -> Tensor:
        """Exact k-of-N value over all M models, in float64: [B, S, A] -> [B]."""
        occupancy = self._game.evaluate(policy).occupancy.unsqueeze(-1) * policy
        return self._rank(self._rewards.returns(occupancy, precise=True), self._rank_weights)[1]

    def respond(self, policy: Tensor, t: int) -> Response:
        """Answer iteration `t`'s policies [B, S, A]."""
        evaluation = self._game.evaluate(policy)
        occupancy = evaluation.occupancy.unsqueeze(-1) * policy  # x(s,a), [B, S, A]
        if self._sampling is Sampling.EXACT:
            returns = self._rewards.returns(occupancy)  # V_π, [B, M]
            weights, value = self._rank(returns, self._rank_weights)
            self._weights.add(weights)
            self._ranked.append(EvaluatedPolicy(policy, value))
            worst_k_reward = self._rewards.mixture(weights)
        else:
            worst_k_reward, value = self._answer_from_draw(occupancy, t)
            if self._tracks:
                self._unranked.append((policy, occupancy))
        return Response(evaluation.action_values(worst_k_reward), evaluation.occupancy, value)

    def flush_exact_values(self, last: bool) -> list[EvaluatedPolicy]:
        """Iterates whose exact values are known by now, in order; all that are left after the last iteration."""
        if len(self._unranked) >= self._backlog or (last and self._unranked):
            policies, occupancies = zip(*self._unranked, strict=True)
            by_member = torch.stack(occupancies, dim=1)  # [B, w, S, A]
            ranked = [
                self._rank(self._rewards.returns(own, width=self._backlog), weights)
                for own, weights in zip(by_member, self._rank_weights, strict=True)
            ]
            weights, values = (torch.stack(part, dim=1) for part in zip(*ranked, strict=True))  # [w, B, M], [w, B]
            for policy, weight, value in zip(policies, weights, values, strict=True):
                self._weights.add(weight)
                self._ranked.append(EvaluatedPolicy(policy, value))
            self._unranked.clear()
        settled, self._ranked = self._ranked, []
        return settled

    @staticmethod
    def _rank(returns: Tensor, rank_weights: Tensor) -> tuple[Tensor, Tensor]:
        """Exact weights [..., M] of the models for given returns [..., M], and the exact value [...]."""
        weights = ranked_weights(returns, rank_weights)
        return weights, (weights * returns).sum(dim=-1)

    def average_rewards(self) -> Tensor | None:
        """Averages of the exact mixtures of reward functions, [W, B, S, A]: points of the risk envelope."""
        weights = self._weights.averages()  # [W, B, M]
        if weights is None:
            return None
        return self._rewards.mixture(weights.flatten(0, 1), precise=True).unflatten(0, weights.shape[:2])

    def _answer_from_draw(self, occupancy: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """Worst-k reward [B, S, A] and its value [B] from the drawn models."""
        mixed, values = [], []
        for level, members in self._batch.groups():
            drawn = self._queue.draw(level, t).to(occupancy.device)  # [R, N]
            many = 8 * level.n >= self._rewards.num_models and not self._rewards.streamed
            answer = self._answer_from_many if many else self._answer_from_few
            reward, value = answer(occupancy[members], drawn, level.k)
            mixed.append(reward)
            values.append(value)
        return torch.cat(mixed), torch.cat(values)

    def _answer_from_many(self, occupancy: Tensor, drawn: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Where a draw is a good part of all models: products with all of them, weight 0 on what does not count."""
        sampled = self._rewards.returns(occupancy).gather(1, drawn)  # [R, N]
        worst = worst_k_of(sampled, k)  # [R, k]
        weights = torch.zeros(len(drawn), self._rewards.num_models, dtype=torch.float64, device=drawn.device)
        weights.scatter_(1, drawn.gather(1, worst), 1 / k)
        return self._rewards.mixture(weights), pairwise_mean(sampled.gather(1, worst), dim=-1)

    def _answer_from_few(self, occupancy: Tensor, drawn: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Where it is not: look at the drawn models only."""
        mixed, values = [], []
        for own, indices in zip(occupancy, drawn, strict=True):
            block = self._rewards.rewards_for(indices).double().flatten(1)  # [N, S*A]
            returns = BatchMatrix(block).dot(own.flatten().unsqueeze(0))[0]
            worst = worst_k_of(returns, k)
            mixed.append(pairwise_mean(block[worst]).view_as(own))
            values.append(pairwise_mean(returns[worst]))
        return torch.stack(mixed), torch.stack(values)
