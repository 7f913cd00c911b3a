"""Plain implementations to compare with: one network after another in PyTorch, and k-of-N by loops in numpy."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from cautious.mdp.tabular import TabularMDP
from cautious.risk import KofN
from cautious_paper.networks.image import LEARNING_RATE
from cautious_paper.worlds.data import load_images
from cautious_paper.worlds.data.find import EMBEDDED
from cautious_paper.worlds.driving import driving_world
from cautious_paper.worlds.driving_rules import network_image
from cautious_paper.worlds.image_tasks import ask_for_help_rewards

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
    """Seconds of the plain loop per driving model and epoch."""
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
    """Seconds of the plain loop per model and image, after two steps to warm up."""
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
    loss.item()  # wait for the GPU, which runs asynchronously
    return (time.perf_counter() - started) / (num_steps * batch_size)


# k-of-N as a first implementation would have it: loops over models, states and iterations


def sweep_iterations(
    mdp: TabularMDP, rewards: np.ndarray, level: KofN, num_iterations: int, tolerance: float = 1e-6
) -> None:
    """k-of-N CFR in an MDP as the paper describes it: N evaluations by Bellman sweeps on (s, a) to 1e-6 per iteration."""
    transitions, discount = mdp.dynamics.matrix, mdp.discount
    start = mdp.initial_state_dist.numpy()
    num_states, num_actions = mdp.num_states, mdp.num_actions
    rng = np.random.default_rng(0)
    policy = np.full((num_states, num_actions), 1 / num_actions)
    cumulative = np.zeros_like(policy)
    for _ in range(num_iterations):
        action_values = []
        for reward in rewards[rng.choice(len(rewards), level.n, replace=False)]:
            values = np.zeros((num_states, num_actions))
            change = np.inf
            while change >= tolerance:
                future = (transitions @ (policy * values).sum(axis=1)).reshape(num_states, num_actions)
                new = (1 - discount) * reward + discount * future
                change = np.abs(new - values).max()
                values = new
            action_values.append(values)
        returns = [start @ (policy * values).sum(axis=1) for values in action_values]
        worst = np.mean([action_values[i] for i in np.argsort(returns, kind="stable")[: level.k]], axis=0)
        cumulative += worst - (policy * worst).sum(axis=1, keepdims=True)
        positive = np.maximum(cumulative, 0)
        total = positive.sum(axis=1, keepdims=True)
        policy = np.where(total > 0, positive / np.where(total > 0, total, 1), 1 / num_actions)


def numpy_loop_over_states(rewards: np.ndarray, level: KofN, num_states: int, num_iterations: int) -> None:
    """The single-state regime state by state, in numpy, whose calls on tiny arrays cost less than torch's."""
    for state in range(num_states):
        policy, cumulative = np.full(rewards.shape[2], 1 / rewards.shape[2]), np.zeros(rewards.shape[2])
        for t in range(num_iterations):
            sampled = rewards[t * level.n : (t + 1) * level.n, state]
            worst = np.argsort(sampled @ policy, kind="stable")[: level.k]
            mixture = sampled[worst].mean(axis=0)
            cumulative += mixture - policy @ mixture
            policy = _matched(cumulative)


def plain_decisions(networks: Sequence[nn.Module], inputs: Tensor, level: KofN, num_iterations: int) -> np.ndarray:
    """What `CautiousPolicy.decide` finds, [B, A]: one network after another, then one state after another in numpy.

    Every iteration weighs all models by rank; the policy of highest exact value counts, the average among them.
    """
    with torch.no_grad():
        rewards = np.stack([network(inputs).double().numpy() for network in networks], axis=1)  # [B, M, A]
    weights = level.rank_weights(len(networks)).numpy()
    return np.stack([plain_decision(own, weights, num_iterations) for own in rewards])


def plain_decision(rewards: np.ndarray, weights: np.ndarray, num_iterations: int) -> np.ndarray:
    """The policy [A] in one state from what M models say of it [M, A]."""
    policy = np.full(rewards.shape[1], 1 / rewards.shape[1])
    cumulative, total, best, best_value = np.zeros_like(policy), np.zeros_like(policy), policy, -np.inf

    def weighed(policy: np.ndarray) -> tuple[float, np.ndarray]:
        returns = rewards @ policy
        order = np.argsort(returns, kind="stable")
        return weights @ returns[order], weights @ rewards[order]

    for _ in range(num_iterations):
        value, mixture = weighed(policy)
        if value > best_value:
            best, best_value = policy, value
        total += policy
        cumulative += mixture - policy @ mixture
        policy = _matched(cumulative)
    for last in (policy, total / num_iterations):
        value, _ = weighed(last)
        if value > best_value:
            best, best_value = last, value
    return best


def _matched(cumulative: np.ndarray) -> np.ndarray:
    """Regret matching in one state, [A]."""
    positive = np.maximum(cumulative, 0)
    total = positive.sum()
    return positive / total if total > 0 else np.full(len(positive), 1 / len(positive))
