"""Both sets of letters side by side, as published: the rows fit the published runs, and no image of a letter is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from published_letters import EDITIONS, RUNS, all_letters, letter_rows, main_letters, shipped_by_letter
from safetensors import safe_open

from cautious.types import Regime
from cautious_paper.experiments.images.image_experiment import Stage
from cautious_paper.experiments.store import Store
from cautious_paper.report.images.image_run import HELP, INDEX, Measured
from cautious_paper.worlds.data.editions import KNOWN

RESULTS = Path(__file__).parents[2] / "results"

pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="this copy of the source has no results/")


MEASURED = [run for run in RUNS if letter_rows(run)]


@pytest.mark.parametrize("run", MEASURED)
def test_each_ensemble_is_measured_on_both_sets_and_their_checksums_are_known(run):
    rows = letter_rows(run)
    ensembles = {(row["variant"], row["help_available"]) for row in rows}
    assert len(rows) == len(EDITIONS) * len(ensembles) > 0
    checksums = {sums.images: edition for sums, edition in KNOWN.items()}
    assert all(checksums[row["sha256"]] == row["edition"] for row in rows)
    assert {(row["edition"], row["num_images"]) for row in rows} == {("rebuilt", 20_800), ("subset", 3_128)}


@pytest.mark.parametrize("run", [run for run in MEASURED if (RESULTS / run).exists() and not run.startswith("small-")])
def test_rows_on_whole_letters_are_those_of_the_published_run(run):
    store = Store.open(RESULTS / run)
    for row in letter_rows(run):
        stage = Stage(row["variant"], "letters", row["help_available"])
        numbers = store.numbers(stage.name)
        if numbers.get("sha256") == row["sha256"]:
            for quantity in (HELP, INDEX):
                if quantity in row:
                    for regime in Regime:
                        means = Measured(numbers).means(regime, quantity).tolist()
                        assert row[quantity][str(regime)] == pytest.approx(means, abs=1e-6)
                    assert row[quantity]["optim"] == pytest.approx(Measured(numbers).optim(quantity), abs=1e-6)


def test_the_tables_show_every_run_and_letter():
    shown = {row[0] for row in all_letters().rows}
    assert shown == {f"`{run}`" for run in MEASURED}
    assert {row[0] for row in main_letters().rows} == {each for each in shown if "as-printed" not in each}
    assert all(len(row) == len(all_letters().header) for row in all_letters().rows)
    assert {"ask-for-help", "non-obvious", "help-if-available"} < set(MEASURED)
    assert "".join(row[0] for row in shipped_by_letter().rows) in ("", "abcdefghijklmnopqrstuvwxyz")


def test_no_image_of_a_letter_is_published():
    assert not list(RESULTS.glob("*/figures/samples-letters*"))
    for path in RESULTS.glob("*/*-letters*.safetensors"):
        with safe_open(path, "pt") as arrays:
            assert not [name for name in arrays.keys() if name.startswith("samples-")]  # noqa: SIM118 (no mapping)
