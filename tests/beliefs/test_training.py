"""Stacked training against plain PyTorch, and against itself in other shards and after interruptions."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from cautious.beliefs.diagnostics import diagnose
from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.training import loop as training
from cautious.beliefs.training.loop import TrainingSettings, TrainState, adam_step, shuffles, train
from cautious.beliefs.training.state import MiniBatch
from cautious.errors import BadFileError, InvalidInputError, WriteError
from cautious.io.arrays import load_json, save_json
from cautious.progress import as_progress
from cautious.seeding import derive_seed
from cautious_paper.networks.driving import (
    NUM_PARAMETERS,
    DrivingNetwork,
    backward,
    forward,
    pair_rewards,
    split_driving_parameters,
)
from cautious_paper.networks.driving_training import DrivingTrainingProblem
from cautious_paper.worlds.driving import driving_world
from cautious_paper.worlds.driving_rules import network_image

SETTINGS = TrainingSettings(num_models=5, num_epochs=3, batch_size=800, learning_rate=1e-3, weight_decay=1e-5)


@pytest.fixture(scope="module")
def network() -> DrivingTrainingProblem:
    return DrivingTrainingProblem.familiar(0.5)


class PlainNetwork(nn.Module):
    """The paper's network for one model, as anyone would write it."""

    def __init__(self, weights: torch.Tensor) -> None:
        super().__init__()
        convolution, hidden, output = (part[0] for part in split_driving_parameters(weights[None]))
        self.of_state, self.of_next = nn.Conv2d(4, 4, 2), nn.Conv2d(4, 4, 2)
        self.hidden = nn.ModuleList(nn.Linear(52, 32) for _ in range(4))
        self.output = nn.ModuleList(nn.Linear(32, 1) for _ in range(4))
        with torch.no_grad():
            for layer, own in ((self.of_state, convolution[:, :4]), (self.of_next, convolution[:, 4:])):
                layer.weight.copy_(own[:-1].T.reshape(4, 4, 2, 2))
                layer.bias.copy_(own[-1])
            for head in range(4):
                own = hidden[:, head * 32 : (head + 1) * 32]
                self.hidden[head].weight.copy_(own[:-1].T)
                self.hidden[head].bias.copy_(own[-1])
                self.output[head].weight.copy_(output[head, None, :-1])
                self.output[head].bias.copy_(output[head, -1:])

    def forward(self, state, following, speed, next_speed):
        joined = [self.of_state(state).relu().flatten(1), self.of_next(following).relu().flatten(1)]
        joined.append(nn.functional.one_hot(next_speed, 4).float())
        inputs = torch.cat(joined, dim=1)
        heads = torch.cat([self.output[h](self.hidden[h](inputs).relu()) for h in range(4)], dim=1)
        return heads.gather(1, speed[:, None])[:, 0]


def plain_data(world):
    images = torch.stack([network_image(state) for state in world.states])
    speed = torch.tensor([state.speed for state in world.states])
    state, following = world.pairs.T
    return images[state], images[following], speed[state], speed[following]


def first_weights(network, model: int = 0) -> torch.Tensor:
    return TrainState.fresh(network, SETTINGS, range(model, model + 1), torch.device("cpu")).parameters[0]


def test_the_network_is_the_papers(network):
    assert NUM_PARAMETERS == 7052
    weights = first_weights(network)
    plain = PlainNetwork(weights)
    assert sum(p.numel() for p in plain.parameters()) == NUM_PARAMETERS
    ours = forward(weights[None], network._inputs).predictions[network._inputs.place, 0]
    assert torch.allclose(ours, plain(*plain_data(driving_world(False))), rtol=0, atol=1e-6)


