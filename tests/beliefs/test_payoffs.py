"""Payoffs are read as they are meant, from every form, or refused with a word that helps."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cautious import CautiousError, InvalidInputError
from cautious.tables.frames import as_table
from cautious.tables.learn import Missing, learn
from cautious.tables.payoffs import Payoffs, label_numbers, label_text, payoffs_for, read_payoffs

NUMBERS = st.floats(-1e12, 1e12, allow_nan=False)
NAMES = st.text(st.characters(categories=("L", "Nd"), include_characters="_ .-"), min_size=1, max_size=12).filter(
    lambda name: (
        name == name.strip()
        and name[0] not in "+-*/"
        and name.lower() not in ("", "na", "nan", "n/a", "<na>", "null", "none", "inf", "infinity")
        and not _is_number(name)
    )
)


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def schema_of(**columns):
    return learn(as_table(columns, "rows"), (), Missing.LEAVE_OUT).schema


@given(st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=2, max_size=4))
def test_numbers_mean_the_same_in_every_form(table):
    labels = [f"label {number}" for number in range(len(table))]
    actions = ["a", "b", "c"]
    frame = pd.DataFrame(table, columns=actions)
    forms = [
        table,
        np.array(table),
        torch.tensor(table, dtype=torch.float64),
        {label: dict(zip(actions, row, strict=True)) for label, row in zip(labels, table, strict=True)},
        {label: dict(zip(actions, map(repr, row), strict=True)) for label, row in zip(labels, table, strict=True)},
        frame.assign(label=labels)[["label", *actions]],
        frame.set_index(pd.Index(labels)),
    ]
    for form in forms:
        found, unused = read_payoffs(form, labels)
        assert found.table.tolist() == table
        assert not found.factors
        assert not unused
    again = Payoffs.restored(found.described(), tuple(labels))
    assert torch.equal(again.table, found.table)


@given(NAMES, st.floats(-1e6, 1e6), st.sampled_from(["{f!r}*{c}", " {f!r} * {c} ", "-{c}", "+{c}", "{c}", "- {c}"]))
def test_a_number_times_a_column(column, factor, form):
    cell = form.format(f=factor, c=column)
    expected = factor if "{f" in form else -1.0 if "-" in form else 1.0
    if "{f" in form and factor < 0:
        expected = factor  # its sign is that of the cell
    found, _ = read_payoffs({"x": {"go": cell}, "y": {"go": 0}}, ["x", "y"])
    assert found.factors[column].tolist() == [[expected], [0.0]]
    assert found.table.tolist() == [[0.0], [0.0]]


@given(st.text(max_size=20))
def test_any_cell_is_read_or_refused(cell):
    columns = schema_of(amount=np.arange(30.0))
    try:
        found, _ = payoffs_for({"x": {"go": cell}, "y": {"go": 0}}, ["x", "y"], torch.zeros(3, 1), columns)
    except CautiousError:
        return  # of our own family, and no other
    assert bool(found.table.isfinite().all())
    assert set(found.factors) <= {"amount"}


@given(st.lists(st.one_of(st.integers(-50, 50), st.booleans(), st.sampled_from("abc")), min_size=1, max_size=30))
def test_labels_of_any_kind_are_numbered_in_order(labels):
    try:
        numbers, names = label_numbers(labels, len(labels))
    except InvalidInputError:
        assert len({label_text(label) for label in labels}) == 1
        return
    assert [names[number] for number in numbers.tolist()] == [label_text(label) for label in labels]
    if all(name.lstrip("-").isdigit() for name in names):
        assert list(names) == sorted(names, key=int)


@pytest.mark.parametrize(
    ("payoffs", "says"),
    [
        ({"x": {"go": 1}}, "none for the label 'y'"),
        ({"X": {"go": 1}, "y": {"go": 1}}, "there is 'X': use one spelling"),
        ({"x": {"go": 1}, "y": {"stay": 1}}, "label 'x', action 'stay': no payoff"),
        ({"x": {"go": None}, "y": {"go": 1}}, "label 'x', action 'go': no payoff"),
        ({"x": {"go": math.nan}, "y": {"go": 1}}, "no payoff"),
        ({"x": {"go": math.inf}, "y": {"go": 1}}, "'inf' is not known"),
        ({"x": {"go": 1e30}, "y": {"go": 1}}, "too large"),
        ({"x": {}, "y": {}}, "no action"),
        ({}, "no action"),
        ({1: {"go": 1}, "1.0": {"go": 1}}, "two rows for the label '1'"),
        ({"x": {"go": "__import__('os')"}, "y": {"go": 1}}, "is neither a number nor a column of numbers"),
        ({"x": {"go": "amount*0.1"}, "y": {"go": 1}}, r"'amount\*0.1' is not known"),
        ({"x": {"go": "2*3*amount"}, "y": {"go": 1}}, "neither a number nor a column"),
        ({"x": {"go": "--amount"}, "y": {"go": 1}}, "is not known"),
        ({"x": {"go": "-+2*amount"}, "y": {"go": 1}}, "is not known"),
        ({"x": {"go": "1,5"}, "y": {"go": 1}}, "'1,5' is neither a number nor a column"),
        ({"x": {"go": "kind"}, "y": {"go": 1}}, "these are 'amount'"),
        ({"x": {"go": "day"}, "y": {"go": 1}}, "these are 'amount'"),
        ("payoffs.txt", "must end in .csv"),
        ("missing.csv", "no such file"),
        (3, r"expected shape \[L, A\]"),
        ([[1.0], ["a"]], "real numbers"),
        (pd.DataFrame({"label": ["x", "x", "y"], "go": [1, 2, 3]}), "two rows for the label 'x'"),
        (pd.DataFrame({"label": ["x", "y"]}), "no action"),
        (lambda rows: [[1.0]], r"expected shape \[B, L, A\]"),
        (lambda rows: {"go": np.full((30, 2), np.nan)}, "finite"),
    ],
)
def test_what_is_wrong_is_said(payoffs, says):
    columns = schema_of(amount=np.arange(30.0), kind=["a", "b", "c"] * 10, day=pd.date_range("2026-01-01", periods=30))
    states = torch.zeros(30, columns.width)
    with pytest.raises(CautiousError, match=says):
        payoffs_for(payoffs, ["x", "y"], states, columns)


def test_a_column_with_holes_cannot_be_part_of_a_payoff():
    amount = np.arange(40.0)
    amount[3] = np.nan
    schema = learn(as_table({"amount": amount, "x": np.arange(40) % 7}, "rows"), (), Missing.INDICATOR).schema
    with pytest.raises(InvalidInputError, match="column 'amount' has empty cells"):
        payoffs_for({"x": {"go": "amount"}, "y": {"go": 0}}, ["x", "y"], torch.zeros(40, schema.width), schema)


def test_a_file_of_payoffs(tmp_path):
    path = tmp_path / "payoffs.csv"
    path.write_text("outcome,accept,reject\n1,0.1*amount,-1\n0,-amount,0\nlate,-2,0\n")
    for given_as in (path, str(path)):
        found, unused = read_payoffs(given_as, ["0", "1"])
        assert (found.actions, unused) == (("accept", "reject"), ("late",))
        assert found.table.tolist() == [[0.0, 0.0], [0.0, -1.0]]
        assert found.factors["amount"].tolist() == [[-1.0, 0.0], [0.1, 0.0]]


LENDING = pd.DataFrame({"outcome": [0, 1], "lend": [-5.0, 1.0], "refuse": [0.0, 0.0]})


@pytest.mark.parametrize(
    "frame",
    [
        LENDING,
        LENDING.sort_values("lend", ascending=False).reset_index(drop=True),
        LENDING.set_index("outcome"),
        LENDING.set_index("outcome").sort_values("lend", ascending=False),
    ],
)
def test_labels_are_a_frames_first_column_or_its_named_index(frame):
    """Whatever the order of the rows."""
    found, unused = read_payoffs(frame, ["0", "1"])
    assert (found.actions, found.table.tolist(), unused) == (("lend", "refuse"), [[-5.0, 0.0], [1.0, 0.0]], ())


def test_a_sorted_frame_is_read_by_its_column_or_refused():
    texts = LENDING.assign(outcome=["bad", "good"]).sort_values("lend", ascending=False)
    assert read_payoffs(texts, ["bad", "good"])[0].table.tolist() == [[-5.0, 0.0], [1.0, 0.0]]
    with pytest.raises(InvalidInputError, match="both the index and the column 'outcome' name all labels"):
        read_payoffs(LENDING.sort_values("lend", ascending=False), ["0", "1"])
    indexed = LENDING.drop(columns="outcome").set_axis(["bad", "good"])
    assert read_payoffs(indexed, ["bad", "good"])[0].actions == ("lend", "refuse")
