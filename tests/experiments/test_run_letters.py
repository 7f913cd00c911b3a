"""`tools/run_letters.py`: runs what is missing, and measures the same models on each set of letters in the folder."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch

from cautious_paper.worlds.data.idx import write_idx

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return runpy.run_path(str(TOOLS / "run_letters.py"))


@pytest.fixture
def data(tmp_path):
    """Made-up letters: two of each in the larger set, one of each in the other."""
    for folder, each in (("emnist-letters-rebuilt", 2), ("emnist-letters-subset", 1)):
        labels = (torch.arange(26 * each) % 26 + 1).byte()
        images = torch.randint(256, (len(labels), 28, 28), generator=torch.Generator().manual_seed(each)).byte()
        write_idx(tmp_path / "data" / folder / "letters-images-idx3-ubyte", images)
        write_idx(tmp_path / "data" / folder / "letters-labels-idx1-ubyte", labels)
    return tmp_path / "data"


def test_each_set_is_measured_with_the_same_models_and_a_second_call_does_nothing(
    tool, data, tmp_path, monkeypatch, capsys
):
    step = tool["Step"]("tiny", "ask-for-help", only=("help-0.5",))
    monkeypatch.setitem(tool["STEPS"], "smoke", (step,))
    call = [
        "run_letters",
        "--data",
        str(data),
        "--folder",
        str(tmp_path / "runs"),
        "--scale",
        "smoke",
        "--device",
        "cpu",
    ]
    monkeypatch.setattr(sys, "argv", [*call, "--pack", str(tmp_path / "out")])
    tool["main"]()
    path = tmp_path / "out" / "letters-tiny.json"
    rows = json.loads(path.read_text())
    assert [row["num_images"] for row in rows] == [52, 26]
    assert len({row["sha256"] for row in rows}) == 2
    assert (tmp_path / "out" / "tiny.tar").exists()
    for row in rows:
        by_letter = torch.tensor(row["help_by_letter"]["single-state"])  # [L, 26], equally many of each letter
        assert by_letter.mean(dim=1).tolist() == pytest.approx(row["help_probability"]["single-state"], abs=1e-5)
    capsys.readouterr()
    tool["main"]()
    assert "training" not in capsys.readouterr().out
    assert json.loads(path.read_text()) == rows


def test_a_step_that_would_take_too_long_is_not_begun(tool, data, tmp_path, monkeypatch, capsys):
    step = tool["Step"]("tiny", "ask-for-help", only=("help-0.5",), seconds=61)
    monkeypatch.setitem(tool["STEPS"], "smoke", (step,))
    call = [
        "run_letters",
        "--data",
        str(data),
        "--folder",
        str(tmp_path / "runs"),
        "--scale",
        "smoke",
        "--device",
        "cpu",
    ]
    monkeypatch.setattr(sys, "argv", [*call, "--minutes", "1"])
    tool["main"]()
    assert "left out for lack of time: tiny help-0.5" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
