"""How far a belief's models disagree in familiar states: the unit of their disagreement elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.ops.disagreement import predictive_quantile
from cautious.validation import as_number

SHARE = 0.95
"""A disagreement of 1 is what this share of familiar states stays below."""
FEWEST = 6
"""Fewer states than this make no unit: an unlucky draw of three puts a good part of all familiar states above 1."""
MOST = 1000
"""States kept at most, evenly spaced among those given: more would only make files longer."""


@dataclass(frozen=True)
class FamiliarSpread:
    """How far a belief's models disagree (`ops.disagreement.model_spread`) in familiar states that none was trained on."""

    spreads: tuple[float, ...]
    """One number per state, from small to large."""

    @classmethod
    def of(cls, spreads: Tensor) -> FamiliarSpread | None:
        """From the spreads of familiar states [B]; None if they are too few to make a unit of (`FEWEST`)."""
        if len(spreads) < FEWEST:
            return None
        step = max(1, math.ceil(len(spreads) / MOST))
        return cls(tuple(sorted(spreads[::step].tolist())))

    @cached_property
    def unit(self) -> float:
        """The spread that 95 % of familiar states stay below (`ops.disagreement.predictive_quantile`)."""
        return predictive_quantile(torch.tensor(self.spreads, dtype=torch.float64), SHARE)

    def threshold(self, at_most: float) -> float:
        """The disagreement that at most this share of familiar states exceeds, on average over the states that were held out.

        Args:
            at_most: In (0, 1); 0.05 gives 1, by the definition of the unit.
        """
        if not 0 < as_number(at_most) < 1:
            raise InvalidInputError(f"at_most={at_most!r} must be between 0 and 1, both excluded.")
        spread = predictive_quantile(torch.tensor(self.spreads, dtype=torch.float64), 1 - at_most)
        return float(in_units_of(self, torch.tensor([spread], dtype=torch.float64))[0])

    def describe(self) -> list[float]:
        """As a file has it."""
        return list(self.spreads)

    @classmethod
    def read(cls, described: Any) -> FamiliarSpread | None:
        """What `describe` wrote; None where a file has none or too few; `InvalidInputError` for anything else."""
        if described is None:
            return None
        numbers = isinstance(described, list) and all(type(value) in (int, float) for value in described)
        if not numbers or not described or not all(0 <= value < math.inf for value in described):
            raise InvalidInputError(
                "familiar: expected numbers, zero or larger, how far the models differ in familiar states."
            )
        return cls.of(torch.tensor(described, dtype=torch.float64))


def in_units_of(familiar: FamiliarSpread | None, spread: Tensor) -> Tensor:
    """Spreads [...] in units of familiar ones; as they are, in units of the reward, where no familiar state is known.

    Where the models agree in every familiar state, any disagreement is infinitely more.
    """
    if familiar is None:
        return spread
    return torch.where(spread > 0, spread / familiar.unit, 0.0)
