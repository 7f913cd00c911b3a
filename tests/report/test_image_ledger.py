"""Every claim about images: reproduced, not reproduced when its rule is broken, not run when a stage is missing,
not judged at other sizes."""

from __future__ import annotations

import json

import pytest
from fake_runs import HELP, INDEX, bearing_out, scaled, usual

from cautious_paper.experiments.images.settings import Setting
from cautious_paper.report.images.image_run import ImageRun
from cautious_paper.report.report_spec import IMAGE_CLAIMS, image_ledger

ROWS = {
    "ask-for-help": (
        "AH1",
        "AH2, all-images",
        "AH2, single-image",
        "AH2, the paper's numbers",
        "AH3",
        "AH3, the paper's numbers",
        "AH4",
        "AH4, the paper's numbers",
        "AH5",
        "AH5, letters",
        "AH5, the paper's numbers",
        "AH5, letters, the paper's numbers",
        "AH6",
        "AH6, letters",
        "AH6, the paper's numbers",
        "AH7",
        "AH8",
        "AH8, letters",
        "AH8, the paper's numbers",
        "AH8, letters, the paper's numbers",
    ),
    "non-obvious": ("NO1", "NO2", "NO2, the paper's sentence", "NO2, optim", "NO3", "NO3, optim"),
    "help-if-available": (
        *("HA1", "HA1, letters", "HA2", "HA2, letters", "HA3", "HA3, letters"),
        *("HA4", "HA5", "HA5, letters"),
    ),
    "data-extent": ("DE1", "DE2", "DE2, letters", "DE3"),
}


OBSERVATIONS = {"AH8, letters, the paper's numbers", "NO2, optim", "NO3, optim"}
"""What the paper does not claim: numbers beside a claim, never judged."""


def verdicts(run):
    return {verdict.claim: verdict for verdict in image_ledger(run.store)}


@pytest.mark.parametrize("task", ROWS)
def test_a_run_like_the_paper_reproduces_every_claim(task, tmp_path):
    found = verdicts(bearing_out(tmp_path, task))
    assert tuple(found) == (*ROWS[task], "CV1", "CO1")
    words = dict.fromkeys(found, "reproduced") | dict.fromkeys(OBSERVATIONS & set(found), "observation")
    assert {claim: verdict.word for claim, verdict in found.items()} == words
    assert set(ROWS) == set(IMAGE_CLAIMS)


def changed(chosen, regime, place, value):
    """A quantity with one level's value replaced; place "optim" replaces that."""
    if place == "optim":
        return chosen | {"optim": value}
    values = list(chosen[regime])
    values[place] = value
    return chosen | {regime: tuple(values)}