def test_the_gradient_is_autograds(network):
    weights = first_weights(network)
    plain, data = PlainNetwork(weights), plain_data(driving_world(False))
    batch = torch.randperm(1714, generator=torch.Generator().manual_seed(0))[:800]
    error = plain(*data) - driving_world(False).pair_rewards.float()
    loss = error[batch].square().mean()
    loss.backward()
    ours, gradient = network.loss_and_gradient(weights[None], MiniBatch(batch[None]))
    assert float(ours) == pytest.approx(loss.item(), rel=1e-5)
    convolution, hidden, output = (part[0] for part in split_driving_parameters(gradient))
    expected = plain.of_next.weight.grad.reshape(4, 16).T
    assert torch.allclose(convolution[:-1, 4:], expected, rtol=1e-4, atol=1e-5)
    assert torch.allclose(convolution[-1, :4], plain.of_state.bias.grad, rtol=1e-4, atol=1e-5)
    for head in range(4):
        own = hidden[:, head * 32 : (head + 1) * 32]
        assert torch.allclose(own[:-1].T, plain.hidden[head].weight.grad, rtol=1e-4, atol=1e-5)
        assert torch.allclose(own[-1], plain.hidden[head].bias.grad, rtol=1e-4, atol=1e-5)
        assert torch.allclose(output[head, :-1], plain.output[head].weight.grad[0], rtol=1e-4, atol=1e-5)
        assert torch.allclose(output[head, -1:], plain.output[head].bias.grad, rtol=1e-4, atol=1e-5)


def test_one_of_many_stacked_models_is_the_model_trained_alone(network):
    # 30 epochs of Adam in float32. The two sum in different orders; 1e-3 on predictions of size 10 is what that leaves.
    settings = TrainingSettings(num_models=3, num_epochs=30, batch_size=800, learning_rate=1e-3, weight_decay=1e-5)
    stacked = train(network, settings)
    model = 1
    plain, data = PlainNetwork(first_weights(network, model)), plain_data(driving_world(False))
    optimiser = torch.optim.Adam(plain.parameters(), lr=1e-3, weight_decay=1e-5)
    rewards = driving_world(False).pair_rewards.float()
    seeds = torch.tensor([derive_seed(0, "shuffle", model)])
    for epoch in range(30):
        for batch in shuffles(seeds, epoch, 1714)[0].split(800):
            optimiser.zero_grad()
            (plain(*(part[batch] for part in data)) - rewards[batch]).square().mean().backward()
            optimiser.step()
    ours = forward(stacked.parameters, network._inputs).predictions[network._inputs.place, model]
    assert (ours - plain(*data)).abs().max().item() < 1e-3


@pytest.mark.parametrize(("num_models", "shard_size"), [(5, 1), (5, 2), (5, 5), (7, 3), (18, 18)])
def test_a_model_has_the_same_bits_in_any_company(network, num_models, shard_size):
    expected = train(network, SETTINGS).parameters
    settings = TrainingSettings(num_models, 3, 800, 1e-3, 1e-5)
    assert torch.equal(train(network, settings, shard_size=shard_size).parameters[:5], expected)


def test_other_seeds_give_other_models(network):
    other = TrainingSettings(5, 3, 800, 1e-3, 1e-5, seed=1)
    ours, theirs = train(network, SETTINGS).parameters, train(network, other).parameters
    assert not torch.equal(ours, theirs)
    assert not torch.equal(ours[0], ours[1])


def test_training_fits(network):
    settings = TrainingSettings(num_models=2, num_epochs=60, batch_size=800, learning_rate=3e-3)
    assert float(train(network, settings).losses.max()) < 0.6 * float(driving_world(False).pair_rewards.var())


class Stop(Exception):
    pass


@pytest.mark.parametrize("when", [1, 4, 7, 9])
def test_an_interrupted_training_ends_with_the_same_bits(network, tmp_path, monkeypatch, when):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    expected = train(network, SETTINGS, shard_size=2)
    count = 0

    def interrupt(done, total):
        nonlocal count
        count += 1
        if count == when:
            raise Stop

    with pytest.raises((Stop, KeyboardInterrupt)):
        train(network, SETTINGS, shard_size=2, checkpoint_dir=tmp_path, progress=interrupt)
    resumed = train(network, SETTINGS, shard_size=2, checkpoint_dir=tmp_path)
    assert torch.equal(resumed.parameters, expected.parameters)
    assert torch.equal(resumed.losses, expected.losses)
    told = []
    again = train(network, SETTINGS, shard_size=2, checkpoint_dir=tmp_path, progress=lambda d, t: told.append((d, t)))
    assert torch.equal(again.parameters, expected.parameters)
    assert told[-1] == (9, 9)
    assert not list(tmp_path.glob("*.part"))


