"""The units of a user's numbers: features and rewards come as they were measured, a network meets them about as large as 1.

Rewards have one unit for all actions, or, with a prior, each action has its own mean and deviation. Models then learn every
action as well as any other, and one that always paid the same is predicted to pay that anywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ROUNDING = torch.finfo(torch.float32).eps
"""What varies by less than this share of its mean is constant, if it comes in float32: the rest is rounding."""
ENOUGH = 20
"""From so many tries on, an action's own rewards say how much it varies."""
ROUNDING_FLOAT64 = 2.0**-45
"""The same of features in float64, with room for the steps that they were computed in."""


@dataclass(frozen=True)
class Standardizer:
    """What a state's numbers are shifted and divided by, and what rewards are (shifted and) divided by."""

    shift: tuple[float, ...]
    """Of each feature."""
    scale: tuple[float, ...]
    """Of each feature, above zero."""
    reward: float = 1.0
    """Of all actions alike, above zero."""
    actions: tuple[tuple[float, float], ...] | None = None
    """Mean and deviation of each action's rewards, where each has a unit of its own: `reward` then plays no part."""

    @classmethod
    def plain(cls, num_features: int) -> Standardizer:
        """Numbers as they are."""
        return cls((0.0,) * num_features, (1.0,) * num_features)

    @classmethod
    def of(cls, states: Tensor, rewards: Tensor, *, each_action: bool = False) -> Standardizer:
        """From training data: each feature's mean and deviation, [S, F]; the deviation of the rewards known, [S, A].

        With `each_action`, the mean and deviation of each action's rewards too.

        What is constant has scale 1, or one that leaves nothing of its rounding.
        """
        rounding = ROUNDING if states.dtype == torch.float32 else ROUNDING_FLOAT64
        rows = states.double()
        mean, deviation = rows.mean(dim=0), rows.std(dim=0, correction=0)
        scale = torch.where(deviation > rounding * mean.abs(), deviation, (deviation / ROUNDING).clamp(min=1.0))
        actions = None
        if each_action:
            means, own = rewards.double().nanmean(dim=0), deviations(rewards)
            smallest = shared_deviation(rewards) / (~rewards.isnan()).sum(dim=0)
            scales = torch.where(own > ROUNDING * means.abs(), own, smallest)  # of a constant, any unit will do
            actions = tuple(zip(means.tolist(), scales.tolist(), strict=True))
        return cls(tuple(mean.tolist()), tuple(scale.tolist()), shared_deviation(rewards), actions)

    @classmethod
    def read(cls, found: Any, num_features: int) -> Standardizer | None:
        """What `describe` wrote; plain where nothing is (early files), None where it is something else."""
        if found is None:
            return cls.plain(num_features)
        entries = found if isinstance(found, dict) else {}
        shift, scale, reward, actions = (entries.get(name) for name in cls.__annotations__)
        lists = all(isinstance(part, list) and len(part) == num_features for part in (shift, scale))
        if not lists or not _numbers(*shift) or not _numbers(*scale, reward) or min(*scale, reward) <= 0:  # type: ignore[misc]
            return None
        if actions is not None and not _is_pairs(actions):
            return None
        own = None if actions is None else tuple((mean, deviation) for mean, deviation in actions)
        return cls(tuple(shift), tuple(scale), reward, own)  # type: ignore[arg-type]

    def describe(self) -> dict[str, Any]:
        """As a file has it."""
        own = {} if self.actions is None else {"actions": [list(pair) for pair in self.actions]}
        return {"shift": list(self.shift), "scale": list(self.scale), "reward": self.reward, **own}


def deviations(rewards: Tensor) -> Tensor:
    """The deviation of each action's own rewards, [S, A] -> [A], float64; NaN is no reward.

    Three equal rewards are no certainty: for an action with few tries, n < `ENOUGH`, at least 1/n of the deviation of all
    rewards, by which one more try could have moved its mean.
    """
    known = ~rewards.isnan()
    count = known.sum(dim=0)
    centred = torch.where(known, rewards.double() - rewards.double().nanmean(dim=0), 0.0)
    own = (centred.square().sum(dim=0) / count).sqrt()
    return torch.maximum(own, torch.where(count < ENOUGH, shared_deviation(rewards) / count, 0.0))


def shared_deviation(rewards: Tensor) -> float:
    """The deviation of all rewards known, 1 where all are the same but for rounding."""
    paid = rewards[~rewards.isnan()].double()
    spread = float(paid.std(correction=0))
    return spread if spread > ROUNDING * abs(float(paid.mean())) else 1.0


def _is_pairs(actions: Any) -> bool:
    """Whether it is a list of means and deviations, all deviations above zero."""
    return isinstance(actions, list) and all(
        isinstance(pair, list) and len(pair) == 2 and _numbers(*pair) and pair[1] > 0 for pair in actions
    )


def _numbers(*values: Any) -> bool:
    return all(type(value) is float and math.isfinite(value) for value in values)
