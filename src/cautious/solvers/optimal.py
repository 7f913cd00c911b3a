"""The ordinary optimum of one reward function: policy iteration with exact evaluation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cautious.errors import InvalidInputError, SolverError
from cautious.types import ArrayLike, as_float_tensor, check_shape, check_size
from cautious.worlds.mdp import TabularMDP

TIE_TOLERANCE = 1e-10
"""Actions tie if one step of either differs by less than this share of the reward's range; the lowest index then wins."""


class OptimalPolicy(NamedTuple):
    """An optimal deterministic policy, with its values normalised by (1 - discount)."""

    policy: Tensor
    """[..., S, A], one action a state; ties go to the lowest index."""
    action_values: Tensor
    """q*(s,a), [..., S, A]."""
    expected_return: Tensor
    """From the initial state distribution, [...]."""


def optimal_policy(mdp: TabularMDP, reward: ArrayLike) -> OptimalPolicy:
    """Optim(r): the best policy under one reward function, or under each of a batch.

    Args:
        mdp: The world.
        reward: [..., S, A]; leading dimensions are a batch, solved together.

    Returns:
        `OptimalPolicy` with the batch's leading dimensions.
    """
    if not isinstance(mdp, TabularMDP):
        raise InvalidInputError(f"mdp is a {type(mdp).__name__}; pass a cautious.TabularMDP.")
    tensor = as_float_tensor(reward, "reward").double()
    check_shape(tensor, "... S A", "reward", S=mdp.num_states, A=mdp.num_actions)
    check_size(tensor, "reward")
    batch = tensor.reshape(-1, mdp.num_states, mdp.num_actions)
    # A constant in the reward moves no policy; without it, digits go to what does.
    lowest, highest = batch.amin(dim=(1, 2)), batch.amax(dim=(1, 2))
    middle = ((lowest + highest) / 2)[:, None, None]
    tolerance = (TIE_TOLERANCE * (1 - mdp.discount) * (highest - lowest)).clamp(min=1e-300)[:, None]
    action_values = middle + _optimal_action_values(mdp, batch - middle, tolerance)
    best = action_values.amax(dim=-1)
    tied = tolerance + 4e-15 * best.abs().amax(dim=1, keepdim=True)
    greedy = action_values >= (best - tied)[..., None]
    policy = _deterministic(greedy.to(torch.uint8).argmax(dim=-1), mdp.num_actions)
    expected_return = (best * mdp.initial_state_dist.to(tensor.device)).sum(dim=-1)
    return OptimalPolicy(
        policy.reshape(tensor.shape), action_values.reshape(tensor.shape), expected_return.reshape(tensor.shape[:-2])
    )


def optimal_return_bound(mdp: TabularMDP, reward: Tensor) -> Tensor:
    """A number that no policy's return exceeds, the optimum up to rounding: [B, S, A] -> [B].

    Policy iteration stops when nothing improves by more than rounding; what it may still have missed is at most the
    Bellman residual of its values over 1 - γ, which is added.
    """
    found = optimal_policy(mdp, reward)
    values = found.action_values.amax(dim=-1)
    future = mdp.dynamics.to(reward.device).expected_next(values)
    residual = ((1 - mdp.discount) * reward + mdp.discount * future).amax(dim=-1) - values
    return found.expected_return + residual.amax(dim=-1).clamp(min=0) / (1 - mdp.discount)


def _optimal_action_values(mdp: TabularMDP, reward: Tensor, tolerance: Tensor) -> Tensor:
    """Policy iteration on a batch [B, S, A]; members that are done leave it."""
    action_values = torch.empty_like(reward)
    waiting = torch.arange(len(reward), device=reward.device)
    actions = reward.argmax(dim=-1)  # [B, S]
    for _ in range(10_000):
        policy = _deterministic(actions[waiting], mdp.num_actions)
        values = mdp.evaluate(policy).action_values(reward[waiting])
        action_values[waiting] = values
        best, better = values.max(dim=-1)
        current = values.gather(-1, actions[waiting].unsqueeze(-1)).squeeze(-1)
        margin = tolerance[waiting] + 4e-15 * values.abs().amax(dim=(1, 2))[:, None]
        improves = best > current + margin  # a margin, so that rounding cannot make it cycle
        actions[waiting] = torch.where(improves, better, actions[waiting])
        waiting = waiting[improves.any(dim=-1)]
        if len(waiting) == 0:
            return action_values
    raise SolverError(
        f"optimal_policy: {len(waiting)} of {len(reward)} reward functions still improve after 10,000 steps."
    )


def _deterministic(actions: Tensor, num_actions: int) -> Tensor:
    """One-hot policy [..., S, A] of actions [..., S]."""
    return torch.nn.functional.one_hot(actions, num_actions).double()
