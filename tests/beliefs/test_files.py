from __future__ import annotations

import errno
import io
import os
import struct
import zipfile

import numpy as np
import pytest
import torch

from cautious.errors import BadFileError, MissingFileError
from cautious.io.arrays import atomic_write, load_array, load_json, load_npz, load_tensors, save_json, save_tensors


def test_tensors_and_settings_come_back(tmp_path):
    tensors = {"a": torch.arange(6.0).reshape(2, 3).T, "b": torch.tensor(3)}
    save_tensors(tmp_path / "deep" / "x.safetensors", tensors)
    loaded = load_tensors(tmp_path / "deep" / "x.safetensors")
    assert torch.equal(loaded["a"], tensors["a"])
    save_json(tmp_path / "x.json", {"level": "1-of-20", "ä": [1, 2.5, None]})
    assert load_json(tmp_path / "x.json") == {"level": "1-of-20", "ä": [1, 2.5, None]}


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "x.json"
    save_json(path, {"old": True})

    def fail(target):
        target.write_text("half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        atomic_write(path, fail)
    with pytest.raises(ValueError, match="JSON compliant"):
        save_json(path, {"bad": float("nan")})
    assert load_json(path) == {"old": True}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_an_interrupt_in_the_middle_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.json"
    save_json(path, {"old": True})

    def interrupted(target):
        target.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic_write(path, interrupted)
    assert load_json(path) == {"old": True}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("keep", [0, 4, 8, 20, 60])
def test_truncated_files_are_named(tmp_path, keep):
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"a": torch.zeros(10)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadFileError, match=r"x\.safetensors: not a complete"):
        load_tensors(path)
    (tmp_path / "y.json").write_text('{"a": ')
    with pytest.raises(BadFileError, match=r"y\.json: not a complete"):
        load_json(tmp_path / "y.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MissingFileError, match=r"nothing\.json"):
        load_json(tmp_path / "nothing.json")


def test_several_arrays_under_the_name_of_one_are_named(tmp_path):
    np.savez(tmp_path / "x.npz", inputs=np.zeros(2))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with pytest.raises(BadFileError, match=r"x\.npy: not a complete \.npy file of numbers \(it holds several arrays"):
        load_array(tmp_path / "x.npy", "inputs")


NUMPY_HEADERS = [
    "{'descr': '<f8', 'fortran_order': False, 'shape': (33554432, 33554432)}",  # MemoryError
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000000000000000000,)}",  # OverflowError
    "{'descr': '<f8', 'fortran_order': False, 'shape': (True, False, -1)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (2,",  # tokenize.TokenError
    "{'descr': ('<f8', 3.5), 'fortran_order': False, 'shape': (2,)}",  # TypeError
    "{'descr': {1: 2}, 'fortran_order': False, 'shape': (2,)}",
    "{[]: 1}",  # TypeError: unhashable
]


def numpy_file(header: str) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(16)


@pytest.mark.parametrize("header", NUMPY_HEADERS)
def test_numpy_headers_that_claim_what_cannot_be_are_named(tmp_path, header):
    (tmp_path / "x.npy").write_bytes(numpy_file(header))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as packed:
        packed.writestr("inputs.npy", numpy_file(header))
    with pytest.raises(BadFileError, match=r"x\.npy: not a complete"):
        load_array(tmp_path / "x.npy", "inputs")
    with pytest.raises(BadFileError, match=r"x\.npz: not a complete"):
        load_npz(tmp_path / "x.npz", ["inputs"])


@pytest.mark.parametrize(("field", "value"), [(0, 1), (0, 32), (2, 1), (2, 8), (2, 12), (2, 14), (2, 99)])
def test_zip_entries_that_cannot_be_unpacked_are_named(tmp_path, field, value):
    """Flags (encrypted, patched) and compression methods that the content does not have, or that no one has."""
    whole = io.BytesIO()
    np.savez(whole, inputs=np.arange(40.0))
    content = bytearray(whole.getvalue())
    content[6 + field] = value  # of the entry
    content[content.rindex(b"PK\1\2") + 8 + field] = value  # of the list of entries
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(BadFileError, match=r"x\.npz: not a complete \.npz file of numbers"):
        load_npz(tmp_path / "x.npz", ["inputs"])


@pytest.mark.parametrize("number", ["9" * 400, "1e400", "-" + "9" * 400, "9" * 5000])
def test_numbers_without_end_are_refused(tmp_path, number):
    path = tmp_path / "x.json"
    path.write_text(f'{{"a": {number}}}')
    with pytest.raises(BadFileError, match=r"x\.json: not a complete JSON file"):
        load_json(path)


def test_a_file_that_may_not_be_read_is_not_called_truncated(tmp_path, monkeypatch):
    """By a stand-in for the system's refusal, which an administrator never meets."""
    path = tmp_path / "x.json"
    save_json(path, {"a": 1})
    for number, says in ((errno.EACCES, "Permission denied"), (errno.EIO, "Input/output error")):

        def refuse(self, mode="r", *args, number=number, **kwargs):
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(type(path), "open", refuse)
            for load in (load_json, load_tensors):
                with pytest.raises(BadFileError, match=rf"x\.json: could not be read \({says}\); make it readable"):
                    load(path)
