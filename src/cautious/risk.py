"""Levels of caution: how much each of M reward models counts, by the rank of its return.

Every level is a *risk measure*, an object with two methods (`RiskMeasure`):

    rank_weights(num_models) -> [M]    weight w_i of the i-th worst model; w never increases, and Σ_i w_i = 1
    str(level)                         its name in tables, files and errors

and the value of a policy with returns V_1 .. V_M is Σ_i w_i V_(i), V_(1) <= .. <= V_(M) the sorted returns. Such measures are
called spectral. Solvers and certificates know no more about a level than that, so one's own class serves as well:

    KofN(k, n)                   draw n models, average the k worst: the paper's
    CVaR(alpha)                  mean of the worst share α of the models; k-of-M with all M models drawn is CVaR(k/M)
    WorstCase()                  the worst model alone; the same as 1-of-M
    Mean()                       all models alike; the same as k-of-k
    MeanCVaR(alpha, weight)      (1 - weight) Mean + weight CVaR(α)
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from scipy.special import betainc
from torch import Tensor

from cautious.errors import Argument, FewModelsWarning, InvalidInputError
from cautious.ops.sums import pairwise_mean
from cautious.types import ArrayLike
from cautious.validation import as_float_tensor, as_number, check_finite, check_shape, parse_count, parse_flag

WEIGHT_ROUNDING = 1e-6
"""By how much weights of a measure of one's own may miss their rules: float32 holds seven digits."""

FEW_MODELS = 10
"""The tail that a level looks at should have at least this many models."""


