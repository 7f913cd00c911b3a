"""How a valid file is spoilt, at random but by number: bytes, JSON, headers of all kinds, gzip (for `fuzz_files.py`)."""

from __future__ import annotations

import functools
import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Rng = np.random.Generator
Mutation = Callable[[Rng, bytes], bytes]

WRONG: tuple[Any, ...] = (
    float("nan"), float("inf"), -1, 0, 2**31, 2**63, 10**300, 10**400, -1e308, 0.1, None, True, "", "x" * 10**5, [], {}, [[]],
    {"a": {}}, "../../../etc/passwd", "/etc/passwd", "a/../b", "\0", "1-of-20", "table", "F16",
)  # fmt: skip
"""What is put in the place of a value: other types, numbers without end, names that lead elsewhere."""
DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I8", "U8", "BOOL", "F8_E4M3", "C64", "U64", "F4", "X", "")
BOMB = 2**28
"""How many bytes a small gzip file unfolds to."""


def flipped_bits(rng: Rng, content: bytes) -> bytes:
    """One to four bits."""
    spoilt = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        spoilt[rng.integers(len(spoilt))] ^= 1 << int(rng.integers(8))
    return bytes(spoilt)


def other_bytes(rng: Rng, content: bytes) -> bytes:
    """One to sixteen bytes in a row."""
    start = int(rng.integers(len(content)))
    return content[:start] + rng.bytes(int(rng.integers(1, 17))) + content[start + 16 :]


def truncated(rng: Rng, content: bytes) -> bytes:
    """Cut off anywhere."""
    return content[: rng.integers(len(content))]


def beheaded(rng: Rng, content: bytes) -> bytes:
    """Without its beginning."""
    return content[rng.integers(1, len(content) + 1) :]


def with_insertion(rng: Rng, content: bytes) -> bytes:
    """Something in the middle, or at the end."""
    start = int(rng.integers(len(content) + 1))
    return content[:start] + rng.bytes(int(rng.integers(1, 40))) + content[start:]


def with_gap(rng: Rng, content: bytes) -> bytes:
    """A piece gone."""
    start = int(rng.integers(len(content)))
    return content[:start] + content[start + int(rng.integers(1, 64)) :]


def with_zeros(rng: Rng, content: bytes) -> bytes:
    """A block of zeros, as a crash of the machine leaves it."""
    start, size = int(rng.integers(len(content))), int(rng.integers(1, 4096))
    return content[:start] + bytes(min(size, len(content) - start)) + content[start + size :]


def doubled(rng: Rng, content: bytes) -> bytes:
    """A piece twice."""
    start, size = int(rng.integers(len(content))), int(rng.integers(1, 256))
    return content[: start + size] + content[start:]


def empty(rng: Rng, content: bytes) -> bytes:
    """Nothing."""
    return b""


def noise(rng: Rng, content: bytes) -> bytes:
    """Nothing of it left."""
    return rng.bytes(len(content))


BYTES = (
    flipped_bits,
    flipped_bits,
    other_bytes,
    truncated,
    beheaded,
    with_insertion,
    with_gap,
    with_zeros,
    doubled,
    empty,
    noise,
)