BREAKS = {
    # task, stage, quantity, what it becomes (a function of what it was) -> the claims that must fall, and no others
    "AH1": ("ask-for-help", "help-0.25", "digits", None, "correct", lambda x: changed(x, "all", 0, 0.9834)),
    "AH2, the paper's numbers": (
        *("ask-for-help", "help-0.25", "digits", None),
        *("help", lambda x: changed(x, "single", 0, 0.0384)),
    ),
    "AH2, all-images": ("ask-for-help", "help-0.25", "digits", None, "help", lambda x: changed(x, "all", 3, 0.00041)),
    "AH2, single-image": (
        "ask-for-help",
        "help-0.25",
        "digits",
        None,
        "help",
        lambda x: changed(x, "single", 3, 0.005),
    ),
    "AH3": ("ask-for-help", "help-0.25", "fashion", None, "help", lambda x: changed(x, "all", 1, 0.291)),
    "AH3, the paper's numbers": (
        *("ask-for-help", "help-0.25", "fashion", None),
        *("help", lambda x: changed(x, "all", 0, 0.41)),
    ),
    "AH4": ("ask-for-help", "help-0.25", "letters", None, "help", lambda x: changed(x, "all", 0, 0.049999)),
    "AH4, the paper's numbers": (
        *("ask-for-help", "help-0.25", "letters", None),
        *("help", lambda x: changed(x, "all", 0, 0.121)),
    ),
    "AH5": ("ask-for-help", "help-0.25", "fashion", None, "help", lambda x: changed(x, "single", 1, 0.45)),
    "AH5, the paper's numbers": (
        *("ask-for-help", "help-0.25", "fashion", None),
        *("help", lambda x: changed(x, "single", 0, 0.98)),
    ),
    "AH5, letters, the paper's numbers": (
        *("ask-for-help", "help-0.25", "letters", None),
        *("help", lambda x: changed(x, "single", 0, 0.59)),
    ),
    "AH5, letters": ("ask-for-help", "help-0.25", "letters", None, "help", lambda x: changed(x, "single", 1, 0.29)),
    "AH6": ("ask-for-help", "help-0.25", "fashion", None, "help", lambda x: x | {"optim": 0.081}),
    "AH6, letters": ("ask-for-help", "help-0.25", "letters", None, "help", lambda x: x | {"optim": 0.031}),
    "AH8": ("ask-for-help", "help-0.1", "fashion", None, "help", lambda x: scaled(HELP, 1.01)),
    "AH8, letters": (
        *("ask-for-help", "help-0.5", "letters", None),
        *("help", lambda x: changed(x, "all", 1, 0.41)),
    ),
    "AH8, the paper's numbers": (
        *("ask-for-help", "help-0.5", "fashion", None),
        *("help", lambda x: changed(changed(x, "single", 0, 0.949), "single", 1, 0.94)),
    ),
    "NO1": ("non-obvious", "non-obvious", "digits", None, "correct", lambda x: changed(x, "all", 2, 0.9699)),
    "NO2": ("non-obvious", "non-obvious", "fashion", None, "index", lambda x: changed(INDEX, "all", 1, 4.3)),
    "NO3": ("non-obvious", "non-obvious", "letters", None, "index", lambda x: changed(INDEX, "single", 1, 1.99)),
    "NO2, the paper's sentence": (
        *("non-obvious", "non-obvious", "fashion", None),
        *("index", lambda x: INDEX | {"optim": 3.4}),
    ),
    "HA1": ("help-if-available", "help-0.05", "fashion", True, "help", lambda x: x | {"optim": 0.07}),
    "HA2": ("help-if-available", "help-0.05", "fashion", False, "help", lambda x: changed(x, "all", 1, 0.0051)),
    "HA2, letters": (
        *("help-if-available", "help-0.05", "letters", False),
        *("index", lambda x: changed(x, "all", 1, 3.9)),
    ),
    "HA3": ("help-if-available", "help-0.05", "fashion", True, "index", lambda x: changed(INDEX, "all", 0, 4.1)),
    "HA4": ("help-if-available", "help-0.05", "digits", True, "correct", lambda x: changed(x, "single", 0, 0.8615)),
    "HA5": ("help-if-available", "help-0.02", "fashion", True, "help", lambda x: changed(x, "all", 3, 0.0301)),
    "DE1": ("data-extent", "extent-1", "fashion", None, "help", lambda x: changed(x, "single", 0, 0.38)),
    "DE2": ("data-extent", "extent-10", "fashion", None, "help", lambda x: scaled(HELP, 0.59)),
    "DE2, letters": ("data-extent", "extent-100", "letters", None, "help", lambda x: scaled(HELP, 1.01)),
    "DE3": ("data-extent", "extent-1", "digits", None, "correct", lambda x: x | {"optim": 0.87}),
}
ALSO = {
    "AH3": {"AH8"},  # the order of the levels at every reward of help
    "AH4": {"AH8, letters"},
    "AH5": {"AH8"},
    "AH5, letters": {"AH8, letters"},
    "AH6": {"AH5, the paper's numbers", "AH6, the paper's numbers"},
}
"""Claims that cannot but fall together."""


@pytest.mark.parametrize("claim", BREAKS)
def test_breaking_a_rule_breaks_its_claim_and_no_other(claim, tmp_path):
    task, variant, images, bit, quantity, become = BREAKS[claim]
    run = bearing_out(tmp_path, task)
    before = usual(run, variant, images, bit)
    run.behaviour(variant, images, bit, **before | {quantity: become(before.get(quantity))})
    found = verdicts(run)
    assert {name for name, verdict in found.items() if verdict.word == "not reproduced"} == {claim} | ALSO.get(
        claim, set()
    )
    assert all(verdict.numbers for verdict in found.values())