@runtime_checkable
class RiskMeasure(Protocol):
    """A level of caution: anything with rank weights and a name."""

    def rank_weights(self, num_models: int) -> ArrayLike:
        """Weight of the i-th worst of M models, [M]: never increasing with i, of sum one."""
        ...

    def __str__(self) -> str:
        """The level as a person writes it."""
        ...


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
            raise InvalidInputError(
                Argument("level", text),
                " is not a level of the form k-of-n; write it as 'k-of-n', for example '1-of-20'.",
            )
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        """The level as a person writes it."""
        return f"{self.k}-of-{self.n}"

    def check_num_models(self, num_models: int) -> None:
        """Raise unless n models can be drawn from `num_models` without drawing one twice."""
        if self.n > num_models:
            raise InvalidInputError(
                f"{self}: ",
                Argument("n", self.n),
                f" exceeds the {num_models} models there are; without replacement n must be at most that. Use a smaller n or "
                "more models (num_models).",
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


@dataclass(frozen=True)
class CVaR:
    """Conditional value at risk: the mean return of the worst share α of the models.

        w_i = min(1/M, max(0, α - (i-1)/M)) / α

    Where α M is no whole number, the last model that counts does so in part. `KofN(k, M)` of M models is ``CVaR(k/M)``.

    >>> CVaR(0.5).rank_weights(4).tolist(), str(CVaR(0.5))
    ([0.5, 0.5, 0.0, 0.0], 'CVaR(0.5)')
    """

    alpha: float

    def __post_init__(self) -> None:
        """Check 0 < alpha <= 1."""
        object.__setattr__(self, "alpha", _share(self.alpha, "CVaR: alpha"))
        if self.alpha == 0:
            raise InvalidInputError(
                "CVaR: alpha=0 is the mean of no model; for the worst model alone write WorstCase()."
            )

    def __str__(self) -> str:
        """The level as a person writes it."""
        return f"CVaR({self.alpha:g})" if float(f"{self.alpha:g}") == self.alpha else f"CVaR({self.alpha!r})"

    def rank_weights(self, num_models: int) -> Tensor:
        """Weight of the i-th worst of M models, [M], float64."""
        num_models = parse_count(num_models, "num_models")
        counted = round(
            self.alpha * num_models, 9
        )  # how many models count, the last in part; 0.7 * 10 is 7.000000000000001
        weights = (counted - torch.arange(num_models, dtype=torch.float64)).clamp(0, 1)
        return weights / weights.sum()


@dataclass(frozen=True)
class WorstCase:
    """The worst model alone: robust optimisation. `KofN(1, M)` of M models is the same.

    >>> WorstCase().rank_weights(3).tolist()
    [1.0, 0.0, 0.0]
    """

    def __str__(self) -> str:
        """The level as a person writes it."""
        return "WorstCase()"

    def rank_weights(self, num_models: int) -> Tensor:
        """One for the worst of M models, zero for the others, [M], float64."""
        weights = torch.zeros(parse_count(num_models, "num_models"), dtype=torch.float64)
        weights[0] = 1
        return weights


@dataclass(frozen=True)
class Mean:
    """All models alike: no caution. `KofN(k, k)` is the same.

    >>> Mean().rank_weights(4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    def __str__(self) -> str:
        """The level as a person writes it."""
        return "Mean()"

    def rank_weights(self, num_models: int) -> Tensor:
        """1/M for each of M models, [M], float64."""
        num_models = parse_count(num_models, "num_models")
        return torch.full((num_models,), 1 / num_models, dtype=torch.float64)


@dataclass(frozen=True)
class MeanCVaR:
    """A compromise: (1 - weight) times the mean of the models plus weight times their CVaR.

    >>> str(MeanCVaR(0.1, 0.5)), MeanCVaR(0.5, 0.5).rank_weights(4).tolist()
    ('MeanCVaR(0.1, 0.5)', [0.375, 0.375, 0.125, 0.125])
    """

    alpha: float
    """The share of the models that CVaR averages."""
    weight: float
    """How much CVaR counts: 0 is `Mean`, 1 is `CVaR`."""

    def __post_init__(self) -> None:
        """Check 0 < alpha <= 1 and 0 <= weight <= 1."""
        object.__setattr__(self, "alpha", CVaR(self.alpha).alpha)
        object.__setattr__(self, "weight", _share(self.weight, "MeanCVaR: weight"))

    def __str__(self) -> str:
        """The level as a person writes it."""
        return f"MeanCVaR({self.alpha!r}, {self.weight!r})"

    def rank_weights(self, num_models: int) -> Tensor:
        """Weight of the i-th worst of M models, [M], float64."""
        return (1 - self.weight) * Mean().rank_weights(num_models) + self.weight * CVaR(self.alpha).rank_weights(
            num_models
        )


def _share(value: Any, name: str) -> float:
    number = as_number(value)
    if not 0 <= number <= 1:
        raise InvalidInputError(Argument(name, value), " must lie between 0 and 1.")
    return number


Levels = RiskMeasure | str | Sequence[RiskMeasure | str]
"""One level, or several to be solved in one call."""

_MEASURES: dict[str, tuple[type[CVaR | WorstCase | Mean | MeanCVaR], int]] = {
    "cvar": (CVaR, 1),
    "worstcase": (WorstCase, 0),
    "mean": (Mean, 0),
    "meancvar": (MeanCVaR, 2),
}
"""Measures by their names in small letters, each with how many numbers it takes."""


def parse_level(level: Any) -> RiskMeasure:
    """The level that a text names; a risk measure passes through.

    >>> parse_level("1-of-20"), parse_level("CVaR(0.1)"), parse_level("MeanCVaR(0.1, 0.5)"), parse_level("WorstCase()")
    (KofN(k=1, n=20), CVaR(alpha=0.1), MeanCVaR(alpha=0.1, weight=0.5), WorstCase())

    Raises:
        InvalidInputError: It is neither a level's text nor an object with ``rank_weights``.
    """
    if not isinstance(level, str):
        if isinstance(level, type) or not callable(getattr(level, "rank_weights", None)):
            raise InvalidInputError(
                Argument("level", level),
                " is not a level; pass a text such as '1-of-20' or 'CVaR(0.1)', or an object with "
                "rank_weights(num_models) -> [M].",
            )
        return level
    match = re.fullmatch(r"\s*([A-Za-z]+)\s*(?:\(([^()]*)\))?\s*", level)
    kind, count = _MEASURES.get(match[1].lower(), (None, 0)) if match else (None, 0)
    if match is None or kind is None:
        if match is None and "-of-" in level:
            return KofN.parse(level)
        raise InvalidInputError(
            Argument("level", level),
            " is not a level; write it as 'k-of-n', for example '1-of-20', or as 'CVaR(0.1)', 'WorstCase()', "
            "'Mean()' or 'MeanCVaR(0.1, 0.5)'.",
        )
    numbers = [_number_in(part, level) for part in (match[2] or "").split(",") if part.strip() or count]
    if len(numbers) != count:
        raise InvalidInputError(
            Argument("level", level), f": {kind.__name__} takes {count} number(s), got {len(numbers)}."
        )
    return kind(*numbers)


def _number_in(part: str, level: str) -> float:
    """The number that a part of a level's text says."""
    try:
        return float(part)
    except ValueError:
        raise InvalidInputError(Argument("level", level), f": {part.strip()!r} is not a number.") from None


def parse_levels(level: Levels) -> tuple[RiskMeasure, ...]:
    """One level or several, each checked."""
    levels = tuple(level) if isinstance(level, (list, tuple)) else (level,)
    if not levels:
        raise InvalidInputError("level=[] names no level; pass one, such as '1-of-20', or a sequence of them.")
    return tuple(parse_level(one) for one in levels)


def weights_by_rank(level: RiskMeasure, num_models: int) -> Tensor:
    """A level's weight of the i-th worst of M models, checked: [M], float64.

    Raises:
        InvalidInputError: The weights are not M finite numbers of sum one that never increase and are never negative, or
            the level needs more models (`KofN` draws n different ones).
    """
    given = level.rank_weights(num_models)
    if is_k_of_n(level):
        return torch.as_tensor(given)
    weights = as_float_tensor(given, f"rank_weights of {level}", "cpu").double()
    check_shape(weights, "M", f"rank_weights of {level}", M=num_models)
    check_finite(weights, f"rank_weights of {level}")
    rules = {
        "be negative": float(-weights.min()),
        "increase with the rank (the worst model comes first)": float(weights.diff().max()) if num_models > 1 else 0.0,
        f"have the sum {float(weights.sum()):.6g}; it must be 1": abs(float(weights.sum()) - 1),
    }
    for rule, excess in rules.items():
        if excess > WEIGHT_ROUNDING:
            raise InvalidInputError(f"level {level}: its rank_weights({num_models}) must not {rule}.")
    ordered = torch.cummin(weights.clamp(min=0), dim=0).values  # what rounding left
    return ordered / ordered.sum()


def warn_of_few(level: RiskMeasure, num_models: int, things: str, way_out: str, stacklevel: int = 4) -> None:
    """Warn where the tail is that of a handful of models: 1 / w_1 of them, k/N x M for a k-of-N.

    Args:
        level: The level.
        num_models: M.
        things: What the models are called.
        way_out: How a policy can be judged otherwise.
        stacklevel: As `warnings.warn` takes it.
    """
    weights = weights_by_rank(level, num_models)
    tail = 1 / float(weights[0])
    if num_models > 1 and weights[0] > weights[-1] and tail < FEW_MODELS - 1e-6:
        warnings.warn(
            f"{level} over {num_models} {things} looks at about {tail:.3g} of them: the tail of so few is not the tail of "
            f"the belief, and the policy may fit just these. Use more {things} (k/n x M of {FEW_MODELS} or more) or a milder "
            f"level, or {way_out}.",
            FewModelsWarning,
            stacklevel=stacklevel,
        )


def is_k_of_n(level: RiskMeasure) -> bool:
    """Whether a level is the paper's draw of n models: a `KofN`, and no subclass with weights of its own."""
    return isinstance(level, KofN) and type(level).rank_weights is KofN.rank_weights


def as_k_of_n(level: RiskMeasure, purpose: str) -> KofN:
    """The level as a `KofN`, for what is defined for those alone; `purpose` says what that is, and the way out."""
    if not is_k_of_n(level):
        raise InvalidInputError(f"level {level} ({type(level).__name__}) is not k-of-n: {purpose}.")
    assert isinstance(level, KofN)
    return level


def is_mean(level: RiskMeasure, num_models: int) -> bool:
    """Whether a level weighs all of M models alike, so that it has no caution."""
    weights = weights_by_rank(level, num_models)
    return bool(weights[0] == weights[-1])


def risk_value(level: RiskMeasure, returns: ArrayLike) -> Tensor:
    """Exact value of M returns, Σ_i w_i · (i-th smallest return): [..., M] -> [...], float64.

    >>> float(risk_value(CVaR(0.5), [4.0, 1.0, 3.0, 2.0]))
    1.5
    """
    tensor = as_float_tensor(returns, "returns").double()
    check_shape(tensor, "... M", "returns")
    check_finite(tensor, "returns")
    return (tensor.sort(dim=-1).values * weights_by_rank(level, tensor.shape[-1]).to(tensor.device)).sum(dim=-1)


def level_text(level: RiskMeasure) -> str:
    """The text that a file holds of a level.

    Raises:
        InvalidInputError: `parse_level` would not make the same level of it: a class of one's own, which no file holds.
    """
    text = str(level)
    with contextlib.suppress(InvalidInputError):
        if (read := parse_level(text)) == level and type(read) is type(level):
            return text
    raise InvalidInputError(
        f"level {text} is a {type(level).__name__} of your own: a file holds a level's text alone, which cannot be read back "
        "as that. Save with one of KofN, CVaR, WorstCase, Mean, MeanCVaR, or keep the policy in memory."
    )


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
