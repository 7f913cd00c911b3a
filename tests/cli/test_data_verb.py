"""`cautious data`: the table of available sets, and plain error messages."""

from __future__ import annotations

import pytest
import torch

from cautious.cli.main import main
from cautious.errors import BadFileError
from cautious_paper.worlds import data
from cautious_paper.worlds.data.idx import write_idx


@pytest.fixture(autouse=True)
def _own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CAUTIOUS_DATA", raising=False)


@pytest.fixture
def folder(tmp_path):
    write_idx(tmp_path / "own/emnist/emnist-letters-test-images-idx3-ubyte", torch.zeros(7, 28, 28).byte())
    write_idx(tmp_path / "own/emnist/emnist-letters-test-labels-idx1-ubyte", torch.ones(7).byte())
    return tmp_path / "own"


def rows(text: str) -> list[list[str]]:
    """The cells of each line of the table's body."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]


@pytest.mark.parametrize("arguments", [[], ["show"]])
def test_the_default_is_shown_and_letters_are_missing(capsys, arguments):
    main(["data", *arguments])
    said = capsys.readouterr().out
    assert rows(said)[:3] == [
        ["digits", "train", "6,000", "embedded default: 6,000 of the 60,000"],
        ["digits", "test", "1,000", "embedded default: 1,000 of the 10,000"],
        ["fashion", "test", "1,000", "embedded default: 1,000 of the 10,000"],
    ]
    assert rows(said)[3][:3] == ["letters", "test", "-"]
    assert "cautious data fetch" in said


@pytest.mark.parametrize("arguments", [["--data"], ["show", "letters", "--data"]])
def test_a_folder_is_looked_in_first(capsys, folder, arguments):
    main(["data", *arguments, str(folder)])
    said = capsys.readouterr().out
    assert rows(said)[-1] == ["letters", "test", "7", "given folder (emnist): 7 of the 20,800"]
    assert len(rows(said)) == (4 if arguments == ["--data"] else 1)
    assert f"given folder {folder}; cache" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "/nowhere/at/all"], "there is no such folder"),
        (["fetch", "--data", "somewhere"], "--out"),
        (["show", "--out", "somewhere"], "--data"),
    ],
)
def test_mistakes_end_in_one_line_and_status_2(capsys, arguments, said):
    with pytest.raises(SystemExit) as stop:
        main(["data", *arguments])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert said in error
    assert "Traceback" not in error


def test_unknown_names_are_refused_by_the_parser(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["data", "fetch", "faces"])
    assert stop.value.code == 2
    assert "letters" in capsys.readouterr().err


@pytest.mark.parametrize(("names", "wanted"), [(["letters"], ("letters",)), ([], ("digits", "fashion", "letters"))])
def test_fetch_asks_for_what_was_named_and_lists_the_files(tmp_path, capsys, monkeypatch, names, wanted):
    calls = []

    def fetch(names, progress, *, folder):
        calls.append((names, folder))
        progress("some.gz", 1, 1)
        return [tmp_path / "some.gz"]

    monkeypatch.setattr(data, "fetch_images", fetch)
    main(["data", "fetch", *names, "--out", str(tmp_path)])
    told = capsys.readouterr()
    assert calls == [(wanted, tmp_path)]
    assert told.out.strip() == str(tmp_path / "some.gz")
    assert told.err.strip() == "some.gz: 100 %"


def test_a_failed_fetch_is_said_plainly(capsys, monkeypatch):
    def fetch(names, progress, *, folder):
        raise BadFileError("http://somewhere/some.gz: the downloaded file does not match the checksum")

    monkeypatch.setattr(data, "fetch_images", fetch)
    with pytest.raises(SystemExit) as stop:
        main(["data", "fetch", "digits"])
    assert stop.value.code == 2
    assert "does not match the checksum" in capsys.readouterr().err


def test_help_teaches(capsys):
    with pytest.raises(SystemExit):
        main(["data", "--help"])
    said = capsys.readouterr().out
    for word in ("CAUTIOUS_DATA", "CAUTIOUS_CACHE", "torchvision", "fetch letters", "0.5 GB"):
        assert word in said
