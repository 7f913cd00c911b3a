"""Tables of text become states and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from cautious import RewardEnsemble
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.errors import BadFileError, InvalidInputError, MissingFileError
from cautious.tables.cells import in_order, place
from cautious.tables.files import FileTable, TextTable, read_blocks, read_table, read_tables, version_of
from cautious.tables.learn import Learned, Missing, learn_log
from cautious.tables.schema import Feature, OutcomeColumns, TableSchema

LOG = """name,temperature,site,treatment,outcome
ann,37.5,north,rest,1
bob,39,south,pill,0.5
cid,36.5,north,pill,-2
"""


def learned(table: TextTable, outcome: OutcomeColumns, ignore: Sequence[str] = ()) -> TableSchema:
    return learn_log(table, outcome, ignore, Missing.LEAVE_OUT)[0].schema


def written(folder: Path, text: str, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_log_by_hand(tmp_path):
    table, outcome = read_table(written(tmp_path, LOG)), OutcomeColumns("treatment", "outcome")
    columns = learned(table, outcome, ["name"])
    features = (Feature("temperature", None, 36.5, 39.0), Feature("site", ("north", "south")))
    assert columns == TableSchema(features, ("pill", "rest"), ("name", "treatment", "outcome"))
    assert columns.states(table).tolist() == [[37.5, 1, 0], [39, 0, 1], [36.5, 1, 0]]
    assert columns.remarks(table) == [[], [], []]
    actions, rewards = outcome.of(table)
    assert actions == ("pill", "rest")
    assert rewards.isnan().tolist() == [[True, False], [False, True], [False, True]]
    assert rewards.nan_to_num(9).tolist() == [[9, 1], [0.5, 9], [-2, 9]]


def test_a_column_for_each_action_with_gaps_where_it_was_not_tried(tmp_path):
    table = read_table(written(tmp_path, "x;gamble;help\n1;0.5;\n2;NA;0.25\n"))
    outcome = OutcomeColumns(rewards=("gamble", "help"))
    actions, rewards = outcome.of(table)
    assert actions == ("gamble", "help")
    assert rewards.nan_to_num(9).tolist() == [[0.5, 9], [9, 0.25]]
    assert learned(table, outcome).states(table).tolist() == [[1], [2]]


@pytest.mark.parametrize(("delimiter", "name"), [(",", "a.csv"), (";", "a.csv"), ("\t", "a.tsv")])
def test_headings_say_what_is_between_cells(tmp_path, delimiter, name):
    text = LOG.replace(",", delimiter)
    ours, plain = read_table(written(tmp_path, text, name)), read_table(written(tmp_path, LOG, "b.csv"))
    assert (ours.header, ours.rows) == (plain.header, plain.rows)


def test_quotes_marks_of_order_and_blank_lines(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes('\ufeffa,b\r\n"x, y",1\r\n\r\nz,2\r\n'.encode())
    assert read_table(path) == TextTable(path, ["a", "b"], [["x, y", "1"], ["z", "2"]], [2, 4])


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_some_rows_at_a_time_are_the_same_rows(tmp_path, monkeypatch, size):
    path = written(tmp_path, "\n,\na,b\n1,2\n,\n\n3,4\n,\n,\n5,6\n,\n,\n\n")
    whole = TextTable(path, ["a", "b"], [["1", "2"], ["", ""], ["3", "4"], ["", ""], ["", ""], ["5", "6"]], [])
    monkeypatch.setattr("cautious.tables.files.ROWS_PER_BLOCK", size)
    told = []
    blocks = list(read_blocks(path, lambda *now: told.append(now)))
    assert [len(block) for block in blocks] == [min(size, 6 - first) for first in range(0, 6, size)]
    assert {tuple(block.header) for block in blocks} == {("a", "b")}
    assert [row for block in blocks for row in block.rows] == whole.rows
    assert [line for block in blocks for line in block.lines] == [4, 5, 7, 8, 9, 10]
    assert read_table(path).rows == whole.rows
    assert told == sorted(told)
    assert told[-1] == (path.stat().st_size,) * 2


def test_a_table_in_its_file_notices_another_file_there(tmp_path):
    path = written(tmp_path, "a,b\n1,2\n3,4\n")
    table = FileTable(path, ["a", "b"], np.array([2, 3]), version_of(path))
    assert table.read("b").numbers.tolist() == [2, 4]
    assert (len(table), table.label(1)) == (2, 3)
    written(tmp_path, "a,b\n1,2\n3,4\n5,6\n")
    with pytest.raises(BadFileError, match="has changed since it was read"):
        table.read("b")


def test_new_rows_need_only_the_features_and_may_have_texts_never_seen(tmp_path):
    table = read_table(written(tmp_path, LOG))
    columns = learned(table, OutcomeColumns("treatment", "outcome"), ["name"])
    new = read_table(written(tmp_path, "site,temperature\neast,38\nsouth,40\nwest,36\n", "new.csv"))
    assert columns.states(new).tolist() == [[38, 0, 0], [40, 0, 1], [36, 0, 0]]
    assert columns.remarks(new) == [
        ["site 'east' never seen"],
        ["temperature 40 outside 36.5 to 39"],
        ["temperature 36 outside 36.5 to 39", "site 'west' never seen"],
    ]


def test_several_files_are_one_table(tmp_path):
    first, second = written(tmp_path, LOG), written(tmp_path, LOG, "more.csv")
    both = read_tables([first, second])
    assert len(both.rows) == 6
    assert place(both, 4) == f"{first}, line 3 of {second}"
    with pytest.raises(BadFileError, match="headings are not those"):
        read_tables([first, written(tmp_path, "a,b\n1,2\n", "other.csv")])


def test_a_number_is_one_action_however_it_is_written(tmp_path):
    table = read_table(written(tmp_path, "x,done,paid\n1,0,1\n2,0.0,1\n3,01,1\n4,1.0,1\n"))
    assert OutcomeColumns("done", "paid").of(table)[0] == ("0", "1")


def test_new_rows_with_gaps_are_all_named(tmp_path):
    table = read_table(written(tmp_path, LOG))
    columns = learned(table, OutcomeColumns("treatment", "outcome"), ["name"])
    new = read_table(written(tmp_path, "site,temperature\n,38\nnorth,\nnorth,38\n,x\nnorth,1e9\n", "new.csv"))
    with pytest.raises(InvalidInputError) as caught:
        columns.states(new)
    assert str(caught.value) == (
        f"{new.path}: 4 of 5 rows cannot be used: column 'site' is empty in lines 2, 5; column 'temperature' is empty in "
        "line 3; column 'temperature' is not a number in line 5 ('x'); column 'temperature' is too far outside in line 6 (1e9; "
        "36.5 to 39 in training). Fill in what is missing, or leave these rows out."
    )
    rows = columns.read(new)
    assert rows.problems.usable.tolist() == [False, False, True, False, False]
    assert rows.states.tolist() == [[38, 1, 0]]


def test_headings_may_hold_what_is_between_others(tmp_path):
    table = read_table(written(tmp_path, '\n"a;b;c;d", "done, or not"\n1, 2\n'))
    assert (table.header, table.rows) == (["a;b;c;d", "done, or not"], [["1", "2"]])


def test_numbers_are_in_their_own_order():
    assert in_order(["10", "9", "10"]) == ("9", "10")
    assert in_order(["b", "10", "9"]) == ("10", "9", "b")


def belief_with(settings: dict, num_actions: int = 2) -> RewardEnsemble:
    network = VectorNetwork((3,), num_actions, (2,))
    return RewardEnsemble(network, torch.zeros(2, network.num_parameters), settings=settings)


def test_a_belief_keeps_the_columns_it_was_trained_on(tmp_path):
    columns = TableSchema((Feature("temperature", None, 0.1, 3), Feature("site", ("north", "süd"))), ("pill", "rest"))
    belief_with({"columns": columns.described()}).save(tmp_path / "belief")
    assert TableSchema.of(RewardEnsemble.load(tmp_path / "belief")) == columns
    older = {"features": [asdict(feature) for feature in columns.features], "actions": ["pill", "rest"]}
    for feature in older["features"]:
        del feature["fill"]  # as files had it before holes and other columns were kept
    assert TableSchema.of(belief_with({"columns": older})) == columns
    with pytest.raises(InvalidInputError, match="not trained on a table"):
        TableSchema.of(belief_with({}))
    with pytest.raises(BadFileError, match=r"2 actions, its models .* 3 actions"):
        TableSchema.of(belief_with({"columns": columns.described()}, num_actions=3))
    for wrong in ([], {"features": [{"name": 1}], "actions": []}, {"features": 3, "actions": ["a"]}):
        with pytest.raises(BadFileError, match="does not describe columns"):
            TableSchema.of(belief_with({"columns": wrong}))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "headings and at least one row"),
        ("a,b\n", "headings and at least one row"),
        ("a,a\n1,2\n", "heading of its own"),
        ("a,\n1,2\n", "heading of its own"),
        ("a,b\n1,2\n1\n", "line 3: 1 cells, where the headings are 2"),
        ('a,b\n"1,2\n', "not a table of text"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, text, says):
    with pytest.raises(BadFileError, match=says):
        read_table(written(tmp_path, text))


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "log.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(BadFileError, match="UTF-8"):
        read_table(tmp_path / "log.csv")
    with pytest.raises(MissingFileError, match="no such file"):
        read_table(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        ("", "is empty in line 3"),
        ("nan", "is empty in line 3"),
        ("x", "is not a number in line 3 ('x')"),
        ("1_000", "is not a number in line 3 ('1_000')"),
        ("inf", "is not finite in line 3 ('inf')"),
        ("1e999", "is not finite in line 3 ('1e999')"),
        ("-1e30", "is too large in line 3 (-1e30)"),
    ],
)
def test_a_reward_that_is_no_finite_number_is_not_learned_from(tmp_path, cell, what):
    table = read_table(written(tmp_path, f"x,done,paid\n1,a,1\n2,b,{cell}\n3,a,2\n"))
    learned, rewards = learn_log(table, OutcomeColumns("done", "paid"), (), Missing.LEAVE_OUT)
    assert learned.rows.tolist() == [0, 2]
    assert rewards.tolist() == [[1], [2]]
    assert (
        str(learned.notes[0]) == f"{table.path}: 1 of 3 rows cannot be used: column 'paid' {what}; 2 are learned from."
    )


HOLES = "x,site,done,paid\n1,north,go,1\n,north,stay,0\n3,,go,1\n4,south,stay,\n?,south,,1\n6,south,go,0.5\n"


def learned_from_holes(folder: Path, missing: Missing) -> tuple[Learned, torch.Tensor]:
    return learn_log(read_table(written(folder, HOLES)), OutcomeColumns("done", "paid"), (), missing)


def test_rows_with_holes_are_left_out_and_counted(tmp_path):
    learned, rewards = learned_from_holes(tmp_path, Missing.LEAVE_OUT)
    assert learned.rows.tolist() == [0, 5]
    assert learned.states.tolist() == [[1, 1, 0], [6, 0, 1]]
    assert rewards.tolist() == [[1], [0.5]]  # "stay" is in no row that is left
    assert (
        "4 of 6 rows cannot be used: column 'x' is empty in line 3; column 'site' is empty in line 4; column 'paid' is empty "
        "in line 5; column 'done' is empty in line 6; column 'x' is not a number in line 6 ('?'); 2 are learned from. "
        'missing="indicator" would keep 2 of them.' in str(learned.notes[0])
    )


def test_empty_cells_can_be_learned_as_such(tmp_path):
    learned, rewards = learned_from_holes(tmp_path, Missing.INDICATOR)
    assert learned.rows.tolist() == [0, 1, 2, 5]  # an unreadable cell, and rows without an outcome, are no use
    mean = (1 + 3 + 6) / 3
    assert learned.states.tolist() == [
        [1, 0, 1, 0, 0],
        [pytest.approx(mean), 1, 1, 0, 0],
        [3, 0, 0, 0, 1],
        [6, 0, 0, 1, 0],
    ]
    assert rewards.nan_to_num(9).tolist() == [[1, 9], [9, 0], [1, 9], [0.5, 9]]
    new = read_table(written(tmp_path, "site,x\n,2\nsouth,\nsouth,?\n", "new.csv"))
    rows = learned.schema.read(new)
    assert rows.problems.usable.tolist() == [True, True, False]
    assert rows.states.tolist() == [[2, 0, 0, 0, 1], [pytest.approx(mean), 1, 0, 1, 0]]


def test_a_log_without_a_whole_row_says_so(tmp_path):
    table = read_table(written(tmp_path, "x,y,done,paid\n,1,a,1\n2,,b,1\n"))
    with pytest.raises(BadFileError, match=r"2 of 2 rows cannot be used: .*; none is left to learn from"):
        learn_log(table, OutcomeColumns("done", "paid"), (), Missing.LEAVE_OUT)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("1,go,1\n2,Go,1\n", "column 'done' has 'Go', 'go', which differ only in capitals"),
        ("yes,5,1\nYes,5,1\n", "column 'x' has 'Yes', 'yes', which differ only in capitals"),
        ("2026-11-15,5,1\n14.11.26,5,1\n", "line 2: column 'x' is '2026-11-15', which looks like a date"),
        ("15.11.26,5,1\nx,5,1\n", "looks like a date"),
        ('"3,5",5,1\n4,5,1\n', "line 2: column 'x' is '3,5', where a number was expected"),
        ("".join(f"t{n},5,1\n" for n in range(101)) * 2, "101 different texts"),
        ("".join(f"1,{n},1\n" for n in range(101)), "101 different actions"),
    ],
)
def test_cells_that_cannot_be_meant_are_named(tmp_path, rows, says):
    table, outcome = read_table(written(tmp_path, "x,done,paid\n" + rows)), OutcomeColumns("done", "paid")
    with pytest.raises(BadFileError, match=says):
        learned(table, outcome)


MANY = 80


@pytest.mark.parametrize(
    ("x", "note"),
    [
        (lambda n: f"case {n}", "column 'x' has 80 different texts in 80 rows: a name or a note of each row"),
        (lambda n: "", "column 'x' is empty in every row: left out"),
        (lambda n: "7", "column 'x' is 7 in every row: nothing can be learned from it"),
        (lambda n: "mm", "column 'x' is 'mm' in every row: nothing can be learned from it"),
        (lambda n: 1000 + n, "column 'x' has another whole number in each of 80 rows, from 1000 to 1079"),
        (lambda n: 1e12 if n == 3 else n % 7, "line 5: column 'x' is 1000000000000.0, more than 10000 times as far"),
        (lambda n: n % 7, None),
    ],
)
def test_columns_that_are_no_features_are_named(tmp_path, x, note):
    text = "x,y,done,paid\n" + "".join(f"{x(n)},{n % 5},{'ab'[n % 2]},{n % 3}\n" for n in range(MANY))
    found, _ = learn_log(read_table(written(tmp_path, text)), OutcomeColumns("done", "paid"), (), Missing.LEAVE_OUT)
    assert (note is None) == (not found.notes)
    assert note is None or note in str(found.notes[0])
    left_out = (note is not None and "left out" in note) or "case" in str(x(1))
    assert [feature.name for feature in found.schema.features] == ["y"] if left_out else ["x", "y"]


def test_one_action_one_row_and_a_reward_far_off_are_named(tmp_path):
    def notes(text: str) -> str:
        table = read_table(written(tmp_path, "x,done,paid\n" + text))
        return " ".join(map(str, learn_log(table, OutcomeColumns("done", "paid"), (), Missing.LEAVE_OUT)[0].notes))

    assert "1 row is little to learn from" in notes("1,a,1\n")
    assert "'a' is the only action: there is nothing to decide" in notes("1,a,1\n" * 30)
    rewards = "".join(f"{n % 9},{'ab'[n % 2]},{1e12 if n == 6 else n % 3}\n" for n in range(40))
    assert "line 8: the reward of a is 1e+12, more than 10000 times as far" in notes(rewards)


def test_columns_that_are_not_there_are_named(tmp_path):
    table = read_table(written(tmp_path, LOG))
    with pytest.raises(InvalidInputError, match="no column 'cost'; there are 'name'"):
        learned(table, OutcomeColumns("treatment", "cost"))
    with pytest.raises(InvalidInputError, match=r"no column 'name,date'; .* separated by spaces"):
        learned(table, OutcomeColumns("treatment", "outcome"), ["name,date"])
    with pytest.raises(InvalidInputError, match="no column is left"):
        learned(table, OutcomeColumns("treatment", "outcome"), ["name", "temperature", "site"])


@pytest.mark.parametrize(
    "names", [{}, {"action": "a"}, {"reward": "a"}, {"action": "a", "reward": "b", "rewards": ("c",)}]
)
def test_one_form_of_outcome_is_needed_and_no_more(names):
    with pytest.raises(InvalidInputError, match="one reward column per action"):
        OutcomeColumns(**names)
    with pytest.raises(InvalidInputError, match="twice"):
        OutcomeColumns(rewards=("a", "a"))
    with pytest.raises(InvalidInputError, match="twice"):
        OutcomeColumns("a", "a")


def test_states_are_what_a_network_takes(tmp_path):
    table = read_table(written(tmp_path, LOG))
    states = learn_log(table, OutcomeColumns("treatment", "outcome"), ["name"], Missing.LEAVE_OUT)[0].states
    assert states.dtype == torch.float64
    assert states.shape == (3, 3)
