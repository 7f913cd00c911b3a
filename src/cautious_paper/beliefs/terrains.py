"""A belief about terrains: what each kind of ground could pay, and the same about what a carrier observes.

The usual prior for vectors (`beliefs.prior`) gives each model one height for all novel rows: a model that is pessimistic about
one unseen kind is so about all of them. Here each unseen kind must be a doubt of its own. A network of one hidden layer with
wide initial weights on one-hot kinds does that: the weights of a kind that never occurs in training stay as they were drawn,
separately for each kind and model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.fit import fit_ensemble
from cautious.validation import as_float_tensor, check_shape
from cautious_paper.worlds.terrains import SIZE, TerrainWorld, cell_number, logged_terrain_rewards

HIDDEN, WIDTH = 64, 2.0
"""Hidden units, and the deviation of the first layer's initial weights: models then differ about an unseen kind by about 0.65,
as much as a good and a harmful kind differ from their mean (0.7)."""

MINIGRID_AGENT = 10
"""MiniGrid's number for the agent in an image; ``minigrid.core.constants.OBJECT_TO_IDX["agent"]``."""


class KindNetwork(nn.Module):
    """From one-hot kinds [B, K] to rewards [B, 1]."""

    def __init__(self, num_kinds: int) -> None:
        """Initial weights of the first layer are normal with deviation `WIDTH`."""
        super().__init__()
        self.hidden, self.output = nn.Linear(num_kinds, HIDDEN), nn.Linear(HIDDEN, 1)
        nn.init.normal_(self.hidden.weight, 0.0, WIDTH)

    def forward(self, kinds: Tensor) -> Tensor:
        """Rewards of kinds."""
        return self.output(self.hidden(kinds).relu())


def fit_terrain_belief(num_unseen: int = 6, num_models: int = 100, seed: int = 0) -> RewardEnsemble:
    """M models of what each kind pays, trained on the logged rewards of the known kinds alone."""
    kinds, rewards = logged_terrain_rewards(num_unseen, seed=seed)
    return fit_ensemble(
        kinds,
        rewards,
        network=lambda: KindNetwork(kinds.shape[1]),
        num_models=num_models,
        num_epochs=60,
        batch_size=32,
        learning_rate=0.01,
        prior=0,
        seed=seed,
        progress=False,
        validation_fraction=0,
    )


class TerrainBelief:
    """What M models say each action pays for what is observed in a terrain world: `rewards(observations)`."""

    def __init__(self, world: TerrainWorld, kind_rewards: Any) -> None:
        """Keep what each model says about each kind, [M, K], and what a parcel pays at the goal."""
        self.kind_rewards = as_float_tensor(kind_rewards, "kind_rewards").double()
        check_shape(self.kind_rewards, "M K", "kind_rewards", K=world.num_kinds)
        self.state_rewards = world.state_rewards(self.kind_rewards)

    @classmethod
    def of(cls, world: TerrainWorld, belief: RewardEnsemble) -> TerrainBelief:
        """The belief of a trained ensemble on one-hot kinds."""
        return cls(world, belief.rewards(torch.eye(world.num_kinds))[..., 0])

    @property
    def num_models(self) -> int:
        """Number of models, M."""
        return len(self.state_rewards)

    @property
    def num_actions(self) -> int:
        """Number of actions, A."""
        return self.state_rewards.shape[2]

    def rewards(self, observations: Any) -> Tensor:
        """Rewards [M, B, A] of what `cautious/Terrains-v0` shows [B, F], or of MiniGrid's full images [B, 11, 11, 3]."""
        return self.state_rewards[:, _cells_of(torch.as_tensor(observations))]


def _cells_of(seen: Tensor) -> Tensor:
    """Numbers of the cells that a carrier stands on, [B]."""
    if seen.dim() == 4:  # columns come first in MiniGrid, and a wall surrounds the field
        places = (seen[..., 0] == MINIGRID_AGENT).flatten(1).int().argmax(dim=1)
        columns, rows = places // seen.shape[2] - 1, places % seen.shape[2] - 1
    else:
        rows, columns = seen[:, :SIZE].argmax(dim=1), seen[:, SIZE : 2 * SIZE].argmax(dim=1)
    return rows * cell_number((1, 0)) + columns
