"""IDX files of bytes, plain or gzipped: the format of MNIST and similar sets.

Two zero bytes, a type (8: unsigned bytes, the only one here), the number of dimensions, each size as a big-endian 32-bit
number, then the bytes. No claim of a header is believed before the file is seen to be long enough for it.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from cautious.errors import BadFileError, InvalidInputError
from cautious.io.atomic import atomic_write

UNSIGNED_BYTE = 8
GZIP_MAGIC = b"\x1f\x8b"
GZIP_MAX_RATIO = 1032
"""Deflate cannot compress more than this (258 bytes in two bits): a header that declares more is wrong."""
MAX_BYTES = 2**30
"""More bytes than any image set here has: the limit on what a compressed file may expand to."""
WAY_OUT = "Replace it by a whole file; 'cautious data fetch' brings one."


def read_idx(path: Path, num_dims: int) -> Tensor:
    """The bytes that an IDX file holds, as a writable uint8 tensor of `num_dims` dimensions.

    Whether the file is gzipped is read off its first bytes, not its name.

    Raises:
        BadFileError: a file that is cut off, goes on too long, is not IDX, holds another type or another number of
            dimensions, nothing, or declares more than it can hold.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            file.seek(0)
            room = path.stat().st_size * (GZIP_MAX_RATIO if packed else 1)
            if not packed:
                return _read(file, path, num_dims, room)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return _read(unpacked, path, num_dims, room)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadFileError(f"{path}: damaged or cut off inside its gzip packing ({error}). {WAY_OUT}") from None
    except OSError as error:
        raise BadFileError(f"{path}: could not be read ({error.strerror or error}). {WAY_OUT}") from None


def _read(file: io.BufferedIOBase, path: Path, num_dims: int, room: int) -> Tensor:
    """Header, then body; `room` is the most bytes that the file can hold."""
    shape = _read_shape(file, path, num_dims)
    size = math.prod(shape)
    if size > min(room, MAX_BYTES):
        raise BadFileError(
            f"{path}: its header declares {size:,} bytes, shape {shape}, and it can hold {min(room, MAX_BYTES):,} at most; "
            f"it is cut off or of another kind. {WAY_OUT}"
        )
    body = bytearray(size)
    num_read = file.readinto(body)
    if num_read < size:
        raise BadFileError(f"{path}: cut off: shape {shape} needs {size:,} bytes and {num_read:,} are there. {WAY_OUT}")
    if file.read(1):  # also makes gzip compare its checksum, which it does at the very end only
        raise BadFileError(f"{path}: has extra data after the {size:,} bytes that shape {shape} needs. {WAY_OUT}")
    return torch.frombuffer(body, dtype=torch.uint8).view(shape)


def _read_shape(file: io.BufferedIOBase, path: Path, num_dims: int) -> list[int]:
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0":
        raise BadFileError(f"{path}: not an IDX file: it starts with {start!r}, not with two zero bytes. {WAY_OUT}")
    kind, dims = start[2], start[3]
    if kind != UNSIGNED_BYTE:
        raise BadFileError(
            f"{path}: entries of IDX type 0x{kind:02x}; only 0x08, unsigned bytes, is read here. {WAY_OUT}"
        )
    if dims != num_dims:
        raise BadFileError(
            f"{path}: has {dims} dimensions where {num_dims} are needed (images have 3, labels 1). {WAY_OUT}"
        )
    sizes = file.read(4 * num_dims)
    if len(sizes) < 4 * num_dims:
        raise BadFileError(f"{path}: cut off inside its header. {WAY_OUT}")
    shape = list(struct.unpack(f">{num_dims}I", sizes))
    if 0 in shape:
        raise BadFileError(f"{path}: holds nothing: its shape is {shape}. {WAY_OUT}")
    return shape


def write_idx(path: Path, values: Tensor) -> None:
    """Write a uint8 tensor of any shape as IDX, gzipped where the name ends in .gz; the same tensor gives the same bytes.

    The package itself only reads; its embedded cuts were written with this (`tools/cut_embedded_data.py`).
    """
    if values.dtype != torch.uint8 or not 1 <= values.dim() <= 255 or values.numel() == 0:
        raise InvalidInputError(
            f"{path}: only unsigned bytes, at least one, can be written as IDX here, got {values.dtype} of shape "
            f"{list(values.shape)}."
        )
    header = bytes([0, 0, UNSIGNED_BYTE, values.dim()]) + struct.pack(f">{values.dim()}I", *values.shape)
    content = header + values.contiguous().numpy().tobytes()
    atomic_write(path, lambda target: target.write_bytes(_gzipped(content) if path.suffix == ".gz" else content))


def _gzipped(content: bytes) -> bytes:
    """Without a time or a name in the header, so that nothing but the content decides the bytes."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as file:
        file.write(content)
    return packed.getvalue()
