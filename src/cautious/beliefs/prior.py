"""Each model's fixed random prior: what an action could pay where no familiar row is near.

Networks trained on the same rows agree there, and often agree far away from them too: nothing in their training says that
they know less there. The prior says it. It is nothing near familiar rows, so that what was learned stays as it is, and grows
with the distance from them, for each model and action with a random height and sign of its own:

    p_i(x, a) = h_ia(x) · g(z_a(x)),    h_ia(x) = width · w_a · <c_ia, φ(u_a(x))>,    c_ia ~ N(0, I)
    g(z) = z (1 + z) / 2,               z_a(x) = f_a · max(0, d_a(x) / q_a(x) - 1)

- d_a(x): mean distance to the three nearest familiar rows in which action a was tried. Rows are compared by their conditional
  residuals, how far each feature is from what the other features predict, in units of how far it usually is: features that
  move together count once, and a row in which one feature contradicts the others is far, even if each by itself has a common
  value. To these comes the Mahalanobis distance, at half weight, since residuals say little about rows in which all
  features go far together. The covariance behind both is what neither the rewards nor the choice of action explain (where
  they tell classes apart, the covariance within a class): otherwise the way from one class to another would look short.
- q_a(x): the usual distance there. Three quarters of the familiar rows are nearer to the others (cross-validated); more where
  the three nearest rows are far from others themselves, since rows of a rare but known kind lie less densely.
- f_a >= 1: steeper where familiar distances are much alike, as in many dimensions. There 1.5 times the usual distance is
  already unusual. At z = 1 a row is farther than almost all familiar ones.
- g: faster than linear. A k-of-N level scales all disagreement alike; if the prior grew slowly, a mild level would still doubt
  familiar rows whose actions are nearly equal, but no longer rows that are like nothing seen.
- w_a: deviation of the action's own rewards. An action that always paid the same, in many rows all over the familiar ones, is
  never in doubt.
- u_a(x): how the row is new, the direction from its three nearest familiar rows to it, with each feature in its own deviations.
  A feature that never varied counts `CONSTANT_WEIGHT` times.
- φ(u), of length 1: u itself and random products of pairs of its projections. Two novel rows share a doubt by
  <φ(u), φ(u')> = (cos + cos²) / 2, about: 1 in the same direction, 0 in another or the opposite one. So rows that are new in
  the same way are one doubt, and different novelties are different doubts, whose errors may cancel along a path.
- c_ia: drawn from (seed, i) for each action.

In a world that moves, rewards add up along a path. Their size counts too, and one unseen step must not outweigh an episode. So
rewards are bounded to the familiar range of the action's rewards, of length l_a, widened by l_a on either side: a quarter of it
for what the network extrapolates, and three quarters for the prior. With s(t) = t / (1 + t²)^½, which stays below 1,

    p_i(x, a) = ¾ l_a · s(width w_a g / ¾ l_a) · s(<c_ia, φ>)

Far from familiar rows opinions then spread over nearly all of that. In single decisions only the order of actions counts, and
a mild level must still doubt what is like nothing seen. There p grows as above (`RewardEnsemble.rewards(..., bounded=False)`).

Models come in pairs with opposite heights: the mean of an even number of them, which the ordinary policy follows, has no
prior.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.fixed_shapes import aligned, filled_up
from cautious.beliefs.networks.module import MODELS_PER_CALL
from cautious.beliefs.networks.vector import deviations, shared_deviation
from cautious.errors import Argument, BadFileError, InvalidInputError
from cautious.ops.sums import pairwise_sum
from cautious.seeding import make_rng
from cautious.validation import as_number

WIDTH = 0.75
"""Default width of the prior for vectors, chosen on the development sets of docs/tables.md."""
NEIGHBOURS = 3
"""Number of nearest familiar rows whose mean distance counts: a single one could be an outlier."""
FAMILIAR, NEARLY_ALL = 0.75, 0.98
"""Share of familiar rows at whose distance from the others the prior begins, and share at whose distance it has grown to one
width (earlier where distances differ much, later where they hardly do: `MOST_STEEPNESS`)."""
SHRINKAGE = 0.02
"""Share of the identity in the covariance: directions in which familiar rows do not vary at all stay finite."""
RIDGE = 1e-3
"""Penalty of the linear fit of rows on rewards: rewards of classes sum to one, so that a fit without it has no solution."""
CONSTANT = 1e-7
"""A feature whose deviation is at most this share of its mean is constant."""
SMALLEST_REACH = 0.1
"""The prior begins no nearer than this, per feature in units of the residuals, where familiar rows are dense or repeated."""
FEW = 0.1
"""An action counts as tried all over the familiar rows if at most this share of them is far from its own rows."""
MOST_STEEPNESS = 10.0
"""Largest f. Repeated rows have equal distances, and without this limit a slightly larger distance would count as far."""
FEWEST_OWN = 8
"""An action with this many tries or more has usual distances of its own; otherwise those of all rows are taken."""
FOLDS = 5
"""Number of parts of the familiar rows for cross-validation: distances of a part are measured to the other parts."""
GOLDEN = 0.6180339887498949
"""Row i belongs to the part in which the fraction of i times this falls: parts of equal size, whatever pattern rows come in."""
MOST_ROWS, FEWEST_ROWS = 5000, 50
"""The most and the fewest familiar rows to keep. At most 1,000 for each action, fewer for many actions: files stay small."""
MOST_FEATURES = 512
"""Longer rows are projected at random to this length first, which keeps distances between them within a few percent."""
MOST_GROWTH = 100.0
"""g at most; beyond, all rows are alike: far. A lower limit would lose against networks, which extrapolate without one; a
higher one would leave the rewards themselves out of account, since a game ends when its gap is small beside their range."""
MAHALANOBIS_WEIGHT = 0.5
"""Weight of the Mahalanobis distance, relative to the conditional residuals."""
MOST_LINEAR_GROWTH = 1e4
"""Largest growth of priors in files of earlier versions, which grow linearly."""
BLOCK = 64
"""Rows per matrix product, always exactly this many: how a library rounds may depend on the number."""
CONSTANT_WEIGHT = 10.0
"""How many times a feature that never varied counts in the direction of a row: that it varies is what is most new about it."""
NUM_PRODUCTS = 64
"""Random products of projections in φ: the share of a doubt that opposite directions have in common is then within ±.06."""
EXTRAPOLATED, DOUBTED = 0.25, 0.75
"""How far rewards may leave an action's familiar range, in lengths of that range: by the network, and by the prior."""
ADDED = {"doubt", "unfolding", "products", "familiar_range"}
"""What files of earlier versions lack."""


