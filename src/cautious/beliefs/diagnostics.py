"""A look at a belief: does it fit familiar states that were kept back, and do its models differ where nothing is familiar?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from torch import Tensor

from cautious.beliefs.novelty_probe import Care, unfamiliar_states
from cautious.errors import InvalidInputError

__all__ = ["BeliefWarning", "Diagnosis", "diagnose", "unfamiliar_states"]

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
"""The kind that lies inside the range of the data, and of which nothing is said by itself. Half-way between two clusters models
interpolate, and agree, whatever the prior: no setting cures it, so a warning would come with every such table;
`Diagnosis.departures` has the share, and 'cautious train' prints it."""

FEW = 20
"""Fewer made-up states than this show nothing about a policy."""


class BeliefWarning(UserWarning):
    """A belief looks too narrow or too poor to be cautious with."""


@dataclass(frozen=True)
class Diagnosis:
    """How a belief does on familiar states that were kept back, and on made-up ones that are like nothing seen."""

    num_states: int
    error: float
    """Root mean squared error of the models' mean."""
    member_error: float
    """The same of a single model, on average."""
    disagreement: float
    """Standard deviation between the models, on average: small where familiar, and rightly so."""
    unfamiliar_disagreement: float
    """The same on made-up states (`unfamiliar_states`): what caution is made of."""
    reward_deviation: float
    """Standard deviation of the rewards themselves, action by action: what guessing each action's mean would miss by."""
    concerns: tuple[str, ...]
    """What looks wrong, in words; empty if nothing does."""
    unfamiliar_departures: float = math.nan
    """On what share of made-up rows that are far from all familiar ones, and where caution would be worth it, 1-of-20 takes
    another action than ordinarily (`made_up.care_on`); NaN where there are none, or fewer than 20 models."""
    num_unfamiliar: int = 0
    """How many rows that is a share of."""
    departures: tuple[tuple[str, float, int], ...] = ()
    """The same by kind of made-up row: (kind, share, rows)."""

    def describe(self) -> dict[str, Any]:
        """As a file has it: what is not finite is left out."""
        return {name: part for name, part in asdict(self).items() if not isinstance(part, float) or math.isfinite(part)}

    @classmethod
    def read(cls, found: Any) -> Diagnosis | None:
        """What `describe` wrote; None where nothing is (files of before); `InvalidInputError` where it is something else."""
        if found is None:
            return None
        try:
            values = {part.name: found.get(part.name, math.nan if part.type == "float" else ()) for part in fields(cls)}
            for name, value in values.items():
                values[name] = {"concerns": _texts, "departures": _rows}.get(name, _number)(value)
            return cls(**values)
        except (AttributeError, TypeError, ValueError):
            raise InvalidInputError(
                "diagnosis: expected numbers and concerns, as RewardEnsemble.save writes them."
            ) from None


def diagnose(rewards: Tensor, targets: Tensor, unfamiliar: Tensor, care: tuple[Care, ...] = ()) -> Diagnosis:
    """Compare what M models say with what was paid, where it is known; and with each other, where nothing is.

    Args:
        rewards: On familiar states that were kept back, [M, S, A].
        targets: [S, A], NaN where unknown.
        unfamiliar: On `unfamiliar_states`, [M, U, A]; what is not finite does not count.
        care: What a cautious policy does on made-up rows, by kind (`made_up.care_on`).
    """
    said, paid = rewards.double(), targets.double()
    known = ~paid.isnan()
    errors = (said.mean(dim=0) - paid)[known]
    member = (said - paid)[:, known]
    centred = paid - paid.nanmean(dim=0).nan_to_num()
    deviation = _root_mean_square(centred[known])
    familiar = float(said.std(dim=0, correction=0)[known].mean())
    spread = unfamiliar.double().std(dim=0, correction=0)
    elsewhere = float(spread[spread.isfinite()].mean())
    error = _root_mean_square(errors)
    concerns = []
    if deviation > 0 and error > (1 - POOR) ** 0.5 * deviation:
        concerns.append(
            f"the models do not fit the familiar data: on states kept back their mean is off by {error:.3g}, where guessing "
            f"each action's mean is off by {deviation:.3g}. Train longer, or give them more data; or the "
            "rewards are that noisy, and nobody could do better."
        )
    scale = deviation or _root_mean_square(paid[known])
    if familiar < NARROW * scale and elsewhere < NARROW * scale:
        concerns.append(
            f"the models agree everywhere: they differ by {familiar:.2g} on familiar states and by {elsewhere:.2g} on made-up "
            f"ones that are like nothing seen, where rewards vary by {scale:.2g}. Caution comes out of disagreement, so this "
            "belief has little to give. Give the models a wider prior (prior=0.75 is the default for vectors, 0 is none); let "
            "each start from weights of its own; or use a network that the data does not settle everywhere (a larger one, or "
            "less weight decay)."
        )
    count = sum(kind.num_rows for kind in care)
    departing = sum(kind.num_departing for kind in care) / count if count else math.nan
    if count >= FEW and departing < BLIND:
        concerns.append(_blind("to novelty", [kind for kind in care if kind.num_rows]))
    else:
        unnoticed = [kind for kind in care if kind.num_rows >= FEW and kind.num_departing < UNNOTICED * kind.num_rows]
        concerns += [_blind("to a kind of novelty", [kind]) for kind in unnoticed if kind.name != INSIDE]
    return Diagnosis(
        len(paid),
        error,
        _root_mean_square(member),
        familiar,
        elsewhere,
        deviation,
        tuple(concerns),
        departing,
        count,
        tuple((kind.name, kind.num_departing / kind.num_rows, kind.num_rows) for kind in care if kind.num_rows),
    )


def _blind(what: str, kinds: Sequence[Care]) -> str:
    count, departing = sum(kind.num_rows for kind in kinds), sum(kind.num_departing for kind in kinds)
    return (
        f"the belief is blind {what}: on {count} made-up rows that are far from all familiar ones "
        f"({', '.join(kind.name for kind in kinds)}) 1-of-20 takes another action than ordinarily in "
        f"{100 * departing / count:.0f} %, though the models cannot know what pays there. The models differ too little, or "
        "about the wrong thing, for a k-of-N policy to notice what is new. Use a wider prior, or a rule that goes by "
        "Decision.disagreement if there is a safe action (cautious.FallbackRule); and look at rows that worry you."
    )


def _number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise TypeError(value)
    return value


def _texts(found: Any) -> tuple[str, ...]:
    if isinstance(found, str) or not all(isinstance(text, str) for text in found):
        raise TypeError(found)
    return tuple(found)


def _rows(found: Any) -> tuple[tuple[str, float, int], ...]:
    return tuple((str(name), float(share), int(rows)) for name, share, rows in found)


def _root_mean_square(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
