"""The dial, calibrated: as careful as possible while familiar decisions stay what they ordinarily are, with a guarantee."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.familiar import in_units_of
from cautious.beliefs.fit import refit, with_needed
from cautious.beliefs.image_network import images_are_bytes
from cautious.errors import InvalidInputError
from cautious.fallback import FallbackRule
from cautious.ops.rates import above_p_value, binomial_p_value, binomial_upper_bound, smallest_rate, upper_bound
from cautious.ops.risk import KofN
from cautious.policy import CautiousPolicy
from cautious.seeding import stream
from cautious.solvers.decision import departs, spread_of
from cautious.telling import Progress, as_progress
from cautious.types import LARGEST_COUNT, as_float_tensor, as_number, check_shape, parse_choice, parse_count


class CalibrationWarning(UserWarning):
    """A dial could not be calibrated with the states given."""


class Measure(StrEnum):
    """What is bounded on familiar states."""

    DECISIONS = "decisions"
    """The share of decisions that depart: whose most likely action is none that the ordinary policy takes."""
    TOTAL_VARIATION = "total-variation"
    """The mean caution: the share of departing actions where they are drawn from the policy (`deterministic=False`)."""


@dataclass(frozen=True)
class Calibration:
    """The level to use (of a rule, the threshold), and what is known about it."""

    level: KofN
    """Of a `FallbackRule`, the level of its policy, which stays."""
    rate: float
    """The share of the familiar states given in which it departs from ordinary behaviour; with
    ``measure="total-variation"`` the mean caution there."""
    bound: float
    """With the confidence asked for, the rate on all familiar states is below this (`at_most`, or less)."""
    at_most: float
    confidence: float
    tried: tuple[tuple[str, float, float], ...]
    """(level, rate, p-value of "the rate is above `at_most`") from ordinary to cautious, up to the first that failed.

    Of a rule, its threshold alone."""
    measure: str = "decisions"
    num_states: int = 0
    """How many familiar states the rate is of."""
    threshold: float | None = None
    """Of a `FallbackRule`: the disagreement above which to refer; infinite where nothing could be shown."""


def calibrate(
    policy: CautiousPolicy | FallbackRule | Any,
    familiar_states: Any,
    rewards: Any = None,
    *,
    at_most: float = 0.05,
    confidence: float = 0.95,
    measure: str = "decisions",
    folds: int = 5,
    progress: bool | Progress = True,
) -> Calibration:
    """Find the most cautious level that departs from ordinary behaviour in at most a given share of familiar decisions.

    A decision departs where its action (the most likely one) is none that the ordinary policy takes (`Decision.departs`).
    Levels n-of-n, (n-1)-of-n, ... 1-of-n are tested in this order, each against "its rate is above `at_most`", until one cannot
    reject it (fixed-sequence testing; Angelopoulos et al., "Learn then Test", 2021). So with probability `confidence` over
    the draw of the familiar states, the level that comes out keeps its promise on all of them. The test is exact (Clopper and
    Pearson, 1934): with B states and no departure among them, rates above 1 - (1 - confidence)^(1/B) are ruled out, so that 5 %
    takes 59 states; 40 states rule out 7.2 % (`smallest_rate`).

    Of a `FallbackRule` the threshold is what is looked for: the lowest that refers at most that share, by the same test.

    Args:
        policy: Its belief, and n of its level; its k is what is looked for. An ordinary policy (n-of-n) never departs. Or a
            belief, for levels of 1-of-20; or a `FallbackRule`.
        familiar_states: States like those to come, and not those that the belief was trained on: [B, ...] as `decide` takes.
        rewards: With it no states need to be set aside (cross-fitting): `familiar_states` are then those of the training, and
            this is what actions paid in them, [S, A] as `fit_ensemble` takes it. The belief is trained again `folds` times,
            each time without a part of the states, and decides about that part. The promise then is about beliefs that are
            trained on a little less, and its confidence is approximate: the parts' decisions are not quite independent.
        at_most: The rate that is allowed, in (0, 1).
        confidence: How certain to be, in (0, 1). With fewer states than these two need, it warns and returns n-of-n.
        measure: "decisions"; or "total-variation", to bound the mean caution (`Decision.caution`) instead, for policies whose
            actions are drawn (`predict(deterministic=False)`).
        folds: With `rewards`: into how many parts to cut the states.
        progress: True shows a line; or a function that is told (steps done, steps in all); False is silent.

    Returns:
        `Calibration`. What is given stays as it is: the policy to use is ``CautiousPolicy(belief, found.level)``, the rule
        ``FallbackRule(belief, action, threshold=found.threshold)``.
    """
    own = _as_policy(policy)
    for name, value in (("at_most", at_most), ("confidence", confidence)):
        if not 0 < as_number(value) < 1:
            raise InvalidInputError(f"{name}={value!r} must be between 0 and 1, both excluded.")
    kind = parse_choice(Measure, measure, "measure")
    told = as_progress(progress, "calibrating")
    if isinstance(own, FallbackRule):
        if kind != Measure.DECISIONS:
            raise InvalidInputError(f"measure={measure!r}: a FallbackRule has decisions only; leave it out.")
        scores = _gathered(partial(_scores, own), own.policy, familiar_states, rewards, folds, told)
        return _calibrated_rule(own, scores, at_most, confidence)
    losses = _gathered(partial(_losses, kind), own, familiar_states, rewards, folds, told)
    return _calibrated_level(own.level.n, losses, at_most, confidence, kind)


def _as_policy(policy: Any) -> CautiousPolicy | FallbackRule:
    if isinstance(policy, (CautiousPolicy, FallbackRule)):
        return policy
    if not callable(getattr(policy, "rewards", None)):
        raise InvalidInputError(
            f"policy is a {type(policy).__name__}; pass a cautious.CautiousPolicy, a cautious.FallbackRule or a belief."
        )
    return CautiousPolicy(policy)


Decide = Callable[[CautiousPolicy, Any, Progress | None], Tensor]
"""What is known of states under a policy's belief: (policy, states [B, ...], progress) -> [..., B]."""


