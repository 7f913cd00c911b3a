"""The summary of all published runs: claims over runs, headline numbers, both units, time and cost, on made-up runs."""

from __future__ import annotations

import pytest
from fake_runs import bearing_out, scaled, usual
from published_claims import (
    CLAIMS,
    ClaimSummary,
    claim_results,
    claims_table,
    command_of,
    cost_table,
    counted,
    ledger_beside,
    observations,
    runs_table,
)
from published_headlines import GROUPS, HEADLINES, cells_figure, cells_of, headline_table
from published_units import units_ledger, units_table

from cautious_paper.report.claims.rules import ClaimResult
from cautious_paper.report.images.image_run import ImageRun
from cautious_paper.report.plotting import save_figure
from cautious_paper.report.report_spec import image_ledger

TASKS = ("ask-for-help", "non-obvious", "help-if-available", "data-extent")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """All image tasks, as the paper has them; read only."""
    folder = tmp_path_factory.mktemp("results")
    found = {task: bearing_out(folder / task, task).store for task in TASKS}
    found["help-if-available-as-printed"] = bearing_out(
        folder / "printed", "help-if-available", setting="as-printed"
    ).store
    found["data-extent-draws"] = bearing_out(folder / "draws", "data-extent", setting="draws").store
    return found


def test_there_are_27_claims_and_each_is_judged_where_its_runs_are(runs):
    assert len(CLAIMS) == 27
    results = {result.id: result for result in claim_results(runs)}
    assert list(results) == list(CLAIMS)
    of_driving = {"DR1", "DR2", "DR3", "DR4", "TH1", "TH2"}
    assert {name for name, result in results.items() if result.word == "not run"} == of_driving
    assert {result.word for name, result in results.items() if name not in of_driving} == {"reproduced"}
    assert counted(list(results.values())) == "21 of 27 claims are reproduced, 6 not run"


def test_draws_judge_what_one_draw_cannot(runs):
    results = {result.id: result for result in claim_results(runs)}
    for claim in ("DE1", "DE3"):
        assert [name for name, _ in results[claim].rows] == ["data-extent-draws"]
    assert "DE1 and DE3 are judged over draws" in claims_table(list(results.values())).note
    without = {name: store for name, store in runs.items() if name != "data-extent-draws"}
    alone = {result.id: result for result in claim_results(without)}
    assert "over draws" not in claims_table(list(alone.values())).note
    assert [name for name, _ in alone["DE3"].rows] == ["data-extent"]
    # without draws of their own there is no other claim that the draws decide
    assert [name for name, _ in results["DE2"].rows] == ["data-extent", "data-extent"]


def test_a_claim_with_some_rows_missed_is_reproduced_in_part():
    shown, missed, unknown = (ClaimResult("X1", "", verdict, "") for verdict in (True, False, None))

    def word(*verdicts):
        return ClaimSummary("X1", tuple(("run", verdict) for verdict in verdicts)).word

    assert word(shown, shown, unknown) == "reproduced"
    assert word(shown, missed) == "in part"
    assert word(missed, unknown) == "not reproduced"
    assert word(unknown) == word() == "not run"
    assert word(ClaimResult("X1", "", None, "", "not judged"), unknown) == "not judged"


def test_observations_are_counted_nowhere(runs):
    assert {verdict.claim for _, verdict in observations(runs)} == {
        *("AH8, letters, the paper's numbers", "NO2, optim", "NO3, optim")
    }
    rows = [verdict for result in claim_results(runs) for _, verdict in result.rows]
    assert "observation" not in {verdict.word for verdict in rows}


def test_headlines_are_read_from_the_runs(runs):
    rows = {row[0]: row for row in headline_table(runs).rows}
    assert rows["ask for help: 1-of-20 asks on clothes, single-image / all-images"][1:3] == (
        "89 / 29 %",
        "89.0 / 29.0 %",
    )
    assert rows["help if available: 1-of-20 asks on digits, single-image"][2] == "10.4 %"
    assert rows["help if available: both tables of familiar digits"][2] == "32 of 32 cells within 2 points"
    assert rows["the same from another seed"][2] == "–"
    assert rows["help if available: 1-of-20 asks on clothes, against optim, single-image"][2] == "80.0 % against 2.0 %"
    assert rows["non-obvious: mean index on clothes, 1-of-20 ... 10-of-10, single-image"][2] == "2.00 ... 5.00"
    over_draws = next(row for what, row in rows.items() if what.startswith("1 % of the digits, over draws"))
    assert over_draws[2].endswith(" points")
    assert over_draws[3] == "`data-extent-draws`"
    assert rows["driving: speed, 1-of-20 ... 20-of-20"][2] == "–"
    assert len(rows) == len(HEADLINES)


def test_both_units_stand_beside_the_paper(runs, tmp_path):
    tenths = ImageRun(runs["help-if-available"])
    table = units_table(tenths, None)
    rows = {row[:3]: row[3:] for row in table.rows}
    where = ("single-image, help available", "help")
    assert rows[*where, "tenths"][0].startswith("10.42")
    assert rows[*where, "as printed"] == ("–",) * 4
    assert rows[*where, "the paper"] == ("10.42 ± 0.51", "3.25 ± 0.47", "0.05 ± 0.01", "0.07 ± 0.01")
    assert len(table.rows) == 8 * 3

    printed = bearing_out(tmp_path, "help-if-available", setting="as-printed")
    before = usual(printed, "help-0.05", "digits", True)
    printed.behaviour("help-0.05", "digits", True, **before | {"help": scaled(before["help"], 0.1)})
    ledger = units_ledger(image_ledger(tenths.store), image_ledger(printed.store))
    claims = {row[0]: row[2:] for row in ledger.rows}
    assert claims["HA4"][0].startswith("**reproduced**: 32 of 32 cells")
    assert claims["HA4"][1].startswith("**not reproduced**")
    assert "CO1" not in claims


def test_commands_name_what_is_not_the_main_setting(runs):
    assert command_of(runs["non-obvious"], "non-obvious") == "cautious reproduce non-obvious --scale paper"
    printed = command_of(runs["help-if-available-as-printed"], "help-if-available-as-printed")
    assert printed == "cautious reproduce help-if-available --scale paper --setting as-printed"
    assert command_of(runs["data-extent-draws"], "data-extent-draws").endswith("--setting draws")
    assert {row[0] for row in runs_table(runs).rows} == set(runs)


def test_time_is_added_up_for_the_papers_experiments_and_for_the_others(runs):
    table = cost_table(runs)
    assert {row[0]: row[2] for row in table.rows}["ask-for-help"] == "3,600"
    assert "take 4.0 hours in all, the other runs 2.0 more" in table.note  # an hour a run, see `bearing_out`
    assert "1,135 hours" in table.note
    assert "Not run yet: ask-for-help help-0.1" in table.note
    assert table.note.endswith("driving.")


def test_every_cell_of_the_papers_tables_is_a_point(runs, tmp_path):
    counts = {group.words: len(cells_of(runs, group)) for group in GROUPS}
    assert list(counts.values()) == [48, 32, 32, 20, 20, 20]
    assert all(abs(cell.apart) < 1e-9 for group in GROUPS for cell in cells_of(runs, group))
    assert cells_of({}, GROUPS[0]) == []
    save_figure(cells_figure(runs), tmp_path / "cells.png")
    assert (tmp_path / "cells.png").stat().st_size > 5000


def test_draws_are_compared_with_the_run_beside_them(runs):
    assert "at 10 %" in ledger_beside(runs, "data-extent-draws")[0].numbers
