from __future__ import annotations

import pytest
import torch

from cautious.beliefs.files import load_json, load_tensors, save_json, save_tensors, write_whole
from cautious.errors import BadFileError, MissingFileError


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
        write_whole(path, fail)
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
        write_whole(path, interrupted)
    assert load_json(path) == {"old": True}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("keep", [0, 4, 8, 20, 60])
def test_truncated_files_are_named(tmp_path, keep):
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"a": torch.zeros(10)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadFileError, match=r"x\.safetensors: not a whole"):
        load_tensors(path)
    (tmp_path / "y.json").write_text('{"a": ')
    with pytest.raises(BadFileError, match=r"y\.json: not a whole"):
        load_json(tmp_path / "y.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MissingFileError, match=r"nothing\.json"):
        load_json(tmp_path / "nothing.json")
