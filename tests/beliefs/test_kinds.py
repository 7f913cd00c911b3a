"""Columns are what they say they are: categories, truth values, times, lengths of time; and codes that look like numbers."""

import datetime
import json
import warnings

import numpy as np
import pandas as pd
import polars
import pytest
import torch

from cautious import (
    BadFileError,
    CautiousPolicy,
    InvalidInputError,
    RewardEnsemble,
    TableWarning,
    fit_ensemble,
    read_log,
)
from cautious.cli.main import main
from cautious.tables.frames import as_table
from cautious.tables.kinds import Kind, as_days, kind_of
from cautious.tables.learn import Missing, learn

pytestmark = pytest.mark.filterwarnings("ignore::cautious.BeliefWarning")

COUNT = 60
DAYS = pd.date_range("2026-01-01", periods=COUNT, freq="D")
QUICK = {"num_models": 4, "num_epochs": 2, "progress": False}


def learned(**columns):
    return learn(as_table({"x": np.arange(COUNT) % 7, **columns}, "rows"), (), Missing.LEAVE_OUT)


def feature(found, name):
    return next(part for part in found.schema.features if part.name == name)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (pd.Series(np.arange(COUNT) % 3).astype("category"), Kind.TEXT),
        (pd.Series(["a", "b"] * 30, dtype="category"), Kind.TEXT),
        (polars.Series(["a", "b"] * 30, dtype=polars.Categorical), Kind.TEXT),
        (np.arange(COUNT) % 2 == 0, Kind.BOOLEAN),
        (pd.Series([True, None] * 30, dtype="boolean"), Kind.BOOLEAN),
        (pd.Series(DAYS), Kind.TIME),
        (pd.Series(DAYS.tz_localize("Europe/Berlin")), Kind.ZONED_TIME),
        (polars.Series([datetime.datetime(2026, 1, 1)] * COUNT), Kind.TIME),
        ([day.date() for day in DAYS], Kind.TIME),
        (pd.Series(DAYS - DAYS[0]), Kind.DURATION),
        ([f"{day:%Y-%m-%d}" for day in DAYS], Kind.TIME),
        ([f"{day:%Y-%m-%dT%H:%M:%S}+01:00" for day in DAYS], Kind.ZONED_TIME),
        ([f"{day:%Y-%m-%dT%H:%M:%SZ}" for day in DAYS], Kind.ZONED_TIME),
        ([f"{day:%d.%m.%Y}" for day in DAYS], None),
        ([1.5] * COUNT, None),
        (["2026-01-01", "soon"] * 30, None),
        (["2026-01-01", "2026-01-01T00:00Z"] * 30, None),
    ],
)
def test_kinds(cells, kind):
    assert kind_of(as_table({"x": cells}, "rows").read("x")) is kind


@pytest.mark.parametrize(
    ("cell", "days"),
    [
        ("1970-01-02", 1.0),
        ("1970-01-01 06:00", 0.25),
        ("1970-01-01T12:00:00+06:00", 0.25),
        ("1969-12-31T18:00:00Z", -0.25),
        (datetime.date(1970, 1, 11), 10.0),
        (datetime.datetime(1970, 1, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=12))), 0.0),
    ],
)
def test_times_are_days_since_1970_in_utc(cell, days):
    assert as_days(cell)[0] == days


def test_a_time_is_the_same_in_every_form():
    zone = DAYS.tz_localize("Europe/Berlin")
    forms = [
        pd.Series(zone),
        zone.to_pydatetime().tolist(),
        [f"{day.isoformat()}" for day in zone],
        polars.Series(list(zone.tz_convert("UTC").to_pydatetime())),
    ]
    first, *others = [learned(at=form).states for form in forms]
    for other in others:
        assert torch.allclose(first, other, rtol=0, atol=1e-9)
    assert first[0, 1] == pytest.approx((zone[0] - pd.Timestamp("1970-01-01", tz="UTC")).total_seconds() / 86400)


def test_times_are_named_in_the_summary():
    found = learned(at=pd.Series(DAYS), until=pd.Series(DAYS))
    (note,) = found.notes
    assert str(note).startswith("columns 'at', 'until' hold points in time: later rows lie outside")
    assert 'ignore=["at", "until"]' in str(note)


