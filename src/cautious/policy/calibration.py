"""Calibration: the most cautious level that changes at most a given share of familiar decisions, with a guarantee."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.disagreement import FamiliarDisagreement, in_units_of
from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.fit import refit, with_needed
from cautious.errors import Advice, Argument, InvalidInputError, WordedWarning
from cautious.ops.rates import (
    above_p_value,
    average_bound,
    binomial_p_value,
    binomial_upper_bound,
    mean_upper_bound,
    more_states_needed,
    smallest_rate,
)
from cautious.policy.decision import Decision
from cautious.policy.fallback import FallbackRule
from cautious.policy.policy import CautiousPolicy
from cautious.policy.rows import read_states, reads_rows
from cautious.progress import Progress, as_progress
from cautious.risk import KofN, RiskMeasure, as_k_of_n
from cautious.seeding import make_rng
from cautious.tables.frames import as_table, is_named
from cautious.tables.learn import reward_columns, same_rows
from cautious.tables.payoffs import numbers_of_labels
from cautious.tables.schema import StateRows
from cautious.validation import (
    LARGEST_COUNT,
    as_float_tensor,
    as_number,
    check_shape,
    images_are_bytes,
    parse_choice,
    parse_count,
)


class CalibrationWarning(WordedWarning):
    """A dial could not be calibrated with the states given."""


class Measure(StrEnum):
    """What is bounded on familiar states."""

    DECISIONS = "decisions"
    """The share of decisions that depart: whose most likely action is none that the ordinary policy takes."""
    TOTAL_VARIATION = "total-variation"
    """The mean caution: the share of departing actions where they are drawn from the policy (`deterministic=False`)."""


class Guarantee(StrEnum):
    """The kind of guarantee."""

    CONFIDENCE = "confidence"
    """With the given confidence, over the draw of the familiar states, the rate is at most `at_most`."""
    AVERAGE = "average"
    """On average over that draw the rate is at most `at_most`: above it for some draws, below for others."""


@dataclass(frozen=True)
class Calibration:
    """The level to use (of a rule, the threshold), and what is known about it."""

    level: RiskMeasure
    """The level that was found; for a `FallbackRule`, the level of its policy, which calibration does not change."""
    rate: float
    """The share of the familiar states given in which it departs from ordinary behaviour; with
    ``measure="total-variation"`` the mean caution there. With ``guarantee="average"`` `bound` may say more than this rate
    would: a state also counts there if a less cautious level departs in it."""
    bound: float
    """What the rate on all familiar states is below (`at_most`, or less). Approximate: the promise is `at_most`. Fixed-sequence
    testing protects `at_most` alone; a bound below it is that of the chosen level as if no other had been tried."""
    at_most: float
    confidence: float
    tried: tuple[tuple[str, float, float], ...]
    """(level, rate, p-value of "the rate is above `at_most`") from ordinary to cautious, up to the first that failed.

    On average, the rate to expect in place of the p-value. Of a rule, its threshold alone."""
    measure: str = "decisions"
    num_states: int = 0
    """How many familiar states the rate is of."""
    threshold: float | None = None
    """For a `FallbackRule`: the disagreement above which it takes its safe action; infinite where nothing could be shown."""
    guarantee: str = "confidence"
    more_states: int | None = None
    """How many more familiar states would allow the next level, if it departs in them as often as in those given; None where no
    number would (it departs too often), where there is no next level, or with ``measure="total-variation"``."""


def calibrate(
    policy: CautiousPolicy | FallbackRule | Any,
    familiar_states: Any,
    rewards: Any = None,
    *,
    labels: Any = None,
    at_most: float = 0.05,
    confidence: float = 0.95,
    measure: str = "decisions",
    guarantee: str = "confidence",
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
            Rows of a frame that no model can judge are left out, with a warning: they get no decision of a level.
        rewards: With it no states need to be set aside (cross-fitting): `familiar_states` are then those of the training, and
            this is what actions paid in them, [S, A] as `fit_ensemble` takes it. The belief is trained again `folds` times,
            each time without a part of the states, and decides about that part. The promise then is about beliefs that are
            trained on a little less, and its confidence is approximate: the parts' decisions are not quite independent.
        labels: The same for a belief that was trained on labels: what each of `familiar_states` turned out to be, [S].
        at_most: The rate that is allowed, in (0, 1).
        confidence: How certain to be, in (0, 1). With fewer states than these two need, it warns and returns n-of-n.
        measure: "decisions"; or "total-variation", to bound the mean caution (`Decision.caution`) instead, for policies whose
            actions are drawn (`predict(deterministic=False)`).
        guarantee: "confidence"; or "average", a weaker promise that few states can keep: the next familiar decision departs
            with probability at most `at_most`, over the draw of the states too (conformal risk control). 5 % takes 19 states.
        folds: With `rewards`: into how many parts to cut the states.
        progress: True shows a line; or a function that is told (steps done, steps in all); False is silent.

    Returns:
        `Calibration`. What is given stays as it is: the policy to use is ``CautiousPolicy(belief, found.level)``, the rule
        ``FallbackRule(belief, action, threshold=found.threshold)``.
    """
    checked = _as_policy(policy)
    for name, value in (("at_most", at_most), ("confidence", confidence)):
        if not 0 < as_number(value) < 1:
            raise InvalidInputError(Argument(name, value), " must be between 0 and 1, both excluded.")
    kind, promise = parse_choice(Measure, measure, "measure"), parse_choice(Guarantee, guarantee, "guarantee")
    report = as_progress(progress, "calibrating")
    familiar_states, rewards = _by_name(checked, familiar_states, rewards, labels)
    if isinstance(checked, FallbackRule):
        if kind != Measure.DECISIONS:
            raise InvalidInputError(Argument("measure", measure), ": a FallbackRule has decisions only; leave it out.")
        scores = on_fresh_states(partial(_scores, checked), checked.policy, familiar_states, rewards, folds, report)
        return _calibrated_rule(checked, scores, at_most, confidence, promise)
    level = as_k_of_n(
        checked.level, "calibrate tries the levels from n-of-n to 1-of-n; give the policy one such as 1-of-20"
    )
    losses = on_fresh_states(partial(_losses, kind), checked, familiar_states, rewards, folds, report)
    return _calibrated_level(level.n, losses, at_most, confidence, kind, promise)


