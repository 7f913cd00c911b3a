"""The adversary of k-of-N: for the current policy, which mixture of reward models to answer with.

`JointOpponent` ranks models by the return of the whole policy (all-states regime, MDPs); `SeparateOpponent` ranks them
in every state anew (single-state regime). Both answer with the worst-k reward of Alg. 1 line 8, in the form of action
values, and keep the average of the *exact* mixtures, which is what a certificate needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cautious.ops.linear import BatchMatrix
from cautious.ops.risk import KofN, ranked_weights, worst_k_mean, worst_k_of
from cautious.solvers.batch import Batch, WindowedSum
from cautious.solvers.games import Game
from cautious.solvers.rewards import Rewards, model_blocks
from cautious.solvers.sampling import ModelQueue
from cautious.types import Sampling

CHUNK_BYTES = 2**22
"""Working set of one vectorised piece of the single-state regime: enough to amortise calls, little enough for cache."""

STREAM_CHUNK_BYTES = 2**29
"""The same where every piece asks a stream again, so that few large pieces are cheaper than many small ones."""


class Response(NamedTuple):
    """One iteration's answer to a batch of policies; value shapes are [B], or [B, S] in the single-state regime."""

    action_values: Tensor
    """[B, S, A] under the mixture answered with."""
    occupancy: Tensor
    """[B, S]."""
    sampled_value: Tensor
    """Mean return under the k worst of the sampled models."""
    exact_value: Tensor | None
    """Exact k-of-N value over all M models, where it was computed."""


