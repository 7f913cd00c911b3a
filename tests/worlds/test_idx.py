"""IDX files: what is written is read again, and no damaged or lying file gets through."""

from __future__ import annotations

import gzip
import struct

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cautious.errors import BadFileError, InvalidInputError
from cautious_paper.worlds.data.idx import read_idx, write_idx

SOUND = b"\0\0\x08\x03" + struct.pack(">3I", 2, 2, 3) + bytes(range(12))


def header(*sizes: int, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes)


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
    suffix=st.sampled_from(["", ".gz"]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_again(tmp_path, shape, seed, suffix):
    values = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    path = tmp_path / f"some-ubyte{suffix}"
    write_idx(path, values)
    assert torch.equal(read_idx(path, len(shape)), values)
    assert [file.name for file in tmp_path.iterdir() if file.name.endswith(".part")] == []


def test_bytes_by_hand(tmp_path):
    path = tmp_path / "by-hand"
    path.write_bytes(SOUND)
    assert read_idx(path, 3).tolist() == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]
    write_idx(tmp_path / "again", read_idx(path, 3))
    assert (tmp_path / "again").read_bytes() == SOUND


def test_gzip_is_told_by_content_and_not_by_name(tmp_path):
    (tmp_path / "plain-named.gz").write_bytes(SOUND)
    (tmp_path / "packed").write_bytes(gzip.compress(SOUND))
    assert torch.equal(read_idx(tmp_path / "plain-named.gz", 3), read_idx(tmp_path / "packed", 3))


def test_packing_depends_on_the_content_alone(tmp_path):
    values = torch.arange(12, dtype=torch.uint8)
    write_idx(tmp_path / "one.gz", values)
    write_idx(tmp_path / "two.gz", values)
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()
    assert (tmp_path / "one.gz").read_bytes()[4:8] == b"\0\0\0\0"  # no time of making


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not an IDX file"),
        (b"\0\0", "not an IDX file"),
        (b"PK\x03\x04 a zip", "not an IDX file"),
        (SOUND[:10], "cut off inside its header"),
        (SOUND[:-1], r"declares 12 bytes|cut off"),
        (SOUND + b"!", "has extra data after"),
        (header(2, 2, 3, kind=0x0D) + bytes(48), "type 0x0d"),
        (header(12) + bytes(12), "has 1 dimensions where 3"),
        (header(0, 28, 28), "holds nothing"),
        (header(2**32 - 1, 2**32 - 1, 2**32 - 1) + bytes(12), "declares 79,228,"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_bad_file_is_named_with_its_fault_and_the_way_out(tmp_path, content, said, pack):
    path = tmp_path / "bad-ubyte"
    path.write_bytes(pack(content))
    with pytest.raises(BadFileError, match=said) as caught:
        read_idx(path, 3)
    assert str(path) in str(caught.value)
    assert "cautious data fetch" in str(caught.value)


@pytest.mark.parametrize("cut", [3, 11, 20, -9, -1])
def test_a_gzip_that_is_cut_off_anywhere_is_refused(tmp_path, cut):
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(SOUND)[:cut])
    with pytest.raises(BadFileError, match="cut"):
        read_idx(path, 3)


def test_a_gzip_with_one_flipped_bit_is_refused(tmp_path):
    packed = bytearray(gzip.compress(SOUND, compresslevel=0))
    packed[-12] ^= 1  # inside the stored bytes: only the checksum at the end can tell
    (tmp_path / "flipped.gz").write_bytes(packed)
    with pytest.raises(BadFileError, match="CRC"):
        read_idx(tmp_path / "flipped.gz", 3)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_promise_that_the_file_is_too_short_for_is_not_believed(tmp_path, pack):
    """900 MB would fit in memory, but not in this file: nothing is set aside for them."""
    path = tmp_path / "boastful"
    path.write_bytes(pack(header(1000, 1000, 900) + bytes(12)))
    with pytest.raises(BadFileError, match="declares 900,000,000 bytes"):
        read_idx(path, 3)


def test_a_bomb_is_not_unfolded(tmp_path):
    """A header that is honest about far too much is refused before a byte of it is unpacked."""
    packed = gzip.compress(header(2**11, 2**10, 2**10) + bytes(2**22))
    (tmp_path / "bomb.gz").write_bytes(packed + bytes(2**21))  # large enough on disk that gzip could hold as much
    with pytest.raises(BadFileError, match="1,073,741,824 at most"):
        read_idx(tmp_path / "bomb.gz", 3)


def test_a_bomb_behind_a_small_header_is_read_no_further_than_promised(tmp_path, monkeypatch):
    asked: list[int] = []
    real = gzip.GzipFile.read

    def read(self, size=-1):
        asked.append(size)
        return real(self, size)

    monkeypatch.setattr(gzip.GzipFile, "read", read)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(header(1, 2, 3) + bytes(2**24)))
    with pytest.raises(BadFileError, match="has extra data after"):
        read_idx(tmp_path / "bomb.gz", 3)
    assert min(asked) > 0
    assert sum(asked) == 4 + 12 + 6 + 1


@pytest.mark.parametrize("values", [torch.zeros(3), torch.zeros(0, 2, dtype=torch.uint8), torch.tensor(3).byte()])
def test_only_bytes_can_be_written(tmp_path, values):
    with pytest.raises(InvalidInputError, match="unsigned bytes"):
        write_idx(tmp_path / "bad", values)
    assert not (tmp_path / "bad").exists()
