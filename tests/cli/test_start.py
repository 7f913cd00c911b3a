"""A command's first seconds: nothing heavy before it is needed, no traceback on Ctrl-C, no work that cannot be written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cautious.cli.main import VERBS, main

HEAVY = ("torch", "scipy", "matplotlib", "ray", "numba")


def loaded_by(arguments: str, folder: Path) -> set[str]:
    """Which heavy packages a command line imports, in a process of its own."""
    code = f"""
import sys
from cautious.cli.main import VERBS, main
try:
    main({arguments.split()})
except SystemExit as stop:
    assert not stop.code, stop.code
print("loaded:", *(name for name in {HEAVY} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("arguments", ["--version", "--help", "train --help", "solve --help"])
def test_help_and_version_load_nothing_heavy(arguments, tmp_path):
    assert loaded_by(arguments, tmp_path) == set()


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ("data", {"torch"}),
        ("solve --rewards rewards.npy --level 1-of-2 --iterations 2", {"torch", "scipy"}),
        ("train data.npz --num-models 2 --num-epochs 1", {"torch", "scipy"}),
        ("demo --courier", {"torch", "scipy", "matplotlib"}),
    ],
)
def test_a_verb_loads_what_it_needs(arguments, needed, tmp_path):
    np.save(tmp_path / "rewards.npy", np.eye(3)[:, None])
    np.savez(tmp_path / "data.npz", inputs=np.eye(3), rewards=np.eye(3))
    assert loaded_by(arguments, tmp_path) == needed


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_an_interrupt_while_torch_is_loading_prints_no_traceback(tmp_path):
    np.save(tmp_path / "rewards.npy", np.eye(3)[:, None])
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import cautious.__main__"
    call = [sys.executable, "-c", code, "solve", "--rewards", str(tmp_path / "rewards.npy"), "--level", "1-of-2"]
    command = subprocess.Popen(call, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    maps = Path(f"/proc/{command.pid}/maps")
    while command.poll() is None and "libtorch" not in maps.read_text():
        time.sleep(0.005)
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=60)
    assert "Traceback" not in out + err
    assert command.returncode == 130
    assert not (tmp_path / "solution").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc cannot be written, whoever one is")
def test_solve_notices_that_it_cannot_write_before_it_solves(tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "rewards.npy", np.eye(3)[:, None])

    def never(*_, **__):
        raise AssertionError("solved for nothing")

    monkeypatch.setattr("cautious.solvers.solve.solve_bandit", never)
    with pytest.raises(SystemExit) as stop:
        main(["solve", "--rewards", str(tmp_path / "rewards.npy"), "--level", "1-of-2", "--out", "/proc/solution"])
    assert stop.value.code == 2
    assert "/proc/solution: could not be written" in capsys.readouterr().err


def shell(line, folder, **environment):
    """A line of a shell that fails where any part of a pipe fails."""
    line = line.replace("cautious ", f"{sys.executable} -m cautious ")
    call = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(
        call, cwd=folder, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )


@pytest.fixture
def rewards(tmp_path):
    np.save(tmp_path / "rewards.npy", np.eye(3)[:, None])
    return "cautious solve --rewards rewards.npy --level 1-of-2 --iterations 2"


def test_help_into_a_pipe_that_closes_prints_no_traceback(tmp_path):
    done = shell("cautious --help | head -1", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: cautious")


@pytest.mark.parametrize("to", ["| true", ">&-", ">&- 2>&-", "2>/dev/full"])
def test_work_is_done_whoever_listens(rewards, tmp_path, to):
    done = shell(f"{rewards} {to}", tmp_path)
    assert (done.returncode, done.stderr.replace("solving: 50 %\nsolving: 100 %\n", "")) == (0, "")
    assert (tmp_path / "solution" / "certificate.json").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_an_output_that_is_full_is_named_after_the_work(rewards, tmp_path):
    for line in ("cautious --help", rewards):
        done = shell(f"{line} >/dev/full", tmp_path)
        assert done.returncode == 1
        said = done.stderr.splitlines()
        assert said[-1] == "error: standard output could not be written (No space left on device)."
        assert "Traceback" not in done.stderr
    assert (tmp_path / "solution" / "certificate.json").exists()


def test_a_width_of_no_columns_is_no_width(rewards, tmp_path):
    assert "certificate.json" in shell(rewards, tmp_path, COLUMNS="0").stdout


def test_errors_keep_their_status_where_nothing_can_be_printed(tmp_path):
    assert shell("cautious solve --rewards nowhere.npy --level 1-of-2 >/dev/full", tmp_path).returncode == 2
    assert shell("cautious solve --unheard-of >/dev/full 2>&1", tmp_path).returncode == 2


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_line_of_any_help_is_wider_than_the_terminal(columns, monkeypatch, capsys):
    """Neither in colour nor without; a terminal breaks a longer line within a word."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "dumb")
    for verb in ("", *VERBS):
        with pytest.raises(SystemExit):
            main([*([verb] if verb else []), "--help"])
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if len(line) > columns] == []
        assert len(lines) > 12