def test_what_is_no_such_time_cannot_be_judged():
    schema = learned(at=pd.Series(DAYS.tz_localize("UTC"))).schema
    for cells in (["2026-01-05"], ["soon"], [7.0], pd.Series(DAYS[:1])):
        problems = schema.read(as_table({"x": [1], "at": cells}, "rows")).problems
        assert "is not a time with a zone" in str(problems)
    later = as_table({"x": [1], "at": ["2031-01-05T00:00Z"]}, "rows")
    assert schema.remarks(later) == [["at 2031-01-05T00:00Z outside 2026-01-01 to 2026-03-01"]]


def test_a_time_where_a_number_was_is_refused():
    schema = learned(y=np.linspace(0, 1, COUNT)).schema
    problems = schema.read(as_table({"x": [1], "y": pd.Series(DAYS[:1])}, "rows")).problems
    assert "column 'y' is not a number in row 0" in str(problems)


def test_truth_values_may_be_written_in_any_way():
    schema = learned(ok=np.arange(COUNT) % 2 == 0).schema
    assert schema.features[1].kind is Kind.BOOLEAN
    for cells in ([True, False], ["true", "False"], [1, 0], pd.Series([True, False], dtype="boolean")):
        assert schema.states(as_table({"x": [1, 1], "ok": cells}, "rows"))[:, 1].tolist() == [1.0, 0.0]


def test_categories_of_numbers_are_kinds_and_unseen_ones_are_novel():
    codes = pd.Series(np.tile([10115, 20095, 80331], 20))
    by_type, by_name = learned(code=codes.astype("category")), learn(
        as_table({"x": np.arange(COUNT) % 7, "code": codes}, "rows"), (), Missing.LEAVE_OUT, (), ["code"]
    )  # fmt: skip
    assert by_type.schema == by_name.schema
    assert feature(by_name, "code").texts == ("10115", "20095", "80331")
    schema = by_name.schema
    for written in (20095, 20095.0, "20095", "020095"):
        assert schema.states(as_table({"x": [1], "code": [written]}, "rows"))[0, 1:].tolist() == [0, 1, 0]
    unseen = as_table({"x": [1], "code": [15000]}, "rows")
    assert schema.states(unseen)[0, 1:].tolist() == [0, 0, 0]
    assert schema.remarks(unseen) == [["code '15000' never seen"]]


def test_an_unseen_category_between_two_others_is_in_doubt():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=300), "code": rng.choice([10115, 20095, 80331], 300)})
    labels = np.where(frame["code"] == 20095, "good", "bad")
    payoffs = {"good": {"go": 1, "stay": 0}, "bad": {"go": -1, "stay": 0}}
    unseen = {"x": [0.0], "code": [21000]}
    disagreement = {}
    for categorical in ((), ("code",)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableWarning)
            belief = fit_ensemble(
                frame, labels=labels, payoffs=payoffs, categorical=categorical, num_models=20, progress=False
            )
        disagreement[categorical] = float(CautiousPolicy(belief, "1-of-20").decide(unseen).disagreement)
    assert disagreement[("code",)] > 1 > disagreement[()]


@pytest.mark.parametrize(
    ("name", "values", "asked"),
    [
        ("area", [10115, 20095, 80331], True),
        ("zip", [1, 2, 3], True),
        ("branch_code", [1, 2, 3], True),
        ("rooms", [1, 2, 3, 4], False),
        ("loan", [1000, 5000, 20000], False),
        ("age", list(range(20, 30)), False),
        ("flag", [0, 1], False),
        ("share", [0.5, 40.25, 90.125], False),
    ],
)
def test_numbers_that_look_like_codes_get_a_question(name, values, asked):
    notes = " ".join(map(str, learned(**{name: np.resize(values, COUNT)}).notes))
    assert ("do they name kinds" in notes) == asked
    assert (f'categorical=["{name}"]' in notes) == asked