def _gathered(
    decide: Decide, policy: CautiousPolicy, states: Any, rewards: Any, folds: int, progress: Progress | None
) -> Tensor:
    """What `decide` says about states that the belief was not trained on; with `rewards`, by cross-fitting."""
    if rewards is None:
        return decide(policy, states, progress)
    belief, paid = policy.belief, as_float_tensor(rewards, "rewards")
    inputs = torch.as_tensor(states) if images_are_bytes(states) else as_float_tensor(states, "familiar_states")
    if not isinstance(belief, RewardEnsemble):
        raise InvalidInputError(
            "rewards: cross-fitting trains the belief again, and only one that fit_ensemble made says how; leave it out, and "
            "give familiar states that the belief was not made from."
        )
    check_shape(paid, "S A", "rewards", S=len(inputs), A=belief.num_actions)
    count = parse_count(folds, "folds", 2)
    if count > len(inputs):
        raise InvalidInputError(f"folds={count} exceeds the {len(inputs)} states there are.")
    order = torch.from_numpy(stream(int(belief.settings.get("seed", 0)), "folds").permutation(len(inputs)))
    parts = []
    for fold in range(count):
        rest = torch.from_numpy(np.delete(np.arange(len(inputs)), order[fold::count].numpy()))
        familiar, left_out = with_needed(~paid.isnan(), rest, order[fold::count])
        again = refit(belief, inputs[familiar], paid[familiar])
        parts.append(decide(CautiousPolicy.restored(policy.described(), again, None), inputs[left_out], None))
        if progress is not None:
            progress(fold + 1, count)
    return torch.cat(parts, dim=-1)


def _losses(measure: Measure, policy: CautiousPolicy, states: Any, progress: Progress | None) -> Tensor:
    """How far each level from n-of-n to 1-of-n departs in each state, [L, B], in [0, 1]."""
    levels = [KofN(k, policy.level.n) for k in range(policy.level.n, 0, -1)]
    if measure == Measure.TOTAL_VARIATION:
        return policy.caution_at(levels, states, progress)
    policies, ordinary = policy.policies_at(levels, states, progress)
    return departs(policies.argmax(dim=-1), ordinary).double()


def _scores(rule: FallbackRule, policy: CautiousPolicy, states: Any, progress: Progress | None) -> Tensor:
    """The disagreement above which a rule refers each state, [B]; infinite where its policy departs whatever the threshold.

    In units of the rule's own belief, also where `policy` has another, trained on a part of the states.
    """
    decision = policy.decide(states)
    disagreement = in_units_of(rule.policy.familiar, spread_of(decision.opinions()))
    return torch.where(decision.departs, torch.inf, disagreement)


