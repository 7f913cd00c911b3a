"""k-of-N as a first implementation would have it: loops over models, states and iterations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from cautious.ops.risk import KofN
from cautious.worlds.mdp import TabularMDP


def sweep_iterations(
    mdp: TabularMDP, rewards: np.ndarray, level: KofN, num_iterations: int, tolerance: float = 1e-6
) -> None:
    """k-of-N CFR in an MDP as the paper describes it: N evaluations by Bellman sweeps on (s, a) to 1e-6 an iteration."""
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
    return np.stack([_plain_decision(own, weights, num_iterations) for own in rewards])


def _plain_decision(rewards: np.ndarray, weights: np.ndarray, num_iterations: int) -> np.ndarray:
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