def test_small_runs_are_judged_by_their_orderings_only(tmp_path):
    found = verdicts(bearing_out(tmp_path, "ask-for-help", num_models=40, num_digits=6000))
    compared = {name for name in found if name.endswith("numbers")} - OBSERVATIONS | {"AH1", "CO1"}
    assert {name for name, verdict in found.items() if verdict.word == "not judged"} == compared
    assert "not run" not in {verdict.word for verdict in found.values()}
    assert "40 models and 6,000 digits" in found["AH3, the paper's numbers"].numbers
    assert "1-of-20 29.00" in found["AH3, the paper's numbers"].numbers
    assert found["AH3"].word == "reproduced"


def test_without_letters_their_claims_are_not_run(tmp_path):
    for task in ROWS:
        found = verdicts(bearing_out(tmp_path / task, task, letters=False))
        of_letters = {name for name in found if "letters" in name or name in ("AH4", "AH7", "NO3", "NO3, optim")}
        of_letters |= {"AH4, the paper's numbers"} & set(found)
        assert {name for name, verdict in found.items() if verdict.word == "not run"} == of_letters
        assert all(found[name].numbers == "not run: no letters available" for name in of_letters)


def test_a_subset_of_the_letters_is_said(tmp_path):
    run = bearing_out(tmp_path, "non-obvious")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["settings"]["data"]["letters, test"] = "3128 images, 0, a subset"
    run.store.manifest = manifest
    found = verdicts(run)
    assert "3,128 letters, not the paper's 20,800" in found["NO3"].numbers
    assert "letters" not in found["NO2"].numbers


def test_claims_say_on_which_letters_their_own_stages_decided(tmp_path):
    run = bearing_out(tmp_path, "ask-for-help")
    for variant, kind in (
        ("help-0.25", {"num_images": 20_800, "edition": "rebuilt"}),
        ("help-0.1", {"num_images": 3_128}),
        ("help-0.5", {"num_images": 20_800, "edition": "official"}),
    ):
        stage = f"{variant}-letters"
        run.store.save(stage, run.store.numbers(stage) | kind, run.store.arrays(stage))
    found = verdicts(run)
    assert found["AH4"].numbers.endswith("(on 20,800 letters, 14,800 of them the paper's)")
    for words in ("20,800 letters, 14,800", "on 3,128 letters, not the paper's", "on the paper's 20,800 letters"):
        assert words in found["AH8, letters"].numbers


@pytest.mark.parametrize("task", ROWS)
def test_missing_stages_are_named(task, tmp_path):
    run = bearing_out(tmp_path, task)
    for path in tmp_path.glob("*-fashion*.json"):
        path.unlink()
    missing = {name for name, verdict in verdicts(run).items() if "is missing" in verdict.numbers}
    assert missing
    assert all("fashion" in verdicts(run)[name].numbers for name in missing)
    for path in tmp_path.glob("*.json"):
        if path.name != "manifest.json":
            path.unlink()
    assert {verdict.word for verdict in image_ledger(run.store)} == {"not run"}


def test_rewards_of_help_that_were_run_are_shown_while_others_are_missing(tmp_path):
    run = bearing_out(tmp_path, "help-if-available")
    (tmp_path / "help-0.2-fashion-available.json").unlink()
    found = verdicts(run)
    assert (found["HA5"].word, found["HA5, letters"].word) == ("not run", "reproduced")
    assert "stage help-0.2-fashion-available is missing; so far help-0.02 / help-0.05, %" in found["HA5"].numbers
    assert "1-of-20 40.00 / 80.00" in found["HA5"].numbers
    (tmp_path / "help-0.02-fashion-available.json").unlink()
    assert verdicts(run)["HA5"].numbers == "not run: stage help-0.02-fashion-available is missing"


