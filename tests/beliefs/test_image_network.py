"""The stacked image network against a plain PyTorch module, and against itself alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from cautious.beliefs.training.loop import TrainingSettings, train
from cautious.beliefs.training.state import MiniBatch
from cautious.errors import InvalidInputError
from cautious_paper.networks.image import ImageNetwork, as_images
from cautious_paper.networks.image_training import ImageTrainingProblem
from cautious_paper.worlds.image_tasks import ask_for_help_rewards, help_if_available_rewards, index_loss_weights


class PlainNetwork(nn.Module):
    """The paper's network as anyone would write it (appendix B.1)."""

    def __init__(self, num_actions: int, help_bit: bool) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 64, 4), nn.Conv2d(64, 16, 4)
        self.fc1, self.fc2, self.fc3 = nn.Linear(256 + help_bit, 50), nn.Linear(50, 15), nn.Linear(15, num_actions)

    def forward(self, images: torch.Tensor, bits: torch.Tensor | None) -> torch.Tensor:
        x = torch.relu(torch.max_pool2d(self.conv1(images.unsqueeze(1) / 255), 2))
        x = torch.relu(torch.max_pool2d(self.conv2(x), 2)).flatten(1)
        x = x if bits is None else torch.cat([x, bits.unsqueeze(1)], dim=1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def plain_with(network: ImageNetwork, weights: torch.Tensor, dtype: torch.dtype = torch.float64) -> PlainNetwork:
    plain = PlainNetwork(network.num_actions, network.help_bit).to(dtype)
    nn.utils.vector_to_parameters(weights.to(dtype), plain.parameters())
    return plain


def random_images(*shape: int, seed: int = 0) -> torch.Tensor:
    """Strokes on an empty ground, as in the data: many patches are all background, where pooling ties."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 256, (*shape, 28, 28)) * (rng.random((*shape, 28, 28)) < 0.2)
    return torch.from_numpy(values.astype(np.uint8))


def weights_of(network: ImageNetwork, count: int) -> torch.Tensor:
    return torch.from_numpy(np.stack([network.init(np.random.default_rng(i)) for i in range(count)])).float()


def test_it_has_the_papers_sizes():
    # 64*16+64 + 16*1024+16 + 50*256+50 + 15*50+15 + 11*15+11
    assert ImageNetwork(11).num_parameters == 1088 + 16_400 + 12_850 + 765 + 176
    assert ImageNetwork(11, help_bit=True).num_parameters == ImageNetwork(11).num_parameters + 50
    plain = PlainNetwork(10, help_bit=False)
    assert ImageNetwork(10).sizes == [parameter.numel() for parameter in plain.parameters()]


@pytest.mark.parametrize(("num_actions", "help_bit"), [(11, False), (10, False), (11, True)])
def test_values_and_gradients_are_those_of_a_plain_module(num_actions: int, help_bit: bool):
    network = ImageNetwork(num_actions, help_bit)
    weights, images = weights_of(network, 3), random_images(3, 10)
    bits = torch.randint(0, 2, (3, 10), generator=torch.Generator().manual_seed(1)) if help_bit else None
    slope = torch.randn(3, 10, num_actions, generator=torch.Generator().manual_seed(2))
    seen = network.forward(weights, images, bits)
    gradient = network.backward(weights, seen, slope)
    for model in range(3):
        plain = plain_with(network, weights[model])
        expected = plain(images[model].double(), None if bits is None else bits[model].double())
        (expected * slope[model]).sum().backward()
        own = torch.cat([parameter.grad.flatten() for parameter in plain.parameters()])
        # float32 sums of about a thousand terms against float64: a few units of 6e-8 each
        torch.testing.assert_close(seen.predictions[model].double(), expected, atol=2e-6, rtol=0)
        assert float((gradient[model] - own).norm() / own.norm()) < 2e-6
    shared = network.predict(weights, images[0], *(() if bits is None else (bits[0],)))
    for model in range(3):
        expected = plain_with(network, weights[model])(images[0].double(), None if bits is None else bits[0].double())
        torch.testing.assert_close(shared[model].double(), expected.detach(), atol=2e-6, rtol=0)


def test_a_first_weight_stays_within_its_bound_and_uses_all_of_it():
    network = ImageNetwork(11)
    part = network.split(torch.from_numpy(network.init(np.random.default_rng(0)))[None])
    bounds = {"conv1": 16**-0.5, "conv2": 1024**-0.5, "fc1": 256**-0.5, "fc2": 50**-0.5, "fc3": 15**-0.5}
    for name, weights in part.items():
        bound = bounds[name.split(".")[0]]
        assert float(weights.abs().max()) <= bound
        assert float(weights.abs().max()) > 0.6 * bound


def test_the_loss_is_the_weighted_mean_square_by_hand():
    images, labels = random_images(7), torch.arange(7)
    weights = index_loss_weights(11)
    rewards = torch.stack([help_if_available_rewards(labels, available) for available in (False, True)])
    training = ImageTrainingProblem(images, rewards, weights)
    network = training.network
    assert network == ImageNetwork(11, help_bit=True)
    parameters = weights_of(network, 2)
    samples, help_bits = torch.tensor([[0, 3, 6], [1, 1, 5]]), torch.tensor([[0, 1, 1], [0, 0, 1]])
    losses, gradient = training.loss_and_gradient(parameters, MiniBatch(samples, help_bits))
    for model in range(2):
        plain = plain_with(network, parameters[model])
        predicted = plain(images[samples[model]].double(), help_bits[model].double())
        errors = predicted - rewards[help_bits[model], samples[model]]
        loss = sum(weights[action] * errors[row, action] ** 2 for row in range(3) for action in range(11)) / (3 * 11)
        loss.backward()
        own = torch.cat([parameter.grad.flatten() for parameter in plain.parameters()])
        assert float(losses[model]) == pytest.approx(loss.item(), rel=1e-5)
        assert float((gradient[model] - own).norm() / own.norm()) < 1e-5


def test_unknown_rewards_carry_no_loss():
    images, rewards = random_images(4), ask_for_help_rewards(torch.arange(4))
    gaps = rewards.clone()
    gaps[1:, 3:] = torch.nan  # the first image knows them all, and is not in the batch
    parameters, batch = weights_of(ImageNetwork(11), 1), MiniBatch(torch.arange(1, 4)[None])
    known = torch.tensor([1.0] * 3 + [0.0] * 8)
    with_gaps = ImageTrainingProblem(images, gaps).loss_and_gradient(parameters, batch)
    without = ImageTrainingProblem(images, rewards, known).loss_and_gradient(parameters, batch)
    assert torch.equal(with_gaps[0], without[0])
    assert torch.equal(with_gaps[1], without[1])


def test_training_is_what_a_plain_loop_with_adam_does():
    """Ten steps of one model beside others, against a float64 module and torch's own Adam on the same batches."""
    from cautious.beliefs.training.loop import draw_help_bits, shuffles
    from cautious.seeding import derive_seed, make_rng

    images, labels = random_images(20), torch.arange(20) % 10
    rewards = torch.stack([help_if_available_rewards(labels, available) for available in (False, True)])
    training = ImageTrainingProblem(images, rewards)
    settings = TrainingSettings(num_models=3, num_epochs=5, batch_size=12, learning_rate=1e-3, seed=7)
    trained = train(training, settings)
    model = 2
    first = torch.from_numpy(training.init(make_rng(7, "init", model)).astype(np.float32))
    plain = plain_with(training.network, first)
    adam = torch.optim.Adam(plain.parameters(), lr=1e-3)
    for epoch in range(5):
        order = shuffles(torch.tensor([derive_seed(7, "shuffle", model)]), epoch, 20)[0]
        help_bits = draw_help_bits(torch.tensor([derive_seed(7, "coin", model)]), epoch, 20)[0]
        for batch in order.split(12):
            adam.zero_grad()
            predicted = plain(images[batch].double(), help_bits[batch].double())
            (predicted - rewards[help_bits[batch], batch]).square().mean().backward()
            adam.step()
    own = nn.utils.parameters_to_vector(plain.parameters()).detach()
    moved = float((own - first).norm())
    assert float((trained.parameters[model] - own).norm()) < 1e-3 * moved  # Adam's first steps magnify rounding


def test_a_model_has_the_same_bits_alone_among_others_and_in_any_shard():
    images, rewards = random_images(150), ask_for_help_rewards(torch.arange(150) % 10)
    training = ImageTrainingProblem(images, rewards)
    settings = TrainingSettings(num_models=5, num_epochs=2, batch_size=100, learning_rate=1e-3, seed=3)
    whole = train(training, settings, shard_size=5)
    for shard_size in (1, 2, 3):
        assert torch.equal(train(training, settings, shard_size=shard_size).parameters, whole.parameters)
    fewer = TrainingSettings(num_models=2, num_epochs=2, batch_size=100, learning_rate=1e-3, seed=3)
    assert torch.equal(train(training, fewer).parameters, whole.parameters[:2])


def test_coins_are_fair_and_new_in_each_epoch():
    from cautious.beliefs.training.loop import draw_help_bits

    flips = torch.stack([draw_help_bits(torch.arange(20), epoch, 500) for epoch in range(40)]).double()  # [40, 20, 500]
    # 400,000 flips: the mean has a deviation of 0.0008; 20,000 a model, 0.0035; 40 a sample and model, 0.079
    assert abs(float(flips.mean()) - 0.5) < 0.004
    assert float((flips.mean(dim=(0, 2)) - 0.5).abs().max()) < 0.018
    assert 0.06 < float(flips.mean(dim=0).std()) < 0.1
    agreement = (flips[1:] == flips[:-1]).double().mean()
    assert abs(float(agreement) - 0.5) < 0.004


def test_bytes_that_torch_cannot_share_are_copied(tmp_path):
    """A file opened for reading, and rows in reverse; a warning is an error here."""
    pixels = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    np.save(tmp_path / "images.npy", pixels)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r", allow_pickle=False)
    assert torch.equal(as_images(mapped), torch.from_numpy(pixels))
    assert torch.equal(as_images(pixels[::-1]), torch.from_numpy(pixels).flip(0))


def test_bad_training_data_is_refused():
    images, rewards = random_images(4), ask_for_help_rewards(torch.arange(4))
    with pytest.raises(InvalidInputError, match="uint8"):
        ImageTrainingProblem(images.float() + 1, rewards)
    with pytest.raises(InvalidInputError, match=r"\[S, 28, 28\]"):
        ImageTrainingProblem(images[:, :20], rewards)
    with pytest.raises(InvalidInputError, match="S=4"):
        ImageTrainingProblem(images, rewards[:3])
    with pytest.raises(InvalidInputError, match=r"\[S, A\] or \[2, S, A\]"):
        ImageTrainingProblem(images, rewards.expand(3, 4, 11))
    with pytest.raises(InvalidInputError, match="loss_weights"):
        ImageTrainingProblem(images, rewards, torch.ones(10))


@pytest.mark.parametrize("flag", [7, 0.5, [1, 2]])
def test_help_is_available_or_not(flag):
    with pytest.raises(InvalidInputError, match="expected truth values"):
        ImageNetwork(11, help_bit=True).as_states((torch.zeros(2, 28, 28, dtype=torch.uint8), flag))
