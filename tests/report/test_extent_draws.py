"""Claims DE1 and DE3 over draws of 1 % of the digits, on made-up draws."""

from __future__ import annotations

import pytest
import torch
from fake_runs import bearing_out, usual

from cautious_paper.report.claims.data_extent import interval_of_another, interval_of_mean
from cautious_paper.report.claims.rules import NotRunError
from cautious_paper.report.report_spec import figures_of, image_ledger, tables_of

HELP_AT_ONE = {"all": (0.1,) * 4, "optim": 0.1}


def draws(folder, rises, **options):
    """Draws whose help on fashion rises by so many points each."""
    run = bearing_out(folder, "data-extent", setting="draws", **options)
    for name, rise in zip(run.variants, rises, strict=True):
        single = (0.2 + rise / 100, 0.2, 0.2, 0.2)
        run.behaviour(name, "fashion", help=HELP_AT_ONE | {"single": single})
    return run


def verdicts(run, beside=None):
    found = image_ledger(run.store, None if beside is None else beside.store)
    return {verdict.claim: verdict for verdict in found}


def test_intervals_by_hand():
    values = torch.tensor([1.0, 2.0, 3.0])  # mean 2, deviation 1; Student's t with two degrees of freedom: 4.303
    assert interval_of_mean(values) == pytest.approx((2, 4.303 / 3**0.5), abs=1e-3)
    assert interval_of_another(values) == pytest.approx((2, 4.303 * (4 / 3) ** 0.5), abs=1e-3)
    assert (interval_of_mean(values).low, interval_of_mean(values).high) == pytest.approx((-0.484, 4.484), abs=1e-3)
    with pytest.raises(NotRunError, match="1 draw gives no interval"):
        interval_of_mean(values[:1])


def test_no_rise_over_draws_is_shown_without_another_run(tmp_path):
    found = verdicts(draws(tmp_path, [-5, -6, -7, -5, -6, -7]))["DE1, over draws"]
    assert found.word == "reproduced"
    assert "rise -6.00 ± 0.94 points over 6 draws of 250 networks" in found.numbers


def test_a_rise_is_compared_with_that_at_ten_percent(tmp_path):
    whole = bearing_out(tmp_path / "whole", "data-extent")  # rises by 81 points at 10 %: a third is 27
    few, many = ([mean - 1, mean + 1] * 3 for mean in (20, 26.5))
    run = draws(tmp_path / "few", few)
    assert verdicts(run)["DE1, over draws"].word == "not run"
    assert "the rise at 10 % is in another run" in verdicts(run)["DE1, over draws"].numbers
    found = verdicts(run, whole)["DE1, over draws"]
    assert found.word == "reproduced"
    assert "at 10 % +81.00; one draw of 2,000 networks +0.00" in found.numbers
    # a mean under a third will not do if the interval reaches above it
    assert verdicts(draws(tmp_path / "many", many), whole)["DE1, over draws"].word == "not reproduced"


def test_a_cell_counts_if_near_the_mean_or_inside_the_interval(tmp_path):
    whole = bearing_out(tmp_path / "whole", "data-extent")
    run = bearing_out(tmp_path / "draws", "data-extent", setting="draws")
    assert verdicts(run, whole)["DE3, over draws"].word == "reproduced"
    assert "20 of 20 cells within 2 points" in verdicts(run, whole)["DE3, over draws"].numbers
    assert "10 and 100 %: 40 of 40 within 2" in verdicts(run, whole)["DE3, over draws"].numbers
    usually = usual(run, run.variants[0], "digits")
    paper = usually["correct"]["single"][0]

    def correct(offsets):
        for name, offset in zip(run.variants, offsets, strict=True):
            single = (paper + offset / 100, *usually["correct"]["single"][1:])
            run.behaviour(name, "digits", **usually | {"correct": usually["correct"] | {"single": single}})
        return verdicts(run, whole)["DE3, over draws"]

    # 3 points off, but draws differ by as much; and 3 points off, all alike
    varied, alike = correct([0, 6, 1, 5, 2, 4]), correct([3.0, 3.1, 2.9, 3.0, 3.1, 2.9])
    assert (varied.word, alike.word) == ("reproduced", "not reproduced")
    assert "19 of 20 cells within 2 points of the mean over draws" in varied.numbers
    assert "20 either way" in varied.numbers
    assert "farthest +3.00 (single-image, correct, 1-of-20)" in alike.numbers


def test_unfinished_draws_are_judged_by_those_there_are(tmp_path):
    run = draws(tmp_path, [-5, -6, -7, -5, -6, -7])
    for path in tmp_path.glob("extent-1-draw-[345]-*.json"):
        path.unlink()
    assert "over 3 draws" in verdicts(run)["DE1, over draws"].numbers
    for path in tmp_path.glob("extent-1-draw-*.json"):
        path.unlink()
    assert {verdict.word for verdict in verdicts(run).values()} == {"not run"}


def test_the_report_of_draws_shows_all_of_them_side_by_side(tmp_path):
    run = draws(tmp_path, [-5, -6, -7, -5, -6, -7])
    tables = {table.id: table for table in tables_of(run.store)}
    assert {"draws-fashion", "draws-letters", "draws-digits"} <= tables.keys()
    rows = {row[:2]: row for row in tables["draws-fashion"].rows}
    assert rows["single-image", "draw 0"][-1] == "-5.00"
    assert rows["single-image", "mean, 95 % interval"][-1] == "-6.00 ± 0.94"
    assert list(figures_of(run.store)) == ["sensitivity-help"]
    for table in tables.values():
        assert {len(row) for row in table.rows} == {len(table.header)}
