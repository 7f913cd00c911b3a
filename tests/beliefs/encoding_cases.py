"""One tile through `encode` and `split_by_offset`, and what must come out: for the interpreter and for a GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from cautious_paper.kernels.image.encoding import encode, split_by_offset, tag_offset


@triton.jit
def _through(sums, activations, gradients, encoded, parts, PTX: tl.constexpr):
    """Encode [4, 64, 64] sums (one for each place of a pool), then split the gradient by the place that was largest."""
    at = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    best = tag_offset(tl.load(sums + at), 0, PTX)
    for offset in tl.static_range(1, 4):
        best = tl.maximum(best, tag_offset(tl.load(sums + offset * 4096 + at), offset, PTX))
    code = encode(best, tl.load(activations + at), PTX)
    tl.store(encoded + at, code)
    alive, part_0, part_1, part_2, part_3 = split_by_offset(tl.load(gradients + at), code, PTX)
    tl.store(parts + at, alive)
    tl.store(parts + 4096 + at, part_0)
    tl.store(parts + 8192 + at, part_1)
    tl.store(parts + 12288 + at, part_2)
    tl.store(parts + 16384 + at, part_3)


def tile() -> tuple[Tensor, Tensor, Tensor]:
    """Sums [4, 64, 64], activations and gradients [64, 64]: random, with rows of the numbers that are easy to get wrong."""
    generator = torch.Generator().manual_seed(3)
    sums, activations, gradients = (torch.randn(n, 64, 64, generator=generator) for n in (4, 1, 1))
    activations, gradients = activations[0], gradients[0]
    smallest = 2.0**-24  # of float16, in which 1e6 is infinite
    for row, value in enumerate((0.0, -0.0, smallest, 3 * smallest, 4 * smallest, -smallest / 3, -1e-30, 6e4, 1e6)):
        activations[row] = value
    gradients[:, 0], gradients[:, 1], gradients[:, 2] = 0.0, -0.0, 1e-9
    return sums, activations, gradients


def run(device: str, ptx: bool) -> dict[str, Tensor]:
    """Codes [64, 64] and the five parts of the gradient [5, 64, 64], from the kernels."""
    sums, activations, gradients = (part.to(device) for part in tile())
    codes = torch.empty(64, 64, dtype=torch.int16, device=device)
    parts = torch.empty(5, 64, 64, dtype=torch.float16, device=device)
    _through[(1,)](sums, activations, gradients, codes, parts, ptx)
    return {"codes": codes.cpu(), "parts": parts.cpu()}


def check(found: dict[str, Tensor]) -> None:
    """Compare with the definition in words: rounded, rectified, two bits replaced; the gradient where that is above zero."""
    sums, activations, gradients = tile()
    bits = activations.half().clamp(min=0).view(torch.int16) & 0x7FFC
    offset = sums.argmax(dim=0).to(torch.int16)
    assert torch.equal(found["codes"], bits | offset)
    alive = torch.where(bits > 0, gradients.half(), 0)
    wanted = torch.stack([alive, *(torch.where(offset == place, alive, 0) for place in range(4))])
    assert torch.equal(found["parts"], wanted)  # -0 equals 0
