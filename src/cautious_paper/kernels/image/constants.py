"""The sizes of `layout` as the kernels read them: constants of the compiler, which plain numbers of a module are not."""

from __future__ import annotations

from triton.language import constexpr

from cautious_paper.kernels.image import layout

SIDE = constexpr(layout.SIDE)
PIXELS = constexpr(layout.PIXELS)
MAP_1 = constexpr(layout.MAP_1)
PLACES = constexpr(layout.MAP_1**2)
"""Places of the pooled first map."""
PADDED = constexpr(layout.PADDED)
CHANNELS_2 = constexpr(layout.CHANNELS_2)
FEATURES = constexpr(layout.FEATURES)
HIDDEN_1 = constexpr(layout.HIDDEN_1)
HIDDEN_2 = constexpr(layout.HIDDEN_2)
CONV1_SIZE = constexpr(layout.CONV1_SIZE)
DENSE_START = constexpr(layout.DENSE_START)
IMAGES = constexpr(layout.BATCH_MULTIPLE)
"""Images that a Hopper program takes at a time."""
