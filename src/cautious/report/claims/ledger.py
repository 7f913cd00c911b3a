"""The claims ledger: what the paper says, whether a run bears it out, and the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from cautious.experiments.store import Store

LAST = 20
"""Iterations whose mean is compared with that of as many before them (claim CV1)."""


@dataclass(frozen=True)
class ClaimResult:
    """One claim, judged."""

    claim: str
    says: str
    shown: bool | None
    """None: this run says nothing about it, or it is an observation."""
    numbers: str
    observation: bool = False
    """Whether it is no claim of the paper, but worth seeing beside one. Nothing is judged then."""

    @property
    def word(self) -> str:
        """The verdict in words."""
        return "observation" if self.observation else {True: "shown", False: "not shown", None: "not run"}[self.shown]


def levels_off(sampled_values: Mapping[str, Tensor]) -> ClaimResult:
    """CV1: mean of the last 20 iterations within 5 % of the range of that of the 20 before, at every level.

    Args:
        sampled_values: where they were measured -> value under the sampled rewards, [L, R, T].
    """
    says = "the value under the sampled rewards levels off well before T = 100"
    num_iterations = min((values.shape[-1] for values in sampled_values.values()), default=0)
    if num_iterations < 3 * LAST:
        return ClaimResult("CV1", says, None, f"{num_iterations} iterations are too few to tell")
    shares = {place: _late_change(values) for place, values in sampled_values.items()}
    place = max(shares, key=lambda name: shares[name])
    text = f"largest change {100 * shares[place]:.1f} % of a curve's range"
    return ClaimResult("CV1", says, shares[place] <= 0.05, f"{text} ({place})" if place else text)


def _late_change(sampled_value: Tensor) -> float:
    """Largest late change of a level's curve, as a share of that curve's range."""
    curves = sampled_value.mean(dim=1)  # [L, T], over runs
    change = (curves[:, -LAST:].mean(dim=1) - curves[:, -2 * LAST : -LAST].mean(dim=1)).abs()
    reach = curves.amax(dim=1) - curves.amin(dim=1)
    return float((change / reach.clamp(min=1e-12)).max())


def trained_on(store: Store, stage: str) -> str:
    """The hardware that a belief was trained on; stores of before it was kept name the device only."""
    numbers = store.numbers(stage)
    if "hardware" in numbers:
        return str(numbers["hardware"])
    hardware = store.manifest["hardware"]
    return str(hardware["gpu"] if str(numbers.get("device", "")).startswith("cuda") else hardware["cpu"])
