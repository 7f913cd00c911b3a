from __future__ import annotations

import signal

import numpy as np
import pytest

from cautious.cli import console
from cautious.cli.main import main
from cautious.errors import InvalidInputError


def test_a_log_file_gets_a_progress_line_now_and_then(capsys, monkeypatch):
    clock = iter([0.0, 5.0, 16.0, 20.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    with console.progress_bars() as report:
        for done in (0, 25, 50, 100):
            report("training", done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["training: 0 %", "training: 50 %, about 16 s left", "training: 100 %"]


@pytest.mark.parametrize("out", ["im[a]", "x[/y]", ":smile:", "long" * 40])
@pytest.mark.parametrize("verb", ["demo --courier", "solve --rewards rewards.npy --level 1-of-2 --iterations 2"])
def test_a_folder_is_shown_by_its_name_whatever_that_is(tmp_path, monkeypatch, capsys, verb, out):
    monkeypatch.chdir(tmp_path)
    np.save("rewards.npy", np.eye(3)[:, None])
    main([*verb.split(), "--out", out])
    assert max(line.count(f"{out}/") for line in capsys.readouterr().out.splitlines()) == 2
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path / out}


def test_an_error_shows_what_was_named_as_it_is(capsys):
    def run():
        raise InvalidInputError("out='x[/y] im[a] :smile:' is no folder")

    with pytest.raises(SystemExit):
        console.run_verb(run)
    assert capsys.readouterr().err == "error: out='x[/y] im[a] :smile:' is no folder\n"


@pytest.mark.parametrize(
    ("error", "status"),
    [(InvalidInputError("k=0 is too small"), 2), (OSError("disk full"), 1), (KeyboardInterrupt(), 130)],
)
def test_failures_end_in_one_line_and_a_status(capsys, error, status):
    def run():
        raise error

    with pytest.raises(SystemExit) as stop:
        console.run_verb(run)
    assert stop.value.code == status
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_signals_stop_a_verb_as_ctrl_c_does(capsys, number, status):
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)  # whoever started the tests may have it ignored
    try:
        with pytest.raises(SystemExit) as stop:
            console.run_verb(lambda: signal.raise_signal(number))
        assert stop.value.code == status
        assert "resumes" in capsys.readouterr().err
        assert signal.getsignal(number) is usual
    finally:
        signal.signal(number, before)


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        console.run_verb(lambda: signal.raise_signal(signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)
