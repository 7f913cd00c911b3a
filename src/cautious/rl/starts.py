"""Several starts of one agent: later ones from fresh weights, every other with a level that comes in slowly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from cautious.risk import KofN, RiskMeasure, is_k_of_n, weights_by_rank
from cautious.rl.value import default_horizon

if TYPE_CHECKING:
    from cautious.rl.kofn_ppo import KofNPPO

ANNEALED_SHARE = 0.5
"""Of the steps of an annealed start, in which the level goes from n-of-n down to k-of-n."""


@dataclass(frozen=True)
class Blended:
    """A level that has come in so far, by rank weights (1 - share) / M + share w."""

    level: RiskMeasure
    share: float

    def __str__(self) -> str:
        """The level, and how far it has come in."""
        return f"{self.share:.0%} of {self.level}"

    def rank_weights(self, num_models: int) -> Tensor:
        """Weight of the i-th worst of M models, [M]."""
        return (1 - self.share) / num_models + self.share * weights_by_rank(self.level, num_models)


def annealed(level: RiskMeasure, done: float) -> RiskMeasure:
    """The level of an annealed start of which a share is done.

    k comes down from n, by equal factors; measures other than k-of-n come in from the mean.
    """
    if done >= ANNEALED_SHARE:
        return level
    if not (isinstance(level, KofN) and is_k_of_n(level)):
        return Blended(level, done / ANNEALED_SHARE)
    return KofN(max(level.k, round(level.n * (level.k / level.n) ** (done / ANNEALED_SHARE))), level.n)


def learn_from_starts(agent: KofNPPO, steps: int, learn: Callable[[int, bool], object]) -> None:
    """Learn from each start, and keep what fresh rollouts find best: policy, mixture and standings.

    Args:
        agent: Its `num_starts` share the steps evenly.
        steps: In all.
        learn: Learns so many steps; the flag says whether this is the first start.
    """
    agent.start_values, best = [], None
    for start in range(agent.num_starts):
        if start:
            agent.begin_afresh(annealing=start % 2 == 1)
        share = steps // agent.num_starts + (start < steps % agent.num_starts)
        learn(share, not start)
        agent.annealing = False
        value = agent.value(max(8, share // (10 * default_horizon(agent.gamma)))).estimate
        if best is None or value > max(agent.start_values):
            best = agent.policy, agent.mixture, agent.standings
        agent.start_values.append(value)
    assert best is not None
    agent.policy, agent.mixture, agent.standings = best
