"""Stacked training of driving models against one network after another in plain PyTorch."""

from __future__ import annotations

import time

import torch
from torch import nn

from cautious.beliefs.driving import familiar_network
from cautious.beliefs.training import TrainingSettings, train
from cautious.worlds.driving import driving_world, network_image


class PlainNetwork(nn.Module):
    """The paper's network for one model, with the layers PyTorch ships."""

    def __init__(self) -> None:
        """Two convolutions, four heads."""
        super().__init__()
        self.of_state, self.of_next = nn.Conv2d(4, 4, 2), nn.Conv2d(4, 4, 2)
        self.heads = nn.ModuleList(nn.Sequential(nn.Linear(52, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(4))

    def forward(
        self, state: torch.Tensor, following: torch.Tensor, speed: torch.Tensor, ahead: torch.Tensor
    ) -> torch.Tensor:
        """Reward of each pair, [B]."""
        joined = torch.cat(
            [self.of_state(state).relu().flatten(1), self.of_next(following).relu().flatten(1), ahead], dim=1
        )
        reward = joined.new_empty(len(joined))
        for value, head in enumerate(self.heads):
            chosen = speed == value
            reward[chosen] = head(joined[chosen])[:, 0]
        return reward


def plain_epochs(num_epochs: int) -> float:
    """Seconds a model and epoch of the plain loop."""
    world = driving_world(novel=False)
    images = torch.stack([network_image(state) for state in world.states])
    speeds = torch.tensor([state.speed for state in world.states])
    state, following = world.pairs.T
    data = images[state], images[following], speeds[state], nn.functional.one_hot(speeds[following], 4).float()
    rewards = world.pair_rewards.float()
    network = PlainNetwork()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4, weight_decay=1e-5)
    generator = torch.Generator().manual_seed(0)
    started = time.perf_counter()
    for _ in range(num_epochs):
        for batch in torch.randperm(len(rewards), generator=generator).split(800):
            optimiser.zero_grad()
            (network(*(part[batch] for part in data)) - rewards[batch]).square().mean().backward()
            optimiser.step()
    return (time.perf_counter() - started) / num_epochs


def bench_training(num_models: int = 64, num_epochs: int = 40) -> list[str]:
    """Milliseconds a model and epoch: the plain loop, and ours on all cores."""
    plain_epochs(3)
    plain = plain_epochs(40)
    network = familiar_network(0.5)
    settings = TrainingSettings(num_models, num_epochs, 800, 1e-4, 1e-5)
    train(network, TrainingSettings(num_models, 2, 800, 1e-4, 1e-5))
    started = time.perf_counter()
    train(network, settings)
    ours = (time.perf_counter() - started) / (num_models * num_epochs)
    paper = 25 * 60 / 51_200
    lines = ["driving models, batch 800 (3 steps an epoch), milliseconds a model and epoch"]
    lines.append(f"  the paper, as printed (25 min a model, i9-9900K) {1e3 * paper:8.2f}")
    lines.append(f"  one network after another, plain PyTorch         {1e3 * plain:8.2f}")
    lines.append(
        f"  ours, {num_models} networks stacked                        {1e3 * ours:8.2f}   {plain / ours:5.1f} x the plain loop"
    )
    return lines