def test_a_write_that_fails_keeps_the_last_whole_checkpoint(network, tmp_path, monkeypatch):
    def stop(done, total):
        if done == 2:
            raise Stop

    with pytest.raises(Stop):
        train(network, SETTINGS, checkpoint_dir=tmp_path, progress=stop)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(before) == 2

    def full_disk(*_):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full_disk)
    with pytest.raises(WriteError, match=r"No space left on device\). Make room on the disk"):
        train(network, SETTINGS, checkpoint_dir=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    monkeypatch.undo()
    assert torch.equal(
        train(network, SETTINGS, checkpoint_dir=tmp_path).parameters, train(network, SETTINGS).parameters
    )


def test_a_folder_of_another_training_run_is_refused(network, tmp_path):
    train(network, SETTINGS, checkpoint_dir=tmp_path)
    other = TrainingSettings(5, 4, 800, 1e-3, 1e-5)
    with pytest.raises(BadFileError, match="num_epochs is 3 there and 4 here"):
        train(network, other, checkpoint_dir=tmp_path)
    with pytest.raises(BadFileError, match="num_samples is 1714 there and 218 here"):
        train(DrivingTrainingProblem.familiar(1.0), SETTINGS, checkpoint_dir=tmp_path)


def test_a_truncated_checkpoint_is_named(network, tmp_path):
    train(network, SETTINGS, checkpoint_dir=tmp_path)
    path = next(tmp_path.glob("models-*.safetensors"))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BadFileError, match=path.name):
        train(network, SETTINGS, checkpoint_dir=tmp_path)
    (tmp_path / "training.json").write_text(json.dumps([1, 2]))
    with pytest.raises(BadFileError, match="another training run"):
        train(network, SETTINGS, checkpoint_dir=tmp_path)


def splitmix(x: int) -> int:
    """The published finaliser in plain integers."""
    mask = (1 << 64) - 1
    x &= mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def test_shuffles_are_what_plain_integers_say():
    seeds = [derive_seed(0, "shuffle", model) for model in range(3)]
    found = shuffles(torch.tensor(seeds), epoch=7, num_samples=50)
    for row, seed in zip(found, seeds, strict=True):
        keys = [splitmix(splitmix(seed) + (7 * 50 + sample) * 0x9E3779B97F4A7C15) for sample in range(50)]
        signed = [key - (1 << 64) if key >= 1 << 63 else key for key in keys]
        assert row.tolist() == sorted(range(50), key=signed.__getitem__)


def test_shuffles_look_random():
    orders = torch.stack([shuffles(torch.arange(4), epoch, 100) for epoch in range(250)])  # [250, 4, 100]
    assert torch.equal(orders.sort(dim=-1).values, torch.arange(100).expand(250, 4, 100))
    places = orders[..., 0].flatten().double()  # which sample comes first: uniform on 0..99
    assert abs(float(places.mean()) - 49.5) < 5 * 28.9 / np.sqrt(1000)
    assert len(places.unique()) > 90


def test_adam_is_pytorchs():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, 30, generator=generator)
    names = ("first_moment", "second_moment", "losses")
    tensors = {"parameters": start.clone(), **{name: torch.zeros(2, 30) for name in names}}
    shard = TrainState(range(2), tensors, 0, torch.device("cpu"))
    theirs = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([theirs], lr=1e-2, weight_decay=1e-3)
    for step in range(1, 30):
        gradient = torch.randn(2, 30, generator=generator)
        theirs.grad = gradient.clone()
        optimiser.step()
        adam_step(shard, gradient, step, 1e-2, 1e-3)
    assert torch.allclose(shard.parameters, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [{"num_models": 0}, {"num_epochs": -1}, {"batch_size": 1.5}, {"learning_rate": 0}, {"learning_rate": float("nan")},
     {"weight_decay": -1}, {"seed": -1}],
)  # fmt: skip
def test_bad_settings_are_refused(change):
    good = {"num_models": 1, "num_epochs": 1, "batch_size": 1, "learning_rate": 1e-3}
    with pytest.raises(InvalidInputError, match=next(iter(change))):
        TrainingSettings(**{**good, **change})


