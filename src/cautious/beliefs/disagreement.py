"""How far a belief's models disagree in a state, and how far that is beyond what familiar states show.

    σ(s) = √( (1/A) Σ_a Var_m[ r_m(s,a) ] ),    disagreement = σ(s) / (what 95 % of familiar states stay below)

The function `disagreement` is σ, in units of the reward. `FamiliarDisagreement` keeps σ of familiar states that no model was
trained on, and has the unit of `Decision.disagreement`: above 1 models differ more than they nearly ever do in familiar states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from scipy.special import stdtrit
from torch import Tensor

from cautious.errors import Argument, InvalidInputError
from cautious.ops.sums import pairwise_mean
from cautious.validation import as_float_tensor, as_number, check_shape

SHARE = 0.95
"""A disagreement of 1 is what this share of familiar states stays below."""
FEWEST = 6
"""Fewer states than this make no unit: an unlucky draw of three puts a good part of all familiar states above 1."""
MOST = 1000
"""States kept at most, evenly spaced among those given: more would only make files longer."""


def disagreement(rewards: Tensor) -> Tensor:
    """How far M models differ in each state, in units of the reward.

        σ(s) = √( (1/A) Σ_a Var_m[ r_m(s,a) ] )

    This is the root mean square over actions of the standard deviation between the models. Actions get no units of their own,
    because rewards decide in the units they have. On the tables tried (docs/howto-dial.md), three alternatives ranked novel
    states no better: such units, the largest deviation of an action, and the deviation of differences between actions.

    Args:
        rewards: Rewards of M models, [M, ..., A].

    Returns:
        Disagreement [...], float64; 0 where all models agree.

    >>> import torch
    >>> disagreement(torch.tensor([[[1.0, 0.4]], [[0.0, 0.4]]])).tolist()  # deviations 0.5 and 0: √(0.25 / 2)
    [0.3535...]
    """
    opinions = as_float_tensor(rewards, "rewards").double()
    check_shape(opinions, "... S A", "rewards")
    variance = pairwise_mean((opinions - pairwise_mean(opinions)).square())  # in an order that no batch changes
    return pairwise_mean(variance, dim=-1).sqrt()


def predictive_quantile(values: Tensor, share: float) -> float:
    """The value that the next draw stays below with probability `share`, judged by the draws so far.

    With enough of them it is the order statistic of rank share · (n + 1), interpolated: for draws in any order
    (exchangeable), the next one is below the j-th smallest of n with probability j / (n + 1). The largest of n reaches
    n / (n + 1) only: fewer than 19 draws cannot show 95 %. Then it is the prediction bound of a log-normal,

        exp( m + t · s · √(1 + 1/n) ),   m, s: mean and deviation of ln x,   t: Student's quantile at `share`, n - 1 degrees,

    or the largest draw if that is larger. Spreads are not log-normal, so that with few draws more or fewer of the further ones
    than 1 - share are above it.

    Args:
        values: Draws [n], zero or more, n at least 1.
        share: In (0, 1).
    """
    check_shape(values, "n", "values")
    ordered = values.double().sort().values
    count, rank = len(ordered), share * (len(ordered) + 1)
    if rank <= count:
        below = max(int(rank), 1)
        low, high = float(ordered[below - 1]), float(ordered[min(below, count - 1)])
        return low + max(rank - below, 0.0) * (high - low)
    largest = float(ordered[-1])
    if count < 2 or float(ordered[0]) <= 0:  # no deviation, or no logarithm
        return largest
    logs = ordered.log()
    reach = float(stdtrit(count - 1, share)) * math.sqrt(1 + 1 / count)
    return max(largest, math.exp(min(float(logs.mean()) + reach * float(logs.std()), 700.0)))


@dataclass(frozen=True)
class FamiliarDisagreement:
    """How far a belief's models disagree in familiar states that none of them was trained on.

    >>> familiar = FamiliarDisagreement.of(torch.arange(1, 100) / 100)
    >>> round(familiar.unit, 2), round(familiar.threshold(at_most=0.5), 2)
    (0.95, 0.53)
    """

    spreads: tuple[float, ...]
    """One number per state, from small to large."""

    @classmethod
    def of(cls, spreads: Tensor) -> FamiliarDisagreement | None:
        """From the disagreement in familiar states [B]; None if they are too few to make a unit of (`FEWEST`)."""
        if len(spreads) < FEWEST:
            return None
        step = max(1, math.ceil(len(spreads) / MOST))
        return cls(tuple(sorted(spreads[::step].tolist())))

    @cached_property
    def unit(self) -> float:
        """The disagreement that 95 % of familiar states stay below (`predictive_quantile`)."""
        return predictive_quantile(torch.tensor(self.spreads, dtype=torch.float64), SHARE)

    def threshold(self, at_most: float) -> float:
        """The disagreement that at most this share of familiar states exceeds, on average over the states that were held out.

        Args:
            at_most: In (0, 1); 0.05 gives 1, by the definition of the unit.
        """
        if not 0 < as_number(at_most) < 1:
            raise InvalidInputError(Argument("at_most", at_most), " must be between 0 and 1, both excluded.")
        spread = predictive_quantile(torch.tensor(self.spreads, dtype=torch.float64), 1 - at_most)
        return float(in_units_of(self, torch.tensor([spread], dtype=torch.float64))[0])

    def describe(self) -> list[float]:
        """Plain values to keep in a file."""
        return list(self.spreads)

    @classmethod
    def read(cls, described: Any) -> FamiliarDisagreement | None:
        """What `describe` wrote; None where a file has none or too few; `InvalidInputError` for anything else."""
        if described is None:
            return None
        numbers = isinstance(described, list) and all(type(value) in (int, float) for value in described)
        if not numbers or not described or not all(0 <= value < math.inf for value in described):
            raise InvalidInputError(
                "familiar: expected numbers, zero or larger, how far the models differ in familiar states."
            )
        return cls.of(torch.tensor(described, dtype=torch.float64))


def in_units_of(familiar: FamiliarDisagreement | None, spread: Tensor) -> Tensor:
    """Disagreement [...] in units of familiar states; in units of the reward where no familiar state is known.

    Where the models agree in every familiar state, any disagreement is infinitely larger.
    """
    if familiar is None:
        return spread
    return torch.where(spread > 0, spread / familiar.unit, 0.0)
