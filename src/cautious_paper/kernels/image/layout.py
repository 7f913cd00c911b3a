"""Where each weight of the image network stands in a model's flat parameters, and the sizes the kernels agree on.

The order is PyTorch's own: conv1 [64, 1, 4, 4], conv2 [16, 64, 4, 4], then three linear layers 256 -> 50 -> 15 -> A, each
weight followed by its bias.
"""

from __future__ import annotations

from cautious_paper.networks.image import ImageNetwork
from cautious_paper.networks.image_layers import CHANNELS, HIDDEN, KERNEL, NUM_FEATURES, POOLED, SIDE

PIXELS = SIDE * SIDE
TAPS = KERNEL * KERNEL
"""Weights of one filter."""

CHANNELS_1, CHANNELS_2 = CHANNELS
MAP_1 = POOLED
"""Side of the pooled first feature map: 12, of which the second convolution's pooled outputs need 11."""

PADDED = 14
"""Side of the gradient at the second convolution's 8x8 outputs that pooling keeps, with a border of 3 zeros."""

FEATURES = NUM_FEATURES
HIDDEN_1, HIDDEN_2 = HIDDEN
MAX_ACTIONS = 16

CONV1_SIZE = CHANNELS_1 * (TAPS + 1)
CONV2_WEIGHTS = CHANNELS_2 * CHANNELS_1 * TAPS
DENSE_START = CONV1_SIZE + CONV2_WEIGHTS
"""Where conv2's bias stands: it and everything after it come out of one kernel."""

BATCH_MULTIPLE = 64
"""Batches are filled up to a multiple of this with blank images that carry no loss."""


def padded_batch(batch_size: int) -> int:
    """`batch_size` rounded up to a multiple of `BATCH_MULTIPLE`."""
    return -(-batch_size // BATCH_MULTIPLE) * BATCH_MULTIPLE


def largest_block(padded: int, most: int) -> int:
    """The largest power of two, at most `most`, that divides a padded batch."""
    return min(padded & -padded, most)


def hopper_blocks(padded: int) -> int:
    """Blocks of 64 images that one Hopper program takes: more mean fewer sums to add and filters to copy."""
    return largest_block(padded // BATCH_MULTIPLE, 4)


def dense_size(network: ImageNetwork) -> int:
    """Parameters of one model from conv2's bias to the end."""
    return network.num_parameters - DENSE_START
