"""A look at a belief: does it fit familiar states that were kept back, and do its models differ where nothing is familiar?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cautious.seeding import stream

POOR = 0.5
"""An ensemble whose mean explains less than this share of the rewards' variance has not learned them."""

NARROW = 0.02
"""Models that differ by less than this share of the rewards' deviation hardly differ."""

NUM_MADE_UP = 100
"""States of each kind that are made up to look at a belief with."""


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


def unfamiliar_states(states: Tensor, seed: int = 0) -> Tensor:
    """States made up from familiar ones [S, ...] that are like none of them, [2U, ...].

    The first half mixes: each feature comes from another state. The second half of numbers goes beyond what was seen, three
    times each feature's range; of images (bytes), it has each one's pixels in another order.
    """
    rng = stream(seed, "unfamiliar states")
    rows = states.flatten(1).cpu()
    shape = (NUM_MADE_UP, rows.shape[1])
    mixed = rows.gather(0, torch.from_numpy(rng.integers(len(rows), size=shape)))
    luck = torch.from_numpy(rng.random(shape))
    if states.dtype == torch.uint8:
        beyond = rows[torch.from_numpy(rng.integers(len(rows), size=NUM_MADE_UP))].gather(1, luck.argsort(dim=1))
    else:
        low, high = rows.amin(dim=0), rows.amax(dim=0)
        beyond = (low + (high - low) * (3 * luck - 1)).to(rows.dtype)
    return torch.cat([mixed, beyond]).unflatten(1, states.shape[1:])


def diagnose(rewards: Tensor, targets: Tensor, unfamiliar: Tensor) -> Diagnosis:
    """Compare what M models say with what was paid, where it is known; and with each other, where nothing is.

    Args:
        rewards: On familiar states that were kept back, [M, S, A].
        targets: [S, A], NaN where unknown.
        unfamiliar: On `unfamiliar_states`, [M, U, A]; what is not finite does not count.
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
            "belief has little to give. Let each model start from weights of its own, and use a network that the data does "
            "not settle everywhere (a larger one, or less weight decay)."
        )
    return Diagnosis(len(paid), error, _root_mean_square(member), familiar, elsewhere, deviation, tuple(concerns))


def _root_mean_square(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
