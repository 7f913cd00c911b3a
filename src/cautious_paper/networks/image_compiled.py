"""The image network's first convolution with its pooling and ReLU, compiled (`image_prediction`)."""

from __future__ import annotations

import numpy as np

from cautious.compiling import compiled, multiply_add
from cautious_paper.networks.image_layers import CHANNELS, POOLED

NUM_CHANNELS = CHANNELS[0]


@compiled
def first_layer(pixels, kernels, bias, pooled):  # type: ignore[no-untyped-def]
    """Largest of 2x2 outputs of a 4x4 convolution, at least 0: pixels [S, 28, 28] -> `pooled` [S, 11, 11, M, 64], float32.

    Args:
        pixels: From 0 to 1.
        kernels: [M, 16, 64].
        bias: [M, 64].
        pooled: Where to.
    """
    for s in range(pixels.shape[0]):
        for m in range(kernels.shape[0]):
            for y in range(POOLED):
                for x in range(POOLED):
                    _pooled_outputs(pixels[s, 2 * y :, 2 * x :], kernels[m], bias[m], pooled[s, y, x, m])


@compiled
def _pooled_outputs(p, kernel, bias, out):  # type: ignore[no-untyped-def]
    """One pooled pixel in all channels: pixels `p` [from 5, from 5], kernel [16, 64], bias [64] -> `out` [64].

    The taps are written out, so that the loop is over channels: vector registers then hold the 25 pixels, once each, and four
    sums. Each sum is in the order of the taps. The bias is added once to the largest: rounding keeps their order.
    """
    p00, p01, p02, p03, p04 = p[0, 0], p[0, 1], p[0, 2], p[0, 3], p[0, 4]
    p10, p11, p12, p13, p14 = p[1, 0], p[1, 1], p[1, 2], p[1, 3], p[1, 4]
    p20, p21, p22, p23, p24 = p[2, 0], p[2, 1], p[2, 2], p[2, 3], p[2, 4]
    p30, p31, p32, p33, p34 = p[3, 0], p[3, 1], p[3, 2], p[3, 3], p[3, 4]
    p40, p41, p42, p43, p44 = p[4, 0], p[4, 1], p[4, 2], p[4, 3], p[4, 4]
    for c in range(NUM_CHANNELS):
        w = kernel[0, c]
        upper, right, lower, last = p00 * w, p01 * w, p10 * w, p11 * w
        upper, right, lower, last = _add(kernel[1, c], p01, p02, p11, p12, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[2, c], p02, p03, p12, p13, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[3, c], p03, p04, p13, p14, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[4, c], p10, p11, p20, p21, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[5, c], p11, p12, p21, p22, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[6, c], p12, p13, p22, p23, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[7, c], p13, p14, p23, p24, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[8, c], p20, p21, p30, p31, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[9, c], p21, p22, p31, p32, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[10, c], p22, p23, p32, p33, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[11, c], p23, p24, p33, p34, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[12, c], p30, p31, p40, p41, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[13, c], p31, p32, p41, p42, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[14, c], p32, p33, p42, p43, upper, right, lower, last)
        upper, right, lower, last = _add(kernel[15, c], p33, p34, p43, p44, upper, right, lower, last)
        upper = upper if upper > right else right
        lower = lower if lower > last else last
        largest = (upper if upper > lower else lower) + bias[c]
        out[c] = largest if largest > np.float32(0) else np.float32(0)


@compiled
def _add(w, first, second, third, fourth, upper, right, lower, last):  # type: ignore[no-untyped-def]
    """One tap of the kernel, times a pixel each, to the four sums of a 2x2 window."""
    return (
        multiply_add(first, w, upper),
        multiply_add(second, w, right),
        multiply_add(third, w, lower),
        multiply_add(fourth, w, last),
    )
