"""A pooled value and the place it came from in one 16-bit number.

A pooled, rectified activation is kept as float16 whose two lowest mantissa bits say which of the four pooled places held
the maximum: no tensor of indices exists, and the value loses two of its eleven bits. A dead unit is 0 but for those bits.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tag_offset(value, OFFSET: tl.constexpr, PTX: tl.constexpr):
    """float32 `value` with its two lowest bits replaced by a pool offset, so that a maximum carries the offset along.

    Args:
        value: float32.
        OFFSET: 0 to 3.
        PTX: One instruction instead of two (compute capability 5.0 and up); the same result.
    """
    bits = value.to(tl.int32, bitcast=True)
    if PTX and OFFSET == 1:
        bits = tl.inline_asm_elementwise(
            "lop3.b32 $0, $1, 3, 1, 0xB8;", "=r,r", [bits], dtype=tl.int32, is_pure=True, pack=1
        )
    elif PTX and OFFSET == 2:
        bits = tl.inline_asm_elementwise(
            "lop3.b32 $0, $1, 3, 2, 0xB8;", "=r,r", [bits], dtype=tl.int32, is_pure=True, pack=1
        )
    elif OFFSET == 3:
        bits = bits | 3
    else:
        bits = (bits & -4) | OFFSET
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def encode(tagged, activation, PTX: tl.constexpr):
    """16 bits of ReLU(`activation`) with the offset that `tagged` carries in its two lowest bits.

    Args:
        tagged: float32, from `tag_offset`.
        activation: float32 of the same shape.
        PTX: Two values at a time in NVIDIA's assembly (compute capability 8.0 and up); the same result.
    """
    if PTX:
        return tl.inline_asm_elementwise(
            """{ .reg .b32 offsets, values;
            cvt.rn.relu.f16x2.f32 values, $4, $3;
            prmt.b32 offsets, $1, $2, 0x5410;
            lop3.b32 $0, values, offsets, 0xFFFCFFFC, 0xE4; }""",
            "=r,r,r,r,r",
            [tagged.to(tl.int32, bitcast=True), activation.to(tl.int32, bitcast=True)],
            dtype=tl.int16,
            is_pure=True,
            pack=2,
        )
    else:
        offset = (tagged.to(tl.int32, bitcast=True) & 3).to(tl.int16)
        value = activation.to(tl.float16)  # first round, then rectify: the compiler then rectifies two at a time
        bits = tl.maximum(value, tl.zeros_like(value)).to(tl.int16, bitcast=True)
        return ((bits & 0x7FFC) | offset).to(tl.int16)  # no sign bit: the maximum of -0 and 0 may be -0


@triton.jit
def decode(encoded):
    """float16 value of an encoded activation, offset bits cleared."""
    return (encoded & -4).to(tl.int16).to(tl.float16, bitcast=True)


@triton.jit
def split_by_offset(gradient, encoded, PTX: tl.constexpr):
    """Gradient at a pooled unit as float16, and its four parts by the place that held the maximum.

    Args:
        gradient: float32 [R, C] with C even, at the pooled and rectified unit.
        encoded: int16 of the same shape, from `encode`.
        PTX: As in `encode`.

    Returns:
        Gradient where the unit is alive, and that gradient where the offset is 0, 1, 2, 3 (zero elsewhere).
    """
    if PTX:
        # Codes up to 3 are dead. A code above is alive, or no number (infinity with an offset): so greater or unordered.
        # The permutation spreads the sign of bytes 0 and 2, where the shift has put the second bit of either half.
        return tl.inline_asm_elementwise(
            """{ .reg .b32 d, t, a, b, dead;
            mov.b32 dead, 0x00030003;
            cvt.rn.f16x2.f32 d, $6, $5;
            set.gtu.f16x2.f16x2 t, $7, dead;
            mul.rn.f16x2 d, d, t;
            and.b32 a, $7, 0x00010001;
            mul.lo.u32 a, a, 0xFFFF;
            shl.b32 b, $7, 6;
            prmt.b32 b, b, 0, 0xAA88;
            mov.b32 $0, d;
            lop3.b32 $1, d, a, b, 0x10;
            lop3.b32 $2, d, a, b, 0x40;
            lop3.b32 $3, d, a, b, 0x20;
            lop3.b32 $4, d, a, b, 0x80; }""",
            "=r,=r,=r,=r,=r,r,r,r",
            [gradient.to(tl.int32, bitcast=True), encoded],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )
    else:
        # Masks are made two at a time in 32 bits and applied in 16, which the compiler packs again in this very form:
        # fewer instructions than comparisons and selections of single values.
        pair = _pack_pairs(encoded)
        live = _unpack_pairs(_spread((pair + 0x7FFC7FFC) >> 15))  # the sum carries into the sign bit above 3
        odd, lower = _unpack_pairs(_spread(pair)), _unpack_pairs(_spread(pair >> 1))
        alive = gradient.to(tl.float16).to(tl.int16, bitcast=True) & live
        part_0 = (alive & (~odd & ~lower)).to(tl.float16, bitcast=True)
        part_1 = (alive & (odd & ~lower)).to(tl.float16, bitcast=True)
        part_2 = (alive & (lower & ~odd)).to(tl.float16, bitcast=True)
        part_3 = (alive & (odd & lower)).to(tl.float16, bitcast=True)
        return alive.to(tl.float16, bitcast=True), part_0, part_1, part_2, part_3


@triton.jit
def _pack_pairs(x):
    """[R, C] of 16 bits as [R, C/2] uint32, the even columns low: neighbours share a thread, so that nothing moves."""
    even, odd = tl.split(tl.reshape(x.to(tl.uint16, bitcast=True), [x.shape[0], x.shape[1] // 2, 2]))
    return even.to(tl.uint32) | (odd.to(tl.uint32) << 16)


@triton.jit
def _unpack_pairs(x):
    """Inverse of `_pack_pairs`, int16."""
    pairs = tl.join(x.to(tl.uint16), (x >> 16).to(tl.uint16)).to(tl.int16, bitcast=True)
    return tl.reshape(pairs, [x.shape[0], x.shape[1] * 2])


@triton.jit
def _spread(pair):
    """All sixteen bits of each half set where its lowest bit is set."""
    return (pair & 0x10001) * 0xFFFF
