"""`cautious train` on a user's own files, and `cautious solve` with what it wrote."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cautious import CautiousPolicy, RewardEnsemble, __version__, fit_ensemble
from cautious.cli.main import main

OPTIONS = ["--num-models", "6", "--num-epochs", "30", "--batch-size", "16", "--learning-rate", "0.01"]
SAME = {"num_models": 6, "num_epochs": 30, "batch_size": 16, "learning_rate": 0.01, "progress": False}


@contextmanager
def stopped(title: str):
    """In place of the progress bar: interrupts the training half-way."""

    def tell(done: int, total: int) -> None:
        if done >= total // 2:
            raise KeyboardInterrupt

    yield tell


@pytest.fixture
def experience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    states = rng.normal(size=(80, 3))
    rewards = np.stack([states[:, 0], -states[:, 0], np.full(80, 0.3)], axis=1)
    np.savez("experience.npz", inputs=states, rewards=rewards, notes=np.array(["not", "needed"]))
    return states, rewards


def test_a_file_becomes_the_belief_that_python_would_train(experience, capsys):
    main(["train", "experience.npz", "--out", "mine", *OPTIONS])
    belief = RewardEnsemble.load("mine")
    assert torch.equal(belief.parameters, fit_ensemble(*experience, **SAME).parameters)
    names = sorted(path.name for path in Path("mine").iterdir())
    stamped = [path.name for kind in ("models", "prior") for path in Path("mine").glob(f"{kind}-*.safetensors")]
    assert len(stamped) == 2
    assert names == ["ensemble.json", *stamped]
    said = " ".join(capsys.readouterr().out.split())
    assert "6 models of 3 actions, states [3]" in said
    assert "on 8 held-out familiar states" in said
    assert "cautious solve --belief mine" in said


def test_two_safetensors_files_are_one(experience):
    states, rewards = (torch.from_numpy(array) for array in experience)
    for name, rows in (("first", slice(0, 50)), ("second", slice(50, 80))):
        part = {"inputs": states[rows].contiguous(), "rewards": rewards[rows].contiguous()}
        save_file(part, f"{name}.safetensors")
    main(["train", "experience.npz", "--out", "one", *OPTIONS])
    main(["train", "first.safetensors", "second.safetensors", "--out", "two", *OPTIONS])
    assert torch.equal(RewardEnsemble.load("two").parameters, RewardEnsemble.load("one").parameters)


def test_an_interrupted_training_resumes(experience, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr("cautious.cli.train.progress_bar", stopped)
        with pytest.raises(SystemExit) as stop:
            main(["train", "experience.npz", "--out", "mine", *OPTIONS])
    assert stop.value.code == 130
    assert [path.name for path in Path("mine").iterdir()] == ["checkpoints"]
    told: list[int] = []

    @contextmanager
    def heard(title: str):
        yield lambda done, total: told.append(done)

    with monkeypatch.context() as patch:
        patch.setattr("cautious.cli.train.progress_bar", heard)
        main(["train", "experience.npz", "--out", "mine", *OPTIONS])
    assert told[0] >= 15  # not from the start
    assert torch.equal(RewardEnsemble.load("mine").parameters, fit_ensemble(*experience, **SAME).parameters)
    assert not Path("mine/checkpoints").exists()
    with pytest.raises(SystemExit):
        main(["train", "experience.npz", "--out", "mine", *OPTIONS])
    assert "already holds a belief" in capsys.readouterr().err


def test_a_belief_is_replaced_only_when_the_new_one_is_complete(experience, monkeypatch, capsys):
    main(["train", "experience.npz", "--out", "mine", *OPTIONS])
    before, files = RewardEnsemble.load("mine").parameters, {path.name for path in Path("mine").iterdir()}
    again = ["train", "experience.npz", "--out", "mine", *OPTIONS, "--seed", "1"]
    with pytest.raises(SystemExit):
        main(again)
    assert "error: --out 'mine' already holds a belief" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr("cautious.cli.train.progress_bar", stopped)
        with pytest.raises(SystemExit):
            main([*again, "--overwrite"])
    assert torch.equal(RewardEnsemble.load("mine").parameters, before)
    main([*again, "--overwrite"])
    assert torch.equal(RewardEnsemble.load("mine").parameters, fit_ensemble(*experience, **SAME, seed=1).parameters)
    assert {path.name for path in Path("mine").iterdir()} & files == {"ensemble.json"}


def test_overwrite_begins_anew_where_other_settings_were_interrupted(experience, monkeypatch, capsys):
    other = ["train", "experience.npz", "--out", "mine", *OPTIONS, "--seed", "1"]
    with monkeypatch.context() as patch:
        patch.setattr("cautious.cli.train.progress_bar", stopped)
        with pytest.raises(SystemExit):
            main(["train", "experience.npz", "--out", "mine", *OPTIONS])
    with pytest.raises(SystemExit):
        main(other)
    assert "checkpoints of another training run" in capsys.readouterr().err
    main([*other, "--overwrite"])
    assert torch.equal(RewardEnsemble.load("mine").parameters, fit_ensemble(*experience, **SAME, seed=1).parameters)


def test_images_and_what_was_not_tried(experience):
    rng = np.random.default_rng(1)
    rewards = rng.random((12, 4))
    rewards[:9, 1] = np.nan
    np.savez("images.npz", inputs=rng.integers(0, 256, (12, 28, 28), dtype=np.uint8), rewards=rewards)
    main(["train", "images.npz", "--num-models", "2", "--num-epochs", "1", "--validation-fraction", "0"])
    described = json.loads(Path("belief/ensemble.json").read_text())
    assert (described["network"], described["num_actions"]) == ("image", 4)


def test_a_belief_that_worries_says_so_in_words(experience, capsys):
    main(["train", "experience.npz", "--num-models", "2", "--num-epochs", "1", "--learning-rate", "1e-6"])
    assert "warning: the models do not fit the familiar data" in " ".join(capsys.readouterr().out.split())
    np.save("new.npy", np.zeros((3, 3), dtype=np.float32))
    main(["solve", "--belief", "belief", "--states", "new.npy", "--level", "1-of-2"])
    said = " ".join(capsys.readouterr().out.split())
    assert "warning: about this belief: the models do not fit the familiar data" in said, (
        "whoever decides may be another"
    )


def test_solve_decides_with_it_as_python_does(experience, capsys):
    main(["train", "experience.npz", "--out", "mine", *OPTIONS])
    new = np.array([[3.0, 0.0, 0.0], [0.1, 9.0, -9.0]])
    np.save("new.npy", new)
    np.savez("new.npz", inputs=new)
    expected = CautiousPolicy(RewardEnsemble.load("mine"), "1-of-5").decide(new)
    for name in ("new.npy", "new.npz"):
        arguments = ["--belief", "mine", "--states", name, "--level", "1-of-5", "--out", "out"]
        main(["solve", *arguments, "--tables"])
        found = load_file("out/policy.safetensors")
        assert torch.equal(found["best_policy"], expected.probabilities)
        assert torch.equal(found["action"], expected.action)
        assert torch.equal(found["caution"], expected.caution)
        assert torch.equal(found["ordinary_policy"], expected.ordinary)
    assert "distance from ordinary behaviour" in capsys.readouterr().out


def test_the_version_and_the_help_that_teaches(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"cautious {__version__}\n"
    with pytest.raises(SystemExit) as stop:
        main(["train", "--help"])
    assert stop.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "NaN where it was not tried" in said
    assert 'CautiousPolicy(RewardEnsemble.load("belief"), "1-of-20")' in said
