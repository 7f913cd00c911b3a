"""Spoilt files: the command of docs/fault-tolerance.md, some hundred files of it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def tool():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        yield importlib.import_module("fuzz_files")


def test_spoilt_files_are_refused_or_harmless(tool):
    counts, wrong = tool.fuzz(count=20 * len(tool.KINDS), seed=1)
    assert not wrong
    assert all(own["refused"] >= 10 for own in counts.values())
    assert sum(own["same"] for own in counts.values()) > 0  # not everything is refused without being read


def test_what_goes_wrong_is_seen(tool, tmp_path, monkeypatch):
    """Crashes, hangs and leaking errors are told from refusals: with children that do just that."""
    child = tmp_path / "child.py"
    monkeypatch.setattr(tool, "__file__", str(child))
    monkeypatch.setattr(tool, "SECONDS", 2.0)
    for code, outcome in {
        "import os; input(); os.abort()": "crash",
        "import time; input(); time.sleep(60)": "hang",
        'input(); print(\'{"outcome": "other error", "says": "KeyError"}\', flush=True); input()': "other error",
    }.items():
        child.write_text(code)
        reader = tool.Reader()
        assert reader.read("run", tmp_path)["outcome"] == outcome
        reader.close()
