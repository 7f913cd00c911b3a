"""What a sample shows about a rate: tests and upper bounds that hold with a stated confidence, whatever the distribution."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import bdtr, betaincinv
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.validation import as_number, parse_count

MOST_MORE = 20_000
"""How many more states are thought of at most."""


def binomial_p_value(count: int, total: int, rate: float) -> float:
    """p-value of "the rate is above `rate`" where `count` of `total` draws are hits: P(Bin(total, rate) <= count)."""
    return float(bdtr(count, total, rate))


def binomial_upper_bound(count: int, total: int, delta: float) -> float:
    """Upper confidence bound on a rate, from `count` hits in `total` draws: it holds with probability 1 - `delta`.

    Clopper and Pearson (1934): the rate at which `binomial_p_value` is `delta`, a quantile of a beta distribution.
    """
    return 1.0 if count == total else float(betaincinv(count + 1, total - count, 1 - delta))


def more_states_needed(count: int, total: int, passes: Callable[[int, int], bool]) -> int | None:
    """How many more states it takes to pass a test, if departures go on at the rate seen: `count` of `total`, rounded up.

    Args:
        count: States so far that depart.
        total: States so far.
        passes: The test, of (states that depart, states).

    Returns:
        0 where it is passed already; None where `MOST_MORE` states more are not enough.

    >>> more_states_needed(0, 40, lambda count, total: binomial_p_value(count, total, 0.05) <= 0.05)
    19
    """
    for more in range(MOST_MORE + 1):
        if passes(-(-count * (total + more) // total), total + more):
            return more
    return None


def smallest_rate(num_states: int, confidence: float = 0.95) -> float:
    """The smallest `at_most` that so many familiar states can show, if no decision departs in any of them.

        1 - (1 - confidence)^(1/B)

    >>> tuple(round(smallest_rate(count), 3) for count in (20, 40, 59, 149))
    (0.139, 0.072, 0.05, 0.02)
    """
    if not 0 < as_number(confidence) < 1:
        raise InvalidInputError(f"confidence={confidence!r} must lie between 0 and 1.")
    return -math.expm1(math.log1p(-confidence) / parse_count(num_states, "num_states"))


def average_bound(total: float, num_states: int) -> float:
    """The mean loss to expect in the next state, where losses in [0, 1] of B states sum to `total`: (total + 1) / (B + 1).

    What is chosen so that this stays below α, from losses that only grow with caution, loses at most α on average over the
    draw of the states and the next one (Angelopoulos et al., "Conformal risk control", 2022).
    """
    return (total + 1) / (num_states + 1)


def above_p_value(losses: Tensor, threshold: float) -> float:
    """p-value of "the mean is above `threshold`" for losses in [0, 1], [B]: Hoeffding and Bentkus, the lower of the two.

        min( exp(-n h(min(r, α), α)),  e · P(Bin(n, α) <= ⌈n r⌉) ),   h(a, b) = a ln(a/b) + (1-a) ln((1-a)/(1-b))

    Bates et al. (2021), "Distribution-free, risk-controlling prediction sets", proposition 5 with Bentkus (2004).
    """
    n, mean = len(losses), float(losses.mean())
    hoeffding = math.exp(-n * _relative_entropy(min(mean, threshold), threshold))
    bentkus = math.e * binomial_p_value(math.ceil(n * mean - 1e-9), n, threshold)
    return min(1.0, hoeffding, bentkus)


def mean_upper_bound(losses: Tensor, delta: float) -> float:
    """The smallest threshold that `above_p_value` rejects at `delta`: an upper confidence bound on the mean, by bisection."""
    low, high = float(losses.mean()), 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if above_p_value(losses, middle) <= delta else (middle, high)
    return high


def _relative_entropy(a: float, b: float) -> float:
    first = a * math.log(a / b) if a > 0 else 0.0
    second = (1 - a) * math.log((1 - a) / (1 - b)) if a < 1 else 0.0
    return first + second
