"""The fused kernel that trains driving networks, against the plain path."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec

import pytest
import torch

from cautious.beliefs.training import loop as training
from cautious.beliefs.training.loop import train, train_plainly
from cautious.beliefs.training.state import TrainingSettings, TrainState
from cautious_paper.networks.driving_training import DrivingTrainingProblem

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

INTERPRETED = """
import torch
from cautious_paper.networks.driving_training import DrivingTrainingProblem
from cautious_paper.kernels.driving.fused import FusedDrivingTraining
from cautious.beliefs.training.state import TrainState, TrainingSettings
from cautious.beliefs.training.loop import train_plainly

network = DrivingTrainingProblem.familiar(1.0)  # 218 pairs: three batches of 80, 80 and 58
settings = TrainingSettings(num_models=6, num_epochs=2, batch_size={batch_size}, learning_rate=1e-3, weight_decay=1e-2, seed=3)
ours, plain = (TrainState.fresh(network, settings, range({first}, 6), torch.device("cpu")) for _ in range(2))
fused = FusedDrivingTraining(network._inputs, network._targets[:, 0])
for num_epochs in {cuts}:
    fused.train_epochs(ours, settings, num_epochs)
    train_plainly(network, settings, plain, num_epochs)
    assert ours.epoch == plain.epoch
    # float32 sums in another order: a few units of rounding of numbers up to 12 (losses) and 1 (the others)
    torch.testing.assert_close(ours.losses, plain.losses, rtol=1e-6, atol=0)
    for name in ("parameters", "first_moment", "second_moment"):
        torch.testing.assert_close(getattr(ours, name), getattr(plain, name), rtol=0, atol=1e-6)
"""


@needs_triton
@pytest.mark.parametrize(
    ("batch_size", "first", "cuts"), [(218, 4, (1,)), (80, 5, (1, 1))], ids=["one step", "two epochs"]
)
def test_interpreted_kernel_equals_plain_epochs(batch_size, first, cuts):
    script = textwrap.dedent(INTERPRETED).format(batch_size=batch_size, first=first, cuts=cuts)
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("probability", [0.5, 1.0])
def test_rows_of_zeros_and_ones_describe_every_pair(probability):
    from cautious_paper.kernels.driving.pair_tables import pair_tables

    network = DrivingTrainingProblem.familiar(probability)
    tables = pair_tables(network._inputs)
    assert torch.equal(tables.members.sum(dim=1), torch.full((network.num_samples,), 14.0))  # 12 patches, speed, bias
    for pair in range(0, network.num_samples, 37):
        rows = tables.members[pair].nonzero()[:, 0]
        assert torch.equal(tables.slots[rows[:12]], torch.arange(12, dtype=torch.int32))
        for image in (0, 1):
            state = network._inputs.rows[image][pair] // 4
            patches = network._inputs.patches[:, state * 6 : state * 6 + 6].T
            assert torch.equal(tables.patches[rows[image:12:2], :17], patches)


def test_without_a_gpu_the_plain_path_is_used():
    assert DrivingTrainingProblem.familiar(1.0).train_epochs is None


class CountingNetwork(DrivingTrainingProblem):
    """Trains itself, by the plain path, and remembers how many epochs it was asked for."""

    def train_epochs(self, shard, settings, num_epochs):
        self.calls.append(num_epochs)
        train_plainly(self, settings, shard, num_epochs)


def test_a_network_that_trains_itself_is_asked_for_many_epochs_at_once(monkeypatch):
    network = DrivingTrainingProblem.familiar(1.0)
    own = CountingNetwork(network._world)
    own.calls = []
    monkeypatch.setattr(training, "CALL_SECONDS", 1e9)
    settings = TrainingSettings(num_models=2, num_epochs=30, batch_size=800, learning_rate=1e-3)
    told = []
    ours = train(own, settings, shard_size=2, progress=lambda done, total: told.append(done))
    assert own.calls == [1, 4, 16, 9]
    assert told == [0, 1, 5, 21, 30]
    assert torch.equal(ours.parameters, train(network, settings).parameters)


def test_a_network_that_trains_itself_keeps_its_work_when_stopped(tmp_path, monkeypatch):
    own = CountingNetwork(DrivingTrainingProblem.familiar(1.0)._world)
    own.calls = []
    monkeypatch.setattr(training, "CALL_SECONDS", 1e9)
    settings = TrainingSettings(num_models=2, num_epochs=30, batch_size=800, learning_rate=1e-3)

    def stop(done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(own, settings, shard_size=2, checkpoint_dir=tmp_path, progress=stop)
    own.calls.clear()
    resumed = train(own, settings, shard_size=2, checkpoint_dir=tmp_path)
    assert own.calls == [1, 4, 16, 4]
    assert torch.equal(resumed.parameters, train(DrivingTrainingProblem.familiar(1.0), settings).parameters)


@pytest.fixture(scope="module")
def on_gpu() -> DrivingTrainingProblem:
    return DrivingTrainingProblem.familiar(0.5).to(torch.device("cuda"))


SETTINGS = TrainingSettings(num_models=64, num_epochs=3, batch_size=800, learning_rate=1e-3, weight_decay=1e-5, seed=2)


def trained(network: DrivingTrainingProblem, models: range, *cuts: int) -> TrainState:
    shard = TrainState.fresh(network, SETTINGS, models, torch.device("cuda"))
    for num_epochs in cuts:
        network.train_epochs(shard, SETTINGS, num_epochs)
    return shard


@pytest.mark.gpu
@needs_gpu
@needs_triton
def test_three_epochs_on_the_gpu_equal_plain_ones(on_gpu):
    ours = trained(on_gpu, range(64), 3)
    plain = TrainState.fresh(on_gpu, SETTINGS, range(64), torch.device("cuda"))
    train_plainly(on_gpu, SETTINGS, plain, 3)
    torch.testing.assert_close(ours.losses, plain.losses, rtol=1e-5, atol=0)  # float32 sums over 1,714 pairs
    for name in ("first_moment", "second_moment"):  # relative to the largest: float32 sums, and weights as below
        wanted = getattr(plain, name)
        torch.testing.assert_close(getattr(ours, name), wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))
    difference = (ours.parameters - plain.parameters).abs()
    # Adam divides a gradient by its own size: one that is rounding alone moves a weight by the rate in either direction
    assert difference.max() <= 2 * 9 * SETTINGS.learning_rate
    assert (difference > 1e-6).float().mean() < 1e-3


@pytest.mark.gpu
@needs_gpu
@needs_triton
def test_bits_depend_neither_on_the_run_nor_on_other_models_nor_on_cuts(on_gpu):
    whole = trained(on_gpu, range(64), 40)
    for other, place in (
        (trained(on_gpu, range(64), 40), slice(None)),
        (trained(on_gpu, range(17, 18), 40), slice(17, 18)),
        (trained(on_gpu, range(64), 1, 32, 7), slice(None)),
    ):
        for name in ("parameters", "first_moment", "second_moment", "losses"):
            assert torch.equal(getattr(other, name), getattr(whole, name)[place]), name
