"""Rules of one reward function: what M models say about a step becomes one number, and ordinary planning or learning follows.

Every rule looks at one step at a time. It cannot tell two doubts that strike together on one path from two that cancel; k-of-N,
which ranks the returns of whole policies, can. A rule serves worlds in tables (`cautious.baselines.policies`) and, through
`OneReward`, agents that learn in simulators (`KofNPPO` at level "1-of-1").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.ops.sums import pairwise_mean
from cautious.risk import parse_level, risk_value
from cautious.types import ArrayLike
from cautious.validation import as_float_tensor, as_number, check_count, check_finite

Rule = Callable[[Tensor], Tensor]
"""Rewards of M models [M, ...] -> one reward function [...]."""


def mean_reward(rewards: Tensor) -> Tensor:
    """What the models say on average: r̄ = (1/M) Σ_m r_m, [M, ...] -> [...]."""
    return pairwise_mean(rewards)


def model_reward(rewards: Tensor, model: int = 0) -> Tensor:
    """What one model says, [M, ...] -> [...]."""
    return rewards[parse_model(model, len(rewards))]


def parse_model(model: int, num_models: int) -> int:
    """The number of a model, if there is one of that number."""
    check_count(model, "model", minimum=0)
    if model >= num_models:
        raise InvalidInputError(f"model={model} does not exist; the {num_models} models are 0 to {num_models - 1}.")
    return model


def penalised_reward(rewards: Tensor, deviations: float = 1.0) -> Tensor:
    """The mean less c standard deviations of the models: r̄ - c std_m(r_m), [M, ...] -> [...].

    The standard deviation has M - 1 in its denominator; with one model it is 0.
    """
    c = as_number(deviations)
    check_finite(torch.tensor(c), "deviations")
    return mean_reward(rewards) - c * standard_deviation(rewards)


def standard_deviation(rewards: Tensor) -> Tensor:
    """How far the models differ about each step, [M, ...] -> [...]; 0 for one model."""
    if len(rewards) == 1:
        return torch.zeros_like(rewards[0])
    return rewards.std(dim=0)


def ranked_reward(rewards: Tensor, level: Any = "1-of-20") -> Tensor:
    """The value of a risk measure of each step's own rewards, the models ranked anew in each step: [M, ...] -> [...]."""
    return risk_value(parse_level(level), rewards.movedim(0, -1))


def novelty_reward(rewards: Tensor, novelty: ArrayLike, weight: float = 1.0) -> Tensor:
    """The mean less a penalty on what is novel: r̄(s,a) - w ν(s), [M, S, A] -> [S, A].

    Args:
        rewards: [M, S, A].
        novelty: How novel each state is, [S], or each state and action, [S, A].
        weight: w, in rewards per unit of novelty.
    """
    return mean_reward(rewards) - as_number(weight) * per_action(novelty, rewards.shape[-2], rewards.shape[-1])


def per_action(novelty: ArrayLike, num_states: int, num_actions: int) -> Tensor:
    """Novelty of states [S] or of states and actions [S, A] as [S, A], checked."""
    values = as_float_tensor(novelty, "novelty").double()
    check_finite(values, "novelty")
    if values.shape not in ((num_states,), (num_states, num_actions)):
        raise InvalidInputError(
            f"novelty: expected one number per state, shape [{num_states}], or per state and action, "
            f"[{num_states}, {num_actions}]; got {list(values.shape)}."
        )
    return values[:, None].expand(-1, num_actions) if values.dim() == 1 else values


class OneReward:
    """A belief of one model: what a rule makes of another belief's models, for agents that learn in a simulator.

    >>> import torch
    >>> class Belief:
    ...     def rewards(self, observations):
    ...         return torch.stack([observations, -observations])  # two models of opposite opinion, [2, B, 1]
    >>> OneReward(Belief(), penalised_reward).rewards(torch.ones(3, 1)).squeeze().tolist()
    [-1.4142..., -1.4142..., -1.4142...]
    """

    def __init__(self, belief: Any, rule: Rule) -> None:
        """Keep a belief with `rewards(observations) -> [M, B, A]`, and a rule."""
        if not callable(getattr(belief, "rewards", None)):
            raise InvalidInputError(
                f"belief is a {type(belief).__name__}; pass one with rewards(observations) -> [M, B, A]."
            )
        self.belief, self.rule = belief, rule

    def rewards(self, observations: Any) -> Tensor:
        """One reward function about a batch of observations, [1, B, A]."""
        return self.rule(as_float_tensor(self.belief.rewards(observations), "belief", "cpu").double())[None]
