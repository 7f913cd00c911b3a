"""Published runs: read and judged again without a GPU, without models."""

from __future__ import annotations

from pathlib import Path

import pytest

from cautious.experiments.store import Store
from cautious.report.contents import figures_of, ledger_of, tables_of
from cautious.report.figures import save_figure

RESULTS = Path(__file__).parents[2] / "results"
RUNS = sorted(path.parent.name for path in RESULTS.glob("*/manifest.json"))

pytestmark = pytest.mark.skipif(not RUNS, reason="this copy of the source has no results/")


@pytest.mark.parametrize("name", RUNS)
def test_a_published_run_is_judged_as_the_page_says(name: str):
    page = (RESULTS.parent / "docs" / "results.md").read_text(encoding="utf-8")
    store = Store.open(RESULTS / name)
    assert tables_of(store)
    for verdict in ledger_of(store):
        assert f"| {verdict.claim} | {verdict.says} | **{verdict.word}** | {verdict.numbers} |" in page


@pytest.mark.parametrize("name", RUNS)
def test_a_published_run_draws_again(name: str, tmp_path):
    store = Store.open(RESULTS / name)
    entries = figures_of(store)
    for figure in list(entries)[:2]:
        save_figure(entries[figure][1](store), tmp_path / f"{figure}.png")
        assert (tmp_path / f"{figure}.png").stat().st_size > 5000


def test_no_letters_are_passed_on():
    for path in RESULTS.glob("*/*letters*.safetensors"):
        assert b"samples-images" not in path.read_bytes()[:20_000]
