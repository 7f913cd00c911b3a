"""The diagnosis of a belief: does it fit familiar states, and does a cautious policy notice states that are unlike them?

`examine` asks a trained belief about held-out and about made-up states, and `diagnose` turns the answers into numbers and
warnings. The second half of the file makes up the states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.risk import KofN
from cautious.seeding import make_rng
from cautious.solvers.adversary import SolveBatch
from cautious.solvers.cfr import CFROptions, PerStateGame, Problem, minimise_regret_of_all
from cautious.solvers.rewards import as_rewards
from cautious.types import Sampling, Update

if TYPE_CHECKING:
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.beliefs.models import RewardModels

POOR = 0.5
"""An ensemble whose mean explains less than this share of the rewards' variance has not learned them."""

NARROW = 0.02
"""Models that differ by less than this share of the rewards' deviation hardly differ."""

BLIND = 0.25
"""A policy that departs on a smaller share of made-up states, where it would be worth it, is not careful there.

Chosen by looking at the tables of benchmarks/table_sets.py, so it is not validated on them."""

UNNOTICED = 0.1
"""A single kind of made-up states on which a policy departs on a smaller share goes by unnoticed, even if others do not.

Far below `BLIND`, so as not to cry wolf over forty rows."""

INSIDE = "between clusters"
"""The kind that lies inside the range of the data, and for which there is no separate warning. Half-way between two clusters
models interpolate, and agree, whatever the prior: no setting cures it, so a warning would come with every such table;
`Diagnosis.departures` has the share, and 'cautious train' prints it."""

OUTLYING = 3.0
"""An error counts as at most this many deviations of the rewards, where single models are compared with no model."""
ONE_DOUBT = 0.9
"""Where opinions about unlike novelties correlate by more than this, all that is new is one doubt."""

FEW = 20
"""Fewer made-up states than this show nothing about a policy."""

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
MOST_MOVED = 12
"""Features that are moved to see whether opinions about them go together."""
LEVEL = KofN(1, 20)
NUM_ITERATIONS = 60
WORTH_IT = 0.5
"""Caution is worth it where it gains this much, in deviations of the reward."""


class BeliefWarning(UserWarning):
    """A belief looks too narrow or too poor to be cautious with."""


class NoveltyResponse(NamedTuple):
    """How often a cautious policy departs from the ordinary one on made-up rows of one kind."""

    name: str
    num_rows: int
    """Number of rows that are far from all familiar ones and where caution would be worth it."""
    num_departing: int
    """Number of these rows in which the cautious policy takes another action than the ordinary policy."""


@dataclass(frozen=True)
class Diagnosis:
    """Results of a belief on familiar states that were held out, and on made-up states that are like nothing seen.

    `fit_ensemble` computes it and warns of its `concerns` (`BeliefWarning`). Errors are in the units of the rewards.
    """

    num_states: int
    """Number of held-out states."""
    error: float
    """Root mean squared error of the mean of the models, on held-out states."""
    member_error: float
    """Root mean squared error of a single model, averaged over the models."""
    disagreement: float
    """Standard deviation between the models on held-out states, averaged. It should be small: these states are familiar."""
    unfamiliar_disagreement: float
    """Standard deviation between the models on made-up states (`unfamiliar_states`). Caution comes from it."""
    reward_deviation: float
    """Standard deviation of the rewards of each action: the error of always predicting the action's mean reward."""
    concerns: tuple[str, ...]
    """One sentence for each thing that looks wrong."""
    unfamiliar_departures: float = math.nan
    """On what share of made-up rows that are far from all familiar ones, and where caution would be worth it, 1-of-20 takes
    another action than ordinarily (`probe_novelty`); NaN where there are none, or fewer than 20 models."""
    num_unfamiliar: int = 0
    """Number of rows that `unfamiliar_departures` is a share of."""
    departures: tuple[tuple[str, float, int], ...] = ()
    """`unfamiliar_departures` by kind of made-up row: (kind, share, number of rows)."""
    shared_doubt: float = math.nan
    """How far the models' opinions about rows in which unlike features moved go together: the mean of their correlations. At 1,
    all that is new is one doubt, and in a world k-of-N can do nothing that mean - c std cannot. NaN where not measured."""

    def describe(self) -> dict[str, Any]:
        """The diagnosis as plain values for JSON; numbers that are not finite are left out."""
        return {name: part for name, part in asdict(self).items() if not isinstance(part, float) or math.isfinite(part)}

    @classmethod
    def read(cls, described: Any) -> Diagnosis | None:
        """The diagnosis that `describe` wrote; None for None.

        Raises:
            InvalidInputError: It is something else.
        """
        if described is None:
            return None
        try:
            values = {
                part.name: described.get(part.name, math.nan if part.type == "float" else ()) for part in fields(cls)
            }
            for name, value in values.items():
                values[name] = {"concerns": _texts, "departures": _rows}.get(name, _number)(value)
            return cls(**values)
        except (AttributeError, TypeError, ValueError):
            raise InvalidInputError(
                "diagnosis: expected numbers and concerns, as RewardEnsemble.save writes them."
            ) from None