def _as_policy(policy: Any) -> CautiousPolicy | FallbackRule:
    if isinstance(policy, (CautiousPolicy, FallbackRule)):
        return policy
    if not callable(getattr(policy, "rewards", None)):
        raise InvalidInputError(
            f"policy is a {type(policy).__name__}; pass a cautious.CautiousPolicy, a cautious.FallbackRule or a belief."
        )
    return CautiousPolicy(policy)


def _by_name(policy: CautiousPolicy | FallbackRule, states: Any, rewards: Any, labels: Any) -> tuple[Any, Any]:
    """Frames and dictionaries of columns as arrays in the order of the training, without rows that cannot be judged.

    What comes back beside the states is what each action paid [S, A]; or each row's label as a number [S]; or None.
    """
    own = policy.policy if isinstance(policy, FallbackRule) else policy
    belief = getattr(own, "belief", None)
    has_labels = getattr(belief, "labels", None) is not None
    if (labels is not None and not has_labels) or (rewards is not None and has_labels):
        given, learned = ("labels", "rewards") if rewards is None else ("rewards", "labels")
        raise InvalidInputError(f"{given}: the belief was trained on {learned}; pass {learned}=... as in its training.")
    if not isinstance(belief, RewardEnsemble):
        return (_without_bad_rows(read_states(belief, states)) if reads_rows(belief) else states), rewards
    if labels is not None:
        count = len(as_table(states, "states")) if is_named(states) else len(states)
        rewards = numbers_of_labels(same_rows(states, labels, "labels"), belief.labels or (), count)
    else:
        rewards = same_rows(states, rewards)
    if is_named(rewards):
        _, rewards = reward_columns(rewards, belief.actions)
    if not is_named(states) or belief.columns is None:
        return belief.as_trained(states), rewards
    rows = read_states(belief, states)
    usable = _without_bad_rows(rows)
    if rewards is not None and rows.problems.cells:
        if labels is None:
            rewards = as_float_tensor(rewards, "rewards")
            check_shape(rewards, "S A", "rewards", S=len(rows.problems.table), A=belief.num_actions)
        rewards = rewards[rows.problems.usable]
    return usable, rewards


