"""The dial, calibrated: the most cautious level that leaves familiar behaviour alone, with a guarantee."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import scipy.stats
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.ops.risk import KofN
from cautious.policy import CautiousPolicy
from cautious.telling import Progress, as_progress
from cautious.types import LARGEST_COUNT, as_number


class CalibrationWarning(UserWarning):
    """A dial could not be calibrated with the states given."""


@dataclass(frozen=True)
class Calibration:
    """The level to use, and what is known about it."""

    level: KofN
    rate: float
    """Mean caution on the familiar states given: how far it departs from ordinary behaviour there (total variation,
    not the share of states in which it does)."""
    bound: float
    """With the confidence asked for, the rate on all familiar states is below this (`at_most`, or less)."""
    at_most: float
    confidence: float
    tried: tuple[tuple[str, float, float], ...]
    """(level, rate, p-value of "the rate is above `at_most`") from ordinary to cautious, up to the first that failed."""


def calibrate(
    policy: CautiousPolicy,
    familiar_states: Any,
    *,
    at_most: float = 0.02,
    confidence: float = 0.95,
    progress: bool | Progress = True,
) -> Calibration:
    """Find the most cautious level whose rate of departing from ordinary behaviour on familiar states stays low.

    The rate is the mean caution (`Decision.caution`), not the share of states in which anything differs.

    Levels n-of-n, (n-1)-of-n, ... 1-of-n are tested in this order, each against "its rate is above `at_most`", until one cannot
    reject it (fixed-sequence testing; Angelopoulos et al., "Learn then Test", 2021). So with probability `confidence` over
    the draw of the familiar states, the level that comes out keeps its promise on all of them.

    Args:
        policy: Its belief, and n of its level; its k is what is looked for. An ordinary policy (n-of-n) never departs.
        familiar_states: States like those to come, and not those that the belief was trained on: [B, ...] as `decide` takes.
        at_most: The rate that is allowed, in (0, 1).
        confidence: How certain to be, in (0, 1). With fewer states than these two need, it warns and returns n-of-n.
        progress: True shows a line; or a function that is told (iterations done, iterations in all); False is silent.

    Returns:
        `Calibration`. The policy given stays as it is: the one to use is ``CautiousPolicy(belief, found.level)``.
    """
    if not isinstance(policy, CautiousPolicy):
        raise InvalidInputError(f"policy is a {type(policy).__name__}; pass a cautious.CautiousPolicy.")
    for name, value in (("at_most", at_most), ("confidence", confidence)):
        if not 0 < as_number(value) < 1:
            raise InvalidInputError(f"{name}={value!r} must be between 0 and 1, both excluded.")
    n = policy.level.n
    levels = [KofN(k, n) for k in range(n, 0, -1)]
    caution = policy.caution_at(levels, familiar_states, as_progress(progress, "calibrating"))  # [L, B]
    tried, chosen = [], None
    for level, rates in zip(levels, caution.unbind(), strict=True):
        rate = float(rates.mean())
        p_value = 0.0 if level.k == n else above_p_value(rates, at_most)
        tried.append((str(level), rate, p_value))
        if p_value > 1 - confidence:
            break
        chosen = level, rates
    assert chosen is not None
    level, rates = chosen
    if level.k == n > 1:
        _warn_of_no_caution(len(rates), at_most, confidence, tried[-1])
    bound = upper_bound(rates, 1 - confidence) if level.k < n else 0.0
    return Calibration(level, float(rates.mean()), min(bound, at_most), at_most, confidence, tuple(tried))


def _warn_of_no_caution(num_states: int, at_most: float, confidence: float, failed: tuple[str, float, float]) -> None:
    """Say why the ordinary level came out: too few states to show any rate, even nought, or models that differ too much."""
    needed = math.log(1 - confidence) / math.log1p(-at_most)  # (1 - at_most)^B <= 1 - confidence; may be infinite
    if num_states < needed:
        enough = (
            f"give at least {math.ceil(needed)}, or" if needed <= LARGEST_COUNT else "no number of states is enough:"
        )
        text = (
            f"familiar_states: {num_states} are too few to show a rate of at most {at_most:g} with confidence {confidence:g}, "
            f"so the ordinary level came out; {enough} allow more."
        )
    else:
        level, rate, _ = failed
        text = (
            f"no cautious level could be shown to depart by at most {at_most:g}: {level} departs by {rate:.3g} on the "
            f"{num_states} familiar states, so the ordinary level came out. Allow more (at_most), give more states, or train "
            "models that agree better where things are familiar (more data, more epochs)."
        )
    warnings.warn(text, CalibrationWarning, stacklevel=3)


def above_p_value(losses: Tensor, threshold: float) -> float:
    """p-value of "the mean is above `threshold`" for losses in [0, 1], [B]: Hoeffding and Bentkus, the lower of the two.

        min( exp(-n h(min(r, α), α)),  e · P(Bin(n, α) <= ⌈n r⌉) ),   h(a, b) = a ln(a/b) + (1-a) ln((1-a)/(1-b))

    Bates et al. (2021), "Distribution-free, risk-controlling prediction sets", proposition 5 with Bentkus (2004).
    """
    n, mean = len(losses), float(losses.mean())
    hoeffding = math.exp(-n * _relative_entropy(min(mean, threshold), threshold))
    bentkus = math.e * float(scipy.stats.binom.cdf(math.ceil(n * mean - 1e-9), n, threshold))
    return min(1.0, hoeffding, bentkus)


def upper_bound(losses: Tensor, delta: float) -> float:
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
