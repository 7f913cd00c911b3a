"""Models that predict labels: their probabilities, the loss that they learn by, and the rewards that follow.

    Q(l | x) = exp(z_l) / Σ_k exp(z_k),  P(l | x) = (Q(l | x) - ε f_l) / (1 - ε),  r(x, a) = Σ_l P(l | x) · payoff[l, a]

Targets are mixed with the share f of each label in training, at weight ε, and the mixing is undone in what models say. So what
is learned stays the labels' probabilities, but no model has to make its scores infinite to be certain: scores that grow without
limit make all models certain of the same label far from familiar rows, too.
"""

from __future__ import annotations

import torch
from torch import Tensor

SMOOTHING = 0.1
"""Weight of the labels' shares in the targets (`smoothed`), chosen on the development sets by benchmarks/label_training.py."""
SMALLEST_LOG = -60.0
"""Probabilities are at least e to this, relative to the largest: far below what float32 rewards show."""
HALVINGS, DEGREE = 10, 8
"""exp(t) is the 2^10-th power of a polynomial of this degree in t / 2^10: for t from -60 to 0 within 1e-12."""


def probabilities(scores: Tensor) -> Tensor:
    """The softmax of scores [..., L], float64, of sums, products and quotients alone.

    Each of these rounds alike on all machines and in all batches; a library's exponential need not.

    >>> probabilities(torch.tensor([0.0, 0.0, -1e9])).tolist()
    [0.5, 0.5, 4.37...e-27]
    """
    shifted = (scores.double() - scores.double().amax(dim=-1, keepdim=True)).clamp(min=SMALLEST_LOG)
    small = shifted / 2**HALVINGS
    power = torch.ones_like(small)
    for degree in range(DEGREE, 0, -1):  # 1 + t (1 + t/2 (1 + t/3 ...))
        power = small * power / degree + 1
    for _ in range(HALVINGS):
        power = power * power
    return power / _summed(power)


def smoothed(targets: Tensor, smoothing: float) -> Tensor:
    """Targets [S, L] of 0 and 1, mixed with the shares of the labels: (1 - ε) t + ε f."""
    return (1 - smoothing) * targets + smoothing * targets.mean(dim=0)


def unsmoothed(likely: Tensor, shares: Tensor, smoothing: float) -> Tensor:
    """What models of smoothed targets say about the labels: Q [..., L] -> P [..., L]. Entries below 0 become 0.

    >>> unsmoothed(torch.tensor([0.95, 0.05]), torch.tensor([0.5, 0.5]), 0.1).tolist()
    [1.0, 0.0]
    """
    if not smoothing:
        return likely
    found = ((likely - smoothing * shares) / (1 - smoothing)).clamp(min=0.0)
    return found / _summed(found)


def _summed(terms: Tensor) -> Tensor:
    """Sums along the last dimension, [..., 1], by halves: in an order that depends on nothing but their number."""
    while (count := terms.shape[-1]) > 1:
        half = (count + 1) // 2
        both = terms[..., : count - half] + terms[..., half:]
        terms = torch.cat([both, terms[..., count - half : half]], dim=-1)
    return terms


def cross_entropy(scores: Tensor, targets: Tensor, weights: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
    """Weighted mean cross-entropy, and its slope by the scores.

        loss = - Σ_b Σ_l w_l t_bl log P(l | x_b) / B

    Args:
        scores: z, [..., b, L]: a whole batch, or a piece of one.
        targets: t, [..., b, L]: 1 for the row's label, 0 for the others.
        weights: w, [L].
        batch_size: B, of the whole batch.

    Returns:
        This piece's part of the loss [...], and the slope [..., b, L].
    """
    likely = probabilities(scores).to(scores.dtype)
    weighted = targets * weights / batch_size
    loss = -(weighted * likely.clamp(min=torch.finfo(likely.dtype).tiny).log()).sum(dim=(-2, -1))
    return loss, weighted.sum(dim=-1, keepdim=True) * likely - weighted


def expected_rewards(likely: Tensor, payoffs: Tensor) -> Tensor:
    """What each action pays on average over the labels: probabilities [M, B, L] -> [M, B, A], float64.

    Args:
        likely: Probabilities of the labels.
        payoffs: [L, A]; or [B, L, A] where rows differ in them.

    >>> expected_rewards(torch.tensor([[[0.25, 0.75]]]), torch.tensor([[4.0, 0.0], [0.0, 1.0]])).tolist()
    [[[1.0, 0.75]]]
    """
    total = likely[..., :1] * payoffs[..., 0, :]
    for label in range(1, likely.shape[-1]):  # added one after another: in one order, whatever the batch
        total = total + likely[..., label : label + 1] * payoffs[..., label, :]
    return total
