"""Names that someone else chose: on the terminal and in decisions.csv; and results of one call that appear together."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path

import pytest
import torch

from cautious import RewardEnsemble, fit_ensemble
from cautious.cli import console
from cautious.cli.answer import users_columns
from cautious.cli.main import main
from cautious.errors import SolverError
from cautious.io.atomic import write_together

ESCAPE = "\x1b[2J\x1b]0;owned\x07"


@pytest.fixture
def belief(tmp_path, monkeypatch):
    """Two columns and three actions with hostile names, and rows to decide about."""
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    frame = pandas.DataFrame(
        {"=x": torch.randn(40, generator=generator), f"y{ESCAPE}": torch.rand(40, generator=generator)}
    )
    pays = pandas.DataFrame(torch.rand(40, 3, generator=generator), columns=["=1+1", f"go{ESCAPE}", "-3"])
    fit_ensemble(frame, pays, num_models=4, num_epochs=2, validation_fraction=0, progress=False).save("belief")
    frame.iloc[:6].assign(new="mine", **{"caution 1-of-4": "mine", "note": "-5"}).to_csv("rows.csv", index=False)
    return RewardEnsemble.load("belief")


def solve(capsys, states="rows.csv", out="solved"):
    main(["solve", "--belief", "belief", "--states", states, "--level", "1-of-4", "--out", out, "--tables"])
    with Path(out, "decisions.csv").open(newline="") as file:
        return list(csv.reader(file)), capsys.readouterr()


def test_no_name_commands_the_terminal(belief, capsys):
    _, said = solve(capsys)
    assert "\x1b" not in said.out + said.err
    assert "\x07" not in said.out + said.err
    assert r"go\x1b[2J" in said.out


def test_no_name_begins_a_formula(belief, capsys):
    (header, *rows), _ = solve(capsys)
    assert header[0] == "'=x"
    assert {row[header.index("ordinarily")] for row in rows} <= {"'=1+1", f"go{ESCAPE}", "-3"}
    assert not any(cell.startswith("=") for row in [header, *rows] for cell in row)
    assert {row[header.index("note")] for row in rows} == {"-5"}  # what the user wrote stays


def test_columns_of_the_users_stay_whatever_their_names(belief, capsys):
    (header, *rows), _ = solve(capsys)
    assert header[2:5] == ["new", "caution 1-of-4", "note"]
    assert all(row[2] == row[3] == "mine" for row in rows)
    assert header[5:] == [
        "new (cautious)",
        "not judged",
        "disagreement",
        "ordinarily",
        "decided 1-of-4",
        "caution 1-of-4 (cautious)",
        "why",
    ]


def test_columns_of_an_earlier_call_are_known():
    ours = ["new", "not judged", "disagreement", "ordinarily", "decided 1-of-4", "caution 1-of-4"]
    assert users_columns(["a", "b", *ours]) == {"a", "b"}
    assert users_columns(["a", "b", *ours, "why"]) == {"a", "b"}
    assert users_columns(["a", "new", "b"]) == {"a", "new", "b"}
    assert users_columns(["new", *ours]) == {"new"}
    assert users_columns([*ours, "mine"]) == {*ours, "mine"}


def test_the_certificate_lists_every_file(belief, capsys):
    solve(capsys)
    listed = json.loads(Path("solved/certificate.json").read_text())["files"]
    assert set(listed) == {"policy.safetensors", "decisions.csv"}
    assert listed["decisions.csv"].endswith(hashlib.sha256(Path("solved/decisions.csv").read_bytes()).hexdigest())


@pytest.mark.parametrize("number", range(1, 10))
def test_a_second_call_that_is_interrupted_leaves_the_first_ones_results(belief, capsys, monkeypatch, number):
    """An interrupt at each write in turn, and at each move of a file to its place."""
    solve(capsys)
    before = {path.name: path.read_bytes() for path in Path("solved").iterdir()}
    calls, replace = 0, Path.replace

    def interrupted(self, target):
        nonlocal calls
        calls += 1
        if calls == number:
            raise KeyboardInterrupt
        return replace(self, target)

    status = 0
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        try:
            main(["solve", "--belief", "belief", "--states", "rows.csv", "--level", "2-of-4", "--out", "solved"])
        except SystemExit as stop:
            status = stop.code
    after = {path.name: path.read_bytes() for path in Path("solved").iterdir()}
    assert set(after) == set(before)
    assert (status == 130 and after == before) or (status == 0 and calls < number)


def test_files_written_together_replace_and_remove(tmp_path):
    def text(content):
        return lambda target: target.write_text(content)

    write_together(tmp_path / "x", {"a": text("1"), "b": text("2")})
    write_together(tmp_path / "x", {"a": text("3"), "b": None})
    assert {path.name: path.read_text() for path in (tmp_path / "x").iterdir()} == {"a": "3"}


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes."),
            "8.0 GiB",
        ),
        (MemoryError("Unable to allocate 7.45 GiB for an array with shape (1000000000,)"), "7.45 GiB"),
        (MemoryError(), "out of memory. What"),
    ],
)
def test_out_of_memory_is_a_sentence(capsys, error, says):
    def run():
        raise error

    with pytest.raises(SystemExit) as stop:
        console.run_verb(run)
    assert stop.value.code == 1
    said = capsys.readouterr().err
    assert "out of memory" in said
    assert says in said
    assert "Traceback" not in said


def test_other_errors_are_what_they_were(capsys):
    def run(error):
        raise error

    with pytest.raises(RuntimeError, match="a fault of ours"):
        console.run_verb(lambda: run(RuntimeError("a fault of ours")))
    with pytest.raises(SystemExit) as stop:
        console.run_verb(lambda: run(SolverError("no optimum")))
    assert stop.value.code == 2
