"""`tools/publish_results.py`: what is copied of a run, and that the copy is a run still."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import published_pages
import pytest
import torch
from fake_runs import bearing_out
from published_claims import claim_results

from cautious_paper.experiments.store import Store
from cautious_paper.report.report_spec import ledger_of

PATH = Path(__file__).parents[2] / "tools" / "publish_results.py"


@pytest.fixture
def tool(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("publish_results", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for each in (module, published_pages):
        monkeypatch.setattr(each, "RESULTS", tmp_path / "results")
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


def test_ledgers_open_with_a_summary_and_small_runs_have_their_own_page(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "DOCS", tmp_path)
    monkeypatch.setattr(tool, "README", tmp_path / "README.md")
    quoting = (tmp_path / "results.md", tool.README)
    for page in quoting:
        page.write_text(f"before\n{tool.MARKS[0]}\nan old table\n{tool.MARKS[1]}\nafter\n")
    for name, task, options in (
        ("help-if-available", "help-if-available", {}),
        ("help-if-available-as-printed", "help-if-available", {"setting": "as-printed"}),
        ("data-extent", "data-extent", {}),
        ("data-extent-draws", "data-extent", {"setting": "draws"}),
        ("small-non-obvious", "non-obvious", {"num_models": 40, "num_digits": 6000}),
    ):
        tool.publish(name, bearing_out(tmp_path / "runs" / name, task, **options).store.folder)
    built = published_pages.pages(published_pages.published_runs())
    page, tables, small = (
        built[name] for name in (published_pages.LEDGERS, published_pages.TABLES, published_pages.SMALL_RUNS)
    )
    order = [page.index(words) for words in ("## Summary", "Headline numbers", "Time and cost", "## Ledgers")]
    assert order == sorted(order)
    assert "claims are reproduced" in page
    assert "32 of 32 cells within 2" in page
    assert "| single-image, help available | help | tenths | 10.42" in page
    assert "small-non-obvious" not in page + tables
    assert "small-non-obvious" in small
    assert "over 6 draws of 250 networks" in page
    assert "## help-if-available-as-printed" in tables
    monkeypatch.setattr(tool.sys, "argv", ["publish_results.py", "--without-figures"])
    tool.main()
    written = [page.read_text() for page in quoting]
    for text in written:
        assert "an old table" not in text
        assert text.startswith("before")
        assert text.endswith("after\n")
        assert "| help if available: both tables of familiar digits | 32 cells | 32 of 32 cells within 2" in text
    assert "| HA4 | help if available: the two tables of familiar digits | reproduced |" in written[0]
    tool.main()
    assert [page.read_text() for page in quoting] == written  # writing twice changes nothing


def test_what_is_not_reproduced_has_its_numbers_and_a_reason(tool, tmp_path):
    run = bearing_out(tmp_path / "run", "non-obvious")
    run.behaviour("non-obvious", "digits", correct={"all": (0.9,) * 4, "single": (0.9,) * 4, "optim": 0.9})
    results = claim_results({"non-obvious": run.store})
    assert "1-of-20 90.00" in published_pages.missed_rows(results, {})
    assert "Reason unknown." in published_pages.missed_rows(results, {})
    assert "| Too few. |" in published_pages.missed_rows(results, {"non-obvious": {"NO1": "Too few."}})
    assert published_pages.missed_rows([], {}) == ""


def test_parts_of_a_run_are_published_one_after_another(tool, tmp_path):
    """As when a machine is lent for one ensemble at a time."""
    for kept in ("help-0.05", "help-0.2"):
        run = bearing_out(tmp_path / kept, "help-if-available")
        run.store.save(f"belief-{kept}", {"seconds": 1.0})
        for stage in run.store.stages():
            if not f"{stage}-".removeprefix("belief-").startswith(f"{kept}-"):
                (run.store.folder / f"{stage}.json").unlink()
                (run.store.folder / f"{stage}.safetensors").unlink(missing_ok=True)
        tool.publish("help-if-available", run.store.folder)
    copy = Store.open(tmp_path / "results" / "help-if-available")
    stages = {"belief-help-0.05", "belief-help-0.2", "help-0.05-digits-available", "help-0.2-letters-unavailable"}
    assert stages <= set(copy.stages())
    assert not copy.has("help-0.02-digits-available")
