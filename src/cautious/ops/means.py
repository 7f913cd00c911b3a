"""How far the mean of independent samples may be from their expectation."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit


def student_margin(samples: np.ndarray, failure_probability: float) -> np.ndarray:
    """Student's margin for the mean of n samples: t · s / √n, with probability 1 - failure_probability on one side.

    Exact for normal samples, an approximation for others that gets better with n.

    Args:
        samples: [n, ...], n >= 2.
        failure_probability: In (0, 1).

    Returns:
        Margins [...].
    """
    num = len(samples)
    quantile = -float(stdtrit(num - 1, failure_probability))
    return quantile * samples.std(axis=0, ddof=1) / math.sqrt(num)


def bernstein_margin(samples: np.ndarray, width: np.ndarray | float, failure_probability: float) -> np.ndarray:
    """Empirical Bernstein margin (Maurer and Pontil, 2009): √(2 V ln(2/p) / n) + 7 w ln(2/p) / (3 (n - 1)).

    Holds for any samples in an interval of width w, with probability 1 - p on one side.

    Args:
        samples: [n, ...], n >= 2.
        width: Of the interval that holds all samples, [...] or one number.
        failure_probability: p, in (0, 1).

    Returns:
        Margins [...].
    """
    num, log = len(samples), math.log(2 / failure_probability)
    return np.sqrt(2 * samples.var(axis=0, ddof=1) * log / num) + 7 * np.asarray(width) * log / (3 * (num - 1))
