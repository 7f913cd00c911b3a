"""Runs that are ended anywhere come to the same bits, and nothing finished is done again (docs/fault-tolerance.md, short)."""

from __future__ import annotations

import errno
import importlib
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from cautious.errors import WriteError
from cautious_paper.experiments.driving.driving_experiment import run_driving

TOOLS = Path(__file__).parents[2] / "tools"
CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from survival_child import MIDDLING
from cautious.cli.console import progress_bars
from cautious_paper.experiments.driving.driving_experiment import run_driving
with progress_bars() as progress:
    run_driving(MIDDLING, sys.argv[2], progress=progress)
"""


@pytest.fixture(scope="module")
def tool():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        yield importlib.import_module("survival_runs")


@pytest.fixture(scope="module")
def runs(tool):
    return importlib.import_module("survival_child")


@pytest.fixture(autouse=True, scope="module")
def _embedded_data_only(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CAUTIOUS_DATA", raising=False)
        patch.setenv("CAUTIOUS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def reference(tool, runs, tmp_path_factory):
    """An uninterrupted run, and its folder as a kill at each write would have left it."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    with tool.snapshots(folder, tmp_path_factory.mktemp("snapshots")) as taken:
        runs.TINY["ask-for-help"](folder)
    assert len(taken) > 60
    return folder, taken


def full(patch: pytest.MonkeyPatch, number: int) -> None:
    """The disk is found to be full at the n-th write."""
    count, fsync = 0, os.fsync

    def counted(handle):
        nonlocal count
        count += not os.path.isdir(f"/proc/self/fd/{handle}")
        if count == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    patch.setattr(os, "fsync", counted)


def test_going_on_from_a_write_that_was_killed(tool, runs, reference):
    expected, taken = reference
    for folder in taken[5::16]:
        before = tool.finished_files(folder)
        runs.TINY["ask-for-help"](folder)
        assert not tool.made_again(folder, before)
        assert not tool.differences(expected, folder)
        assert not tool.litter(folder)


def test_a_disk_that_is_full_again_and_again(tool, runs, reference, tmp_path):
    said = []
    for _ in range(50):
        before = tool.finished_files(tmp_path / "run")
        with pytest.MonkeyPatch.context() as patch:
            full(patch, number=1 + len(said) % 6)  # a stage is four files at most, so it comes to its end
            try:
                runs.TINY["ask-for-help"](tmp_path / "run")
                break
            except WriteError as error:
                said.append(str(error))
        assert not tool.made_again(tmp_path / "run", before)
        assert not tool.litter(tmp_path / "run")
    assert len(said) > 6
    assert all("Make room on the disk, then run the same again" in text for text in said)
    assert not tool.differences(reference[0], tmp_path / "run")


def test_a_clock_that_jumps(tool, runs, reference, monkeypatch):
    expected, taken = reference
    rng, real = random.Random(0), time.time
    monkeypatch.setattr(time, "time", lambda: real() + rng.uniform(-3e8, 3e8))
    for folder in (taken[3], taken[41]):
        for path in folder.rglob("*"):
            os.utime(path, (rng.uniform(0, 4e9),) * 2)
        runs.TINY["ask-for-help"](folder)
        assert not tool.differences(expected, folder)


def test_sigkill_in_training_and_in_solving(tool, runs, tmp_path, monkeypatch):
    expected = run_driving(runs.MIDDLING, tmp_path / "reference").folder
    monkeypatch.setitem(tool.COMMANDS, "middling", ["-c", CHILD, str(TOOLS)])
    run = tmp_path / "run"
    for title in ("training", "solving, p = 0.5, queue"):
        before = tool.finished_files(run)
        life = tool.Life("middling", run)
        assert life.wait_for([title]) == title
        life.send(signal.SIGKILL)
        assert not tool.made_again(run, before)
        assert not (run / "novel-p0.5.json").exists()
    assert (run / "belief.json").exists()
    before = tool.finished_files(run)
    run_driving(runs.MIDDLING, run)
    assert not tool.made_again(run, before)
    assert not tool.differences(expected, run)
    assert not tool.litter(run)


def test_the_comparison_sees_what_it_should(tool, reference, tmp_path):
    expected, _ = reference
    copy = shutil.copytree(expected, tmp_path / "copy")
    before = tool.finished_files(copy)
    assert not tool.differences(expected, copy)
    stage = copy / "help-0.25-digits.safetensors"
    content = stage.read_bytes()
    stage.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (copy / "help-0.25-digits-dial.json").unlink()
    (copy / ".x.json.abc.part").mkdir()
    assert tool.made_again(copy, before) == [
        "help-0.25-digits-dial.json is gone",
        "help-0.25-digits.safetensors was written again",
    ]
    assert tool.differences(expected, copy) == [
        "help-0.25-digits-dial.json is in one of them only",
        "help-0.25-digits.safetensors differs",
    ]
    assert len(tool.litter(copy)) == 1