def _nodes(value: Any) -> list[tuple[Any, Any]]:
    """Every place in nested lists and dictionaries, as (container, key)."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *_nodes(value[key])]]


def wrong_value(rng: Rng, content: bytes) -> bytes:
    """JSON with one value exchanged."""
    found = json.loads(content)
    container, key = _one_of(rng, _nodes(found))
    container[key] = _one_of(rng, WRONG)
    return json.dumps(found).encode()


def lost_value(rng: Rng, content: bytes) -> bytes:
    """JSON without one of its entries."""
    found = json.loads(content)
    container, key = _one_of(rng, _nodes(found))
    del container[key]
    return json.dumps(found).encode()


def other_name(rng: Rng, content: bytes) -> bytes:
    """JSON with one entry under another name."""
    found = json.loads(content)
    container, key = _one_of(rng, [place for place in _nodes(found) if isinstance(place[0], dict)])
    container[_one_of(rng, ("../../x", "", "x", f"{key}s", key[:-1]))] = container.pop(key)
    return json.dumps(found).encode()


def twice(rng: Rng, content: bytes) -> bytes:
    """JSON with one entry twice, first or last with another value."""
    name = _one_of(rng, list(json.loads(content)))
    entry = f"{json.dumps(name)}: {json.dumps(_one_of(rng, WRONG))}".encode()
    if rng.random() < 0.5:
        return b"{" + entry + b"," + content.strip()[1:]
    return content.strip()[:-1] + b"," + entry + b"}"


def deep(rng: Rng, content: bytes) -> bytes:
    """JSON nested deeper than anyone reads."""
    depth = int(rng.integers(1000, 200_000))
    name = _one_of(rng, list(json.loads(content)))
    return b"{" + json.dumps(name).encode() + b": " + b"[" * depth + b"]" * int(rng.integers(2) * depth) + b"}"


def not_an_object(rng: Rng, content: bytes) -> bytes:
    """JSON of another kind."""
    return json.dumps(_one_of(rng, WRONG)).encode()


JSON = (wrong_value, wrong_value, lost_value, other_name, twice, deep, not_an_object)


def _rebuilt(header: bytes, content: bytes) -> bytes:
    """A safetensors file with another header before the same data."""
    (size,) = struct.unpack("<Q", content[:8])
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def _header_of(content: bytes) -> Any:
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size])


def wrong_size(rng: Rng, content: bytes) -> bytes:
    """A header that says it is longer or shorter than it is."""
    (size,) = struct.unpack("<Q", content[:8])
    wrong = _one_of(rng, (0, 1, size - 1, size + 1, size + 8, len(content), 10**8, 2**31, 2**40, 2**63, 2**64 - 1))
    return struct.pack("<Q", wrong) + content[8:]


def wrong_tensor(rng: Rng, content: bytes) -> bytes:
    """Another type, shape or place for one tensor."""
    header = _header_of(content)
    name = _one_of(rng, [name for name in header if name != "__metadata__"])
    own = header[name]
    sizes = [int(size) for size in rng.integers(0, 5, rng.integers(0, 4))]
    part, value = _one_of(
        rng,
        [
            ("dtype", _one_of(rng, DTYPES)),
            ("shape", own["shape"][::-1]),
            ("shape", sizes),
            ("shape", [2**62, 4]),
            ("shape", [-1]),
            ("shape", [*own["shape"], 1]),
            ("data_offsets", [0, own["data_offsets"][1] - own["data_offsets"][0]]),
            ("data_offsets", [offset + 4 for offset in own["data_offsets"]]),
            ("data_offsets", [2**63, 2**63 + 8]),
            ("data_offsets", own["data_offsets"][::-1]),
        ],
    )
    own[part] = value
    return _rebuilt(json.dumps(header).encode(), content)


def exchanged_tensors(rng: Rng, content: bytes) -> bytes:
    """Two tensors under each other's names."""
    header = _header_of(content)
    names = [name for name in header if name != "__metadata__"]
    if len(names) > 1:
        one, two = (names[int(number)] for number in rng.choice(len(names), 2, replace=False))
        header[one], header[two] = header[two], header[one]
    return _rebuilt(json.dumps(header).encode(), content)


def wrong_header(rng: Rng, content: bytes) -> bytes:
    """Any of the mutations of JSON, on the header."""
    (size,) = struct.unpack("<Q", content[:8])
    return _rebuilt(_one_of(rng, JSON)(rng, content[8 : 8 + size].rstrip()), content)


def wrong_numbers(rng: Rng, content: bytes) -> bytes:
    """One to four entries of one float tensor exchanged for numbers that are none, or that do not belong there."""
    (size,) = struct.unpack("<Q", content[:8])
    header = _header_of(content)
    kinds = {"F32": np.float32, "F64": np.float64}
    name = _one_of(rng, [name for name, own in header.items() if own.get("dtype") in kinds])
    start, end = (8 + size + offset for offset in header[name]["data_offsets"])
    numbers = np.frombuffer(content[start:end], dtype=kinds[header[name]["dtype"]]).copy()
    for _ in range(rng.integers(1, 5)):
        numbers[rng.integers(len(numbers))] = _one_of(rng, (np.nan, np.inf, -np.inf, -1.0, 1e30, 7.0))
    return content[:start] + numbers.tobytes() + content[end:]


SAFETENSORS = (wrong_size, wrong_tensor, wrong_tensor, exchanged_tensors, wrong_header)


def wrong_idx(rng: Rng, content: bytes) -> bytes:
    """Other sizes, another type, or another number of dimensions in an IDX header."""
    place = int(rng.integers(2, 4 + 4 * content[3]))
    return content[:place] + bytes([int(_one_of(rng, (0, 1, 2, 9, 127, 255)))]) + content[place + 1 :]