def _without_bad_rows(rows: StateRows) -> Any:
    """The rows that can be judged; warns of the others, which get no decision of a level."""
    if rows.problems.cells:
        warnings.warn(f"{rows.problems}; they are left out.", CalibrationWarning, stacklevel=4)
        if not len(rows.states):
            raise InvalidInputError(f"familiar_states: no row is left; {rows.problems}.")
    return rows.states


def _losses(measure: Measure, policy: CautiousPolicy, states: Any, progress: Progress | None) -> Tensor:
    """How far each level from n-of-n to 1-of-n departs in each state, [L, B], in [0, 1]."""
    n = as_k_of_n(policy.level, "calibrate tries the levels from n-of-n to 1-of-n").n
    levels = [KofN(k, n) for k in range(n, 0, -1)]
    decisions = _decided(policy, levels, states, progress)
    return torch.stack(
        [each.caution if measure == Measure.TOTAL_VARIATION else each.departs.double() for each in decisions]
    )


def _scores(rule: FallbackRule, policy: CautiousPolicy, states: Any, progress: Progress | None) -> Tensor:
    """The disagreement above which a rule refers each state, [B]; infinite where its policy departs whatever the threshold.

    In units of the rule's own belief, also where `policy` has another, trained on a part of the states.
    """
    [decision] = _decided(policy, [policy.level], states, None)
    unit = None if policy.familiar is not None else rule.policy.familiar  # one trained again may have none of its own
    return torch.where(decision.departs, torch.inf, in_units_of(unit, decision.disagreement))


def _decided(
    policy: CautiousPolicy, levels: Sequence[RiskMeasure], states: Any, progress: Progress | None
) -> list[Decision]:
    """What levels decide about states that all can be judged."""
    decisions = policy.decide_at(levels, states, progress=progress)
    if decisions[0].problems is not None:
        raise InvalidInputError(f"{decisions[0].problems}. Leave these rows out: no level decides about them.")
    return decisions


def _calibrated_level(
    n: int, losses: Tensor, at_most: float, confidence: float, measure: Measure, guarantee: Guarantee
) -> Calibration:
    """The most cautious level that is shown to stay below, by losses [L, B] from n-of-n to 1-of-n."""
    limit = at_most if guarantee == Guarantee.AVERAGE else 1 - confidence
    shown: Callable[[Tensor], float]
    bounded: Callable[[Tensor], float]
    counted = losses
    if guarantee == Guarantee.AVERAGE:
        counted = losses.cummax(dim=0).values  # what departs at a weaker level counts: losses must grow with caution
        shown = bounded = _to_expect
    elif measure == Measure.DECISIONS:
        shown, bounded = partial(_exact_p_value, rate=at_most), partial(_exact_bound, delta=limit)
    else:
        shown, bounded = partial(above_p_value, threshold=at_most), partial(mean_upper_bound, delta=limit)
    tried, chosen = [], 0
    for number, level_losses in enumerate(losses):
        value = shown(counted[number]) if number else 0.0  # the ordinary level never departs
        tried.append((str(KofN(n - number, n)), float(level_losses.mean()), value))
        if value > limit:
            break
        chosen = number
    chosen_losses = losses[chosen]
    if chosen == 0 < n - 1:
        count = len(chosen_losses)
        _warn_of_no_caution(_too_few(count, at_most, confidence, guarantee), count, at_most, tried[-1], measure)
    bound = min(bounded(counted[chosen]), at_most) if chosen else 0.0
    level, rate = KofN(n - chosen, n), float(chosen_losses.mean())
    kinds = str(measure), len(chosen_losses), None, str(guarantee)
    more = None
    if chosen + 1 < n and measure == Measure.DECISIONS:
        more = _more_states(int(counted[chosen + 1].sum()), len(chosen_losses), at_most, limit, guarantee)
    return Calibration(level, rate, bound, at_most, confidence, tuple(tried), *kinds, more)


def _more_states(count: int, total: int, at_most: float, limit: float, guarantee: Guarantee) -> int | None:
    """How many more states allow a level that departs in `count` of `total`, if it goes on departing as often."""
    if guarantee == Guarantee.AVERAGE:
        return more_states_needed(count, total, lambda above, states: average_bound(above, states) <= limit)
    return more_states_needed(count, total, lambda above, states: binomial_p_value(above, states, at_most) <= limit)