class TestEnsemble:
    def test_it_comes_back_from_disk(self, network, tmp_path):
        trained = train(network, SETTINGS)
        ensemble = RewardEnsemble(DrivingNetwork(), trained.parameters, trained.losses, {"seed": 0})
        ensemble.save(tmp_path)
        loaded = RewardEnsemble.load(tmp_path)
        assert torch.equal(loaded.parameters, ensemble.parameters)
        assert loaded.settings == {"seed": 0}
        world = driving_world(True, 0.3)
        assert torch.equal(loaded.rewards(world), ensemble.rewards(world))

    def test_expected_rewards_weigh_pairs_by_their_probability(self, network):
        world = driving_world(True, 0.3)
        ensemble = RewardEnsemble(DrivingNetwork(), train(network, SETTINGS).parameters, torch.zeros(5), {})
        pairs = {tuple(pair): index for index, pair in enumerate(world.every_pair.tolist())}
        by_pair, rewards = pair_rewards(ensemble, world).double(), ensemble.rewards(world)
        transitions = world.mdp.transitions.to_dense()
        for state, action in ((world.index((2, 3, None, None)), 4), (world.index((1, 1, (0, 1), None)), 2)):
            expected = sum(
                float(transitions[state, action, t]) * by_pair[:, pairs[state, t]]
                for t in transitions[state, action].nonzero()[:, 0].tolist()
            )
            assert torch.allclose(rewards[:, state, action], expected, rtol=0, atol=1e-6)

    def test_other_files_are_refused(self, tmp_path):
        RewardEnsemble(DrivingNetwork(), torch.zeros(2, NUM_PARAMETERS)).save(tmp_path)
        described = load_json(tmp_path / "ensemble.json")
        image = described | {"network": "image", "num_actions": 11, "help_bit": False}
        save_json(tmp_path / "ensemble.json", image, described["files"])
        with pytest.raises(BadFileError, match=r"shape \[2, 7052\], expected"):
            RewardEnsemble.load(tmp_path)
        save_json(tmp_path / "ensemble.json", described | {"format": 1})
        with pytest.raises(BadFileError, match="format 2"):
            RewardEnsemble.load(tmp_path)

    def test_its_diagnosis_survives_saving(self, tmp_path):
        ensemble = RewardEnsemble(DrivingNetwork(), torch.zeros(2, NUM_PARAMETERS))
        ensemble.diagnosis = diagnose(torch.rand(2, 4, 5), torch.rand(4, 5), torch.rand(2, 3, 5))
        ensemble.save(tmp_path)
        assert RewardEnsemble.load(tmp_path).diagnosis.describe() == ensemble.diagnosis.describe()

    def test_only_driving_speaks_of_pairs(self):
        with pytest.raises(InvalidInputError, match="driving"):
            pair_rewards(RewardEnsemble.load("ask-for-help"), driving_world())


def test_backward_is_linear_in_the_slope(network):
    weights = first_weights(network)[None]
    seen = forward(weights, network._inputs)
    slope = torch.randn(1714, 1, generator=torch.Generator().manual_seed(0))
    once, twice = (backward(weights, network._inputs, seen, scale * slope) for scale in (1, 2))
    assert torch.allclose(2 * once, twice, rtol=1e-4, atol=1e-4)


def test_progress_reaches_a_file_too(capsys, monkeypatch):
    tell = as_progress(True, "training")
    tell(1, 10)
    assert capsys.readouterr().err == ""  # at once it would be one line for each step
    monkeypatch.setattr("cautious.progress.SECONDS_BETWEEN_LINES", 0.0)
    tell(5, 10)
    assert re.fullmatch(r"training: 50 %, about \d+ s left\n", capsys.readouterr().err)  # by what came since the first
    tell(10, 10)
    assert capsys.readouterr().err == "training: 100 %\n"
