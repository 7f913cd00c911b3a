"""What to do in each state, beside what one would ordinarily do there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor


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


def total_variation(policy: Tensor, ordinary: Tensor) -> Tensor:
    """How far two policies are apart in each state: [..., B, A], [B, A] -> [..., B]."""
    return 0.5 * (policy - ordinary).abs().sum(dim=-1)


def decision_of(cautious: Tensor, ordinary: Tensor, opinions: Callable[[], Tensor]) -> Decision:
    """The decision that a cautious policy [B, A] makes, beside the ordinary one [B, A]."""
    return Decision(cautious.argmax(dim=-1), cautious, total_variation(cautious, ordinary), ordinary, opinions)
