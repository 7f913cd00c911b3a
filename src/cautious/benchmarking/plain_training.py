"""Training one network after another in plain PyTorch: what one would do without stacking them."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from cautious.beliefs.networks.image import LEARNING_RATE
from cautious.worlds.data import load_images
from cautious.worlds.data.find import EMBEDDED
from cautious.worlds.driving import driving_world
from cautious.worlds.driving_rules import network_image
from cautious.worlds.image_tasks import ask_for_help_rewards

DRIVING_BATCH = 800


class PlainDrivingNetwork(nn.Module):
    """The paper's network for one driving model, with the layers PyTorch ships."""

    def __init__(self) -> None:
        """Two convolutions, four heads."""
        super().__init__()
        self.of_state, self.of_next = nn.Conv2d(4, 4, 2), nn.Conv2d(4, 4, 2)
        self.heads = nn.ModuleList(nn.Sequential(nn.Linear(52, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(4))

    def forward(self, state: Tensor, following: Tensor, speed: Tensor, ahead: Tensor) -> Tensor:
        """Reward of each pair, [B]."""
        joined = torch.cat(
            [self.of_state(state).relu().flatten(1), self.of_next(following).relu().flatten(1), ahead], dim=1
        )
        reward = joined.new_empty(len(joined))
        for value, head in enumerate(self.heads):
            chosen = speed == value
            reward[chosen] = head(joined[chosen])[:, 0]
        return reward


def plain_driving_seconds(num_epochs: int) -> float:
    """Seconds a driving model and epoch of the plain loop."""
    world = driving_world(novel=False)
    images = torch.stack([network_image(state) for state in world.states])
    speeds = torch.tensor([state.speed for state in world.states])
    state, following = world.pairs.T
    data = images[state], images[following], speeds[state], nn.functional.one_hot(speeds[following], 4).float()
    rewards = world.pair_rewards.float()
    network = PlainDrivingNetwork()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4, weight_decay=1e-5)
    generator = torch.Generator().manual_seed(0)
    started = time.perf_counter()
    for _ in range(num_epochs):
        for batch in torch.randperm(len(rewards), generator=generator).split(DRIVING_BATCH):
            optimiser.zero_grad()
            (network(*(part[batch] for part in data)) - rewards[batch]).square().mean().backward()
            optimiser.step()
    return (time.perf_counter() - started) / num_epochs


def plain_image_network(num_actions: int = 11) -> nn.Sequential:
    """The paper's network for one image model, with the layers PyTorch ships; its parameters stand in our order."""
    return nn.Sequential(
        *(nn.Conv2d(1, 64, 4), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(64, 16, 4), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(256, 50), nn.ReLU(), nn.Linear(50, 15), nn.ReLU(), nn.Linear(15, num_actions)),
    )


def plain_image_seconds(
    batch_size: int, num_steps: int, *, channels_last: bool = False, device: torch.device | str = "cpu"
) -> float:
    """Seconds a model and image of the plain loop, after two steps to warm up."""
    digits = load_images("digits", "train", EMBEDDED)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network = plain_image_network().to(device)
    network.to(memory_format=layout)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    generator = torch.Generator().manual_seed(0)
    pictures, rewards = digits.images.to(device), ask_for_help_rewards(digits.labels).float().to(device)
    started = 0.0
    for step in range(num_steps + 2):
        if step == 2:
            started = time.perf_counter()
        batch = torch.randint(len(digits), (batch_size,), generator=generator).to(device)
        images = (pictures[batch].unsqueeze(1).float() / 255).to(memory_format=layout)
        optimiser.zero_grad()
        loss = (network(images) - rewards[batch]).square().mean()
        loss.backward()
        optimiser.step()
    loss.item()  # a GPU works behind the loop's back
    return (time.perf_counter() - started) / (num_steps * batch_size)
