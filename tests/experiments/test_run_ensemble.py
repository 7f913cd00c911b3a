"""`tools/run_ensemble.py`: a run in pieces, each packed as it is finished."""

from __future__ import annotations

import importlib.util
import sys
import tarfile
from pathlib import Path

import pytest

from cautious_paper.experiments.store import Store
from cautious_paper.report.report_spec import ledger_of, tables_of

PATH = Path(__file__).parents[2] / "tools" / "run_ensemble.py"


@pytest.fixture
def tool(tmp_path, monkeypatch):
    monkeypatch.delenv("CAUTIOUS_DATA", raising=False)
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))
    spec = importlib.util.spec_from_file_location("run_ensemble", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["run_ensemble.py", *arguments, "--scale", "smoke", "--device", "cpu"])
        module.main()

    return run


def unpacked(path: Path, folder: Path) -> Store:
    with tarfile.open(path) as packed:
        packed.extractall(folder, filter="data")
    return Store.open(next(folder.iterdir()))


def test_draws_run_one_by_one_into_one_run(tool, tmp_path, capsys):
    folder, packed = tmp_path / "draws", tmp_path / "out" / "draws.tar"
    places = ("--folder", str(folder), "--pack", str(packed))
    tool("data-extent", "--setting", "draws", "--only", "extent-1-draw-0", *places)
    first = unpacked(packed, tmp_path / "first")
    assert {name.rsplit("-", 1)[0] for name in first.stages()} == {"extent-1-draw-0", "belief-extent-1-draw"}
    tool("data-extent", "--setting", "draws", "--only", "extent-1-draw-0", "extent-1-draw-1", *places)
    both = unpacked(packed, tmp_path / "both")
    assert both.numbers("extent-1-draw-0-fashion") == first.numbers("extent-1-draw-0-fashion")
    assert both.has("extent-1-draw-1-digits")
    assert not (both.folder / "belief-extent-1-draw-1").exists()  # the networks stay where they are
    assert "in all" in capsys.readouterr().out
    assert tables_of(both)
    assert ledger_of(both)


def test_extra_studies_can_be_left_out(tool, tmp_path):
    folder, packed = tmp_path / "run", tmp_path / "run.tar"
    tool("non-obvious", "--seed", "1", "--without-studies", "--folder", str(folder), "--pack", str(packed))
    store = unpacked(packed, tmp_path / "copy")
    assert store.manifest["settings"]["variants"]["non-obvious"]["unit"] == "tenths"
    assert store.manifest["settings"]["variants"]["non-obvious"]["training"]["seed"] == 1
    assert store.stages() == ["belief-non-obvious", "non-obvious-digits", "non-obvious-fashion"]
