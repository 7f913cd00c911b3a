"""How well estimated dynamics are known: which pairs of state and action were tried, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

FEW = 5
"""A pair that was tried fewer times than this counts as hardly tried: one outcome of probability 0.3 is then missed with a
probability of 0.7^4 = 24 % or more."""


@dataclass(frozen=True, eq=False)
class Coverage:
    """How often each (state, action) of an estimated world was tried.

    The state that stands for the end of an episode is not estimated, so nothing of it counts as untried.
    """

    visits: Tensor
    """How often each pair was tried, [S, A]."""
    entered: Tensor
    """States that the experience reached, [S]. No estimated transition leads to another one."""
    prior: float = 0.0
    """Pseudo-counts that each pair started with (`TabularMDP.from_gymnasium`)."""

    @property
    def num_steps(self) -> int:
        """Steps of experience."""
        return int(self.visits.sum())

    @property
    def untried(self) -> Tensor:
        """Pairs never tried in states that were entered, [S, A]: what they do is assumed, not seen."""
        return self.entered[:, None] & (self.visits == 0)

    @property
    def hardly_tried(self) -> Tensor:
        """Pairs tried fewer than `FEW` times in states that were entered, [S, A], the untried among them."""
        return self.entered[:, None] & (self.visits < FEW)

    @property
    def assumption(self) -> str:
        """What an untried pair is taken to do, in words."""
        return "do what other actions did in the same state" if self.prior else "stay where they are"

    def __str__(self) -> str:
        """The counts in words."""
        pairs = int(self.entered.sum()) * self.visits.shape[1]
        untried, hardly = int(self.untried.sum()), int(self.hardly_tried.sum())
        text = (
            f"estimated from {self.num_steps:,} steps, which entered {int(self.entered.sum()):,} of "
            f"{len(self.entered):,} states; of their {pairs:,} pairs of state and action {pairs - hardly:,} were tried {FEW} "
            f"times or more, {hardly - untried:,} less often, {untried:,} never"
        )
        return f"{text} (taken to {self.assumption})" if untried else text
