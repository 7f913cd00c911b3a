"""Training in pieces: what a checkpoint keeps, what is not done again, what is refused."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from cautious.beliefs.training import loop as training
from cautious.beliefs.training.loop import TrainingSettings, adam_step, train
from cautious.errors import BadFileError
from cautious.io.arrays import load_json, load_tensors, save_json, save_tensors
from cautious_paper.networks.driving_training import DrivingTrainingProblem

SETTINGS = TrainingSettings(num_models=5, num_epochs=3, batch_size=800, learning_rate=1e-3, weight_decay=1e-5)


class Stop(Exception):
    pass


@pytest.fixture(scope="module")
def network() -> DrivingTrainingProblem:
    return DrivingTrainingProblem.familiar(0.5)


def test_a_kill_in_a_long_epoch_loses_no_more_than_the_time_between_checkpoints(network, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CALL_SECONDS", -1.0)  # rest after every step
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    settings = TrainingSettings(3, 2, 200, 1e-3, 1e-5)  # nine steps an epoch
    expected = train(network, settings)
    steps = 0

    def killed(*arguments):
        nonlocal steps
        steps += 1
        if steps == 14:
            raise Stop  # in the middle of a step, so that nothing more is written
        adam_step(*arguments)

    monkeypatch.setattr(training, "adam_step", killed)
    with pytest.raises(Stop):
        train(network, settings, checkpoint_dir=tmp_path)
    found = load_tensors(next(tmp_path.glob("models-*.safetensors")))
    assert (int(found["epoch"]), int(found["batch"])) == (1, 4)
    steps = 100
    resumed = train(network, settings, checkpoint_dir=tmp_path)
    assert steps == 105
    assert torch.equal(resumed.parameters, expected.parameters)
    assert torch.equal(resumed.losses, expected.losses)


def test_finished_shards_are_not_touched_again(network, tmp_path):
    train(network, SETTINGS, shard_size=2, checkpoint_dir=tmp_path)
    before = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    train(network, SETTINGS, shard_size=2, checkpoint_dir=tmp_path)
    assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == before


def test_a_checkpoint_of_other_models_is_refused(network, tmp_path):
    other = TrainingSettings(5, 3, 800, 1e-3, 1e-5, seed=1)
    train(network, SETTINGS, shard_size=2, checkpoint_dir=tmp_path / "own")
    train(network, other, shard_size=2, checkpoint_dir=tmp_path / "other")
    first, second = (tmp_path / "own" / f"models-{name}.safetensors" for name in ("00000-00001", "00002-00003"))
    kept = first.read_bytes()
    for wrong in (second.read_bytes(), (tmp_path / "other" / first.name).read_bytes()):
        first.write_bytes(wrong)
        with pytest.raises(BadFileError, match="a checkpoint of other models"):
            train(network, SETTINGS, shard_size=2, checkpoint_dir=tmp_path / "own")
    first.write_bytes(kept)
    train(network, SETTINGS, shard_size=2, checkpoint_dir=tmp_path / "own")


def test_a_checkpoint_that_is_not_whole_is_refused(network, tmp_path):
    train(network, SETTINGS, checkpoint_dir=tmp_path)
    path = next(tmp_path.glob("models-*.safetensors"))
    kept = load_tensors(path)
    save_file(kept, path)
    with pytest.raises(BadFileError, match="its checksum is gone"):
        train(network, SETTINGS, checkpoint_dir=tmp_path)
    save_tensors(path, kept | {"epoch": torch.tensor(7)})
    with pytest.raises(BadFileError, match="epoch 7"):
        train(network, SETTINGS, checkpoint_dir=tmp_path)
    save_json(tmp_path / "training.json", load_json(tmp_path / "training.json") | {"format": 1})
    with pytest.raises(BadFileError, match="format is 1 there"):
        train(network, SETTINGS, checkpoint_dir=tmp_path)
