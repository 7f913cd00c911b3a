"""What to do in each state, beside what one would ordinarily do there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cautious.ops.risk import KofN
from cautious.solvers.optimal import optimal_policy
from cautious.solvers.rewards import as_rewards, mean_reward, model_blocks
from cautious.worlds.mdp import TabularMDP


@dataclass(frozen=True, eq=False)
class Decision:
    """What to do in each of B states, and how far that is from what one would ordinarily do."""

    action: Tensor
    """The most likely action, [B]."""
    probabilities: Tensor
    """The policy, [B, A]."""
    caution: Tensor
    """Total variation distance from the ordinary (risk-neutral) policy, [B]: 0 acts as usual, 1 entirely differently."""
    ordinary: Tensor
    """The ordinary policy, [B, A]."""
    _opinions: Callable[[], Tensor] = field(repr=False)

    def opinions(self) -> Tensor:
        """What each model says each action pays, [M, B, A]; computed on demand."""
        return self._opinions()


def greedy(reward: Tensor) -> Tensor:
    """The ordinary policy: the best action under a reward function, shared evenly where several are best, [B, A]."""
    best = (reward == reward.amax(dim=-1, keepdim=True)).double()
    return best / best.sum(dim=-1, keepdim=True)


def ordinary_policy(rewards: Any, mdp: TabularMDP | None = None) -> Tensor:
    """What one would ordinarily do: the best under the mean reward [M, S, A], with all that follows in an MDP; [S, A]."""
    mean = mean_reward(rewards).cpu()
    return greedy(mean) if mdp is None else optimal_policy(mdp, mean).policy


def beside_ordinary(solved: Tensor, levels: Sequence[KofN], ordinary: Tensor) -> Tensor:
    """What levels do: as solved [L, S, A], but for level n-of-n, which is the ordinary policy [S, A].

    It is the mean of all that are drawn, so that its policy is known without a game: what a solver makes of it is that up to
    the iterations it had, which would show as caution.
    """
    of_the_mean = torch.tensor([level.k == level.n for level in levels])
    return torch.where(of_the_mean[:, None, None], ordinary, solved.cpu())


def disputed(rewards: Any, ordinary: Tensor) -> Tensor:
    """States in which some model prefers another action than the ordinary policy's: [M, S, A], [S, A] -> [S].

    In the others every model's return, and so every k-of-N value, is highest under the ordinary policy: no game is needed.
    """
    objections = torch.zeros(len(ordinary), dtype=torch.bool)
    for _, block in model_blocks(as_rewards(rewards)):
        taken_and_worse = (block < block.amax(dim=-1, keepdim=True)) & (ordinary > 0).to(block.device)
        objections |= taken_and_worse.any(dim=0).any(dim=-1).cpu()
    return objections


def total_variation(policy: Tensor, ordinary: Tensor) -> Tensor:
    """How far two policies are apart in each state: [..., B, A], [B, A] -> [..., B]."""
    return 0.5 * (policy - ordinary).abs().sum(dim=-1)


def decision_of(cautious: Tensor, ordinary: Tensor, opinions: Callable[[], Tensor]) -> Decision:
    """The decision that a cautious policy [..., B, A] makes, beside the ordinary one [B, A]."""
    return Decision(cautious.argmax(dim=-1), cautious, total_variation(cautious, ordinary), ordinary, opinions)
