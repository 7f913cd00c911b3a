"""`cautious.evaluate`: what it reports on tables with a known answer, what it refuses, and that a kill loses nothing."""

from __future__ import annotations

import csv
import json
import warnings

import numpy as np
import pytest

from cautious import CautiousError, TableWarning, evaluate
from cautious.baselines import evaluating, refer_rules
from cautious.baselines.evaluation import judge
from cautious.cli.main import main

FAST = {"levels": ["8-of-10", "5-of-10", "1-of-10"], "num_models": 10, "num_epochs": 8, "progress": False}
PAYOFFS = {
    "a": {"accept": 1, "part": 0.5, "reject": -0.1},
    "b": {"accept": 1, "part": 0.5, "reject": -0.1},
    "c": {"accept": -4, "part": -1, "reject": 0},
    "d": {"accept": -4, "part": -1, "reject": 0},
}


def table(each: int = 24, seed: int = 0) -> dict[str, list]:
    """Four kinds of rows, far apart in x; hospitals that say nothing."""
    rng = np.random.default_rng(seed)
    kind = np.repeat(["a", "b", "c", "d"], each)
    x = np.repeat([0.0, 10.0, 20.0, 30.0], each) + rng.normal(size=4 * each)
    return {
        "x": x.tolist(),
        "y": rng.normal(size=4 * each).tolist(),
        "kind": kind.tolist(),
        "hospital": rng.choice(["north", "south", "west"], size=4 * each).tolist(),
    }


@pytest.fixture(scope="module")
def by_kind():
    return evaluate(table(), label="kind", hold_out="kind", **FAST)


def test_a_row_per_group_method_and_level(by_kind):
    frame = by_kind.to_frame()
    assert len(frame) == 4 * 4 * 4  # groups, methods, levels with the ordinary one
    assert set(frame.group) == {"a", "b", "c", "d"}
    assert (frame.novel_rows == 24).all()
    assert (frame.familiar_rows == 18).all()  # a quarter of three kinds of 24 rows
    assert set(frame.method) == {"k-of-N", "random forest", "nearest neighbours", "Mahalanobis"}


def test_payoffs_are_those_of_the_decisions(by_kind):
    """Of a kind never seen every answer is wrong (-1) and refer pays 0: each row that departs earns one more."""
    cells = {(entry["group"], entry["method"], entry["level"]): entry for entry in by_kind.rows}
    for (group, method, _), entry in cells.items():
        if method != "k-of-N":
            usual = cells[group, method, "ordinary"]
            assert usual["novel_payoff"] < -0.8
            assert usual["novel_departures"] == 0
            assert usual["familiar_payoff"] > 0.9
            assert entry["novel_payoff"] == pytest.approx(usual["novel_payoff"] + entry["novel_departures"], abs=1e-12)


def test_no_rule_departs_more_than_ours_on_familiar_rows(by_kind):
    frame = by_kind.to_frame().set_index(["group", "level", "method"]).familiar_departures.unstack("method")
    for method in refer_rules.SCORES:
        assert (frame[method] <= frame["k-of-N"] + 1e-12).all()


def test_far_kinds_are_noticed_by_the_distances(by_kind):
    """A kind at an end of the line is ten deviations from the others; distances must refer nearly all of it."""
    frame = by_kind.to_frame()
    ends = frame[frame.group.isin(["a", "d"]) & (frame.level == "1-of-10") & (frame.method == "nearest neighbours")]
    assert (ends.novel_departures > 0.9).all()


def test_hospitals_say_nothing_so_nothing_is_novel():
    found = evaluate(table(), label="kind", hold_out="hospital", payoffs=PAYOFFS, **FAST)
    frame = found.to_frame()
    ordinary = frame[(frame.level == "ordinary") & (frame.method == "random forest")]
    assert set(ordinary.group) == {"north", "south", "west"}
    best = np.mean([max(PAYOFFS[kind].values()) for kind in "abcd"])
    assert ordinary.novel_payoff.mean() == pytest.approx(best, abs=0.1)


def test_payoffs_may_depend_on_a_column():
    by_amount = {kind: {"take": "x" if kind in "ab" else "-x", "leave": 0} for kind in "abcd"}
    found = evaluate(table(), label="kind", hold_out="hospital", payoffs=by_amount, **FAST)
    forest = next(row for row in found.rows if row["method"] == "random forest")
    data = table()
    own = [
        x for x, kind, place in zip(data["x"], data["kind"], data["hospital"], strict=True) if place == forest["group"]
    ]
    kinds = [kind for kind, place in zip(data["kind"], data["hospital"], strict=True) if place == forest["group"]]
    known = np.mean([max(x if kind in "ab" else -x, 0) for x, kind in zip(own, kinds, strict=True)])
    assert forest["novel_payoff"] == pytest.approx(known, rel=0.05)


def row(group, method, level, novel, familiar=0.9, departs=0.02):
    return {
        "group": group, "method": method, "level": level, "familiar_payoff": familiar, "familiar_departures": departs,
        "familiar_rows": 50, "novel_payoff": novel, "novel_departures": 0.5, "novel_rows": 50,
    }  # fmt: skip