def _to_expect(losses: Tensor) -> float:
    return average_bound(float(losses.sum()), len(losses))


def _exact_p_value(losses: Tensor, rate: float) -> float:
    return binomial_p_value(int(losses.sum()), len(losses), rate)


def _exact_bound(losses: Tensor, delta: float) -> float:
    return binomial_upper_bound(int(losses.sum()), len(losses), delta)


def _calibrated_rule(
    rule: FallbackRule, scores: Tensor, at_most: float, confidence: float, guarantee: Guarantee
) -> Calibration:
    """The lowest threshold that is shown to refer at most that share, by the scores [B] of familiar states.

    Above the j-th smallest of B scores lies more than `at_most` of all familiar states with probability
    P(Bin(B, at_most) <= B - j), whatever their distribution (Wilks, 1941); and on average at most (B - j + 1) / (B + 1).
    """
    count, ordered = len(scores), scores.sort().values
    if guarantee == Guarantee.AVERAGE:
        limit, values = at_most, [average_bound(above, count) for above in range(count)]
    else:
        limit, values = 1 - confidence, [binomial_p_value(above, count, at_most) for above in range(count)]
    allowed = sum(value <= limit for value in values) - 1  # the values rise; so many states may be above the threshold
    threshold = math.inf if allowed < 0 else float(ordered[count - 1 - allowed])
    if math.isinf(threshold):
        few = _too_few(count, at_most, confidence, guarantee)
        _warn_of_no_referral(few, count, at_most, int(scores.isinf().sum()), rule.policy.familiar)
    above = int((scores > threshold).sum())
    average = guarantee == Guarantee.AVERAGE
    bound = average_bound(above, count) if average else binomial_upper_bound(above, count, 1 - confidence)
    bound = 0.0 if math.isinf(threshold) else min(bound, at_most)
    tried = ((f"{threshold:.4g}", above / count, values[max(allowed, 0)]),)
    kinds = str(Measure.DECISIONS), count, threshold, str(guarantee)
    return Calibration(rule.policy.level, above / count, bound, at_most, confidence, tried, *kinds)


def _too_few(num_states: int, at_most: float, confidence: float, guarantee: Guarantee) -> tuple[Any, ...]:
    """What so few states can show, and how many more it takes, as parts of a message; nothing if they are enough."""
    on_average = math.ceil(1 / at_most - 1 - 1e-9) if at_most > 1 / LARGEST_COUNT else math.inf
    needed = math.log(1 - confidence) / math.log1p(-at_most)  # (1 - at_most)^B <= 1 - confidence; may be infinite
    needed = on_average if guarantee == Guarantee.AVERAGE else needed
    if num_states >= needed:
        return ()
    enough = "no number of states is enough:"
    if needed <= LARGEST_COUNT:
        enough = f"give at least {math.ceil(needed)}, {math.ceil(needed) - num_states} more, or"
    few = f"familiar_states: {num_states} are too few to show a rate of at most {at_most:g}"
    if guarantee == Guarantee.AVERAGE:
        return (f"{few} on average; {enough} allow more.",)
    likely = -math.expm1(num_states * math.log1p(-at_most))
    average: tuple[Any, ...] = ()
    if on_average <= num_states:
        average = (" On average (", Advice("guarantee", "average"), f") {on_average} are enough.")
    return (
        f"{few} with confidence {confidence:g}; {enough} allow more. If nothing departs in any of them, {num_states} show at "
        f"most {smallest_rate(num_states, confidence):.3g} with this confidence, or at most {at_most:g} with confidence "
        f"{likely:.3g}.",
        *average,
        " To use the states of the training too, pass them with their rewards (cross-fitting).",
    )


def _warn_of_no_caution(
    few: tuple[Any, ...], num_states: int, at_most: float, failed: tuple[str, float, float], measure: Measure
) -> None:
    """Say why the ordinary level came out: there are too few states to show even a rate of 0, or the models differ too much."""
    level, rate, _ = failed
    what = f"takes another action than ordinarily in {rate:.3g} of"
    what = f"departs by {rate:.3g} on" if measure == Measure.TOTAL_VARIATION else what
    parts = few or (
        f"no cautious level could be shown to depart by at most {at_most:g}: {level} {what} the {num_states} familiar states. "
        "Allow more (",
        Argument("at_most"),
        "), give more states, or train models that agree better where things are familiar (more data, more "
        "epochs). With a safe action, a cautious.FallbackRule can be calibrated to any rate.",
    )
    warnings.warn(CalibrationWarning(*parts, " The ordinary level came out."), stacklevel=4)


