"""How far reward models differ in a state, and how far that is beyond what familiar states show."""

from __future__ import annotations

import math

from scipy.special import stdtrit
from torch import Tensor

from cautious.ops.sums import pairwise_mean
from cautious.validation import check_shape


def model_spread(rewards: Tensor) -> Tensor:
    """How far M models differ in each state, in units of the reward.

        σ(s) = √( (1/A) Σ_a Var_m[ r_m(s,a) ] )

    The root mean square over actions of the standard deviation between the models. Actions are not given units of their own:
    rewards decide in the units they have, and on the tables tried (docs/howto-dial.md) neither that, nor the largest
    deviation, nor the deviation of differences between actions ranked novel states better.

    Args:
        rewards: [M, ..., A].

    Returns:
        Spread [...], float64; 0 where all models agree.

    >>> import torch
    >>> model_spread(torch.tensor([[[1.0, 0.4]], [[0.0, 0.4]]])).tolist()  # deviations 0.5 and 0: √(0.25 / 2)
    [0.3535...]
    """
    check_shape(rewards, "... S A", "rewards")
    opinions = rewards.double()
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
