"""Logs and new rows with holes, on the command line: what can be decided is decided, and the rest is counted and named."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from cautious import CautiousPolicy, RewardEnsemble
from cautious.cli.main import main
from cautious.policy import rows as rows_read
from cautious.tables import files as csv_tables
from cautious.tables import frames

HEADER = ["name", "temperature", "pulse", "site", "treatment", "outcome"]
TRAIN = [
    "--action",
    "treatment",
    "--reward",
    "outcome",
    "--num-models",
    "8",
    "--num-epochs",
    "30",
    "--batch-size",
    "32",
]


def rows(count: int, seed: int) -> list[list[str]]:
    rng, found = np.random.default_rng(seed), []
    for number in range(count):
        ill, treatment = number % 2, ["rest", "pill", "refer"][rng.integers(3)]
        paid = 0.4 if treatment == "refer" else float((treatment == "pill") == bool(ill))
        measured = [f"{37 + 2 * ill + 0.2 * rng.normal():.2f}", f"{80 + 40 * ill + 5 * rng.normal():.0f}"]
        found.append([f"case {number}", *measured, ["north", "south"][rng.integers(2)], treatment, f"{paid}"])
    return found


def write(path: str, table: list[list[str]], width: int = 6) -> None:
    with Path(path).open("w", newline="") as file:
        csv.writer(file).writerows([HEADER[:width], *(row[:width] for row in table)])


def decisions(folder: str) -> list[dict[str, str]]:
    with Path(folder, "decisions.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write("log.csv", rows(160, 0))
        main(["train", "log.csv", *TRAIN, "--ignore", "name", "--out", "belief"])
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table = rows(8, 1)
    write("whole.csv", table, 4)
    table[1][1], table[2][2], table[3][3], table[5][2], table[6][1] = "", "n/a", "", "fast", "1e30"
    write("new.csv", table, 4)
    return trained / "belief"


SAID = (
    "new.csv: 5 of 8 rows cannot be used: column 'temperature' is empty in line 3 column 'pulse' is empty in line 4 column "
    "'site' is empty in line 5 column 'pulse' is not a number in line 7 ('fast') column 'temperature' is too large in line 8 "
    "(1e30)"
)


def test_rows_that_cannot_be_judged_are_undecided_and_the_others_decided(here, capsys):
    main(["solve", "--belief", str(here), "--states", "whole.csv", "--level", "1-of-6", "--out", "whole"])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(
            ["solve", "--belief", str(here), "--states", "new.csv", "--level", "1-of-6", "--out", "solved", "--tables"]
        )
    assert stop.value.code == 3
    said = " ".join(capsys.readouterr().out.split())
    assert f"{SAID} They are undecided; --fallback ACTION names an action for them." in said
    assert "│ undecided │ 5 │ 5 │" in said
    found, whole = decisions("solved"), decisions("whole")
    bad = [1, 2, 3, 5, 6]
    for number, (row, expected) in enumerate(zip(found, whole, strict=True)):
        if number in bad:
            assert row["decided 1-of-6"] == "undecided"
            assert row["ordinarily"] == row["caution 1-of-6"] == row["disagreement"] == ""
        else:
            assert row == expected
    assert found[2]["not judged"] == "pulse is empty"
    assert found[5]["not judged"] == "pulse is not a number ('fast')"
    arrays, alone = load_file("solved/policy.safetensors"), load_file("whole/policy.safetensors")
    good = [0, 4, 7]
    for name in ("best_policy", "action", "caution", "disagreement", "ordinary_policy"):
        assert torch.equal(arrays[name][good], alone[name][good])
    assert arrays["action"][bad].tolist() == [-1] * 5
    bounds = json.loads(Path("solved/certificate.json").read_text())["certificates"]["best_policy"]
    assert [value is None for value in bounds["lower"]] == [number in bad for number in range(8)]


def test_a_fallback_action_for_them(here, capsys):
    options = ["--states", "new.csv", "--level", "1-of-6", "6-of-6", "--fallback", "refer", "--out", "solved"]
    main(["solve", "--belief", str(here), *options])  # and no exit status
    assert f"{SAID} They get the action refer." in " ".join(capsys.readouterr().out.split())
    found = decisions("solved")
    for column in ("decided 1-of-6", "decided 6-of-6", "decided with fallback"):
        assert [row[column] for row in found if row["not judged"]] == ["refer"] * 5
    policy = CautiousPolicy(RewardEnsemble.load(here), "1-of-6", bad_rows_action="refer")
    frame = policy.decide(pd.read_csv("new.csv")).to_frame()
    assert frame["action"].tolist() == [row["decided 1-of-6"] for row in found]
    assert frame["reason"].ne("").tolist() == [bool(row["not judged"]) for row in found]


@pytest.mark.parametrize("options", [["--fallback", "refer"], ["--level", "1-of-6", "3-of-6", "--fallback", "refer"]])
def test_text_read_some_rows_at_a_time_gives_the_same_files_and_messages(here, capsys, monkeypatch, options):
    command = ["solve", "--belief", str(here), "--states", "new.csv", "--level", "1-of-6", *options, "--out", "solved"]
    said, files = [], []
    for size in (8192, 3, 1):
        monkeypatch.setattr("cautious.tables.files.ROWS_PER_BLOCK", size)
        main(command)
        said.append(capsys.readouterr().out)
        files.append({path.name: path.read_bytes() for path in Path("solved").iterdir()})
    assert len(files[0]["decisions.csv"].splitlines()) == 9
    assert said[1] == said[2] == said[0]
    assert files[1] == files[2] == files[0]


def test_a_file_that_changes_in_between_leaves_nothing(here, capsys, monkeypatch):
    read = csv_tables.version_of
    versions = iter([(1, 1)])  # when it is read first; another one when it is to be read again
    for module in (csv_tables, rows_read):
        monkeypatch.setattr(module, "version_of", lambda path: next(versions, read(path)))
    with pytest.raises(SystemExit) as stop:
        main(["solve", "--belief", str(here), "--states", "whole.csv", "--level", "1-of-6", "--out", "solved"])
    assert stop.value.code not in (None, 0, 3)
    assert "whole.csv: it has changed since it was read" in " ".join(capsys.readouterr().err.split())
    assert not Path("solved").exists() or not list(Path("solved").iterdir())


@pytest.mark.parametrize("levels", [["1-of-6"], ["1-of-6", "3-of-6"]])
def test_a_table_of_bad_rows_alone(here, levels):
    Path("new.csv").write_text("name,temperature,pulse,site\nann,,80,north\n,,,\nbob,37,x,south\n")
    main(
        ["solve", "--belief", str(here), "--states", "new.csv", "--fallback", "refer", "--level", *levels, "--out", "a"]
    )
    assert [row["decided with fallback"] for row in decisions("a")] == ["refer"] * 3
    with pytest.raises(SystemExit) as stop:
        main(["solve", "--belief", str(here), "--states", "new.csv", "--level", *levels, "--out", "b"])
    assert stop.value.code == 3
    assert [row["decided 1-of-6"] for row in decisions("b")] == ["undecided"] * 3
    with pytest.raises(SystemExit) as stop:
        main(["calibrate", "--belief", str(here), "--states", "new.csv"])
    assert stop.value.code == 2


def test_arrays_with_holes(here, capsys):
    states = np.array([[37.0, 80, 1, 0], [np.nan, 80, 1, 0], [39.0, 120, 0, 1]])
    np.savez("states.npz", inputs=states)
    with pytest.raises(SystemExit) as stop:
        main(["solve", "--belief", str(here), "--states", "states.npz", "--level", "1-of-6", "--out", "solved"])
    assert stop.value.code == 3
    assert load_file("solved/policy.safetensors")["action"].tolist() == [2, -1, 0]
    assert "column '0' is not finite in row 1 (nan)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("options", [[], ["--regime", "all-states", "--iterations", "5"]])
def test_rows_of_an_array_whose_predictions_overflow(here, capsys, options):
    states = np.tile([37.0, 80, 1, 0], (1300, 1))
    solve = ["solve", "--belief", str(here), "--states", "states.npy", "--level", "1-of-6", *options, "--out", "solved"]
    states[3, 0], states[1200, 1] = np.nan, 1e38
    np.save("states.npy", states)
    with pytest.raises(SystemExit) as stop:
        main(solve)
    assert stop.value.code == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "states.npy: 2 of 1,300 rows cannot be used" in said
    assert "is too large in row 1200 (1e+38)" in said
    actions = load_file("solved/policy.safetensors")["action"]
    assert (actions < 0).nonzero().flatten().tolist() == [3, 1200]
    main([*solve, "--fallback", "refer"])
    assert load_file("solved/policy.safetensors")["action"][[3, 1200]].tolist() == [1, 1]  # pill, refer, rest
    np.save("states.npy", np.full((2, 4), 1e38))  # not one row is left
    with pytest.raises(SystemExit) as stop:
        main(solve)
    assert stop.value.code == 3
    assert load_file("solved/policy.safetensors")["action"].tolist() == [-1, -1]


def test_calibration_leaves_them_out(here, capsys):
    table = rows(80, 2)
    table[7][1] = ""
    write("fresh.csv", table, 4)
    main(["calibrate", "--belief", str(here), "--states", "fresh.csv", "--at-most", "0.2", "--n", "6"])
    said = " ".join(capsys.readouterr().out.split())
    assert "fresh.csv: 1 of 80 rows cannot be used: column 'temperature' is empty in line 9 They are left out" in said
    assert "on 79 familiar states" in said


@pytest.mark.parametrize(("missing", "width", "num_rows"), [("leave-out", 4, 156), ("indicator", 6, 158)])
def test_training_with_holes(tmp_path, monkeypatch, capsys, missing, width, num_rows):
    monkeypatch.chdir(tmp_path)
    table = rows(160, 0)
    table[3][1], table[9][3], table[20][5], table[30][2] = "", "NA", "", "?"
    write("log.csv", table)
    main(["train", "log.csv", *TRAIN, "--out", "belief", "--missing", missing])
    said = " ".join(capsys.readouterr().out.split())
    assert "column 'name' has 160 different texts in 160 rows" in said
    assert "column 'outcome' is empty in line 22" in said
    assert "column 'pulse' is not a number in line 32 ('?')" in said
    assert "column 'temperature' is empty in line 5" in said
    assert "column 'site' is empty in line 11" in said
    assert f"{num_rows} are learned from." in said
    assert ("would keep 2 of them" in said) == (missing == "leave-out")
    belief = RewardEnsemble.load("belief")
    assert belief.state_shape == (width,)
    write("new.csv", [["", "", "120", "south"]], 4)
    solve = ["solve", "--belief", "belief", "--states", "new.csv", "--level", "6-of-6", "--out", "solved"]
    if missing == "leave-out":
        with pytest.raises(SystemExit):
            main(solve)
    else:
        main(solve)
        assert decisions("solved")[0]["decided 6-of-6"] == "pill"
    main(["calibrate", "--belief", "belief", "--data", "log.csv", "--folds", "2", "--at-most", "0.3", "--n", "6"])
    assert f"on {num_rows} familiar states" in " ".join(capsys.readouterr().out.split())


def test_parquet_is_read_as_csv_is(here, capsys):
    log = pd.read_csv(here.parent / "log.csv")
    log[:100].to_parquet("first.parquet")
    log[100:].to_parquet("second.parquet")
    main(["train", "first.parquet", "second.parquet", *TRAIN, "--ignore", "name", "--out", "belief"])
    first, second = RewardEnsemble.load("belief"), RewardEnsemble.load(here)
    assert torch.equal(first.parameters, second.parameters)
    assert first.columns == second.columns
    pd.read_csv("new.csv").to_parquet("new.parquet")
    for name, safe in (("csv", "refer"), ("parquet", "refer")):
        solve = ["solve", "--belief", "belief", "--states", f"new.{name}", "--level", "1-of-6"]
        main([*solve, "--fallback", safe, "--out", name])
    assert [row["decided 1-of-6"] for row in decisions("csv")] == [
        row["decided 1-of-6"] for row in decisions("parquet")
    ]
    assert "column 'pulse' is not a number in row 6 ('fast')" in " ".join(capsys.readouterr().out.split())
    Path("none.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit) as stop:
        main(["solve", "--belief", "belief", "--states", "none.parquet"])
    assert stop.value.code == 2
    assert "not a Parquet file" in " ".join(capsys.readouterr().err.split())


def test_parquet_without_its_package_says_how_to_install_it(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    Path("new.parquet").write_bytes(b"")
    with pytest.raises(SystemExit) as stop:
        main(["solve", "--belief", str(here), "--states", "new.parquet"])
    assert stop.value.code == 2
    assert frames.INSTALL in " ".join(capsys.readouterr().err.split())


def test_a_column_of_the_users_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One that training had, under a name that the command would give to one of its own."""
    monkeypatch.chdir(tmp_path)
    log = pd.DataFrame(rows(60, 0), columns=["new", *HEADER[1:]]).assign(new=np.arange(60) % 7)
    log.to_csv("log.csv", index=False)
    main(["train", "log.csv", *TRAIN, "--out", "belief"])
    log[["new", "temperature", "pulse", "site"]].to_csv("states.csv", index=False)
    main(["solve", "--belief", "belief", "--states", "states.csv", "--level", "1-of-3", "--out", "a"])
    assert [row["new"] for row in decisions("a")] == [str(number % 7) for number in range(60)]
    assert {row["new (cautious)"] for row in decisions("a")} == {""}


