"""The sentences that open a report: their numbers are those of the store."""

from __future__ import annotations

import pytest
from fake_runs import FakeRun, bearing_out

from cautious_paper.report.claims.rules import ClaimResult
from cautious_paper.report.html import write_report
from cautious_paper.report.paper import paper_table
from cautious_paper.report.stories import NOTHING, claims_story, image_story, poor_fits


def test_help_is_told_with_its_numbers(tmp_path):
    (text,) = image_story(bearing_out(tmp_path, "ask-for-help", letters=False).store)
    printed = paper_table("last_action_0.25").cells["single-image"]["correct"]["1-of-20"].mean
    assert text.startswith(f"1-of-20 names {printed:.1f} % of the familiar digits correctly")
    assert (
        "1-of-20 asks for help on 89.0 % of clothes, which no model has seen; the ordinary policy (10-of-10) on 8.0 %"
        in text
    )
    assert "single networks on 1.5 %" in text
    assert "letters" not in text


def with_losses(store, median, nothing):
    store.save("belief-a", {"loss_median": median, "loss_largest": 1.0, "mean_reward_loss": nothing}, {})
    return store


@pytest.mark.parametrize(
    ("median", "said"),
    [(0.2, "single models are worse than no model"), (0.06, "the models have hardly learned"), (0.03, None)],
)
def test_models_that_hardly_know_the_familiar_are_named(tmp_path, median, said):
    store = with_losses(FakeRun(tmp_path, "ask-for-help").store, median, 0.1)
    sentences = poor_fits(store)
    assert len(sentences) == (said is not None)
    if said is not None:
        assert sentences[0].startswith(f"belief-a: {said}")
        assert f"{median:.3g} (median)" in sentences[0]
        assert sentences[0][:60] in write_report(store).read_text(encoding="utf-8")


def test_runs_of_before_have_nothing_to_say(tmp_path):
    store = FakeRun(tmp_path, "ask-for-help").store
    store.save("belief-a", {"loss_median": 9.0}, {})
    assert poor_fits(store) == []


def test_each_task_has_its_own_story(tmp_path):
    (text,) = image_story(bearing_out(tmp_path / "a", "help-if-available").store)
    assert "Where help is available, 1-of-20 asks for help on 80.0 % of clothes" in text
    assert (
        "Where help is not available, on clothes, which no model has seen, 1-of-20 chooses labels with a mean index of 3.50"
        in text
    )
    (text,) = image_story(bearing_out(tmp_path / "b", "non-obvious").store)
    assert "help" not in text
    texts = image_story(bearing_out(tmp_path / "c", "data-extent").store)
    assert [each.split(":")[0] for each in texts] == [f"Trained on {share} % of the digits" for share in (1, 10, 100)]
    (text,) = image_story(bearing_out(tmp_path / "d", "data-extent", setting="draws").store)
    assert "6 random draws" in text


def test_an_empty_run_says_so(tmp_path):
    assert image_story(FakeRun(tmp_path / "a", "ask-for-help").store) == [NOTHING]
    assert image_story(FakeRun(tmp_path / "b", "data-extent", setting="draws").store) == [NOTHING]


def test_claims_are_counted_and_the_missed_are_named():
    results = [ClaimResult(f"C{number}", "", reproduced, "") for number, reproduced in enumerate((True, False, None))]
    assert claims_story(results) == (
        "Of the 2 rows of the paper's claims that this run can judge, 1 are reproduced; not reproduced: C1."
    )
    assert claims_story(results[2:]) == "None of the paper's claims could be judged on this run."