def examine(
    belief: RewardEnsemble | RewardModels, familiar: Tensor, predictions: Tensor, targets: Tensor, seed: int
) -> Diagnosis:
    """The diagnosis of a trained belief.

    Args:
        belief: M models.
        familiar: States that they were trained on, [S, ...].
        predictions: Their rewards in familiar states that were held out, [M, H, A].
        targets: What was paid there, [H, A], NaN where unknown.
        seed: Starts the draws of made-up states.
    """
    made_up = torch.full((belief.num_models, 1, targets.shape[1]), torch.nan, dtype=torch.float32)
    responses: tuple[NoveltyResponse, ...] = ()
    shared = math.nan
    # A user's module may raise anything beyond the range of its inputs: nothing is known there, which is no error.
    with suppress(Exception):
        made_up = belief.rewards(unfamiliar_states(familiar, seed), bounded=False)
    if familiar.dtype == torch.uint8:
        mixed, shuffled = (half[:, :NUM_ROWS].cpu() for half in made_up.split(NUM_MADE_UP, dim=1))
        responses = novelty_responses(predictions.cpu(), {"pixels mixed": mixed, "pixels in another order": shuffled})
    else:
        with suppress(Exception):
            responses = probe_novelty(belief, familiar, seed)
        with suppress(Exception):
            shared = shared_doubt(belief.rewards(moved_rows(familiar), bounded=False))
    return diagnose(
        predictions, targets, made_up, responses, shared, of_labels=getattr(belief, "labels", None) is not None
    )


def diagnose(
    rewards: Tensor,
    targets: Tensor,
    unfamiliar: Tensor,
    responses: tuple[NoveltyResponse, ...] = (),
    shared: float = math.nan,
    *,
    of_labels: bool = False,
) -> Diagnosis:
    """The diagnosis: predictions of M models against known rewards, and against each other where nothing is known.

    Args:
        rewards: On familiar states that were held out, [M, H, A].
        targets: [H, A], NaN where unknown; errors are NaN where nothing is known.
        unfamiliar: On `unfamiliar_states`, [M, U, A]; what is not finite does not count.
        responses: What a cautious policy does on made-up rows, by kind (`probe_novelty`).
        shared: How far opinions about unlike novelties go together (`shared_doubt`).
        of_labels: Whether the models predict labels. How a row turns out is chance to a good part, so that models need only do
            better than each label's share.
    """
    predicted, known_rewards = rewards.double(), targets.double()
    known = ~known_rewards.isnan()
    errors = (predicted.mean(dim=0) - known_rewards)[known]
    member = _root_mean_square((predicted - known_rewards)[:, known])
    # Where nothing is known, errors are NaN, and what the models say on average stands for the rewards.
    reference = known_rewards if bool(known.any()) else predicted.mean(dim=0)
    counted = ~reference.isnan()
    centred = (reference - reference.nanmean(dim=0).nan_to_num())[counted]
    deviation = _root_mean_square(centred)
    familiar = float(predicted.std(dim=0, correction=0)[counted].mean())
    spread = unfamiliar.double().std(dim=0, correction=0)
    elsewhere = float(spread[spread.isfinite()].mean())
    error = _root_mean_square(errors)
    concerns = []
    if deviation > 0 and of_labels and error >= deviation:
        concerns.append(
            f"the models expect labels no better than the labels' shares do: on held-out states the error of their mean is "
            f"{error:.3g}, and that of always expecting these shares is {deviation:.3g}. Train on more data, or on columns "
            "that say more about the label."
        )
    elif deviation > 0 and not of_labels and error > (1 - POOR) ** 0.5 * deviation:
        concerns.append(
            f"the models do not fit the familiar data: on held-out states the error of their mean is {error:.3g}, and that of "
            f"always predicting each action's mean reward is {deviation:.3g}. Train longer, or give them more data; if the "
            "rewards are very noisy, no model could do better."
        )
    wrong, plain = (predicted - known_rewards)[:, known].abs(), float(centred.abs().mean())
    # A few familiar rows may be far in the prior's eyes: they count, but not without limit.
    usual = float(wrong.clamp(max=OUTLYING * deviation).mean())
    if deviation > 0 and usual > plain and not concerns:
        concerns.append(
            f"single models are worse than no model: on held-out states a model misses rewards by {usual:.3g} on average, and "
            f"each action's mean reward by {plain:.3g}. The mean of the models is better, but a cautious policy goes by "
            "single models, and would take their errors for doubts. Train longer, or on more data."
        )
    if shared > ONE_DOUBT:
        concerns.append(
            f"all that is new is one doubt: what the models say about rows in which unlike features moved correlates by "
            f"{shared:.2f}. In a world with several novelties a k-of-N policy cannot weigh them up. Use a prior "
            "(prior=0.75 is the default for vectors), or models that differ in more than one way."
        )
    scale = deviation or _root_mean_square(reference[counted])
    if familiar < NARROW * scale and elsewhere < NARROW * scale:
        concerns.append(
            f"the models agree everywhere: they differ by {familiar:.2g} on familiar states and by {elsewhere:.2g} on made-up "
            f"ones unlike the training data, where rewards vary by {scale:.2g}. Caution comes from disagreement, so policies "
            "of this belief will hardly be cautious. Use a wider prior (0.75 is the default for vectors, 0 is none); "
            "start each model from different weights; or use a network that the data does not determine everywhere (a larger "
            "one, or less weight decay)."
        )
    count = sum(kind.num_rows for kind in responses)
    departing = sum(kind.num_departing for kind in responses) / count if count else math.nan
    if count >= FEW and departing < BLIND:
        concerns.append(_blind("to novelty", [kind for kind in responses if kind.num_rows]))
    else:
        unnoticed = [
            kind for kind in responses if kind.num_rows >= FEW and kind.num_departing < UNNOTICED * kind.num_rows
        ]
        concerns += [_blind("to a kind of novelty", [kind]) for kind in unnoticed if kind.name != INSIDE]
    return Diagnosis(
        len(known_rewards),
        error,
        member,
        familiar,
        elsewhere,
        deviation,
        tuple(concerns),
        departing,
        count,
        tuple((kind.name, kind.num_departing / kind.num_rows, kind.num_rows) for kind in responses if kind.num_rows),
        shared,
    )


