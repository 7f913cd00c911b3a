"""The units of a user's numbers: features and rewards come as they were measured, a network meets them about as large as 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ROUNDING = torch.finfo(torch.float32).eps
"""What varies by less than this share of its mean is constant, if it comes in float32: the rest is rounding."""
ROUNDING_FLOAT64 = 2.0**-45
"""The same of features in float64, with room for the steps that they were computed in."""


@dataclass(frozen=True)
class Units:
    """What a state's numbers are shifted and divided by, and what rewards are divided by."""

    shift: tuple[float, ...]
    """Of each feature."""
    scale: tuple[float, ...]
    """Of each feature, above zero."""
    reward: float = 1.0
    """Of all actions alike, above zero."""

    @classmethod
    def plain(cls, num_features: int) -> Units:
        """Numbers as they are."""
        return cls((0.0,) * num_features, (1.0,) * num_features)

    @classmethod
    def of(cls, states: Tensor, rewards: Tensor) -> Units:
        """From training data: each feature's mean and deviation, [S, F]; the deviation of the rewards known, [S, A].

        What is constant has scale 1, or one that leaves nothing of its rounding.
        """
        rounding = ROUNDING if states.dtype == torch.float32 else ROUNDING_FLOAT64
        rows, paid = states.double(), rewards[~rewards.isnan()].double()
        mean, deviation = rows.mean(dim=0), rows.std(dim=0, correction=0)
        scale = torch.where(deviation > rounding * mean.abs(), deviation, (deviation / ROUNDING).clamp(min=1.0))
        spread = float(paid.std(correction=0))
        reward = spread if spread > ROUNDING * abs(float(paid.mean())) else 1.0
        return cls(tuple(mean.tolist()), tuple(scale.tolist()), reward)

    @classmethod
    def read(cls, found: Any, num_features: int) -> Units | None:
        """What `describe` wrote; plain where nothing is (early files), None where it is something else."""
        if found is None:
            return cls.plain(num_features)
        shift, scale, reward = (found.get(name) if isinstance(found, dict) else None for name in cls.__annotations__)
        lists = all(isinstance(part, list) and len(part) == num_features for part in (shift, scale))
        if not lists or not _numbers(*shift) or not _numbers(*scale, reward) or min(*scale, reward) <= 0:  # type: ignore[misc]
            return None
        return cls(tuple(shift), tuple(scale), reward)  # type: ignore[arg-type]

    def describe(self) -> dict[str, Any]:
        """As a file has it."""
        return {"shift": list(self.shift), "scale": list(self.scale), "reward": self.reward}


def _numbers(*values: Any) -> bool:
    return all(type(value) is float and math.isfinite(value) for value in values)
