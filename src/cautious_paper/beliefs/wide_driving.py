"""A belief about the wide road, trained on a log of its familiar part: a small network on what lies around the car.

As in the paper's driving experiment the models see pavement, ditches and obstacles, met obstacles in the ditches only, and are
a plain ensemble without a prior. Unlike there, a model sees the state and says what each action pays, since the next
state of a pair (s, s') would have to be drawn among too many.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.fit import fit_ensemble
from cautious_paper.worlds.wide_driving import WideDriving, logged_driving_rewards

LOG_PROBABILITY = 0.2
"""Of obstacles in the familiar world that is logged: enough of them in the ditches."""


def fit_wide_driving_belief(
    num_models: int = 32, num_epochs: int = 40, num_rows: int = 6000, seed: int = 0
) -> RewardEnsemble:
    """M models of what each action pays by the local part of an observation, [M, B, A]."""
    familiar = WideDriving(novel=False, appearance_probability=LOG_PROBABILITY)
    seen, rewards = logged_driving_rewards(familiar, num_rows, seed=seed)
    return fit_ensemble(
        seen,
        rewards,
        network="vector",
        num_models=num_models,
        num_epochs=num_epochs,
        batch_size=100,
        prior=0,
        seed=seed,
        progress=False,
        validation_fraction=0,
    )


class WideDrivingBelief:
    """What M models say about observations of the wide road: `rewards(observations)` reads their local part."""

    def __init__(self, belief: RewardEnsemble) -> None:
        """Keep the models."""
        self.belief = belief
        self.num_models, self.num_actions = belief.num_models, belief.num_actions

    def rewards(self, observations: Any) -> Tensor:
        """Rewards [M, B, A] of observations [B, F]."""
        return self.belief.rewards(torch.as_tensor(observations)[:, : self.belief.state_shape[0]])
