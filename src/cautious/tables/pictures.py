"""Pictures as Gymnasium's environments show them, bytes [S, H, W, C], as the grey 28 x 28 images that the image network takes.

    grey = 0.299 R + 0.587 G + 0.114 B;   each of 28 x 28 parts of the picture becomes the mean of its pixels, rounded

Only bytes (uint8) of at least 16 x 16 pixels are pictures: smaller arrays, such as MiniGrid's 7 x 7 x 3, hold codes and no
colours, and are taken as vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.validation import images_are_bytes

PICTURES_KEPT_AS = "picture_shape"
"""Under which name the settings of a belief hold the shape of the pictures that its images were made of."""
SIDE = 28
"""Pixels along each side of an image."""
SMALLEST = 16
"""Pixels along each side of a picture, at least."""
MOST_CHANNELS = 12
"""A first or last dimension up to this one counts channels, or frames."""
GREY = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in brightness (ITU-R BT.601)."""
BLOCK = 64
"""Pictures that are converted at a time, in float64."""


def picture_shape(states: Any) -> tuple[int, int, int] | None:
    """Height, width and channels, if these are pictures in bytes [S, H, W], [S, H, W, C] or [S, C, H, W]; else None."""
    shape = tuple(states.shape)[1:] if images_are_bytes(states) else ()
    if len(shape) == 2:
        shape = (*shape, 1)
    if len(shape) != 3:
        return None
    height, width, channels = shape if shape[2] <= MOST_CHANNELS else (*shape[1:], shape[0])
    if min(height, width) < SMALLEST or channels > MOST_CHANNELS:
        return None
    if channels not in (1, 3):
        raise InvalidInputError(
            f"inputs: pictures [{height}, {width}] with {channels} channels: transparency, or frames of a film? Pass 3 "
            "channels (colours) or 1 (grey); or network='vector' for plain numbers, or a network of your own."
        )
    return height, width, channels


def as_grey(states: Any) -> Tensor:
    """Pictures, of which `picture_shape` knows the shape, as images [S, 28, 28] in bytes."""
    pictures = states if isinstance(states, Tensor) else torch.from_numpy(np.require(states, requirements=["C", "W"]))
    if pictures.dim() == 4 and pictures.shape[3] > MOST_CHANNELS:
        pictures = pictures.movedim(1, 3)
    return torch.cat([_block_as_grey(block) for block in pictures.split(BLOCK)])


def _block_as_grey(pictures: Tensor) -> Tensor:
    numbers = pictures.double()
    if numbers.dim() == 4:
        shares = torch.tensor(GREY if numbers.shape[3] == 3 else (1.0,), dtype=torch.float64, device=numbers.device)
        numbers = (numbers * shares).sum(dim=3)
    return torch.nn.functional.adaptive_avg_pool2d(numbers[:, None], SIDE)[:, 0].round().to(torch.uint8)
