"""The k-of-N risk measure: which of the sampled reward models count, and with what weight."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from scipy.special import betainc
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.ops.sums import pairwise_mean
from cautious.types import ArrayLike
from cautious.validation import as_float_tensor, check_finite, check_shape, parse_count, parse_flag


@dataclass(frozen=True, order=True)
class KofN:
    """A level of caution: draw n reward models and average the k that are worst for the current policy.

    Small k/n is cautious; k = n is the ordinary average over the belief.

    >>> str(KofN.parse("1-of-20"))
    '1-of-20'
    """

    k: int
    n: int

    def __post_init__(self) -> None:
        """Check 1 <= k <= n."""
        object.__setattr__(self, "k", parse_count(self.k, "KofN: k"))
        object.__setattr__(self, "n", parse_count(self.n, "KofN: n"))
        if self.k > self.n:
            raise InvalidInputError(
                f"KofN: k={self.k} exceeds n={self.n}; k is how many of the n sampled models count as worst."
            )

    @classmethod
    def parse(cls, text: str | KofN) -> KofN:
        """The level that ``"k-of-n"`` names (a `KofN` passes through)."""
        if isinstance(text, KofN):
            return text
        match = re.fullmatch(r"\s*(\d{1,9})-of-(\d{1,9})\s*", text) if isinstance(text, str) else None
        if match is None:
            raise InvalidInputError(f"level={text!r} is not a level; write it as 'k-of-n', for example '1-of-20'.")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        """The level as a person writes it."""
        return f"{self.k}-of-{self.n}"

    def check_num_models(self, num_models: int) -> None:
        """Raise unless n models can be drawn from `num_models` without drawing one twice."""
        if self.n > num_models:
            raise InvalidInputError(
                f"{self}: n={self.n} exceeds the {num_models} models there are; without replacement n must be at most "
                "that. Use a smaller n or more models (num_models)."
            )

    def rank_weights(self, num_models: int, replacement: bool = False) -> Tensor:
        """Expected weight of the i-th worst of M models, when n are drawn and the k worst averaged.

        Without replacement, counting i = 1..M from the worst,

            w_i = (1/k) Σ_{j<k} C(i-1, j) C(M-i, n-1-j) / C(M, n)

        and with replacement, as differences of regularised incomplete beta functions I,

            w_i = G(i/M) - G((i-1)/M),   G(u) = (1/k) Σ_{j=1..k} I_u(j, n-j+1)

        Args:
            num_models: M.
            replacement: Whether one model may be drawn more than once; n <= M is needed if not.

        Returns:
            Weights [M], float64; they sum to one and never increase.
        """
        num_models = parse_count(num_models, "num_models")
        if not parse_flag(replacement, "replacement"):
            self.check_num_models(num_models)
        weigh = _weights_with_replacement if replacement else _weights_without_replacement
        return torch.from_numpy(weigh(self.k, self.n, num_models).copy())

    def value(self, returns: ArrayLike, replacement: bool = False) -> Tensor:
        """Exact expected k-of-n value of M returns: Σ_i w_i · (i-th smallest return).

        Args:
            returns: [..., M], one return per reward model.
            replacement: As in `rank_weights`.

        Returns:
            Value [...], float64.
        """
        tensor = as_float_tensor(returns, "returns").double()
        check_shape(tensor, "... M", "returns")
        check_finite(tensor, "returns")
        weights = self.rank_weights(tensor.shape[-1], replacement).to(tensor.device)
        return (tensor.sort(dim=-1).values * weights).sum(dim=-1)


Levels = KofN | str | Sequence[KofN | str]
"""One level, or several to be solved in one call."""


def parse_levels(level: Levels) -> tuple[KofN, ...]:
    """One level or several, each checked."""
    levels = tuple(level) if isinstance(level, (list, tuple)) else (level,)
    if not levels:
        raise InvalidInputError("level=[] names no level; pass one, such as '1-of-20', or a sequence of them.")
    return tuple(KofN.parse(one) for one in levels)


@lru_cache(maxsize=256)
def _weights_without_replacement(k: int, n: int, num_models: int) -> np.ndarray:
    """Rank weights by counting.

    The model of rank i is drawn with probability n/M, and then counts iff at most k - 1 of the i - 1 worse ones are
    drawn too. Let L be the rank of the k-th worst of the *other* n - 1 draws among the other M - 1 models:

        w_i = n/(kM) P[L >= i],   P[L = l] ∝ C(l-1, k-1) C(M-1-l, n-1-k),   l = k .. M-n+k

    Ratios of neighbouring P[L = l] are short fractions: no factorials, no cancellation, nothing to overflow.
    """
    if k == n:
        return np.full(num_models, 1 / num_models)
    rank = np.arange(k, num_models - n + k, dtype=np.float64)
    ratio = rank / (rank - k + 1) * (num_models - n + k - rank) / (num_models - 1 - rank)  # P[L=l+1] / P[L=l]
    mode = int(np.argmax(np.concatenate([[0.0], np.cumsum(np.log(ratio))])))
    size = np.ones(len(ratio) + 1)  # P[L = l] in units of its largest
    size[mode + 1 :] = np.cumprod(ratio[mode:])
    size[:mode] = np.cumprod(1 / ratio[:mode][::-1])[::-1]
    survival = np.zeros(num_models)  # P[L >= i], i = 1 .. M
    survival[: k - 1] = 1.0
    survival[k - 1 : num_models - n + k] = np.minimum(np.cumsum((size / size.sum())[::-1])[::-1], 1.0)
    return survival / survival.sum()


@lru_cache(maxsize=256)
def _weights_with_replacement(k: int, n: int, num_models: int) -> np.ndarray:
    """Rank weights of n independent draws.

    G(u) = E[min(X, k)] / k for X ~ Binomial(n, u), the draws among the worst share u of the models; its k beta functions
    collapse to two: k G(u) = n u P[Binomial(n-1, u) <= k-2] + k P[X >= k].
    """
    u = np.arange(num_models + 1) / num_models
    few = betainc(n - k + 1, k - 1, 1 - u) if k > 1 else np.zeros_like(u)  # P[Binomial(n-1, u) <= k-2]
    many = betainc(k, n - k + 1, u)  # P[Binomial(n, u) >= k]
    # The density of G is non-increasing; rounding is not. Project (nothing moves by more than 1e-15) and normalise.
    weights = np.minimum.accumulate(np.maximum(np.diff(n / k * u * few + many), 0.0))
    return weights / weights.sum()


def ranked_weights(values: Tensor, weights: Tensor) -> Tensor:
    """Weights by rank, handed to the models that hold those ranks: the worst model gets ``weights[..., 0]``.

    Equal values keep the order of the models (stable sort): otherwise, once a policy is pure and all models tie, the
    order in which a sort happens to leave them would move the result.

    Args:
        values: [..., M], the lower the worse.
        weights: [..., M] by rank, worst first; broadcast against `values`.

    Returns:
        Weights [..., M] in the order of `values`.
    """
    order = torch.argsort(values, dim=-1, stable=True)
    spread = weights if weights.shape == values.shape else weights.expand_as(values)
    return torch.empty_like(values).scatter_(-1, order, spread.to(values.dtype))


def worst_k_of(values: Tensor, k: int, dim: int = -1) -> Tensor:
    """Indices of the k lowest values along `dim`, worst first, ties in the order given: N entries become k."""
    if k == 1:
        return values.argmin(dim=dim, keepdim=True)  # the first of several minima, by torch's promise
    order = torch.argsort(values.transpose(dim, -1).contiguous(), dim=-1, stable=True)  # sorting is quickest on rows
    return order[..., :k].transpose(dim, -1)


def worst_k_mean(sampled_rewards: Tensor, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Mean of the k reward functions that are worst for the policy, chosen in each state anew (Alg. 1 line 8).

        W_μ(s,·) = (1/k) Σ_{j<=k} r_(j)(s,·)

    Args:
        sampled_rewards: [..., N, S, A].
        values: V_π under each sampled model, [..., N, S].
        k: How many count as worst.

    Returns:
        (worst-k reward [..., S, A], its value [..., S]).
    """
    num_sampled = values.shape[-2]
    if k == num_sampled:
        return pairwise_mean(sampled_rewards, dim=-3), pairwise_mean(values, dim=-2)
    worst = worst_k_of(values, k, dim=-2)  # [..., k, S]
    value = pairwise_mean(values.gather(-2, worst), dim=-2)
    chosen = worst.unsqueeze(-1).expand(*worst.shape, sampled_rewards.shape[-1])
    return pairwise_mean(sampled_rewards.gather(-3, chosen), dim=-3), value
