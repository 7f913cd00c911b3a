"""The ordinary optimum of one reward function: policy iteration with exact evaluation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from cautious.errors import SolverError
from cautious.mdp.tabular import TabularMDP, parse_mdp
from cautious.parallel import single_threaded
from cautious.types import ArrayLike
from cautious.validation import as_float_tensor, check_shape, check_size

TIE_TOLERANCE = 1e-10
"""Actions tie if one step of either differs by less than this share of the reward's range; the lowest index then wins."""

ROUNDING = 4e-15
"""Of a solve's results, as a share of the largest of them."""

MAX_STEPS = 10_000
"""Of policy iteration, which takes a few dozen."""


class OptimalPolicy(NamedTuple):
    """An optimal deterministic policy, with its values normalised by (1 - discount)."""

    policy: Tensor
    """[..., S, A], one action per state; ties go to the lowest index."""
    action_values: Tensor
    """q*(s,a), [..., S, A]."""
    expected_return: Tensor
    """From the initial state distribution, [...]."""


@single_threaded
def optimal_policy(mdp: TabularMDP, reward: ArrayLike) -> OptimalPolicy:
    """Optim(r): the best policy under one reward function, or under each of a batch.

    Args:
        mdp: The world.
        reward: [..., S, A]; leading dimensions are a batch, solved together.

    Returns:
        `OptimalPolicy` with the batch's leading dimensions.
    """
    mdp = parse_mdp(mdp)
    tensor = as_float_tensor(reward, "reward").double()
    check_shape(tensor, "... S A", "reward", S=mdp.num_states, A=mdp.num_actions)
    check_size(tensor, "reward")
    batch = tensor.reshape(-1, mdp.num_states, mdp.num_actions)
    # Subtract the midpoint: it changes no policy, and leaves more significant digits for the differences.
    middle = ((batch.amin(dim=(1, 2)) + batch.amax(dim=(1, 2))) / 2)[:, None, None]
    tolerance = _tolerance(mdp, batch)
    action_values = middle + _optimal_action_values(mdp, batch - middle, tolerance)
    best = action_values.amax(dim=-1)
    policy = _deterministic(_best(action_values, tolerance).to(torch.uint8).argmax(dim=-1), mdp.num_actions)
    expected_return = (best * mdp.initial_state_dist.to(tensor.device)).sum(dim=-1)
    return OptimalPolicy(
        policy.reshape(tensor.shape), action_values.reshape(tensor.shape), expected_return.reshape(tensor.shape[:-2])
    )


def optimal_actions(mdp: TabularMDP, reward: Tensor, action_values: Tensor) -> Tensor:
    """Every action that is as good as the best under a reward function, by its q* (both [S, A]): truth values [S, A]."""
    return _best(action_values[None], _tolerance(mdp, reward[None]))[0]


def optimal_under_all(mdp: TabularMDP, policy: Tensor, rewards: Iterable[Tensor]) -> Tensor:
    """States from which `policy` [S, A] is the best there is under each of some reward functions [S, A]: truth values [S].

    A reward function prefers another action in a state if that one is better there, with `policy` afterwards. Where no action
    leads to such a state, now or later, the policy's values solve the optimality equations of every reward function, so they
    are its optimum. One factorisation serves all reward functions; the loop ends when no state is left.
    """
    evaluation, taken = mdp.evaluate(policy), policy > 0
    links = _links(mdp)
    optimal = torch.ones(mdp.num_states, dtype=torch.bool)
    for reward in rewards:
        worse = ~_best(evaluation.action_values(reward[None]), _tolerance(mdp, reward[None]))[0]
        prefers_another = (worse & taken).any(dim=-1)
        if bool((prefers_another & optimal).any()):
            optimal &= ~_leads_to(links, prefers_another)
            if not bool(optimal.any()):
                break
    return optimal


def _links(mdp: TabularMDP) -> scipy.sparse.csr_array:
    """Which states (columns) some action may lead to from each (rows), [S, S]."""
    entries = mdp.dynamics.sparse().tocoo()
    possible = entries.data > 0
    indices = entries.row[possible] // mdp.num_actions, entries.col[possible]
    return scipy.sparse.csr_array((np.ones(int(possible.sum())), indices), shape=(mdp.num_states, mdp.num_states))


def _leads_to(links: scipy.sparse.csr_array, targets: Tensor) -> Tensor:
    """States from which some of the targets can be reached, and these: [S] -> [S]."""
    reaching = frontier = targets.numpy()
    while frontier.any():
        frontier = (links @ frontier.astype(float) > 0) & ~reaching
        reaching = reaching | frontier
    return torch.from_numpy(reaching)


