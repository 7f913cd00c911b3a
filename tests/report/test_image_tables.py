"""The paper's numbers, and our tables beside them, worked by hand."""

from __future__ import annotations

import pytest
import torch
from fake_runs import HELP, LEVELS, FakeRun, bearing_out, usual

from cautious.errors import InvalidInputError
from cautious.types import Regime
from cautious_paper.report.images.image_run import ImageRun, as_tensor
from cautious_paper.report.images.image_tables import image_tables, networks_table
from cautious_paper.report.paper import (
    SETTINGS_TABLE,
    Printed,
    paper_help,
    paper_table,
    paper_training,
)
from cautious_paper.report.tables import mean_and_spread

PAPER_TABLES = (
    "last_action_0.1", "last_action_0.25", "last_action_0.5", "last_action_test", "last_action_std_TEST",
    "last_action_std_test", "bit_TEST", "bit_test", SETTINGS_TABLE,
)  # fmt: skip
TASKS = ("ask-for-help", "non-obvious", "help-if-available", "data-extent")


def test_the_paper_has_nine_tables():
    assert len(set(PAPER_TABLES)) == 9
    for name in PAPER_TABLES[:-1]:
        for rows in paper_table(name).cells.values():
            assert rows.keys() == {"correct", "help"}
            assert all(set(LEVELS) <= row.keys() for row in rows.values())
    assert paper_table("bit_test").cell("help available", "help", "1-of-20") == Printed(10.42, 0.51)
    assert paper_table("last_action_std_TEST").cell("10 %", "correct", "optim") == Printed(94.96, 4.01)
    assert paper_table("last_action_0.5").cell("all-images", "help", "optim") is None
    assert paper_table("last_action_test").cells == paper_table("last_action_0.25").cells
    with pytest.raises(InvalidInputError, match=r"'last_action_0\.1'"):
        paper_table("last_action_0.3")


def test_the_misprinted_columns_are_rows_of_other_tables():
    for name in ("bit_TEST", "bit_test"):
        assert paper_table(name).misprinted == ("optim",)
        other = paper_table("last_action_std_TEST")
        for group, share in (("help available", "1 %"), ("help unavailable", "10 %")):
            for quantity in ("correct", "help"):
                ours, theirs = paper_table(name).cell(group, quantity, "optim"), other.cell(share, quantity, "optim")
                assert ours is not None
                assert theirs is not None
                assert ours.mean == theirs.mean


def test_the_paper_in_words():
    assert paper_training()["10 %"] == (128, 1000)
    assert paper_help("single-image", "letters", "1-of-20") == 68
    assert paper_help("all-images", "letters", "1-of-20") is None


def test_every_table_of_the_paper_belongs_to_a_task(tmp_path):
    found = [table for task in TASKS for table in image_tables(bearing_out(tmp_path / task, task).store)]
    assert {table.id for table in found} >= set(PAPER_TABLES)
    for table in found:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.header)}


def rows_of(store, name):
    table = next(table for table in image_tables(store) if table.id == name)
    return {row[: table.num_labels]: dict(zip(table.header, row, strict=True)) for row in table.rows}


def test_ours_the_papers_and_the_difference(tmp_path):
    run = bearing_out(tmp_path, "ask-for-help", runs=2)
    numbers = run.store.numbers("help-0.25-digits")
    arrays = run.store.arrays("help-0.25-digits")
    single = numbers["behaviour"]["single-state"]
    single["help_probability"][0] = [0.03, 0.04]  # mean 3.5 %, deviation 1/sqrt(2) points
    single["help_share"][0] = [0.02, 0.02]
    arrays["optim-help_probability"] = torch.tensor([0.0, 0.02], dtype=torch.float64)
    run.store.save("help-0.25-digits", numbers, arrays)
    rows = rows_of(run.store, "last_action_0.25")
    place = ("single-image", "help")
    assert rows[*place, "ours, mean probability"]["1-of-20"] == "3.50 ± 0.71"
    assert rows[*place, "ours, most likely action"]["1-of-20"] == "2.00 ± 0.00"
    assert rows[*place, "paper"]["1-of-20"] == "2.83 ± 0.01"
    assert rows[*place, "difference"]["1-of-20"] == "+0.67 (-0.83)"
    assert rows[*place, "ours, mean probability"]["optim"] == "1.00 ± 1.41"
    assert rows[*place, "paper"]["optim"] == "–"
    assert rows[*place, "difference"]["optim"] == "–"