def test_bounds_of_levels_are_not_taken_for_those_of_rows(here: Path):
    """Two levels and two rows that can be judged, of three."""
    write("few.csv", [rows(3, 1)[0], ["c", "", "80", "north"], rows(3, 1)[2]], 4)
    command = ["solve", "--belief", str(here), "--states", "few.csv", "--regime", "all-states"]
    with pytest.raises(SystemExit):
        main([*command, "--level", "1-of-3", "2-of-3", "--out", "a"])
    certificates = json.loads(Path("a/certificate.json").read_text())["certificates"]
    assert all(len(certificate["lower"]) == 2 for certificate in certificates.values())


def test_the_fallback_action_by_its_number(here: Path):
    main(["solve", "--belief", str(here), "--states", "new.csv", "--level", "1-of-3", "--fallback", "1", "--out", "a"])
    assert decisions("a")[1]["decided 1-of-3"] == RewardEnsemble.load(here).actions[1]


def test_an_action_for_bad_rows_alone(here: Path, capsys):
    """Without a rule that takes it elsewhere; and beside a rule with another action."""
    solve = ["solve", "--belief", str(here), "--states", "new.csv", "--level", "1-of-6", "--bad-rows-action", "refer"]
    main([*solve, "--out", "a"])
    assert f"{SAID} They get the action refer." in " ".join(capsys.readouterr().out.split())
    found = decisions("a")
    assert [row["decided 1-of-6"] for row in found if row["not judged"]] == ["refer"] * 5
    assert "decided with fallback" not in found[0]
    main([*solve, "--fallback", "rest", "--threshold", "1e9", "--out", "b"])
    both = decisions("b")
    assert [row["decided 1-of-6"] for row in both] == [row["decided 1-of-6"] for row in found]
    assert [row["decided with fallback"] for row in both if row["not judged"]] == ["rest"] * 5
    with pytest.raises(SystemExit) as stop:
        main([*solve[:-1], "none", "--out", "c"])
    assert stop.value.code == 2
    assert "--bad-rows-action 'none' is not known" in capsys.readouterr().err