def rows_of(novel: dict[str, list[float]], **more) -> list[dict]:
    """Rows of all methods at one level, by their payoffs in each group; ordinarily each of them pays -2."""
    found = []
    for method in ("k-of-N", "random forest", "nearest neighbours", "Mahalanobis"):
        for number, value in enumerate(novel[method]):
            found.append(row(str(number), method, "ordinary", -2.0, departs=0.0))
            found.append(row(str(number), method, "1-of-20", value, **more.get(method.replace("-", "_"), {})))
    return found


def test_the_verdict_names_another_method_where_it_is_ahead():
    worse = {"k-of-N": [0.0, 0.1], "random forest": [-1.0, -1.0], "nearest neighbours": [-1.0, -1.0]}
    found = judge(rows_of(worse | {"Mahalanobis": [0.5, 0.7]}), 0.05)
    assert found.verdict.startswith("Use the Mahalanobis distance with a threshold. ")
    assert "0.550 [0.500, 0.600] more than k-of-N at 1-of-20" in found.verdict


def test_the_verdict_names_us_where_we_are_ahead():
    worse = {"random forest": [-1.0, -1.0], "nearest neighbours": [-1.0, -1.0], "Mahalanobis": [0.0, 0.1]}
    found = judge(rows_of(worse | {"k-of-N": [0.5, 0.7]}), 0.05)
    assert found.verdict.startswith("Use k-of-N at 1-of-20. ")
    assert "more than the Mahalanobis distance" in found.verdict


def test_where_methods_cannot_be_told_apart_the_familiar_payoff_decides():
    mixed = {"random forest": [-1.0, -1.0], "nearest neighbours": [-1.0, -1.0], "Mahalanobis": [1.0, 0.0]}
    found = judge(rows_of(mixed | {"k-of-N": [0.0, 0.9]}, Mahalanobis={"familiar": 0.5}), 0.05)
    assert found.verdict.startswith("Use k-of-N at 1-of-20, although the Mahalanobis distance")
    assert "cannot be told from it" in found.verdict


def test_no_caution_wins_where_novel_rows_are_harmless():
    careful = {name: [0.0, 0.0] for name in ("k-of-N", "random forest", "nearest neighbours", "Mahalanobis")}
    rows = [entry | {"novel_payoff": 1.0} if entry["level"] == "ordinary" else entry for entry in rows_of(careful)]
    assert judge(rows, 0.05).verdict.startswith("Use no caution")


def test_the_level_is_the_most_cautious_within_the_budget():
    rows = []
    for method in ("k-of-N", "random forest", "nearest neighbours", "Mahalanobis"):
        for level, departs in (("ordinary", 0.0), ("9-of-10", 0.01), ("5-of-10", 0.04), ("1-of-10", 0.2)):
            rows += [row(group, method, level, 0.0, departs=departs) for group in "xy"]
    assert judge(rows, 0.05).level == "5-of-10"
    assert judge(rows, 0.3).level == "1-of-10"
    assert judge(rows, 0.001).level == "9-of-10"


def test_a_threshold_uses_the_departures_up_and_no_more():
    rng = np.random.default_rng(0)
    for allowed in range(6):
        doubt, ordinary = rng.random(30), rng.integers(3, size=30)
        careful = np.full(30, 2)
        actions = refer_rules.referring(doubt, ordinary, careful, 20, allowed)
        departing = int((actions != ordinary)[:20].sum())
        assert departing <= allowed
        assert departing == min(allowed, int((ordinary[:20] != 2).sum()))  # scores without ties use all of it


BAD = [
    ({"label": "sort"}, "no column 'sort'"),
    ({"hold_out": "ward"}, "no column 'ward'"),
    ({"ignore": ["ward"]}, "no column 'ward'"),
    ({"hold_out": "same"}, "holds 'one' in every row"),
    ({"hold_out": "id"}, "fewer than two groups can be left out; its 96 values in 96 rows are no groups"),
    ({"hold_out": "two", "label": "two"}, "a single label is left to learn"),
    ({"payoffs": {"a": {"go": 1}, "b": {"go": 1}}}, "none for the labels 'c', 'd'"),
    ({"wrong": -1}, "what a wrong answer costs must be zero or a positive number"),
    ({"at_most": 0}, "at_most=0 must be between 0 and 1"),
    ({"aside": 1}, "aside=1 must be between 0 and 1"),
    ({"aside": 0.01}, "no label has enough rows to keep one aside"),
    ({"max_groups": 1}, "it must be at least 2"),
    ({"levels": ["1-of-x"]}, "1-of-x"),
    ({"levels": ["5-of-10", "1-of-11"]}, "n=11 exceeds the 10 models"),
    ({"num_epochs": 0}, "num_epochs=0 is too small"),
    ({"data": "nowhere.csv"}, "there is no such file"),
]


