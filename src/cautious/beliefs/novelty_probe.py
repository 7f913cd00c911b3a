"""Made-up states that are like nothing familiar, and whether a cautious policy notices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from cautious.ops.regret import instantaneous_regret, regret_matching, uniform_policy
from cautious.ops.risk import KofN, ranked_weights
from cautious.seeding import make_rng

NUM_MADE_UP = 100
"""States of each kind that are made up to see how far models differ there."""
NUM_ROWS = 40
"""Rows of each kind that a policy is tried on."""
DEVIATIONS = 5.0
"""How far one feature is moved, in its standard deviations."""
SHRINKAGE = 0.05
"""What the covariance of the features is mixed with, so that features that always move together do not divide by zero."""
MOST_FAMILIAR = 500
"""Familiar rows, evenly spaced, that distances are measured to and rewards are taken from."""
MOST_MODELS = 200
"""Models that the policy is made of here, the first ones: enough for 1-of-20. Even, because models come in pairs with opposite
priors: half a pair would bring its prior into the mean."""
LEVEL = KofN(1, 20)
NUM_ITERATIONS = 60
WORTH_IT = 0.5
"""Caution is worth it where it gains this much, in deviations of the reward."""


class Belief(Protocol):
    """What is asked about rows."""

    @property
    def num_models(self) -> int:
        """M."""
        ...

    def rewards(self, states: Tensor) -> Tensor:
        """[M, S, A]."""
        ...


class Care(NamedTuple):
    """What a cautious policy does on one kind of made-up rows."""

    name: str
    num_rows: int
    """Rows that are far from all familiar ones, and where caution would be worth it."""
    num_departing: int
    """Of these, where it takes another action than ordinarily."""


def unfamiliar_states(states: Tensor, seed: int = 0) -> Tensor:
    """States made up from familiar ones [S, ...] that are like none of them, [2U, ...].

    The first half mixes: each feature comes from another state. The second half of numbers goes beyond what was seen, three
    times each feature's range; of images (bytes), it has each one's pixels in another order.
    """
    rng = make_rng(seed, "unfamiliar states")
    rows = states.flatten(1).cpu()
    shape = (NUM_MADE_UP, rows.shape[1])
    mixed = rows.gather(0, torch.from_numpy(rng.integers(len(rows), size=shape)))
    sampler = torch.from_numpy(rng.random(shape))
    if states.dtype == torch.uint8:
        beyond = rows[torch.from_numpy(rng.integers(len(rows), size=NUM_MADE_UP))].gather(1, sampler.argsort(dim=1))
    else:
        low, high = rows.amin(dim=0), rows.amax(dim=0)
        beyond = (low + (high - low) * (3 * sampler - 1)).to(rows.dtype)
    return torch.cat([mixed, beyond]).unflatten(1, states.shape[1:])


def made_up_rows(rows: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """Rows made up from familiar ones [S, D], by kind, each far from all of them.

    - one feature moved: a familiar row with one feature moved by five of its deviations, up or down;
    - between clusters: half-way between two familiar rows;
    - features mixed: each feature from another familiar row.

    Far means: further from its nearest familiar row than 99 % of familiar rows are from theirs, in standardised features, or
    in whitened ones, where what always moves together counts once. Of many rows that are, the first forty are taken; of kinds
    for which few are (in data that fill their whole range nothing lies between), few or none.

    Returns:
        [U, D] by kind, U at most `NUM_ROWS`, perhaps 0.
    """
    rng = make_rng(seed, "made-up rows")
    rows = rows.cpu().double()
    kinds = _candidates(rows, rng, 4 * NUM_ROWS)
    some = _some(rows, MOST_FAMILIAR)
    measures = [_whitening(rows, shrinkage) for shrinkage in (1.0, SHRINKAGE)]

    def far(made: Tensor) -> Tensor:
        return torch.stack([_is_far(measure(made), measure(some)) for measure in measures]).any(dim=0)

    return {name: made[far(made)][:NUM_ROWS] for name, made in kinds.items()}


def _is_far(made: Tensor, known: Tensor) -> Tensor:
    """Which rows [U, D] are further from all known ones [S, D] than 99 % of these are from each other, [U]."""
    apart = torch.cdist(known, known).fill_diagonal_(torch.inf).amin(dim=1)
    usual = torch.quantile(apart, 0.99) if len(known) > 1 else torch.tensor(0.0)
    return torch.cdist(made, known).amin(dim=1) > usual


def _candidates(rows: Tensor, rng: np.random.Generator, count: int) -> dict[str, Tensor]:
    """So many rows [U, D] of each kind, far or not."""

    def drawn(*shape: int) -> Tensor:
        return torch.from_numpy(rng.integers(len(rows), size=shape))

    moved, deviation = rows[drawn(count)], rows.std(dim=0, correction=0)
    varying = deviation.nonzero().flatten()
    if len(varying):
        which = varying[torch.from_numpy(rng.integers(len(varying), size=count))]
        sign = torch.from_numpy(rng.choice([-1.0, 1.0], size=count))
        moved[torch.arange(count), which] += DEVIATIONS * sign * deviation[which]
    return {
        "one feature moved": moved,
        "between clusters": (rows[drawn(count)] + rows[drawn(count)]) / 2,
        "features mixed": rows.gather(0, drawn(count, rows.shape[1])),
    }


def _whitening(rows: Tensor, shrinkage: float) -> Callable[[Tensor], Tensor]:
    """A function to coordinates [., D] in which familiar rows [S, D] vary alike in all directions; shrunk by 1, along axes."""
    mean, deviation = rows.mean(dim=0), rows.std(dim=0, correction=0)
    scale = torch.where(deviation > 0, deviation, 1.0)
    standard = (rows - mean) / scale
    identity = torch.eye(rows.shape[1], dtype=rows.dtype)
    covariance = (1 - shrinkage) * standard.T @ standard / len(rows) + shrinkage * identity
    variances, axes = torch.linalg.eigh(covariance)
    return lambda other: (other - mean) / scale @ (axes / variances.sqrt())


def care_on(belief: Belief, familiar: Tensor, seed: int = 0) -> tuple[Care, ...]:
    """Whether 1-of-20 notices what is new: on how many made-up rows it departs from the ordinary policy, by kind.

    Only rows count where caution would be worth it. Suppose nothing were known about a row: its rewards could be those of any
    familiar row. Under this belief the best 1-of-20 policy is worth v, and the action that one would ordinarily take there
    less than that. Where the difference is below half the rewards' deviation, another action would gain little, and a
    policy that acts as usual is not blind.

    Args:
        belief: Of vectors.
        familiar: Rows that it was trained on, [S, ...].
        seed: Starts the draws of the rows.

    Returns:
        One entry a kind; nothing for fewer models than 1-of-20 draws.
    """
    if belief.num_models < LEVEL.n:
        return ()
    kinds = made_up_rows(familiar.flatten(1), seed)
    rows = torch.cat([_some(familiar.flatten(1).cpu().double(), MOST_FAMILIAR // 2), *kinds.values()])
    rewards = belief.rewards(rows.unflatten(1, familiar.shape[1:]).to(familiar.dtype))[:MOST_MODELS].double().cpu()
    known, *made_up = rewards.split([len(rows) - sum(map(len, kinds.values())), *map(len, kinds.values())], dim=1)
    return care_of(known, dict(zip(kinds, made_up, strict=True)))


def care_of(known: Tensor, kinds: Mapping[str, Tensor]) -> tuple[Care, ...]:
    """The same where the models have been asked already: about familiar states [M, S, A], and made-up ones by kind [M, U, A].

    Nothing for fewer models than 1-of-20 draws.
    """
    if len(known) < LEVEL.n:
        return ()
    worth_it = _worth_it(known.double().mean(dim=0))
    found = []
    for name, made_up in kinds.items():
        opinions = made_up.double()
        ordinary = opinions.mean(dim=0).argmax(dim=-1)  # [U]
        counted = worth_it[ordinary] & opinions.isfinite().all(dim=-1).all(dim=0)
        policy = _robust_policy(opinions[:, counted])
        found.append(Care(name, int(counted.sum()), int((policy.argmax(dim=-1) != ordinary[counted]).sum())))
    return tuple(found)


def _worth_it(rewards: Tensor) -> Tensor:
    """For which actions something better could be done where any of these rows' rewards [S, A] may hold, [A]."""
    level = LEVEL if len(rewards) >= LEVEL.n else KofN(1, len(rewards))
    anything = rewards[:, None]  # S models of one state
    policy = _robust_policy(anything, level)
    best = level.value((anything * policy).sum(dim=-1).T)  # [1]
    return best - level.value(rewards.T) > WORTH_IT * rewards.std(correction=0)


