"""How unlike the familiar a state is, by its features alone: a distance, and random network distillation.

Neither knows anything about rewards. Both are what a novelty detector in front of an ordinary policy has to go by.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from cautious.errors import InvalidInputError
from cautious.parallel import single_threaded
from cautious.seeding import check_seed, derive_seed
from cautious.types import ArrayLike
from cautious.validation import as_float_tensor, check_finite, parse_count

BLOCK = 1024
"""States whose distances to all familiar rows are held at a time."""
RND_WIDTH, RND_FEATURES, RND_STEPS, RND_BATCH, RND_RATE = 64, 16, 500, 256, 1e-3


@single_threaded
def distance_novelty(familiar: ArrayLike, states: ArrayLike) -> Tensor:
    """Distance of each state to its nearest familiar row, in deviations of the familiar rows: [n, F], [S, F] -> [S].

    One familiar row, two states; a feature that never varied counts as it is:

    >>> distance_novelty([[0.0, 0.0]], [[0.0, 0.0], [3.0, 4.0]]).tolist()
    [0.0, 5.0]
    """
    known, asked = _scaled(familiar, states)
    return torch.cat([torch.cdist(block, known).amin(dim=1) for block in asked.split(BLOCK)])


@single_threaded
def rnd_novelty(familiar: ArrayLike, states: ArrayLike, *, seed: int = 0, num_steps: int = RND_STEPS) -> Tensor:
    """Random network distillation (Burda et al. 2019): how badly a trained network imitates a random one, [S].

    A network learns, on familiar rows, to give the outputs of a fixed random network; its squared error is near 0 there and
    larger elsewhere. Returned in units of the mean error on the familiar rows.

    Args:
        familiar: Rows that the network learns on, [n, F].
        states: Rows to judge, [S, F].
        seed: Starts both networks and the batches.
        num_steps: Steps of Adam with 256 rows each.
    """
    steps = parse_count(num_steps, "num_steps")
    known, asked = (part.float() for part in _scaled(familiar, states))
    draws = torch.Generator().manual_seed(derive_seed(check_seed(seed), "rnd"))
    target, learner = _network(known.shape[1], draws), _network(known.shape[1], draws)
    optimiser = torch.optim.Adam(learner.parameters(), lr=RND_RATE)
    for _ in range(steps):
        batch = known[torch.randint(len(known), (RND_BATCH,), generator=draws)]
        loss = (learner(batch) - target(batch).detach()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        usual = (learner(known) - target(known)).square().mean(dim=1).double().mean()
        error = (learner(asked) - target(asked)).square().mean(dim=1).double()
    return error / usual.clamp(min=torch.finfo(torch.float32).tiny)


def _network(num_features: int, draws: torch.Generator) -> nn.Module:
    """Two hidden layers, He-initialised from `draws` alone."""
    sizes = (num_features, RND_WIDTH, RND_WIDTH, RND_FEATURES)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(outputs, inputs, generator=draws) * np.sqrt(2 / inputs))
            layer.bias.zero_()
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _scaled(familiar: ArrayLike, states: ArrayLike) -> tuple[Tensor, Tensor]:
    """Both in deviations of the familiar rows from their mean; a feature without any keeps its unit."""
    known, asked = as_float_tensor(familiar, "familiar").double(), as_float_tensor(states, "states").double()
    for rows, name in ((known, "familiar"), (asked, "states")):
        check_finite(rows, name)
        if rows.dim() != 2 or 0 in rows.shape:
            raise InvalidInputError(f"{name}: expected rows of features, shape [B, F], got {list(rows.shape)}.")
    if known.shape[1] != asked.shape[1]:
        raise InvalidInputError(
            f"states: rows have {asked.shape[1]} features, familiar ones {known.shape[1]}; they must be the same features."
        )
    scale = known.std(dim=0, correction=0)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (known - known.mean(dim=0)) / scale, (asked - known.mean(dim=0)) / scale