def moved_rows(rows: Tensor) -> Tensor:
    """The mean familiar row with one feature moved up by `DEVIATIONS` of its deviations, for each of a few features: [U, ...].

    Features that never vary are left out; of more than `MOST_MOVED`, evenly spaced ones are moved. Of fewer than two there is
    nothing to compare: [0, ...].
    """
    flat = rows.flatten(1).cpu().double()
    deviation = flat.std(dim=0, correction=0)
    varying = deviation.nonzero().flatten()
    which = _some(varying, MOST_MOVED)
    if len(which) < 2:
        return rows[:0].cpu()
    moved = flat.mean(dim=0).repeat(len(which), 1)
    moved[torch.arange(len(which)), which] += DEVIATIONS * deviation[which]
    return moved.to(rows.dtype).unflatten(1, rows.shape[1:])


def shared_doubt(rewards: Tensor) -> float:
    """The mean correlation between models' rewards in different states, action by action: [M, U, A] -> a number.

    An action about which all models agree in some state is left out; NaN where nothing is left.

    Two models and two states: opinions go together in the first example, and against each other in the second.

    >>> round(shared_doubt(torch.tensor([[[1.0], [2.0]], [[0.0], [0.0]]])), 6)
    1.0
    >>> round(shared_doubt(torch.tensor([[[1.0], [0.0]], [[0.0], [2.0]]])), 6)
    -1.0
    """
    doubts = rewards.double() - rewards.double().mean(dim=0)
    doubts = doubts.permute(2, 1, 0)  # [A, U, M]
    length = doubts.square().sum(dim=-1, keepdim=True).sqrt()
    unsure = (length > 0).all(dim=1).flatten() & doubts.isfinite().flatten(1).all(dim=1)
    if doubts.shape[1] < 2 or not bool(unsure.any()):
        return math.nan
    unit = (doubts / length)[unsure]
    count = unit.shape[1]
    total = (unit @ unit.transpose(1, 2)).sum(dim=(1, 2)) - count
    return float(total.mean() / (count * (count - 1)))


def _blind(what: str, kinds: Sequence[NoveltyResponse]) -> str:
    count, departing = sum(kind.num_rows for kind in kinds), sum(kind.num_departing for kind in kinds)
    return (
        f"the belief is blind {what}: on {count} made-up rows that are far from all familiar ones "
        f"({', '.join(kind.name for kind in kinds)}) 1-of-20 takes another action than the ordinary policy in "
        f"{100 * departing / count:.0f} %, though the models cannot know the rewards there. They differ too little, or not "
        "about which action is best, so that a k-of-N policy does not react to what is new. Use a wider prior; or, if there is "
        "a safe action, a rule based on Decision.disagreement (cautious.FallbackRule); and check decisions on rows that matter "
        "to you."
    )