def _calibrated_level(n: int, losses: Tensor, at_most: float, confidence: float, measure: Measure) -> Calibration:
    """The most cautious level that is shown to stay below, by losses [L, B] from n-of-n to 1-of-n."""
    exact = measure == Measure.DECISIONS
    tried, chosen = [], 0
    for number, rates in enumerate(losses):
        own = binomial_p_value(int(rates.sum()), len(rates), at_most) if exact else above_p_value(rates, at_most)
        p_value = 0.0 if number == 0 else own
        tried.append((str(KofN(n - number, n)), float(rates.mean()), p_value))
        if p_value > 1 - confidence:
            break
        chosen = number
    rates = losses[chosen]
    if chosen == 0 < n - 1:
        _warn_of_no_caution(len(rates), at_most, confidence, tried[-1], measure)
    delta = 1 - confidence
    bound = binomial_upper_bound(int(rates.sum()), len(rates), delta) if exact else upper_bound(rates, delta)
    bound = min(bound, at_most) if chosen else 0.0  # the ordinary level never departs
    level, rate = KofN(n - chosen, n), float(rates.mean())
    return Calibration(level, rate, bound, at_most, confidence, tuple(tried), str(measure), len(rates))


def _calibrated_rule(rule: FallbackRule, scores: Tensor, at_most: float, confidence: float) -> Calibration:
    """The lowest threshold that is shown to refer at most that share, by the scores [B] of familiar states.

    Above the j-th smallest of B scores lies more than `at_most` of all familiar states with probability
    P(Bin(B, at_most) <= B - j), whatever their distribution (Wilks, 1941).
    """
    count, ordered = len(scores), scores.sort().values
    p_values = [binomial_p_value(above, count, at_most) for above in range(count)]  # they rise
    allowed = sum(p_value <= 1 - confidence for p_value in p_values) - 1  # so many states may be above the threshold
    threshold = math.inf if allowed < 0 else float(ordered[count - 1 - allowed])
    if math.isinf(threshold):
        _warn_of_no_referral(count, at_most, confidence, int(scores.isinf().sum()))
    above = int((scores > threshold).sum())
    rate = above / count
    bound = 0.0 if math.isinf(threshold) else min(binomial_upper_bound(above, count, 1 - confidence), at_most)
    tried = ((f"{threshold:.4g}", rate, p_values[max(allowed, 0)]),)
    level = rule.policy.level
    return Calibration(level, rate, bound, at_most, confidence, tried, str(Measure.DECISIONS), count, threshold)


def _too_few(num_states: int, at_most: float, confidence: float) -> str:
    """What so few states can show, and how many more it takes; nothing if they are enough."""
    needed = math.log(1 - confidence) / math.log1p(-at_most)  # (1 - at_most)^B <= 1 - confidence; may be infinite
    if num_states >= needed:
        return ""
    enough = f"give at least {math.ceil(needed)}, or" if needed <= LARGEST_COUNT else "no number of states is enough:"
    likely = -math.expm1(num_states * math.log1p(-at_most))
    return (
        f"familiar_states: {num_states} are too few to show a rate of at most {at_most:g} with confidence {confidence:g}; "
        f"{enough} allow more. If nothing departs in any of them, {num_states} show at most "
        f"{smallest_rate(num_states, confidence):.2g} with this confidence, or at most {at_most:g} with confidence "
        f"{likely:.2g}. To use the states of the training too, pass them with their rewards (cross-fitting)."
    )


def _warn_of_no_caution(
    num_states: int, at_most: float, confidence: float, failed: tuple[str, float, float], measure: Measure
) -> None:
    """Say why the ordinary level came out: too few states to show any rate, even nought, or models that differ too much."""
    text = _too_few(num_states, at_most, confidence)
    if not text:
        level, rate, _ = failed
        what = f"takes another action than ordinarily in {rate:.3g} of"
        what = f"departs by {rate:.3g} on" if measure == Measure.TOTAL_VARIATION else what
        text = (
            f"no cautious level could be shown to depart by at most {at_most:g}: {level} {what} the {num_states} familiar "
            "states. Allow more (at_most), give more states, or train models that agree better where things are familiar (more "
            "data, more epochs). With a safe action, a cautious.FallbackRule can be calibrated to any rate."
        )
    warnings.warn(f"{text} The ordinary level came out.", CalibrationWarning, stacklevel=4)


def _warn_of_no_referral(num_states: int, at_most: float, confidence: float, departing: int) -> None:
    text = _too_few(num_states, at_most, confidence) or (
        f"the rule's own policy departs from ordinary behaviour in {departing} of {num_states} familiar states, more than "
        f"{at_most:g} allows whatever the threshold; give the rule a less cautious policy, or a belief for the ordinary one."
    )
    warnings.warn(f"{text} A threshold that refers nothing came out.", CalibrationWarning, stacklevel=4)