class JointOpponent:
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
        self._ranks_all = track_exact or sampling is Sampling.EXACT
        self._queue = ModelQueue(batch.num_runs, rewards.num_models, seed)
        self._rank_weights = batch.rank_weights(rewards.num_models, rewards.device)
        self._weights = WindowedSum(num_iterations)

    def exact_value(self, policy: Tensor) -> Tensor:
        """Exact k-of-N value over all M models, in float64: [B, S, A] -> [B]."""
        occupancy = self._game.evaluate(policy).occupancy.unsqueeze(-1) * policy
        returns = self._rewards.returns(occupancy, precise=True)
        return (ranked_weights(returns, self._rank_weights) * returns).sum(dim=-1)

    def respond(self, policy: Tensor, t: int) -> Response:
        """Answer iteration `t`'s policies [B, S, A]."""
        evaluation = self._game.evaluate(policy)
        occupancy = evaluation.occupancy.unsqueeze(-1) * policy  # x(s,a), [B, S, A]
        exact_value = None
        if not self._ranks_all:
            worst_k_reward, sampled_value = self._answer_from_draw_alone(occupancy, t)
        else:
            returns = self._rewards.returns(occupancy)  # V_π, [B, M]
            weights = ranked_weights(returns, self._rank_weights)
            exact_value = (weights * returns).sum(dim=-1)
            self._weights.add(weights)
            if self._sampling is Sampling.EXACT:
                worst_k_reward, sampled_value = self._rewards.mixture(weights), exact_value
            else:
                worst_k_reward, sampled_value = self._answer_from_draw(returns, t)
        return Response(evaluation.action_values(worst_k_reward), evaluation.occupancy, sampled_value, exact_value)

    def average_rewards(self) -> Tensor | None:
        """Averages of the exact mixtures of reward functions, [W, B, S, A]: points of the risk envelope."""
        weights = self._weights.averages()  # [W, B, M]
        if weights is None:
            return None
        return self._rewards.mixture(weights.flatten(0, 1), precise=True).unflatten(0, weights.shape[:2])

    def _answer_from_draw(self, returns: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """Worst-k reward [B, S, A] and its value [B], all returns [B, M] being known."""
        mixed, values = [], []
        for level, members in self._batch.groups():
            drawn = self._queue.draw(level, t).to(returns.device)  # [R, N]
            sampled = returns[members].gather(1, drawn)
            worst = worst_k_of(sampled, level.k)  # [R, k]
            values.append(sampled.gather(1, worst).mean(dim=-1))
            mixed.append(self._mean_reward(drawn.gather(1, worst), level))
        return torch.cat(mixed), torch.cat(values)

    def _mean_reward(self, models: Tensor, level: KofN) -> Tensor:
        """(1/k) Σ_j r_(j) of chosen models [R, k] -> [R, S, A]."""
        if 8 * level.n >= self._rewards.num_models:  # a draw of a good part of all models: one product with all of them
            weights = torch.zeros(len(models), self._rewards.num_models, dtype=torch.float64, device=models.device)
            return self._rewards.mixture(weights.scatter_(1, models, 1 / level.k))
        total = self._rewards.rewards_for(models[:, 0]).double() / level.k
        for rank in range(1, level.k):  # elementwise, so that a run's bits do not depend on how many run beside it
            total += self._rewards.rewards_for(models[:, rank]).double() / level.k
        return total

    def _answer_from_draw_alone(self, occupancy: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """The same, looking at the drawn models only: for a belief too large to rank whole in every iteration."""
        mixed, values = [], []
        for level, members in self._batch.groups():
            for own_occupancy, indices in zip(occupancy[members], self._queue.draw(level, t), strict=True):
                block = self._rewards.rewards_for(indices).double().flatten(1)  # [N, S*A]
                returns = BatchMatrix(block).dot(own_occupancy.flatten().unsqueeze(0))[0]
                worst = worst_k_of(returns, level.k)
                mixed.append(block[worst].mean(dim=0).view_as(own_occupancy))
                values.append(returns[worst].mean())
        return torch.stack(mixed), torch.stack(values)


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
        self._rank_weights = batch.rank_weights(rewards.num_models, rewards.device)
        self._mixtures = WindowedSum(num_iterations)

    def exact_value(self, policy: Tensor) -> Tensor:
        """Exact k-of-N value of each state over all M models, in float64: [B, S, A] -> [B, S]."""
        return self._answer_from_all(policy)[1]

    def respond(self, policy: Tensor, t: int) -> Response:
        """Answer iteration `t`'s policies [B, S, A], each state on its own."""
        exact_value = None
        if self._ranks_all:
            worst_k_reward, exact_value = self._answer_from_all(policy)
            self._mixtures.add(worst_k_reward)
            sampled_value = exact_value
        if self._sampling is Sampling.QUEUE:
            worst_k_reward, sampled_value = self._answer_from_draw(policy, t)
        return Response(worst_k_reward, torch.ones_like(sampled_value), sampled_value, exact_value)

    def average_rewards(self) -> Tensor | None:
        """Averages of the exact mixtures of reward functions in each state, [W, B, S, A]."""
        return self._mixtures.averages()

    def _answer_from_all(self, policy: Tensor, only: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Exact mixture [b, S, A] and value [b, S] from all M models, for the members of a slice.

        Two passes over blocks of models, as many states at a time as the working set holds: one for the returns that are
        ranked, one for the mixture.
        """
        own, rank_weights = policy[only], self._rank_weights[only]
        mixed, values = torch.zeros_like(own), torch.empty_like(own[..., 0])
        for states in self._chunks(2 * 8 * self._rewards.num_models * (own.shape[2] + len(own))):
            part = own[:, states]
            returns = [_state_returns(block, part) for _, block in model_blocks(self._rewards, states)]
            ranked = torch.cat(returns, dim=1).transpose(1, 2).contiguous()  # [b, s, M]
            weights = ranked_weights(ranked, rank_weights.unsqueeze(1))
            values[:, states] = (weights * ranked).sum(dim=-1)
            for which, block in model_blocks(self._rewards, states):
                for member, weight in enumerate(weights[..., which].unbind()):
                    mixed[member, states] += torch.bmm(weight.unsqueeze(1).contiguous(), block.transpose(0, 1)).squeeze(
                        1
                    )
        return mixed, values

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

    def _chunks(self, bytes_a_state: int) -> Iterator[slice]:
        """Slices that cover all states, each within the working set."""
        budget = STREAM_CHUNK_BYTES if self._rewards.streamed else CHUNK_BYTES
        if self._rewards.device.type != "cpu":
            budget = STREAM_CHUNK_BYTES
        size = max(1, budget // bytes_a_state)
        for first in range(0, self._rewards.num_states, size):
            yield slice(first, min(first + size, self._rewards.num_states))


def _state_returns(block: Tensor, policy: Tensor) -> Tensor:
    """Each model's value in each state: rewards [m, s, A], policies [b, s, A] -> [b, m, s]."""
    return torch.stack([(block * own).sum(dim=-1) for own in policy])


Opponent = JointOpponent | SeparateOpponent