def _number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise TypeError(value)
    return value


def _texts(described: Any) -> tuple[str, ...]:
    if isinstance(described, str) or not all(isinstance(text, str) for text in described):
        raise TypeError(described)
    return tuple(described)


def _rows(described: Any) -> tuple[tuple[str, float, int], ...]:
    return tuple((str(name), float(share), int(rows)) for name, share, rows in described)


def _root_mean_square(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def unfamiliar_states(states: Tensor, seed: int = 0) -> Tensor:
    """Made-up states [2U, ...] that are unlike all of the familiar ones [S, ...].

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
    """Made-up rows that are far from all familiar ones [S, D], by kind.

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
    """Made-up rows [U, D] of each kind, far or not."""

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
    """A function from rows [., D] to coordinates in which familiar rows [S, D] vary by 1 in every direction.

    With a shrinkage of 1, features are divided by their deviations and stay correlated.
    """
    mean, deviation = rows.mean(dim=0), rows.std(dim=0, correction=0)
    scale = torch.where(deviation > 0, deviation, 1.0)
    standard = (rows - mean) / scale
    identity = torch.eye(rows.shape[1], dtype=rows.dtype)
    covariance = (1 - shrinkage) * standard.T @ standard / len(rows) + shrinkage * identity
    variances, axes = torch.linalg.eigh(covariance)
    return lambda other: (other - mean) / scale @ (axes / variances.sqrt())


def probe_novelty(
    belief: RewardEnsemble | RewardModels, familiar: Tensor, seed: int = 0
) -> tuple[NoveltyResponse, ...]:
    """On how many made-up rows of each kind a 1-of-20 policy departs from the ordinary one.

    Only rows count where caution would be worth it. Suppose nothing were known about a row: its rewards could be those of any
    familiar row. Under this belief the best 1-of-20 policy is worth v, and the action that one would ordinarily take there
    less than that. Where the difference is below half the rewards' deviation, another action would gain little, and a
    policy that acts as usual is not blind.

    Args:
        belief: Of vectors.
        familiar: Rows that it was trained on, [S, ...].
        seed: Starts the draws of the rows.

    Returns:
        One entry per kind; nothing for fewer models than 1-of-20 draws.
    """
    if belief.num_models < LEVEL.n:
        return ()
    kinds = made_up_rows(familiar.flatten(1), seed)
    rows = torch.cat([_some(familiar.flatten(1).cpu().double(), MOST_FAMILIAR // 2), *kinds.values()])
    rewards = (
        belief.rewards(rows.unflatten(1, familiar.shape[1:]).to(familiar.dtype), bounded=False)[:MOST_MODELS]
        .double()
        .cpu()
    )
    known, *made_up = rewards.split([len(rows) - sum(map(len, kinds.values())), *map(len, kinds.values())], dim=1)
    return novelty_responses(known, dict(zip(kinds, made_up, strict=True)))


def novelty_responses(known: Tensor, kinds: Mapping[str, Tensor]) -> tuple[NoveltyResponse, ...]:
    """`probe_novelty` from predictions: of familiar states [M, S, A], and of made-up ones by kind [M, U, A].

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
        found.append(NoveltyResponse(name, int(counted.sum()), int((policy.argmax(dim=-1) != ordinary[counted]).sum())))
    return tuple(found)


def _worth_it(rewards: Tensor) -> Tensor:
    """Whether caution is worth it where an action is ordinary, [A], if any row of the rewards [S, A] may be the true one."""
    level = LEVEL if len(rewards) >= LEVEL.n else KofN(1, len(rewards))
    anything = rewards[:, None]  # S models of one state
    policy = _robust_policy(anything, level)
    best = level.value((anything * policy).sum(dim=-1).T)  # [1]
    return best - level.value(rewards.T) > WORTH_IT * rewards.std(correction=0)


def _robust_policy(rewards: Tensor, level: KofN = LEVEL) -> Tensor:
    """Approximately the best k-of-N policy of each state, without a certificate: [M, S, A] -> [S, A]."""
    if not rewards.shape[1]:
        return rewards[0]
    problem = Problem(PerStateGame(), as_rewards(rewards), SolveBatch((level,), 1))
    options = CFROptions(NUM_ITERATIONS, Sampling.EXACT, Update.REGRET_MATCHING)
    return minimise_regret_of_all(problem, options).history.best_policy[0]


def _some(rows: Tensor, most: int) -> Tensor:
    """At most `most` rows, evenly spaced."""
    return rows[:: -(-len(rows) // most)]
