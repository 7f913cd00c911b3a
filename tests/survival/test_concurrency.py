"""Two writers and a reader in one folder, and processes that wait for one another (tools/concurrency.py, few rounds)."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import pytest
import torch

from cautious import RewardEnsemble, Solution, solve_bandit
from cautious.errors import FolderInUseError, MissingFileError
from cautious.io import atomic
from cautious.io.content_names import reading, replacing

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def tool():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        yield importlib.import_module("concurrency")


@pytest.mark.parametrize("kind", ["Solution", "CautiousPolicy"])
def test_every_load_beside_two_writers_is_one_save_or_the_other(tool, kind):
    counts = tool.contend(kind, rounds=5)
    assert not tool.wrong(counts), counts
    assert counts["saves"] == 5 * 2 * tool.SAVES


def test_the_tool_sees_what_is_wrong(tool, monkeypatch):
    """Content that no writer wrote, and loads that raise."""
    assert tool.wrong({"rounds": 1, "saves": 8, "during: first": 3, "after: neither": 1}) == 1
    assert tool.wrong({"during: MissingFileError: x": 2, "after: second": 1}) == 2


def test_a_second_writer_waits_for_the_first(tmp_path):
    order = []

    def second():
        with replacing(tmp_path / "x.json", "x.safetensors"):
            order.append("second")

    with replacing(tmp_path / "x.json", "x.safetensors"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_writer_that_never_ends_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "LONGEST_SAVE", 0.05)
    solution = solve_bandit(torch.eye(2)[None], "1-of-1", num_iterations=2)
    with replacing(tmp_path / "x.json"), pytest.raises(FolderInUseError, match="another process has been saving"):
        solution.save(tmp_path)
    solution.save(tmp_path)


def test_a_reader_that_misses_a_file_reads_again_while_writers_wait(tmp_path):
    """A writer between the two attempts is played by the first attempt; during the second one no writer gets in."""
    calls = []

    def read():
        calls.append(len(calls))
        if len(calls) == 1:
            raise MissingFileError("gone")
        with atomic._claim(tmp_path) as ours:
            assert ours is False
        return "whole"

    assert reading(tmp_path, read) == "whole"
    assert calls == [0, 1]


def test_what_is_wrong_twice_is_said(tmp_path):
    with pytest.raises(MissingFileError, match=r"ensemble\.json"):
        RewardEnsemble.load(tmp_path)
    with pytest.raises(MissingFileError, match="there is no such file"):
        Solution.load(tmp_path / "nowhere")