def _warn_of_no_referral(
    few: tuple[Any, ...], num_states: int, at_most: float, num_infinite: int, unit: FamiliarDisagreement | None
) -> None:
    """Say why no finite threshold came out: too few states, a unit of 0, or a policy that departs by itself."""
    if unit is not None and unit.unit == 0:  # wherever the policy departs, models differ: this comes first
        cause = (
            f"disagreement is infinite in {num_infinite} of {num_states} familiar states, more than {at_most:g} allows: its "
            "unit is 0, because the models agree in the states that were held out to set it. Give states in which they "
            "differ: CautiousPolicy(belief, familiar_states=...)."
        )
    else:
        cause = (
            f"the rule's own policy departs from ordinary behaviour in {num_infinite} of {num_states} familiar states, more "
            f"than {at_most:g} allows whatever the threshold; give the rule a less cautious policy, or a belief for the "
            "ordinary one."
        )
    rest = " The threshold returned is infinite: the safe action is never taken."
    warnings.warn(CalibrationWarning(*(few or (cause,)), rest), stacklevel=4)


# Cross-fitting: decisions about the training states by models that never saw them

Decide = Callable[[CautiousPolicy, Any, Progress | None], Tensor]
"""What is known of states under a policy's belief: (policy, states [B, ...], progress) -> [..., B]."""


def on_fresh_states(
    decide: Decide, policy: CautiousPolicy, states: Any, rewards: Any, folds: int, progress: Progress | None
) -> Tensor:
    """What `decide` says about states that no model saw: these, or with `rewards` those of the training, by cross-fitting.

    The states are cut into parts; for each, the belief is trained again without it and decides about it.

    Args:
        decide: The question about states.
        policy: The policy whose belief is asked.
        states: Familiar states, [S, ...].
        rewards: None if the belief was not trained on them; else what each action paid in them, [S, A], NaN where not tried;
            or, for a belief about labels, the number of each state's label, [S].
        folds: Number of parts.
        progress: Called with (parts done, parts in all) or, without `rewards`, as `decide` calls it.

    Returns:
        [..., S], in the order of the parts. The only sample of an action is always trained on, and so left out here.
    """
    if rewards is None:
        return decide(policy, states, progress)
    belief = policy.belief
    inputs = torch.as_tensor(states) if images_are_bytes(states) else as_float_tensor(states, "familiar_states")
    if not isinstance(belief, RewardEnsemble):
        raise InvalidInputError(
            "rewards: only a belief made by fit_ensemble can be retrained; omit `rewards`, and pass familiar states that the "
            "belief was not trained on."
        )
    if belief.labels is None:
        targets = as_float_tensor(rewards, "rewards")
        check_shape(targets, "S A", "rewards", S=len(inputs), A=belief.num_actions)
        known = ~targets.isnan()
    else:
        targets = rewards
        known = torch.nn.functional.one_hot(targets, len(belief.labels)) > 0
    count = parse_count(folds, "folds", 2)
    if count > len(inputs):
        raise InvalidInputError(Argument("folds", count), f" exceeds the {len(inputs)} states there are.")
    order = torch.from_numpy(make_rng(int(belief.settings.get("seed", 0)), "folds").permutation(len(inputs)))
    parts = []
    for fold in range(count):
        rest = torch.from_numpy(np.delete(np.arange(len(inputs)), order[fold::count].numpy()))
        familiar, left_out = with_needed(known, rest, order[fold::count])
        if len(left_out):  # none: each of these states is the only sample of some action, and so was trained on
            again = refit(belief, inputs[familiar], targets[familiar])
            parts.append(
                decide(CautiousPolicy.from_description(policy.describe(), again, None), inputs[left_out], None)
            )
        if progress is not None:
            progress(fold + 1, count)
    if not parts:
        raise InvalidInputError(
            Argument("folds", count), ": every part contains the only sample of some action; give more data."
        )
    return torch.cat(parts, dim=-1)
