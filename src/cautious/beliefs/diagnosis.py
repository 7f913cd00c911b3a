"""A look at a belief on familiar states that no model has seen: does it fit, and do its models differ at all?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

POOR = 0.5
"""An ensemble whose mean explains less than this share of the rewards' variance has not learned them."""

NARROW = 0.02
"""Models that differ by less than this share of the rewards' deviation hardly differ."""


class BeliefWarning(UserWarning):
    """A belief looks too narrow or too poor to be cautious with."""


@dataclass(frozen=True)
class Diagnosis:
    """How a belief does on familiar states that were kept back."""

    num_states: int
    error: float
    """Root mean squared error of the models' mean."""
    member_error: float
    """The same of a single model, on average."""
    disagreement: float
    """Standard deviation between the models, on average: small where familiar, and to be compared with novel states."""
    reward_deviation: float
    """Standard deviation of the rewards themselves, action by action: what guessing each action's mean would miss by."""
    concerns: tuple[str, ...]
    """What looks wrong, in words; empty if nothing does."""


def diagnose(rewards: Tensor, targets: Tensor) -> Diagnosis:
    """Compare what M models say with what was paid, where it is known.

    Args:
        rewards: [M, S, A].
        targets: [S, A], NaN where unknown.
    """
    said, paid = rewards.double(), targets.double()
    known = ~paid.isnan()
    errors = (said.mean(dim=0) - paid)[known]
    member = (said - paid)[:, known]
    centred = paid - paid.nanmean(dim=0).nan_to_num()
    deviation = float(centred[known].square().mean().sqrt()) if bool(known.any()) else 0.0
    spread = said.std(dim=0, correction=0)[known] if len(said) > 1 else torch.zeros(1)
    error, disagreement = float(errors.square().mean().sqrt()), float(spread.mean())
    concerns = []
    if deviation > 0 and error > (1 - POOR) ** 0.5 * deviation:
        concerns.append(
            f"the models do not fit the familiar data: on states kept back their mean is off by {error:.3g}, where guessing "
            f"each action's mean is off by {deviation:.3g}. Train longer, or give them more data or a larger network."
        )
    if disagreement < NARROW * max(deviation, 1e-12) and error > disagreement:
        concerns.append(
            f"the models hardly differ: by {disagreement:.2g} on states kept back, while they are off by {error:.2g}. Caution "
            "comes out of disagreement; a belief this narrow has little to give."
        )
    return Diagnosis(len(paid), error, float(member.square().mean().sqrt()), disagreement, deviation, tuple(concerns))