def _tolerance(mdp: TabularMDP, reward: Tensor) -> Tensor:
    """By how much values must differ not to tie, for a batch of reward functions: [B, S, A] -> [B, 1]."""
    reach = reward.amax(dim=(1, 2)) - reward.amin(dim=(1, 2))
    return (TIE_TOLERANCE * (1 - mdp.discount) * reach).clamp(min=torch.finfo(torch.float64).tiny)[:, None]


def _best(action_values: Tensor, tolerance: Tensor) -> Tensor:
    """Actions whose value is the best in their state but for the tolerance and rounding: [B, S, A] -> truth values."""
    best = action_values.amax(dim=-1)
    tied = tolerance + ROUNDING * best.abs().amax(dim=1, keepdim=True)
    return action_values >= (best - tied)[..., None]


def best_answer(mdp: TabularMDP, reward: Tensor, start: Tensor | None = None) -> tuple[Tensor, float]:
    """The best policy under one reward function [S, A], and a number that no policy's return exceeds.

    Policy iteration from `start`, which takes a few steps where that policy is nearly the best. What its last values v, which
    are those of a policy, may still miss is at most their Bellman residual over 1 - γ: it is added to the bound.

    Args:
        mdp: The world.
        reward: [S, A].
        start: A deterministic policy [S, A]; if not given, the one of highest immediate reward.

    Returns:
        (policy [S, A], bound).
    """
    middle = (reward.min() + reward.max()) / 2
    batch = (reward - middle).unsqueeze(0)
    actions = None if start is None else start.argmax(dim=-1).unsqueeze(0)
    action_values = _optimal_action_values(mdp, batch, _tolerance(mdp, batch), actions)
    values, actions = action_values.max(dim=-1)  # [1, S]
    bound = middle + (values[0] * mdp.initial_state_dist.to(reward.device)).sum() + _missed(mdp, batch, values)[0]
    return _deterministic(actions[0], mdp.num_actions), float(bound)


def optimal_return_bound(mdp: TabularMDP, reward: Tensor) -> Tensor:
    """A number that no policy's return exceeds, the optimum up to rounding: [B, S, A] -> [B].

    Policy iteration stops when nothing improves by more than rounding; what it may still have missed is at most the
    Bellman residual of its values over 1 - γ, which is added.
    """
    optimum = optimal_policy(mdp, reward)
    return optimum.expected_return + _missed(mdp, reward, optimum.action_values.amax(dim=-1))


def _missed(mdp: TabularMDP, reward: Tensor, values: Tensor) -> Tensor:
    """By how much an optimal return may exceed values [B, S] of policies under rewards [B, S, A], at most: [B]."""
    future = mdp.dynamics.to(reward.device).expected_next(values)
    residual = ((1 - mdp.discount) * reward + mdp.discount * future).amax(dim=-1) - values
    return residual.amax(dim=-1).clamp(min=0) / (1 - mdp.discount)


def _optimal_action_values(mdp: TabularMDP, reward: Tensor, tolerance: Tensor, start: Tensor | None = None) -> Tensor:
    """Policy iteration on a batch [B, S, A], from actions [B, S]; members that are done leave it."""
    action_values = torch.empty_like(reward)
    waiting = torch.arange(len(reward), device=reward.device)
    actions = reward.argmax(dim=-1) if start is None else start.clone()  # [B, S]
    for _ in range(MAX_STEPS):
        policy = _deterministic(actions[waiting], mdp.num_actions)
        values = mdp.evaluate(policy).action_values(reward[waiting])
        action_values[waiting] = values
        best, better = values.max(dim=-1)
        current = values.gather(-1, actions[waiting].unsqueeze(-1)).squeeze(-1)
        margin = tolerance[waiting] + ROUNDING * values.abs().amax(dim=(1, 2))[:, None]
        improves = best > current + margin  # a margin, so that rounding cannot make it cycle
        actions[waiting] = torch.where(improves, better, actions[waiting])
        waiting = waiting[improves.any(dim=-1)]
        if len(waiting) == 0:
            return action_values
    raise SolverError(
        f"optimal_policy: {len(waiting)} of {len(reward)} reward functions still improve after {MAX_STEPS:,} steps."
    )


def _deterministic(actions: Tensor, num_actions: int) -> Tensor:
    """One-hot policy [..., S, A] of actions [..., S]."""
    return torch.nn.functional.one_hot(actions, num_actions).double()
