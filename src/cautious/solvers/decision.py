"""What to do in each state, beside what one would ordinarily do there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cautious.ops.risk import KofN
from cautious.solvers.optimal import optimal_policy
from cautious.solvers.rewards import mean_reward
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


def beside_ordinary(
    solved: Tensor, levels: Sequence[KofN], rewards: Any, mdp: TabularMDP | None = None
) -> tuple[Tensor, Tensor]:
    """What levels do, and what one would ordinarily do: the best under the mean reward, with all that follows in an MDP.

    Level n-of-n is the mean of all that are drawn, so it is the ordinary policy, known without a game: what a solver makes of
    it is that up to the iterations it had, which would show as caution.

    Args:
        solved: The solver's policies, [L, S, A].
        levels: Whose they are, L of them.
        rewards: What each model says, [M, S, A].
        mdp: The world, where actions move it.

    Returns:
        Policies of the levels [L, S, A], and the ordinary one [S, A].
    """
    mean = mean_reward(rewards).cpu()
    ordinary = greedy(mean) if mdp is None else optimal_policy(mdp, mean).policy
    of_the_mean = torch.tensor([level.k == level.n for level in levels])
    return torch.where(of_the_mean[:, None, None], ordinary, solved.cpu()), ordinary


def total_variation(policy: Tensor, ordinary: Tensor) -> Tensor:
    """How far two policies are apart in each state: [..., B, A], [B, A] -> [..., B]."""
    return 0.5 * (policy - ordinary).abs().sum(dim=-1)


def decision_of(cautious: Tensor, ordinary: Tensor, opinions: Callable[[], Tensor]) -> Decision:
    """The decision that a cautious policy [..., B, A] makes, beside the ordinary one [B, A]."""
    return Decision(cautious.argmax(dim=-1), cautious, total_variation(cautious, ordinary), ordinary, opinions)
