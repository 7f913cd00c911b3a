"""Files are whole or absent: after errors, kills and full disks, and with two writers."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys

import pytest
import torch

from cautious.errors import CautiousError, MissingFileError, WriteError
from cautious.io.arrays import load_json, load_tensors, save_json, save_tensors
from cautious.io.atomic import atomic_write

HALF = """
import os, signal, sys
from pathlib import Path
from cautious.io.atomic import atomic_write
def half(target):
    target.write_text("half")
    print("writing", flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.readline()
atomic_write(Path(sys.argv[1]), half)
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def child(path, how):
    call = [sys.executable, "-c", HALF, str(path), how]
    return subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_what_a_killed_process_leaves_is_cleared_by_the_next_writer(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("old")
    with child(path, "killed") as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
    assert path.read_text() == "old"
    assert len(names(tmp_path)) == 2
    atomic_write(tmp_path / "x.json.other", lambda target: target.write_text("another file"))
    assert len(names(tmp_path)) == 3  # what is left of another file is not its business
    atomic_write(path, lambda target: target.write_text("new"))
    assert names(tmp_path) == ["x.json", "x.json.other"]
    assert path.read_text() == "new"


def test_a_writer_at_work_is_left_alone(tmp_path):
    path = tmp_path / "x.json"
    with child(path, "alive") as process:
        assert process.stdout.readline() == "writing\n"
        atomic_write(path, lambda target: target.write_text("ours"))
        assert path.read_text() == "ours"
        process.communicate("go on\n", timeout=60)
        assert process.returncode == 0
    assert path.read_text() == "half"  # the last one to finish
    assert names(tmp_path) == ["x.json"]


@pytest.mark.parametrize(
    ("number", "says"),
    [(errno.ENOSPC, "Make room on the disk"), (errno.EROFS, "Make the folder writable"), (errno.EIO, "Put that right")],
)
def test_what_the_system_refuses_is_said_with_the_way_out(tmp_path, monkeypatch, number, says):
    path = tmp_path / "x.json"
    save_json(path, {"old": True})

    def refuse(handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    for write in (lambda: save_json(path, {"new": 1}), lambda: save_tensors(path, {"new": torch.zeros(3)})):
        with pytest.raises(WriteError, match=rf"x\.json: could not be written \({os.strerror(number)}\). {says}"):
            write()
    monkeypatch.undo()
    assert load_json(path) == {"old": True}
    assert names(tmp_path) == ["x.json"]
    assert issubclass(WriteError, CautiousError)
    assert issubclass(WriteError, OSError)


def test_a_disk_that_fills_in_the_middle_of_a_file(tmp_path):
    """The kernel itself cuts the write off: by a limit on the size of files, which needs no rights and no disk."""
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"old": torch.arange(10)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        for write in (
            lambda: save_tensors(path, {"new": torch.zeros(10_000)}),
            lambda: save_json(path, {"new": [0.5] * 10_000}),
        ):
            with pytest.raises(WriteError, match="could not be written"):
                write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert torch.equal(load_tensors(path)["old"], torch.arange(10))
    assert names(tmp_path) == ["x.safetensors"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WriteError, match=r"file/x\.json: could not be written"):
        save_json(tmp_path / "file" / "x.json", {})


def test_errors_of_ours_pass_as_they_are(tmp_path):
    def miss(target):
        raise MissingFileError("nothing to write")

    with pytest.raises(MissingFileError, match="nothing to write"):
        atomic_write(tmp_path / "x", miss)
    assert names(tmp_path) == []


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_file_may_be_read_by_whom_the_user_lets(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        save_json(tmp_path / "x.json", {})
        save_tensors(tmp_path / "x.safetensors", {"a": torch.zeros(1)})
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in sorted(tmp_path.iterdir())] == [mode, mode]
    assert names(tmp_path) == ["x.json", "x.safetensors"]