@pytest.mark.parametrize(("change", "says"), BAD)
def test_bad_input_is_named(change, says):
    data = table() | {"same": ["one"] * 96, "id": list(range(96)), "two": ["p", "q"] * 48}
    asked = {"label": "kind", "hold_out": "kind"} | FAST | change
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        with pytest.raises(CautiousError, match=says):
            evaluate(asked.pop("data", data), **asked)


def test_holes_lonely_groups_and_many_groups_are_told():
    data = table()
    data["kind"] = ["" if number < 3 else kind for number, kind in enumerate(data["kind"])]
    data["ward"] = ["alone", *(f"ward {number % 5}" for number in range(95))]
    data["ward"][10] = "also alone"
    with pytest.warns(TableWarning) as caught:
        found = evaluate(data, label="kind", hold_out="ward", max_groups=2, ignore=["hospital"], **FAST)
    said = " ".join(str(warning.message) for warning in caught)
    assert "3 of 96 rows have no 'kind' or 'ward': left out" in said
    assert "1 of 6 groups have a single row ('also alone')" in said
    assert "the 2 largest are left out in turn" in said
    assert len(found.to_frame().group.unique()) == 2
    assert len(found.notes) == len(caught)


def test_a_value_that_training_never_had_is_a_row_like_any_other():
    """A text of the group left out alone, and a number a million times too large: no method may fail."""
    data = table()
    data["colour"] = ["new" if place == "west" else "old" for place in data["hospital"]]
    data["y"][data["hospital"].index("west")] = 1e12
    with pytest.warns(TableWarning, match="column 'y' is 1000000000000"):
        found = evaluate(data, label="kind", hold_out="hospital", **FAST)
    sizes = {entry["novel_rows"] for entry in found.rows if entry["group"] == "west"}
    assert sizes == {data["hospital"].count("west") - 1}, (
        "the row that no model can judge is left out, for every method"
    )


@pytest.mark.parametrize("stop", [30, 101, 250])
def test_an_interrupted_call_resumes_with_the_same_bits(tmp_path, by_kind, stop):
    seen = []

    def interrupt(done: int, total: int) -> None:
        seen.append(done)
        if done >= stop:
            raise KeyboardInterrupt

    asked = {"label": "kind", "hold_out": "kind", "out": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt):
        evaluate(table(), **asked, **FAST | {"progress": interrupt})
    assert not (tmp_path / "out" / "evaluation.json").exists()
    fitted = evaluating.fit_ensemble
    calls = []

    def counted(*args, **kwargs):
        calls.append(1)
        return fitted(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluating, "fit_ensemble", counted)
        again = evaluate(table(), **asked, **FAST)
    assert again == by_kind
    assert len(calls) == 4 - sum(stop > 103 * number + 99 for number in range(4)), "no finished group is trained again"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "evaluation.csv", "evaluation.json", "evaluation.png",
    ]  # fmt: skip


def test_a_block_that_was_cut_short_is_computed_again(tmp_path, by_kind):
    """A kill in the middle of a write leaves some levels of a method, and half a line."""

    def interrupt(done: int, total: int) -> None:
        if done >= 220:
            raise KeyboardInterrupt

    asked = {"label": "kind", "hold_out": "kind", "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        evaluate(table(), **asked, **FAST | {"progress": interrupt})
    store = tmp_path / evaluating.STORE
    store.write_text(store.read_text()[:-40])
    assert evaluate(table(), **asked, **FAST) == by_kind


def test_rows_of_another_call_are_not_taken(tmp_path, by_kind):
    def interrupt(done: int, total: int) -> None:
        if done >= 220:
            raise KeyboardInterrupt

    asked = {"label": "kind", "hold_out": "kind", "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        evaluate(table(seed=1), **asked, **FAST | {"progress": interrupt})
    assert evaluate(table(), **asked, **FAST) == by_kind


def test_the_command_writes_what_the_function_returns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = table()
    with open("log.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(data), *zip(*data.values(), strict=True)])
    with open("payoffs.csv", "w", encoding="utf-8") as file:
        file.write("kind,accept,part,reject\n")
        file.writelines(f"{kind},{','.join(map(str, pays.values()))}\n" for kind, pays in PAYOFFS.items())
    options = ["--num-models", "10", "--num-epochs", "8", "--level", *FAST["levels"], "--ignore", "hospital"]
    main(["evaluate", "log.csv", "--label", "kind", "--hold-out", "kind", "--payoffs", "payoffs.csv", *options])
    said = " ".join(capsys.readouterr().out.split())
    whole = {name: values for name, values in data.items() if name != "hospital"}
    found = evaluate(whole, label="kind", hold_out="kind", payoffs=PAYOFFS, **FAST)
    assert found.verdict in said
    with open("evaluation/evaluation.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [{name: str(value) for name, value in row.items()} for row in found.rows] == rows
    summary = json.loads((tmp_path / "evaluation/evaluation.json").read_text())
    assert summary["verdict"] == found.verdict
    assert set(summary["files"]) == {"evaluation.csv", "evaluation.png"}
    assert (tmp_path / "evaluation/evaluation.png").read_bytes()[:4] == b"\x89PNG"