def test_letters_that_look_like_digits(tmp_path):
    run = bearing_out(tmp_path, "ask-for-help")
    arrays = run.store.arrays("help-0.25-letters")
    numbers = run.store.numbers("help-0.25-letters")
    table = arrays["single-state-by_label"]
    table[0] = 0  # letters without images do not count
    table[0, ord("o") - ord("a"), 10] = 0.5
    table[0, ord("a") - ord("a"), 10] = 0.4
    table[0, ord("b") - ord("a"), 10] = 0.5
    run.store.save("help-0.25-letters", numbers, arrays)
    found = verdicts(run)["AH7"]
    assert found.word == "not reproduced"
    assert "50.00 % help; the others: 45.00 %" in found.numbers


def test_values_that_still_move_have_not_levelled_off(tmp_path):
    run = bearing_out(tmp_path, "non-obvious")
    arrays = run.store.arrays("non-obvious-fashion")
    numbers = run.store.numbers("non-obvious-fashion")
    arrays["all-states-sampled_value"][2, :, -20:] += 0.1
    run.store.save("non-obvious-fashion", numbers, arrays)
    found = verdicts(run)["CV1"]
    assert found.word == "not reproduced"
    assert "non-obvious fashion, all-images" in found.numbers
    short = bearing_out(tmp_path / "short", "non-obvious", num_iterations=59)
    assert verdicts(short)["CV1"].word == "not judged"


def test_differences_below_the_papers_last_decimal_are_ties(tmp_path):
    run = bearing_out(tmp_path, "ask-for-help")
    before = usual(run, "help-0.25", "digits")
    for rises_to, word in (
        (0.00029, "reproduced"),
        (0.00031, "not reproduced"),
    ):  # from 0.020 % to 0.029 %, and to 0.031 %
        help_on_digits = before["help"] | {"all": (0.0002, rises_to, 0.0002, 0.0002)}
        run.behaviour("help-0.25", "digits", **before | {"help": help_on_digits})
        assert verdicts(run)["AH2, all-images"].word == word


def test_small_steps_do_not_add_up_to_a_tie(tmp_path):
    run = bearing_out(tmp_path, "ask-for-help")
    before = usual(run, "help-0.25", "digits")
    climbing = before["help"] | {"all": (0.0002, 0.00026, 0.00032, 0.0002)}
    run.behaviour("help-0.25", "digits", **before | {"help": climbing})
    assert verdicts(run)["AH2, all-images"].word == "not reproduced"


def test_an_observation_has_numbers_and_no_verdict(tmp_path):
    run = bearing_out(tmp_path, "non-obvious")
    run.behaviour("non-obvious", "fashion", index=INDEX | {"optim": 4.0})
    found = verdicts(run)["NO2, optim"]
    assert (found.reproduced, found.word) == (None, "observation")
    assert "optim 4.00, the highest level 5.00" in found.numbers
    assert [verdict.claim for verdict in image_ledger(run.store) if verdict.reproduced is False] == []


@pytest.mark.parametrize("task", ["non-obvious", "help-if-available"])
def test_both_units_are_judged_by_the_same_rules(task, tmp_path):
    tenths = bearing_out(tmp_path / "tenths", task)
    printed = bearing_out(tmp_path / "printed", task, setting="as-printed")
    assert ImageRun(tenths.store).setting is Setting.MAIN
    assert ImageRun(printed.store).setting is Setting.AS_PRINTED
    assert image_ledger(tenths.store) == image_ledger(printed.store)


def test_help_that_is_never_asked_for_on_digits_is_in_order(tmp_path):
    run = bearing_out(tmp_path, "ask-for-help")
    before = usual(run, "help-0.25", "digits")
    run.behaviour("help-0.25", "digits", **before | {"help": before["help"] | {"all": (0.0,) * 4}})
    assert verdicts(run)["AH2, all-images"].word == "reproduced"


def test_the_text_of_the_paper_wants_twenty_times_optim(tmp_path):
    run = bearing_out(tmp_path, "ask-for-help")
    before = usual(run, "help-0.25", "fashion", None)
    run.behaviour(
        "help-0.25", "fashion", None, **before | {"help": before["help"] | {"optim": 0.045}}
    )  # 0.89 / 0.045 = 19.8
    assert verdicts(run)["AH5, the paper's numbers"].word == "not reproduced"
    assert verdicts(run)["AH5"].word == "reproduced"
