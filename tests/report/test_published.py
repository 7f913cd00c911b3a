"""Published runs: read and judged again without a GPU, without models."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import torch
from published_claims import CLAIMS, claim_results, counted, ledger_beside
from published_pages import pages

from cautious.types import Regime
from cautious_paper.experiments.store import Store
from cautious_paper.report.images.image_run import ImageRun, Setting
from cautious_paper.report.plotting import save_figure
from cautious_paper.report.report_spec import figures_of, tables_of

RESULTS = Path(__file__).parents[2] / "results"
DOCS = RESULTS.parent / "docs"
RUNS = sorted(path.parent.name for path in RESULTS.glob("*/manifest.json"))

pytestmark = pytest.mark.skipif(not RUNS, reason="this copy of the source has no results/")


@functools.cache
def whole() -> str:
    """All the pages that are built from the runs."""
    return "".join(pages({name: Store.open(RESULTS / name) for name in RUNS}).values())


@pytest.mark.parametrize("name", RUNS)
def test_a_published_run_is_judged_as_the_page_says(name: str):
    page = whole()
    runs = {each: Store.open(RESULTS / each) for each in {name, "data-extent"}}
    assert tables_of(runs[name])
    for verdict in ledger_beside(runs, name):
        assert f"| {verdict.claim} | {verdict.says} | **{verdict.word}** | {verdict.numbers} |" in page


def test_the_pages_count_the_claims_as_they_are_judged():
    results = claim_results({name: Store.open(RESULTS / name) for name in RUNS})
    for page in (DOCS / "results.md", DOCS.parent / "README.md"):
        assert f"**{counted(results)}**" in page.read_text(encoding="utf-8")
    by_hand = (DOCS / "results.md").read_text(encoding="utf-8")
    for result in results:
        assert f"| {result.id} | {CLAIMS[result.id]} | {result.word} |" in by_hand
        assert result.word == "reproduced" or f"| {result.id}" in by_hand.split("## Not reproduced")[1]


def test_earlier_runs_have_the_printed_rewards():
    """They were made before there was a choice, and their manifests say nothing of it."""
    for name in RUNS:
        if name.endswith("-as-printed"):
            run = ImageRun(Store.open(RESULTS / name))
            assert run.setting is Setting.AS_PRINTED
            assert name.startswith("small-") or run.has_paper_sizes()


def test_reasons_name_rows_that_are_there_and_numbers_that_are_in_the_runs():
    reasons = json.loads((RESULTS / "reasons.json").read_text(encoding="utf-8"))
    runs = {name: Store.open(RESULTS / name) for name in RUNS}
    for name, rows in reasons.items():
        assert rows.keys() <= {verdict.claim for verdict in ledger_beside(runs, name)}
    driving = Store.open(RESULTS / "driving")
    for probability in ("0.1", "0.2", "0.5", "0.8", "1"):
        speeds = driving.numbers(f"novel-p{probability}")["statistics"]["optim"]["speed"]
        assert f"{sum(speeds) / len(speeds):.3f} at" in reasons["driving"]["DR4, each network"]
    extent = ImageRun(Store.open(RESULTS / "data-extent"))
    for percent in (10, 100):
        measured = extent.measured(f"extent-{percent}", "fashion")
        first = 100 * float(measured.means(Regime.SINGLE_STATE, "help_share")[0])
        others = (100 * measured.means(Regime.SINGLE_STATE, "help_probability")[1:]).tolist()
        assert all(f"{value:.1f}" in reasons["data-extent"]["DE2"] for value in (first, *others))
    named = {
        name: 100 * Store.open(RESULTS / name).arrays("non-obvious-digits")["optim-correct_probability"].double()
        for name in ("non-obvious", "non-obvious-as-printed")
    }
    for own in named.values():
        assert f"{100 * float((own < 95).double().mean()):.1f} %" in reasons["non-obvious"]["NO1"]
    assert f"median is {float(named['non-obvious'].median()):.1f} %" in reasons["non-obvious"]["NO1"]
    asks = ImageRun(Store.open(RESULTS / "help-if-available")).measured("help-0.05", "letters", True)
    helps = {regime: asks.means(regime, "help_probability").tolist() for regime in Regime}
    times = {
        regime: [own / max(levels[-1], asks.optim("help_probability")) for own in levels]
        for regime, levels in helps.items()
    }
    least = min(times[Regime.SINGLE_STATE][:3])
    assert f"at least {least:.1f} times" in reasons["help-if-available"]["HA1, letters"]
    for value, digits in zip(times[Regime.ALL_STATES], (1, 2, 1), strict=False):
        assert f"{value:.{digits}f} times" in reasons["help-if-available"]["HA1, letters"]
    letters = Store.open(RESULTS / "ask-for-help").arrays("help-0.5-letters")["single-state-by_label"][0, :, 10]
    like = torch.tensor([chr(ord("a") + number) in "osiljz" for number in range(26)])
    for asked in (100 * letters[like].mean(), 100 * letters[~like].mean()):
        assert f"{float(asked):.1f} %" in reasons["ask-for-help"]["AH8, letters, the paper's numbers"]


def test_the_reason_for_the_curve_that_still_rises_has_the_numbers_of_the_run():
    reason = json.loads((RESULTS / "reasons.json").read_text(encoding="utf-8"))["help-if-available"]["CV1"]
    store = Store.open(RESULTS / "help-if-available")
    changes, ranges = {}, {}
    for stage in store.stages():
        if not stage.startswith("belief-") and not stage.endswith(("-dial", "-models")):
            for regime in Regime:
                means = store.arrays(stage)[f"{regime}-sampled_value"].double().mean(dim=1)
                changes[stage, regime] = means[:, -20:].mean(dim=1) - means[:, -40:-20].mean(dim=1)
                ranges[stage, regime] = means.amax(dim=1) - means.amin(dim=1)
    shares = {place: (changes[place] / ranges[place]).abs() for place in changes}
    assert f"One curve of {sum(len(own) for own in shares.values())}" in reason
    assert sum(int((own > 0.05).sum()) for own in shares.values()) == 1
    place = ("help-0.02-fashion-available", Regime.SINGLE_STATE)
    level = int(shares[place].argmax())
    assert f"rises by {float(changes[place][level]):.3f}, of a range of {float(ranges[place][level]):.3f}" in reason
    for pays in ("help-0.05-", "help-0.2-"):
        largest = max(float(own.max()) for (stage, _), own in shares.items() if stage.startswith(pays))
        assert f"({100 * largest:.1f} % at most)" in reason


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
