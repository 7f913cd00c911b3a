"""Normalised discounted safety statistics of driving policies, by exact solve: no roll-outs, no noise."""

from __future__ import annotations

import torch
from torch import Tensor

from cautious_paper.worlds.driving import DrivingWorld
from cautious_paper.worlds.driving_rules import FEATURES


def safety_statistics(world: DrivingWorld, policy: Tensor) -> dict[str, Tensor]:
    """Each feature's normalised discounted sum under a policy, F(π) = (1-γ) E[Σ γ^t f(S_t, A_t, S_t+1)].

    Args:
        world: The driving world.
        policy: [..., S, A].

    Returns:
        Values [...] by name: those of the world's features, and ``speed_at_collision``, the collision speed divided by the
        collisions (NaN where nothing is ever hit).
    """
    occupancy = world.mdp.occupancy(policy)
    statistics = {name: (occupancy * world.features[name]).sum(dim=(-2, -1)) for name in FEATURES}
    hits = statistics["collisions"]
    statistics["speed_at_collision"] = torch.where(
        hits > 1e-12, statistics["collision_speed"] / hits.clamp(min=1e-12), torch.nan
    )
    return statistics
