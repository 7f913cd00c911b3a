"""What the driving reward networks see of states and pairs of them, and the shapes of their weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cautious.ops.linear import sparse_tensor
from cautious.worlds.driving_rules import MAX_SPEED, DrivingState, network_image

NUM_SPEEDS = MAX_SPEED + 1
NUM_CHANNELS, NUM_POSITIONS, PATCH = 4, 6, 16
NUM_FEATURES = NUM_CHANNELS * NUM_POSITIONS
NUM_HIDDEN = 32
NUM_INPUTS = 2 * NUM_FEATURES + NUM_SPEEDS  # 52

SHAPES = {
    "convolution": (PATCH + 1, 2 * NUM_CHANNELS),
    "hidden": (NUM_INPUTS + 1, NUM_SPEEDS * NUM_HIDDEN),
    "output": (NUM_SPEEDS, NUM_HIDDEN + 1),
}
"""Weights of one model; a layer's bias is its last input, which is always 1. The first half of the convolution's outputs
is for s, the second for s'; the hidden and the output layer have one head a speed."""

FAN_IN = {"convolution": PATCH, "hidden": NUM_INPUTS, "output": NUM_HIDDEN}
SIZES = {name: shape[0] * shape[1] for name, shape in SHAPES.items()}
NUM_PARAMETERS = sum(SIZES.values())


class PairInputs:
    """What the network sees of given states and pairs of them; pairs are kept by initial speed, one block a head."""

    def __init__(self, states: Sequence[DrivingState], pairs: Tensor, device: torch.device | None = None) -> None:
        """Cut the images into patches, once a state.

        Args:
            states: S states.
            pairs: (state, next state) indices, [P, 2].
            device: Where to keep them.
        """
        images = torch.stack([network_image(state) for state in states])  # [S, 4, 3, 4]
        patches = torch.nn.functional.unfold(images, kernel_size=2)  # [S, 16, 6]
        self.patches = _with_ones(patches.transpose(1, 2).reshape(-1, PATCH)).T.contiguous().to(device)  # [17, S*6]
        speed = torch.tensor([state.speed for state in states])
        self.speeds = _with_ones(torch.nn.functional.one_hot(speed, NUM_SPEEDS).float()).to(device)  # [S, 5]
        self.num_states, self.num_pairs = len(states), len(pairs)
        head = speed[pairs[:, 0]]
        order = torch.argsort(head, stable=True)
        self.place = torch.argsort(order).to(device)  # where each pair stands among the pairs by speed
        last = torch.bincount(head, minlength=NUM_SPEEDS).cumsum(0).tolist()
        self.heads = [slice(first, end) for first, end in zip([0, *last], last, strict=False)]
        rows = pairs[order] * NUM_SPEEDS + head[order, None]  # row (state, head) of the hidden layer
        self.rows = [rows[:, image].to(device) for image in (0, 1)]
        self.incidence = [_incidence(row, self.num_states * NUM_SPEEDS) for row in self.rows]


def _with_ones(inputs: Tensor) -> Tensor:
    return torch.cat([inputs, torch.ones(len(inputs), 1, dtype=torch.float32)], dim=1)


def _incidence(rows: Tensor, num_rows: int) -> Tensor:
    """The sparse 0/1 matrix [rows, P] that sums over the pairs of a row: the transpose of gathering them."""
    place = torch.stack([rows, torch.arange(len(rows), device=rows.device)])
    ones = torch.ones(len(rows), device=rows.device, dtype=torch.float32)
    return sparse_tensor(place, ones, (num_rows, len(rows)))
