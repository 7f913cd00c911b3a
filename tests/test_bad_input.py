"""Every row of the page "Bad input" is run here; `tools/bad_input_page.py` makes the page of the same rows."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import zipfile
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import cautious
import cautious.errors
from bad_input_cases import CALLS, COMMANDS, FILES, SETUP, Call, Command
from cautious.cli.main import main

ROOT = Path(__file__).parents[1]
RESULTS = {
    *(
        "Calibration",
        "Certificate",
        "Coverage",
        "Decision",
        "Diagnosis",
        "DrivingWorld",
        "Evaluation",
        "Explanation",
        "FamiliarDisagreement",
        "MemoryMixture",
    ),
    *("PolicyMixture", "Solution", "Trace", "TrainingData", "UncertainCertificate", "UncertainSolution"),
}
"""Classes that calls return."""
ELSEWHERE = {"Problem", "RandomStops", "StepRewards", "VectorEnvAdapter"}
"""Classes that are checked where they are used: their rows are those of `compare` and `KofNPPO`."""


def takes_input(name: str) -> bool:
    """Whether a public name is called by users with values that may be wrong: no error, choice, protocol or named tuple is."""
    value = getattr(cautious, name)
    if not isinstance(value, type):
        return callable(value)
    named = (
        issubclass(value, (BaseException, Enum)) or getattr(value, "_is_protocol", False) or hasattr(value, "_fields")
    )
    return not named and name not in RESULTS | ELSEWHERE


AGENTS = (
    "KofNPPO",
    "LearnedMixture",
    "RankedMixture",
    "ScenarioPPO",
    "ScenarioEnv",
    "StepHistory",
    "rewards_of_pairs",
    "rewards_of_next_states",
)
"""Names that need Stable-Baselines3, so that a star does not import them."""
PUBLIC = {name for name in [*cautious.__all__, *AGENTS] if takes_input(name)}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the page lists."""
    folder = tmp_path_factory.mktemp("bad input")
    np.save(folder / "flat.npy", np.zeros(6))
    np.save(folder / "rewards.npy", np.random.default_rng(0).random((30, 2, 2)))
    save_file({"rewards": torch.zeros(2, 2, 2)}, folder / "whole.safetensors")
    (folder / "broken.safetensors").write_bytes((folder / "whole.safetensors").read_bytes()[:10])
    (folder / "whole.safetensors").unlink()
    world = {"transitions": torch.eye(3).repeat(2, 1), "initial_state_dist": torch.ones(3) / 3}
    save_file({**world, "discount": torch.tensor([0.9])}, folder / "mdp.safetensors")
    states, paid = np.zeros((20, 3)), np.zeros((20, 2))
    for name, arrays in {
        "experience": {"inputs": states, "rewards": paid},
        "wider": {"inputs": np.zeros((20, 4)), "rewards": paid},
        "uneven": {"inputs": states, "rewards": paid[:5]},
        "states": {"inputs": states},
        "objects": {"inputs": np.full((20, 3), None), "rewards": paid},
    }.items():
        np.savez(folder / f"{name}.npz", **arrays)
    rows = [f"{n},{'red' if n % 2 else 'blue'},{n % 3},0.5" for n in range(1, 21)]
    for name, cut in (("log", None), ("ragged", -4)):
        cells = ["x,kind,done,paid", rows[0], rows[1][:cut], *rows[2:]]
        (folder / f"{name}.csv").write_text("\n".join(cells) + "\n")
    (folder / "fake.parquet").write_text((folder / "log.csv").read_text())
    halves = [(row.split(",", 1), row.split(",", 2)) for row in rows]
    emptied = [f",{x[1]}" if n % 2 else f"{kind[0]},,{kind[2]}" for n, (x, kind) in enumerate(halves)]
    (folder / "holes.csv").write_text("\n".join(["x,kind,done,paid", *emptied]) + "\n")
    (folder / "cut.npz").write_bytes((folder / "experience.npz").read_bytes()[:300])
    with zipfile.ZipFile(folder / "huge.npz", "w") as packed:
        for name in ("inputs", "rewards"):
            with packed.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array_header_1_0(
                    file, {"descr": "<f8", "fortran_order": False, "shape": (2**25, 2**25)}
                )
    for name in ("text", "empty"):
        (folder / name).mkdir()
    for name in ("manifest", "ensemble", "policy"):
        (folder / "text" / f"{name}.json").write_text("no JSON")
    assert {path.name + "/" * path.is_dir() for path in folder.iterdir()} == set(FILES)
    return folder


@pytest.fixture(autouse=True)
def here(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh copy of them as the working folder, and no data but the package's."""
    place = shutil.copytree(files, tmp_path / "here")
    monkeypatch.chdir(place)
    monkeypatch.delenv("CAUTIOUS_DATA", raising=False)
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))
    return place


@cache
def setup() -> dict[str, Any]:
    """The names that rows use."""
    names: dict[str, Any] = {}
    exec(SETUP, names)
    return names


def listing(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize("case", CALLS, ids=lambda case: case.code)
def test_a_call_from_python(case: Call, here: Path):
    before = listing(here)
    with pytest.raises(getattr(cautious.errors, case.error), match=re.escape(case.says)) as caught:
        eval(case.code, dict(setup()))
    assert type(caught.value).__name__ == case.error
    assert listing(here) == before  # nothing is left behind


@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: f"{case.verb} {case.arguments}".strip())
def test_a_command(case: Command, here: Path, capsys: pytest.CaptureFixture[str]):
    before = listing(here)
    with pytest.raises(SystemExit) as caught:
        main([case.verb, *shlex.split(case.arguments)])
    captured = capsys.readouterr()
    assert caught.value.code == case.status
    said = " ".join(re.sub(r"[│╭╮╰╯─]", " ", captured.err).split())
    assert case.says in said
    assert "Traceback" not in captured.err + captured.out
    assert listing(here) == before


def test_every_public_name_and_verb_has_rows():
    assert {case.name for case in CALLS} == PUBLIC | {"load_images", "RiskMeasure"}
    verbs = {"demo", "data", "train", "calibrate", "solve", "evaluate", "reproduce", "report", "watch", "bench"}
    assert {case.verb for case in COMMANDS} == verbs


def test_the_page_shows_these_rows():
    spec = importlib.util.spec_from_file_location("bad_input_page", ROOT / "tools" / "bad_input_page.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    rows = [line for line in tool.page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(CALLS) + len(COMMANDS)
    for case in CALLS:
        assert f"| {tool.quoted(case.code)} | `{case.error}` | {tool.quoted(case.says)} |" in rows
    for command in COMMANDS:
        assert any(command.verb in row and tool.quoted(command.says) in row for row in rows)