def test_a_misprint_is_shown_and_not_compared(tmp_path):
    run = bearing_out(tmp_path, "help-if-available")
    rows = rows_of(run.store, "bit_TEST")
    assert rows["help available", "correct", "paper"]["optim"] == "89.43 ± 4.16"
    assert rows["help available", "correct", "difference"]["optim"] == "–"
    assert rows["help available", "correct", "difference"]["10-of-10"] == "+0.00 (+0.00)"
    extent = bearing_out(tmp_path / "extent", "data-extent")
    assert rows_of(extent.store, "last_action_std_TEST")["1 %", "correct", "difference"]["optim"] == "+0.00 (+0.00)"


def test_novel_images_and_what_the_text_says_of_them(tmp_path):
    run = bearing_out(tmp_path, "ask-for-help")
    rows = rows_of(run.store, "novel-help-0.25")
    assert rows["fashion", "single-image", "help, %"]["1-of-20"] == "89.00 ± 0.00"
    assert rows["fashion", "single-image", "help, %, paper"]["1-of-20"] == "89"
    assert ("letters", "all-images", "help, %, paper") not in rows
    assert ("fashion", "single-image", "help, %, paper") not in rows_of(run.store, "novel-help-0.1")


def test_single_networks_are_shown_by_their_quantiles(tmp_path):
    share = torch.linspace(0.9, 1.0, 41, dtype=torch.float64)  # 90, 90.25, ... 100 %: 20 of them under 95
    asks = torch.cat([torch.zeros(39), torch.tensor([0.5, 0.75])]).double()  # half is not more than half
    arrays = {"optim-correct_probability": share, "optim-help_probability": asks}
    wrapped = ImageRun(FakeRun(tmp_path, "ask-for-help", letters=False).store)
    wrapped.arrays = lambda variant, images, bit=None: arrays if images == "digits" else None
    rows = {row[:2]: row[2:] for row in networks_table(wrapped, "help-0.25").rows}
    assert rows["digits", "correct, %"] == (
        "90.00", "90.50", "92.00", "95.00", "98.00", "99.50", "100.00", "20 of 41 (48.8 %)",
    )  # fmt: skip
    assert rows["digits", "help, %"] == ("0.00", "0.00", "0.00", "0.00", "0.00", "0.00", "75.00", "1 of 41 (2.4 %)")


def test_settings_stand_beside_the_papers(tmp_path):
    run = bearing_out(tmp_path, "data-extent", num_models=40, num_digits=6000)
    rows = rows_of(run.store, SETTINGS_TABLE)
    assert list(rows["extent-1",].values())[1:] == ["1 % of 6,000", "40 (2,000)", "64 (64)", "10,000 (10,000)"]


def test_missing_stages_leave_rows_out_and_nothing_else(tmp_path):
    run = FakeRun(tmp_path, "ask-for-help", letters=False)
    assert [table.id for table in image_tables(run.store)] == [SETTINGS_TABLE]
    run.behaviour("help-0.1", "digits", **usual(run, "help-0.1", "digits"))
    assert [table.id for table in image_tables(run.store)] == ["last_action_0.1", "networks-help-0.1", SETTINGS_TABLE]
    run.behaviour("help-0.25", "fashion", help=HELP)
    assert image_tables(run.store)[0].id == "novel-help-0.25"


def test_what_was_not_measured_does_not_count():
    assert mean_and_spread(as_tensor([None, None])) == "–"
    assert mean_and_spread(as_tensor([2.0, None])) == "2.00"
    assert mean_and_spread(as_tensor([2.0, 4.0])) == "3.00 ± 1.41"


def test_runs_without_a_label_have_no_index(tmp_path):
    run = bearing_out(tmp_path, "ask-for-help", runs=2)
    numbers = run.store.numbers("help-0.25-fashion")
    numbers["behaviour"]["all-states"]["index"] = [[None, 4.0], [None, None], [1.0, 2.0], [3.0, 3.0]]
    run.store.save("help-0.25-fashion", numbers)
    measured = ImageRun(run.store).measured("help-0.25", "fashion")
    assert measured is not None
    means = measured.means(Regime.ALL_STATES, "index").tolist()
    assert means[0] == 4
    assert means[1] != means[1]
    assert means[2:] == [1.5, 3]
