"""`cautious solve --tolerance`: certified, refused beside a number of iterations, and warned about where it is not reached."""

import json

import numpy as np
import pytest
import torch

from cautious import TabularMDP
from cautious.cli.main import main
from cautious.io.arrays import save_tensors
from cautious.mdp.files import save_mdp


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(0)
    rewards = torch.from_numpy(random.normal(size=(30, 20, 3)))
    save_tensors(tmp_path / "rewards.safetensors", {"rewards": rewards})
    save_mdp(tmp_path / "world.safetensors", TabularMDP(random.dirichlet(np.ones(20), (20, 3)), np.full(20, 0.05), 0.9))
    return tmp_path, float(rewards.max() - rewards.min())


def solve(folder, *options):
    files = ["--rewards", f"{folder}/rewards.safetensors", "--mdp", f"{folder}/world.safetensors"]
    main(["solve", *files, "--out", f"{folder}/out", *options])
    return json.loads((folder / "out" / "certificate.json").read_text())


def test_the_certificate_keeps_the_tolerance(files):
    folder, unit = files
    for share in (1e-2, 1e-6):
        written = json.dumps(solve(folder, "--tolerance", str(share), "--level", "1-of-20", "CVaR(0.1)"))
        gaps = [gap for found in json.loads(written)["certificates"].values() for gap in found["gap"]]
        assert len(gaps) >= 2
        assert max(gaps) <= share * unit


@pytest.mark.parametrize("other", [["--iterations", "5"], ["--update", "regret-matching+"], ["--sampling", "queue"]])
def test_a_number_of_iterations_excludes_it(files, other, capsys):
    with pytest.raises(SystemExit):
        solve(files[0], "--tolerance", "0.01", *other)
    assert "--tolerance 0.01 does not go with" in " ".join(capsys.readouterr().err.split())


def test_what_was_not_reached_is_said(files, monkeypatch, capsys):
    for name, value in {"MOST_ITERATIONS": 25, "MOST_POLICIES": 1, "LARGEST_QUICK_PROGRAM": 0}.items():
        monkeypatch.setattr(f"cautious.solvers.tolerance.{name}", value)
    solve(files[0], "--tolerance", "1e-9")
    assert "is certified within" in " ".join(capsys.readouterr().out.split())