def _robust_policy(rewards: Tensor, level: KofN = LEVEL) -> Tensor:
    """The best k-of-N policy that some iterations come to in each state on its own: [M, S, A] -> [S, A].

    What `CautiousPolicy` does, in the few lines that a look needs; the solvers' room builds on this one.
    """
    opinions = rewards.transpose(0, 1).contiguous()  # [S, M, A]
    policy = uniform_policy(len(opinions), rewards.shape[-1])
    best_policy, best_value = policy, torch.full((len(opinions),), -torch.inf, dtype=torch.float64)
    cumulative_regret = torch.zeros_like(policy)
    rank_weights = level.rank_weights(len(rewards))
    for _ in range(NUM_ITERATIONS if len(opinions) else 0):
        returns = (opinions @ policy.unsqueeze(-1)).squeeze(-1)  # [S, M]
        weights = ranked_weights(returns, rank_weights)
        value = (weights * returns).sum(dim=-1)
        better = value >= best_value
        best_policy = torch.where(better.unsqueeze(-1), policy, best_policy)
        best_value = torch.where(better, value, best_value)
        worst_reward = (weights.unsqueeze(1) @ opinions).squeeze(1)  # [S, A]
        cumulative_regret = cumulative_regret + instantaneous_regret(worst_reward, policy)
        policy = regret_matching(cumulative_regret)
    return best_policy


def _some(rows: Tensor, most: int) -> Tensor:
    """At most so many rows, evenly spaced."""
    return rows[:: -(-len(rows) // most)]