def repacked(rng: Rng, content: bytes) -> bytes:
    """A gzipped IDX file with such a header, packed again."""
    return gzip.compress(wrong_idx(rng, gzip.decompress(content)))


def bomb(rng: Rng, content: bytes) -> bytes:
    """A small gzip file that unfolds to very much, with a header that promises as much, or hardly anything."""
    count = _one_of(rng, (BOMB // 784, 12, 2**31))
    start = gzip.decompress(content)[:4] + struct.pack(">3I", count, 28, 28)[: 4 * gzip.decompress(content)[3]]
    return gzip.compress(start) + _packed_zeros()


@functools.cache
def _packed_zeros() -> bytes:
    return gzip.compress(bytes(BOMB), compresslevel=9)


def two_members(rng: Rng, content: bytes) -> bytes:
    """Two gzip files in one."""
    return content + _one_of(rng, (content, gzip.compress(b""), gzip.compress(b"x"), b"\0" * 20, b"\x1f\x8b"))


GZIP = (repacked, repacked, bomb, two_members)


DESCRIPTIONS = (
    "'<f8'",
    "'<f4'",
    "'>i8'",
    "'|u1'",
    "'|b1'",
    "'<c16'",
    "'|O'",
    "'<U9'",
    "'|V0'",
    "[]",
    "('<f8', 3.5)",
    "1",
    "{1: 2}",
)
SHAPES = (
    "()",
    "(2,)",
    "(0, 3)",
    "(-1, 2)",
    "(9, 3, 1)",
    "(33554432, 33554432)",
    f"({10**30},)",
    "(True,)",
    "('2',)",
    "(2,",
    "2",
)
"""What a .npy header says of the entries' type and of their number, much of which cannot be."""


def wrong_npy(rng: Rng, content: bytes) -> bytes:
    """Another type, order or number of entries in a .npy header."""
    (size,) = struct.unpack("<H", content[8:10])
    parts = {"descr": "'<f8'", "fortran_order": "False", "shape": "(9, 2)"}
    name, values = _one_of(
        rng, (("descr", DESCRIPTIONS), ("shape", SHAPES), ("fortran_order", ("True", "1", "None", "[")))
    )
    parts[_one_of(rng, (name, name, name, "other"))] = _one_of(rng, values)
    header = ("{" + ", ".join(f"'{name}': {value}" for name, value in parts.items()) + "}\n").encode()
    return content[:8] + struct.pack("<H", len(header)) + header + content[10 + size :]


def wrong_entry(rng: Rng, content: bytes) -> bytes:
    """Flags or a method of compression in a zip file that the entry does not have, or a size or a place."""
    spoilt = bytearray(content)
    field, value = _one_of(rng, ((0, 1), (0, 8), (0, 32), (2, 1), (2, 8), (2, 9), (2, 12), (2, 14), (2, 99), (14, 255)))
    spoilt[6 + field] = value  # of the first entry
    spoilt[content.index(b"PK\1\2") + 8 + field] = value  # of the list of entries
    return bytes(spoilt)


def within_zip(rng: Rng, content: bytes) -> bytes:
    """One entry of a zip file spoilt, the checksums that zip keeps being right."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as whole, zipfile.ZipFile(packed, "w") as spoilt:
        chosen = _one_of(rng, whole.namelist())
        for name in whole.namelist():
            inside = whole.read(name)
            spoilt.writestr(
                name, _one_of(rng, (wrong_npy, wrong_npy, *BYTES))(rng, inside) if name == chosen else inside
            )
    return packed.getvalue()


NPZ = (wrong_entry, within_zip, within_zip, within_zip)


def mutations_for(name: str, signed_again: bool = False) -> tuple[Mutation, ...]:
    """Those that fit a file of this name; those of bytes fit all, but leave little that could be signed again."""
    if signed_again:
        return JSON if name.endswith(".json") else (*SAFETENSORS, wrong_numbers, wrong_numbers, wrong_numbers)
    if name.endswith(".json"):
        return BYTES + JSON
    if name.endswith(".safetensors"):
        return BYTES + SAFETENSORS
    if name.endswith(".gz"):
        return BYTES + GZIP
    if name.endswith(".npz"):
        return BYTES + NPZ
    if name.endswith(".npy"):
        return (*BYTES, wrong_npy, wrong_npy)
    return BYTES + ((wrong_idx,) if name.endswith("ubyte") else ())


def _one_of(rng: Rng, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]
