"""`tools/publish_results.py`: what is copied of a run, and that the copy is a run still."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from fake_runs import bearing_out

from cautious.experiments.store import Store
from cautious.report.contents import ledger_of

PATH = Path(__file__).parents[2] / "tools" / "publish_results.py"


@pytest.fixture
def tool(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("publish_results", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return module


def test_a_published_run_reads_as_the_run_without_its_letters(tool, tmp_path):
    store = bearing_out(tmp_path / "run", "non-obvious").store
    tool.publish("copy", store.folder)
    copy = Store.open(tmp_path / "results" / "copy")
    assert copy.manifest == store.manifest
    for stage in sorted(path.stem for path in store.folder.glob("*.safetensors")):
        ours, theirs = copy.arrays(stage), store.arrays(stage)
        wanted = {name for name in theirs if "letters" not in stage or not name.startswith("samples-")}
        assert ours.keys() == wanted
        assert all(torch.equal(ours[name], theirs[name]) for name in wanted)
        assert copy.numbers(stage) == store.numbers(stage)
    assert ledger_of(copy) == ledger_of(store)
