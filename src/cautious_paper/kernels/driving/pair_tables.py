"""What the fused driving kernel reads of the training pairs: each pair as a short row of zeros and ones.

A pair's 12 patches (6 of each image) come from few distinct ones: 28 an image in the familiar world. So the hidden layer is

    hidden[p] = ReLU(Σ_r member[p, r] part[r]),    part[r] = features of patch r through its own four rows of weights

with one row r for each distinct patch at each position of each image, one for each next speed and one for the bias: 61
rows for 1,714 pairs. Both sums over pairs, there and back, are then matrix products with zeros and ones.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cautious_paper.networks.driving import NUM_POSITIONS, NUM_SPEEDS, PATCH, PairInputs

PADDED_PATCH = 32
"""Inputs of a patch (16 and the bias), filled up to a power of two."""

FIRST_SPEED_SLOT = 2 * NUM_POSITIONS
"""Slots are numbered position by position, first s, then s'; after them the next speeds and the bias."""

NUM_SLOTS = FIRST_SPEED_SLOT + NUM_SPEEDS + 1


class PairTables(NamedTuple):
    """Pairs by initial speed, as the kernel reads them; R rows, a power of two."""

    members: Tensor
    """Which rows add up to a pair's hidden layer, [P, R], 0 or 1."""
    patches: Tensor
    """Inputs of the convolution at each row, the last one 1: [R, 32], float32; zeros for speeds and bias."""
    slots: Tensor
    """Which of the hidden layer's groups of inputs a row belongs to, [R], int32; never falls, but for rows to fill up."""
    starts: Tensor
    """First row of each slot, and one after the last: [18], int32."""
    samples: Tensor
    """Each pair's number in the training data, [P], int32."""
    heads: Tensor
    """Which head a pair belongs to, [P], int32; never falls."""


def pair_tables(inputs: PairInputs) -> PairTables:
    """Find the distinct patches at each position of each image, and which of them make up each pair."""
    first, following = (rows.cpu() // NUM_SPEEDS for rows in inputs.rows)  # states of each pair
    heads = inputs.rows[0].cpu() % NUM_SPEEDS
    patches = inputs.patches.T.cpu().reshape(inputs.num_states, NUM_POSITIONS, PATCH + 1)
    rows: list[Tensor] = []
    places: list[Tensor] = []
    slots: list[int] = []
    for position in range(NUM_POSITIONS):
        for image, states in enumerate((first, following)):
            distinct, number = torch.unique(patches[:, position], dim=0, return_inverse=True)
            places.append(number[states] + len(slots))
            rows.append(distinct)
            slots += [2 * position + image] * len(distinct)
    next_speed = inputs.speeds[:, :NUM_SPEEDS].cpu().argmax(dim=1)[following]
    places += [next_speed + len(slots), torch.full_like(next_speed, len(slots) + NUM_SPEEDS)]
    slots += range(FIRST_SPEED_SLOT, NUM_SLOTS)
    num_rows = max(16, 1 << (len(slots) - 1).bit_length())
    members = torch.zeros(inputs.num_pairs, num_rows, dtype=torch.float32)
    members.scatter_(1, torch.stack(places, dim=1), 1.0)
    padded = torch.zeros(num_rows, PADDED_PATCH, dtype=torch.float32)
    convolved = torch.cat(rows)
    padded[: len(convolved), : PATCH + 1] = convolved
    starts = torch.searchsorted(torch.tensor(slots), torch.arange(NUM_SLOTS + 1))
    slots += [0] * (num_rows - len(slots))  # patches of nothing but zeros: features 0, and no pair has them
    samples = torch.argsort(inputs.place).cpu()
    numbers = (torch.as_tensor(x, dtype=torch.int32) for x in (slots, starts, samples, heads))
    return PairTables(members, padded, *numbers)