@dataclass(frozen=True, eq=False)
class Prior:
    """The priors of M models over A actions. G is the length of a row as it is compared, L how many familiar rows are kept."""

    width: float
    centre: Tensor
    """Mean of the familiar rows, [F], float64."""
    whitening: Tensor
    """[F, G], float32: distances are between (x - centre) @ whitening; G is F, or `MOST_FEATURES` if that is less."""
    rows: Tensor
    """Familiar rows after whitening, [L, G], float32."""
    tried: Tensor
    """Whether each action was tried in each familiar row, [L, A]."""
    reach: Tensor
    """q of each action at each familiar row, [L, A], float32: the distance at which the prior begins there."""
    heights: Tensor
    """c, [M, A, D], float32: D is the length of φ, and 1 in files of earlier versions, where φ is 1 everywhere."""
    steepness: Tensor | None = None
    """f, [A], float32; None in files of earlier versions, whose priors grow as d / q - 1."""
    doubt: Tensor | None = None
    """width · w_a in the rewards' units, [A], float32; None in files of earlier versions, whose heights contain it."""
    unfolding: Tensor | None = None
    """[G, G], float32: from differences between rows as they are compared to differences in each feature's deviations."""
    products: Tensor | None = None
    """Pairs of random directions, [2, G, R], float32, whose products are part of φ."""
    familiar_range: Tensor | None = None
    """Lowest and highest reward of each action in training, [2, A], float32; None: rewards are not bounded."""

    @classmethod
    def fitted(cls, rows: Tensor, rewards: Tensor, *, width: float, num_models: int, seed: int) -> Prior:
        """The prior for M models and these training data.

        Args:
            rows: Familiar states as the network takes them, flat, [S, F].
            rewards: What each action paid, [S, A]; NaN where it was not tried.
            width: How many deviations of its rewards models differ by at z = 1: twice the usual distance, or nearer where
                familiar distances are much alike.
            num_models: M.
            seed: Model i's heights depend on (seed, i) alone.
        """
        kept = _kept_rows(~rewards.isnan(), seed)
        familiar, tried = rows[kept].double(), ~rewards[kept].isnan()
        scale = _scale(familiar)
        centre, whitening = _whitening(familiar, rewards[kept], scale, seed)
        whitened = (familiar - centre) @ whitening.double()
        reach, steepness = _reach(familiar, rewards[kept], seed)
        beyond = steepness * (_ratio(_distances(whitened, whitened), tried, reach) - 1)
        uncovered = (beyond > 1).double().mean(dim=0)
        unfolding, products = _unfolding(familiar, whitening, scale, seed), _products(whitening.shape[1], seed)
        known = torch.where(rewards.isnan(), torch.inf, rewards).amin(dim=0), rewards.nan_to_num(-torch.inf).amax(dim=0)
        return cls(
            width,
            centre,
            whitening,
            whitened.float(),
            tried,
            reach.float(),
            _draws(seed, num_models, rewards.shape[1], whitening.shape[1] + NUM_PRODUCTS).float(),
            steepness.float(),
            (width * _doubt(rewards, uncovered)).float(),
            unfolding.float(),
            products.float(),
            torch.stack(known).float(),
        )

    def for_actions(self, num_actions: int, seed: int) -> Prior:
        """The same for A actions that were all tried in every row, as where labels are known.

        Distances stay as they are; heights are drawn as `fitted` draws them for so many actions. `for_payoffs` says how much
        is at stake.
        """
        first = {name: getattr(self, name)[..., :1] for name in ("tried", "reach")}
        wide = {name: part.expand(-1, num_actions).contiguous() for name, part in first.items()}
        assert self.steepness is not None
        heights = _draws(seed, len(self.heights), num_actions, self.heights.shape[2]).float()
        steepness = self.steepness[:1].expand(num_actions).contiguous()
        return replace(self, **wide, steepness=steepness, heights=heights.to(self.heights.device))

    def for_payoffs(self, payoffs: Tensor, shares: Tensor) -> Prior:
        """The same where each action's rewards are its payoffs: w_a is their deviation over the labels of the training.

            w_a² = Σ_l f_l (payoff[l, a] - Σ_k f_k payoff[k, a])²

        Args:
            payoffs: [L, A]; or [B, L, A], for a prior that is then asked about these B rows only.
            shares: f, how often each label occurs in training, [L].
        """
        weight = shares.double()[:, None]
        mean = pairwise_sum(weight * payoffs, dim=-2).unsqueeze(-2)
        deviation = pairwise_sum(weight * (payoffs - mean).square(), dim=-2).sqrt()
        known = torch.stack([payoffs.amin(dim=-2), payoffs.amax(dim=-2)])
        return replace(self, doubt=(self.width * deviation).float(), familiar_range=known.float())

    def growth(self, rows: Tensor) -> Tensor:
        """How far rows are beyond familiar ones, g(z_a(x)): [S, F] -> [S, A], float32; 0 for familiar rows."""
        return self.novelty(rows)[:, : self.num_actions].contiguous()

    @property
    def num_actions(self) -> int:
        """A."""
        return self.tried.shape[1]

    @cached_property
    def _compared(self) -> tuple[Tensor, Tensor]:
        """Whitening and familiar rows as `novelty` multiplies them, kept for the next call."""
        return aligned(self.whitening.double(), 0, 1), aligned(self.rows.double(), 1)

    @cached_property
    def _tried_in(self) -> tuple[list[Tensor], Tensor]:
        """`_patterns`, kept for the next call."""
        return _patterns(self.tried)

    def novelty(self, rows: Tensor) -> Tensor:
        """All that `opinions` needs to know about rows [S, F]: g_a and, pattern by pattern, φ, [S, A + P D], float32.

        A pattern is a set of rows in which some actions were tried; P is 1 where all were tried everywhere. In float64 and in
        blocks of one shape, so that a row's bits do not depend on the others.
        """
        flat = rows.flatten(1).cpu()
        (whitening, familiar), (patterns, place) = self._compared, self._tried_in
        growths, directions = [], []
        for block in flat.split(BLOCK):
            whitened = aligned(filled_up(block.double(), BLOCK) - self.centre, 1) @ whitening
            mean, numbers = _nearest_in(_distances(whitened, familiar), patterns)
            ratio = _by_reach(mean[:, place], numbers[..., place], self.reach.double())
            growths.append(self._grown(ratio - 1)[: len(block)])
            if self.unfolding is not None and self.products is not None:
                nearest = familiar[numbers.flatten()].unflatten(0, numbers.shape).mean(dim=1)  # [n, P, G]
                displaced = (whitened[:, None] - nearest)[..., : len(self.unfolding)]
                directions.append(_directions(displaced, self.unfolding, self.products)[: len(block)])
        grown = torch.cat(growths).float()
        found = torch.cat([grown, torch.cat(directions).float().flatten(1)], dim=1) if directions else grown
        return found.to(rows.device)

    def _grown(self, beyond: Tensor) -> Tensor:
        """g, from d / q - 1 [n, A]."""
        beyond = beyond.clamp(min=0)
        if self.steepness is None:
            return beyond.clamp(max=MOST_LINEAR_GROWTH)
        unusual = self.steepness.double() * beyond
        return (unusual * (1 + unusual) / 2).clamp(max=MOST_GROWTH)

    def opinions(self, models: Tensor, novelty: Tensor, *, bounded: bool) -> Tensor:
        """What the priors of some models add to their networks' rewards: p, [n, B, A], float32.

        Args:
            models: Numbers of the models, [n].
            novelty: Of B rows, as `novelty` returned it.
            bounded: Whether they stay within three quarters of the familiar range's length.
        """
        growth, heights = novelty[:, : self.num_actions], self.heights[models]
        if self.doubt is None:  # of an earlier version
            return heights[..., 0][:, None] * growth
        _, place = self._tried_in
        directions = novelty[:, self.num_actions :].unflatten(1, (-1, heights.shape[2]))  # [B, P, D]
        drawn = _dot(heights, directions, place)
        if not bounded or self.familiar_range is None:
            return drawn * (self.doubt.to(growth.device) * growth)
        most = (DOUBTED * self._length()).to(growth.device)
        return most * saturated(self.doubt.to(growth.device) * growth / most) * saturated(drawn)

    def bound(self, predicted: Tensor) -> Tensor:
        """What networks say [..., A], kept to the familiar range widened by a quarter; within the range it is the same."""
        if self.familiar_range is None:
            return predicted
        lowest, highest = self.familiar_range.to(predicted.device)
        most = (EXTRAPOLATED * self._length()).to(predicted.device)
        inside = predicted.clamp(lowest, highest)
        return inside + most * saturated((predicted - inside) / most)

    def _length(self) -> Tensor:
        """l_a, the length of each action's familiar range, [A]; at least twice its doubt by width, and above zero."""
        assert self.familiar_range is not None
        assert self.doubt is not None
        lowest, highest = self.familiar_range
        least = 2 * self.doubt / max(self.width, torch.finfo(torch.float32).tiny)
        return torch.maximum(highest - lowest, least).clamp(min=torch.finfo(torch.float32).tiny)

    def to(self, device: torch.device | None) -> Prior:
        """The same with the heights on `device`; distances are computed on the CPU."""
        return replace(self, heights=self.heights.to(device))

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that a file keeps."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "width"}
        if self.doubt is None:
            found["heights"] = self.heights[..., 0]  # as it came
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    @classmethod
    def read(cls, width: float, tensors: Mapping[str, Tensor], sizes: tuple[int, int, int], path: object) -> Prior:
        """The prior from the tensors of a file, checked for `sizes` (M, F, A)."""
        names = {field.name for field in fields(cls) if field.name != "width"}
        missing = names - set(tensors)
        if set(tensors) - names or missing not in (set(), ADDED, ADDED | {"steepness"}):
            raise BadFileError(
                f"{path}: expected tensors {', '.join(sorted(names))}, got {', '.join(sorted(tensors))}."
            )
        names -= missing
        tensors = dict(tensors)
        if missing:  # one height for all that is new
            tensors["heights"] = tensors["heights"].unsqueeze(-1)
        num_models, num_features, num_actions = sizes
        length, whitened = tensors["rows"].shape if tensors["rows"].dim() == 2 else (0, 0)
        shapes = {
            "centre": (num_features,),
            "whitening": (num_features, whitened),
            "rows": (length, whitened),
            "tried": (length, num_actions),
            "reach": (length, num_actions),
            "heights": (num_models, num_actions, 1 if missing else whitened + NUM_PRODUCTS),
            "steepness": (num_actions,),
            "doubt": (num_actions,),
            "unfolding": (whitened, whitened),
            "products": (2, whitened, NUM_PRODUCTS),
            "familiar_range": (2, num_actions),
        }
        for name in sorted(names):
            shape = shapes[name]
            if tuple(tensors[name].shape) != shape or not length:
                raise BadFileError(f"{path}: {name} has shape {list(tensors[name].shape)}, expected {list(shape)}.")
            if not bool(tensors[name].isfinite().all()):
                raise BadFileError(f"{path}: {name} holds numbers that are not finite.")
        if tensors["tried"].dtype != torch.bool or not bool(tensors["tried"].any(dim=0).all()):
            raise BadFileError(f"{path}: tried must say where each action was tried, at least once each.")
        for name in names & {"reach", "steepness"}:
            if not bool((tensors[name] > 0).all()):
                raise BadFileError(f"{path}: {name} must be above zero.")
        return cls(width, **{name: tensors[name] for name in names})


