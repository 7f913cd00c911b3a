"""What M models say about ground by its features: samples from a Gaussian process, given a log of familiar ground.

The belief of the benchmark's own worlds. It is a few lines of numpy, apart from how the library trains its models, so that
better training makes no other problem of `lake-v1`.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor, from_numpy

from cautious.seeding import make_rng

NUM_MODELS = 60
NUM_WAVES = 500
NOISE = 0.1
"""Of a logged reward, in deviations of the logged rewards."""


def opinions(
    features: np.ndarray,
    logged: np.ndarray,
    paid: np.ndarray,
    seed: int,
    *,
    amplitude: float = 1.5,
    length: float = 0.7,
) -> Tensor:
    """Rewards of each ground under M models, samples of a Gaussian process given the log: [K, F] -> [M, K], float64.

        f = g(x) + k(x, X) (k(X, X) + s²)⁻¹ (y - g(X) - s ε),   k(x, x') = a² exp(-|x - x'|² / 2 l²)

    g is a sample of the prior, a sum of random waves (Rahimi & Recht 2007; Wilson et al. 2020 for the correction). Far from
    the log a model says what its g says, which is unlike for unlike ground. Rewards are in deviations of the logged ones from
    their mean, and are cut to the logged range, widened by its length on either side.

    Args:
        features: [K, F].
        logged: [n, F].
        paid: [n].
        seed: Model m depends on (seed, m) alone.
        amplitude: a, in deviations of the logged rewards.
        length: l, in units of the features.
    """
    middle, deviation = paid.mean(), paid.std()
    known = (paid - middle) / deviation
    weights = np.linalg.inv(_kernel(logged, logged, amplitude, length) + NOISE**2 * np.eye(len(logged)))
    towards = _kernel(features, logged, amplitude, length) @ weights  # [K, n]
    said = []
    for number in range(NUM_MODELS):
        rng = make_rng(seed, "opinions", number)
        waves, phases = rng.normal(0, 1 / length, (features.shape[1], NUM_WAVES)), rng.uniform(0, 2 * np.pi, NUM_WAVES)
        heights = amplitude * np.sqrt(2 / NUM_WAVES) * rng.normal(size=NUM_WAVES)
        new, old = (np.cos(rows @ waves + phases) @ heights for rows in (features, logged))
        said.append(new + towards @ (known - old - NOISE * rng.normal(size=len(logged))))
    low, high = paid.min(), paid.max()
    return from_numpy((middle + deviation * np.array(said)).clip(2 * low - high, 2 * high - low))


def _kernel(left: np.ndarray, right: np.ndarray, amplitude: float, length: float) -> np.ndarray:
    """[B, F], [C, F] -> [B, C]."""
    distance = ((left[:, None] - right[None]) ** 2).sum(axis=-1)
    return amplitude**2 * np.exp(-distance / (2 * length**2))
