"""Shards trained by others: the same bits, nothing finished is given out again, whatever the sizes of the shards."""

from __future__ import annotations

import pytest
import torch

from cautious.beliefs.training.loop import (
    TrainingSettings,
    TrainState,
    balanced_shard_size,
    partition_models,
    train,
    train_shard,
)
from cautious_paper.networks.driving_training import DrivingTrainingProblem

SETTINGS = TrainingSettings(num_models=40, num_epochs=2, batch_size=800, learning_rate=1e-3, weight_decay=1e-5)


LAST = ["models-00030-00031", "models-00032-00039"]


class BackwardsCrew:
    """Trains the last shard first, in this process; may leave after some."""

    def __init__(self, leaves_after: int | None = None) -> None:
        self.trained: list[range] = []
        self._leaves_after = leaves_after

    def num_workers(self, device):
        return 3

    def train_shards(self, job, shards, report, finished):
        for number in reversed(range(len(shards))):
            if len(self.trained) == self._leaves_after:
                raise KeyboardInterrupt
            shard = train_shard(job, shards[number], lambda epochs, own=number: report(own, epochs))
            self.trained.append(shard.models)
            finished(number, shard)


@pytest.fixture(scope="module")
def network():
    return DrivingTrainingProblem.familiar(0.5)


@pytest.fixture(scope="module")
def expected(network):
    return train(network, SETTINGS)


def test_others_train_the_same_bits(network, expected):
    executor, told = BackwardsCrew(), []
    ours = train(network, SETTINGS, executor=executor, progress=lambda done, total: told.append((done, total)))
    assert executor.trained == [range(32, 40), range(16, 32), range(0, 16)]  # three workers, one round of whole blocks
    assert torch.equal(ours.parameters, expected.parameters)
    assert torch.equal(ours.losses, expected.losses)
    assert told[0] == (0, 6)
    assert told[-1] == (6, 6)


def test_what_others_have_finished_is_kept_and_not_given_out_again(network, expected, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(network, SETTINGS, checkpoint_dir=tmp_path, executor=BackwardsCrew(leaves_after=2))
    assert sorted(path.name for path in tmp_path.glob("models-*")) == [
        "models-00016-00031.safetensors",
        "models-00032-00039.safetensors",
    ]
    again = BackwardsCrew()
    ours = train(network, SETTINGS, checkpoint_dir=tmp_path, executor=again)
    assert again.trained == [range(0, 16)]
    assert torch.equal(ours.parameters, expected.parameters)
    third = BackwardsCrew()
    assert torch.equal(train(network, SETTINGS, checkpoint_dir=tmp_path, executor=third).losses, expected.losses)
    assert third.trained == []


def test_a_crew_goes_on_with_what_this_process_began_and_the_other_way_round(network, expected, tmp_path):
    def stop(done, total):
        if done == 3:  # of 20 shards x 2 epochs
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(network, SETTINGS, shard_size=2, checkpoint_dir=tmp_path / "a", progress=stop)
    executor = BackwardsCrew()
    ours = train(network, SETTINGS, checkpoint_dir=tmp_path / "a", executor=executor)
    assert range(0, 2) not in executor.trained  # was finished
    assert range(2, 4) in executor.trained  # was begun, and stays a shard of two
    assert torch.equal(ours.parameters, expected.parameters)

    with pytest.raises(KeyboardInterrupt):
        train(network, SETTINGS, checkpoint_dir=tmp_path / "b", executor=BackwardsCrew(leaves_after=1))
    here = train(network, SETTINGS, shard_size=3, checkpoint_dir=tmp_path / "b")
    assert torch.equal(here.parameters, expected.parameters)
    names = sorted(path.stem for path in (tmp_path / "b").glob("models-*"))
    assert names == [*(f"models-{first:05d}-{first + 2:05d}" for first in range(0, 30, 3)), *LAST]


def test_an_overlapping_checkpoint_is_left_alone(network, expected, tmp_path):
    train(network, SETTINGS, shard_size=5, checkpoint_dir=tmp_path)
    (tmp_path / "models-00003-00006.safetensors").write_bytes(b"never read")
    (tmp_path / "models-notes.txt").write_text("no shard")
    assert torch.equal(train(network, SETTINGS, checkpoint_dir=tmp_path).parameters, expected.parameters)


@pytest.mark.parametrize("num_models", [1, 7, 24, 100])
@pytest.mark.parametrize("num_workers", [1, 2, 3, 8])
@pytest.mark.parametrize(("most", "multiple"), [(2, 1), (16, 1), (16, 16), (256, 16)])
def test_shards_are_even_and_keep_every_worker_busy(num_models, num_workers, most, multiple):
    size = balanced_shard_size(num_models, most, num_workers, multiple)
    shards = partition_models(num_models, size)
    assert [model for shard in shards for model in shard] == list(range(num_models))
    assert size <= most
    assert all(shard.start % multiple == 0 for shard in shards)
    num_rounds = -(-len(shards) // num_workers)
    assert num_rounds == -(-num_models // (most * num_workers))  # no more rounds than the largest shards would need


def test_a_shard_moves_between_devices_whole(network):
    shard = TrainState.fresh(network, SETTINGS, range(2, 5), torch.device("cpu"))
    shard.epoch = 1
    moved = shard.to(torch.device("meta"))
    assert (moved.models, moved.epoch) == (range(2, 5), 1)
    assert {name: part.shape for name, part in moved.tensors().items()} == {
        name: part.shape for name, part in shard.tensors().items()
    }