def checked_width(prior: float) -> float:
    """`prior` as a float, checked to be a width."""
    if not 0 <= as_number(prior) < math.inf:
        raise InvalidInputError(
            Argument("prior", prior),
            " must be zero or a positive number: the width of each model's random prior, 0 for none.",
        )
    return float(prior)


def _scale(rows: Tensor) -> Tensor:
    """The deviation of each feature of rows [S, F], [F]; 1 for a constant feature."""
    deviation = rows.std(dim=0, correction=0)
    return torch.where(deviation > CONSTANT * rows.mean(dim=0).abs(), deviation, 1.0)


def _whitening(rows: Tensor, rewards: Tensor, scale: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Mean [F] of rows [S, F], and a matrix [F, G] after which distances between rows are as this module compares them.

        W W' = P diag(P)^(-1) P + ¼ P,    P = Σ^(-1),    Σ = covariance of what the rewards [S, A] do not explain

    Features are in units of `scale` [F]. Entry f of x P, by the root of P_ff, is the residual of feature f after a linear fit
    on all others, by its deviation: the first part is the sum of their squares, the second Mahalanobis's. Rows of more than
    `MOST_FEATURES` features are projected first.
    """
    centre, unit = rows.mean(dim=0), _unit(scale, seed)
    rest = _unexplained((rows - centre) @ unit, rewards)
    covariance = (1 - SHRINKAGE) * rest.T @ rest / len(rows) + SHRINKAGE * torch.eye(rest.shape[1]).double()
    precision = torch.linalg.inv(covariance)
    metric = precision @ (precision / precision.diagonal()[:, None]) + MAHALANOBIS_WEIGHT**2 * precision
    values, vectors = torch.linalg.eigh((metric + metric.T) / 2)
    return centre, (unit @ (vectors * values.clamp(min=0).sqrt())).float()


def _unit(scale: Tensor, seed: int) -> Tensor:
    """Features in units of `scale` [F], or, of more than `MOST_FEATURES`, random projections of them: [F, G]."""
    if len(scale) <= MOST_FEATURES:
        return (1 / scale).diag()
    shape = (len(scale), MOST_FEATURES)
    projection = torch.from_numpy(make_rng(seed, "prior projection").standard_normal(shape)) / MOST_FEATURES**0.5
    return projection / scale[:, None]


def _unexplained(rows: Tensor, rewards: Tensor) -> Tensor:
    """What is left of centred rows [S, G] after a linear fit on the rewards [S, A] and on which actions were tried.

    An unknown reward counts as the mean. Where a good policy chose the actions, what was tried tells the classes apart even
    if all that was tried paid the same.
    """
    known = (~rewards.isnan()).double()
    paid = (rewards.double() - rewards.double().nanmean(dim=0)).nan_to_num(0.0)
    causes = torch.cat([paid, known - known.mean(dim=0)], dim=1)  # [S, 2A]
    deviation = causes.square().mean(dim=0).sqrt()
    unit = torch.where(deviation > 0, causes / deviation, 0.0)
    penalty = RIDGE * len(rows) * torch.eye(unit.shape[1]).double()
    return rows - unit @ torch.linalg.solve(unit.T @ unit + penalty, unit.T @ rows)


def _kept_rows(tried: Tensor, seed: int) -> Tensor:
    """Numbers of the rows to keep: for each action a random sample of those in which it was tried ([S, A])."""
    order = torch.from_numpy(make_rng(seed, "prior rows").permutation(len(tried)))
    most = max(FEWEST_ROWS, min(1000, MOST_ROWS // tried.shape[1]))
    kept = (tried[order].cumsum(dim=0) <= most) & tried[order]
    return order[kept.any(dim=1)].sort().values


def _reach(rows: Tensor, rewards: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """The reach q of each action at each row, [L, A], and its steepness f, [A]; from familiar rows [L, F], rewards [L, A].

    At least what `FAMILIAR` of the rows in which it was tried stay below, seen as new ones; the row's own distance if larger.

    A fifth of the rows at a time is whitened and measured with the others only: in many dimensions, rows that take part in
    the covariance lie closer together than new ones do.
    """
    smallest = SMALLEST_REACH * min(rows.shape[1], MOST_FEATURES) ** 0.5
    tried = ~rewards.isnan()
    count = tried.sum(dim=0)
    every = torch.ones(len(rows), 1, dtype=torch.bool)
    own, everywhere = torch.full(tried.shape, math.nan).double(), torch.full((len(rows), 1), math.nan).double()
    scale = _scale(rows)
    folds = (FOLDS * (torch.arange(len(rows)).double() * GOLDEN).frac()).long()
    for fold in range(FOLDS):
        new = folds == fold
        if not bool(new.any()) or bool(new.all()):
            continue
        centre, whitening = _whitening(rows[~new], rewards[~new], scale, seed)
        whitened = (rows - centre) @ whitening.double()
        distances = _distances(whitened[new], whitened[~new])
        everywhere[new] = _nearest(distances, every[~new])[0]
        seen = tried[~new].any(dim=0)  # an action that was tried in this part alone has no distance there
        own[new[:, None] & seen] = torch.where(
            tried[new][:, seen], _nearest(distances, tried[~new][:, seen])[0], math.nan
        ).flatten()
    own = torch.where(count < FEWEST_OWN, everywhere, own)
    # A row or two say nothing about distances: one deviation is as good as any.
    usual = own.nanquantile(FAMILIAR, dim=0).nan_to_num(1.0).clamp(min=smallest)
    # Distances below the smallest reach say nothing about what is far.
    farthest = own.nanquantile(NEARLY_ALL, dim=0).nan_to_num(2.0)
    farthest = torch.where(usual > smallest, farthest, 2 * usual)
    steepness = (usual / (farthest - usual).clamp(min=usual / MOST_STEEPNESS)).clamp(min=1.0)
    return torch.maximum(own.nan_to_num(0.0), usual), steepness


def _distances(rows: Tensor, others: Tensor) -> Tensor:
    """Euclidean distances between rows [n, G] and [L, G], [n, L]."""
    squares = rows.square().sum(dim=1)[:, None] + others.square().sum(dim=1) - 2 * rows @ others.T
    return squares.clamp(min=0).sqrt()


def _patterns(tried: Tensor) -> tuple[list[Tensor], Tensor]:
    """The sets of rows in which some action was tried, P of them, and the set of each action, [A]; from [L, A].

    Where all actions were tried everywhere, there is only one.
    """
    patterns, place = tried.T.unique(dim=0, return_inverse=True)
    return [pattern.nonzero().flatten() for pattern in patterns], place


def _nearest_in(distances: Tensor, patterns: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The nearest rows of each set: mean distance [n, P], and which they are [n, k, P].

    From distances [n, L]; k is `NEIGHBOURS`, of a smaller set some are named twice.
    """
    means, numbers = [], []
    for rows in patterns:
        nearest = distances[:, rows].topk(min(NEIGHBOURS, len(rows)), dim=1, largest=False)
        means.append(nearest.values.mean(dim=1))
        numbers.append(rows[nearest.indices[:, torch.arange(NEIGHBOURS) % nearest.indices.shape[1]]])
    return torch.stack(means, dim=1), torch.stack(numbers, dim=2)


def _nearest(distances: Tensor, tried: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest rows in which each action was tried: mean distance [n, A], and which they are [n, k, A]."""
    patterns, place = _patterns(tried)
    means, numbers = _nearest_in(distances, patterns)
    return means[:, place], numbers[..., place]


def _ratio(distances: Tensor, tried: Tensor, reach: Tensor) -> Tensor:
    """Distance by reach, d / q, [n, A], from distances [n, L]."""
    return _by_reach(*_nearest(distances, tried), reach)


def _by_reach(mean: Tensor, numbers: Tensor, reach: Tensor) -> Tensor:
    """Mean distance [n, A] to the nearest rows [n, k, A], by the median of their own reach [L, A]: one may be odd itself."""
    return mean / reach.gather(0, numbers.flatten(0, 1)).unflatten(0, numbers.shape[:2]).median(dim=1).values


def _unfolding(rows: Tensor, whitening: Tensor, scale: Tensor, seed: int) -> Tensor:
    """From differences between whitened rows to differences in each feature's deviations, [G, G], float64.

    Of rows [S, F] that were projected: in the projections' deviations.
    """
    unit = _unit(scale, seed)
    weight = torch.ones(whitening.shape[1]).double()
    if unit.shape[0] == unit.shape[1]:
        constant = rows.std(dim=0, correction=0) <= CONSTANT * rows.mean(dim=0).abs()
        weight = torch.where(constant, CONSTANT_WEIGHT, weight)
    return torch.linalg.pinv(whitening.double()) @ unit * weight


def _products(length: int, seed: int) -> Tensor:
    """Pairs of random directions, [2, G, R], float64."""
    return torch.from_numpy(make_rng(seed, "prior products").standard_normal((2, length, NUM_PRODUCTS)))


def _directions(displaced: Tensor, unfolding: Tensor, products: Tensor) -> Tensor:
    """φ = (u, q / |q|) / √2 with q_r = <a_r, u> <b_r, u>, of length 1: [n, P, D], float64.

    Of rows that differ from their nearest familiar ones by `displaced` [n, P, G].
    """
    shape = displaced.shape[:2]
    straight = _unit_length(aligned(displaced.flatten(0, 1), 1) @ aligned(unfolding.double(), 0, 1))
    first, second = (straight @ aligned(part, 0, 1) for part in products.double())
    crossed = _unit_length(first * second)
    length = unfolding.shape[1]
    return torch.cat([straight[:, :length], crossed[:, : products.shape[2]]], dim=1).unflatten(0, shape) / 2**0.5


def _unit_length(rows: Tensor) -> Tensor:
    """Rows [n, D] divided by their lengths; a row of zeros stays one."""
    return rows / rows.square().sum(dim=1, keepdim=True).sqrt().clamp(min=torch.finfo(torch.float64).tiny)


def _dot(heights: Tensor, directions: Tensor, place: Tensor) -> Tensor:
    """<c_ia, φ_a(x)>: heights [n, A, D], φ of each pattern [B, P, D] and each action's pattern [A] -> [n, B, A], float32.

    In products of a fixed shape, so that a result's bits depend neither on the number of rows nor on that of models.
    """
    found = torch.empty(len(heights), len(directions), heights.shape[1], device=directions.device)
    for pattern in place.unique():
        actions = (place == pattern).nonzero().flatten()
        kernel = aligned(heights[:, actions], 1, 2).transpose(1, 2)  # [n, D, A]
        for first, models in zip(range(0, len(kernel), MODELS_PER_CALL), kernel.split(MODELS_PER_CALL), strict=True):
            every = filled_up(models, MODELS_PER_CALL)
            for start, rows in zip(range(0, len(directions), BLOCK), directions.split(BLOCK), strict=True):
                block = aligned(filled_up(rows[:, pattern].contiguous(), BLOCK), 1)
                product = torch.bmm(block.expand(len(every), -1, -1), every)[: len(models), : len(rows), : len(actions)]
                found[first : first + len(models), start : start + len(rows), actions] = product
    return found


def saturated(values: Tensor) -> Tensor:
    """Numbers kept below 1: t / (1 + t²)^½, which is t near 0. Square roots and quotients round alike on all machines.

    >>> saturated(torch.tensor([0.0, 1e-3, 1.0, -1e30])).tolist()
    [0.0, 0.000999999..., 0.70710676908..., -1.0]
    """
    precise = values.double().clamp(-1e30, 1e30)  # infinite ones, too, have a square that is finite
    return (precise / (1 + precise.square()).sqrt()).to(values.dtype)


def _doubt(rewards: Tensor, uncovered: Tensor) -> Tensor:
    """w, [A]: the deviation of each action's own rewards.

    An action that always paid the same, but was tried in a part of the familiar rows only, may have been chosen where it
    was right. So where more than a few of them are far from it, at least that share of the deviation of all rewards.
    """
    floor = torch.where(uncovered > FEW, uncovered * shared_deviation(rewards), 0.0)
    return torch.maximum(deviations(rewards), floor)


def _draws(seed: int, num_models: int, num_actions: int, length: int) -> Tensor:
    """c, [M, A, D]: models 2j and 2j + 1 have the same with opposite signs, from the stream of their pair."""
    shape = (num_actions, length)
    pairs = [make_rng(seed, "prior", pair).standard_normal(shape) for pair in range(-(-num_models // 2))]
    drawn = torch.from_numpy(np.stack(pairs))
    return torch.stack([drawn, -drawn], dim=1).flatten(0, 1)[:num_models]