def test_odd_columns_are_named_once():
    constant = {f"c{number}": np.full(COUNT, number) for number in range(15)}
    codes = {f"code{number}": np.resize([11, 345, 901], COUNT) for number in range(15)}
    texts = {f"note{number}": [f"row {row}" for row in range(COUNT)] for number in range(3)}
    found = learned(**constant, **codes, **texts)
    assert len(found.notes) == 3
    assert "'c11' and 3 more are the same in every row" in str(found.notes[1])
    assert "columns 'note0', 'note1', 'note2' have 60 to 60 different texts" in str(found.notes[0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TableWarning)
        fit_ensemble({"x": np.arange(COUNT) % 7, **constant}, {"go": np.arange(COUNT) % 3}, **QUICK)
    assert sum(issubclass(warning.category, TableWarning) for warning in caught) == 2  # constants, and a single action


@pytest.mark.filterwarnings("ignore::cautious.TableWarning")
def test_kinds_are_kept_with_the_belief(tmp_path):
    frame = pd.DataFrame({"at": DAYS, "ok": np.arange(COUNT) % 2 == 0, "took": DAYS - DAYS[0]})
    belief = fit_ensemble(frame, {"go": np.arange(COUNT) % 3, "stay": np.ones(COUNT)}, **QUICK)
    belief.save(tmp_path)
    loaded = RewardEnsemble.load(tmp_path)
    assert [part.kind for part in loaded.columns.features] == [Kind.TIME, Kind.BOOLEAN, Kind.DURATION]
    assert torch.equal(loaded.rewards(frame), belief.rewards(frame))
    described = json.loads((tmp_path / "ensemble.json").read_text())
    described["settings"]["columns"]["features"][0]["kind"] = "weekday"
    (tmp_path / "ensemble.json").write_text(json.dumps(described))
    with pytest.raises(BadFileError):
        RewardEnsemble.load(tmp_path).columns  # noqa: B018


def test_categorical_names_columns():
    table = {"x": np.arange(COUNT), "paid": np.ones(COUNT), "did": ["a", "b"] * 30}
    for wrong, says in (("x", "must be a list of columns"), (["z"], "no column 'z'"), (3, "must be a list of columns")):
        with pytest.raises(InvalidInputError, match=says):
            read_log(table, action="did", reward="paid", categorical=wrong)
    with pytest.raises(InvalidInputError, match="an array has no named columns"):
        fit_ensemble(np.zeros((5, 2)), np.zeros((5, 2)), categorical=["x"])
    with pytest.raises(InvalidInputError, match="'did' is no part of a state"):
        read_log(table, action="did", reward="paid", categorical=["did"])


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "at": DAYS.strftime("%Y-%m-%d"),
            "zip": rng.choice([10115, 20095, 80331], COUNT),
            "paid_back": rng.choice(["yes", "no"], COUNT),
        }
    )
    rows.to_csv("log.csv", index=False)
    (tmp_path / "payoffs.csv").write_text("outcome,lend,refuse\nno,-4,0\nyes,1,-0.1\n")
    common = "train log.csv --label paid_back --payoffs payoffs.csv --num-models 20 --num-epochs 2"
    main(common.split())
    said = " ".join(capsys.readouterr().out.split())
    assert "--categorical zip" in said
    assert "--ignore at" in said
    assert "time, 2026-01-01 to 2026-03-01" in said
    assert "no label of" in said.replace("│", "").replace("  ", " ")
    main([*common.split(), "--categorical", "zip", "--overwrite"])
    said = " ".join(capsys.readouterr().out.split())
    assert "3 texts: 10115, 20095, 80331" in said
    (tmp_path / "new.csv").write_text("at,zip\n2026-02-01,10115\n2026-02-02,99999\n")
    main(["solve", "--belief", "belief", "--states", "new.csv", "--level", "1-of-20", "--out", "out"])
    assert "'99999' never seen" in (tmp_path / "out/decisions.csv").read_text()
    (tmp_path / "other.csv").write_text("outcome,lend,wait\nno,-9,0\nyes,1,0\n")
    main(["solve", "--belief", "belief", "--states", "new.csv", "--payoffs", "other.csv", "--out", "out2"])
    assert "wait" in (tmp_path / "out2/decisions.csv").read_text()
    main(["calibrate", "--belief", "belief", "--data", "log.csv", "--folds", "2", "--at-most", "0.3"])
    assert "level: " in capsys.readouterr().out
