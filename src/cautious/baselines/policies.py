"""What a paper would compare k-of-N with, in worlds that a table holds: each a function of (world, rewards) to a policy.

Rules of one reward function are `cautious.baselines.step_rewards` and an ordinary optimum; rules over returns are a risk
measure and `solve_mdp`. All take rewards [M, S, A] in any form that `solve_mdp` takes, and return a stationary policy [S, A].

Rules over returns, the risk-neutral one, a single model and Thompson sampling also take an `UncertainMDP`, where they return a
mixture of policies (`PolicyMixture`). Rules that look at rewards step by step say nothing about doubtful dynamics.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cautious.baselines import step_rewards
from cautious.errors import InvalidInputError
from cautious.mdp.tabular import TabularMDP, check_fits, parse_mdp
from cautious.mdp.uncertain import UncertainMDP
from cautious.policy.policy import CautiousPolicy
from cautious.risk import Mean, MeanCVaR, WorstCase
from cautious.solvers.optimal import optimal_policy
from cautious.solvers.rewards import as_rewards
from cautious.solvers.solve import solve_mdp
from cautious.solvers.uncertain.solution import PolicyMixture, UncertainSolution
from cautious.types import ArrayLike
from cautious.validation import as_float_tensor, as_number

World = TabularMDP | UncertainMDP
Policy = Any
"""Tensor [S, A]; in an `UncertainMDP` a `PolicyMixture`."""
TOLERANCE = 1e-4
"""Of `solve_mdp`, as a share of the rewards' range."""


def k_of_n(world: World, rewards: Any, level: Any = "1-of-20", *, tolerance: float = TOLERANCE) -> Policy:
    """Maximises the k-of-N value of the models' returns (or any other risk measure's): `solve_mdp`, [S, A]."""
    solution = solve_mdp(world, rewards, level, tolerance=tolerance)
    return solution.mixture if isinstance(solution, UncertainSolution) else solution.policy


def k_of_n_each_state(world: TabularMDP, rewards: Any, level: Any = "1-of-20") -> Tensor:
    """Maximises the k-of-N value of what is paid now, in each state by itself: the paper's single-state regime, [S, A].

    Right where every state is a decision of its own, such as an image; elsewhere it does not see where actions lead.
    """
    return CautiousPolicy(all_rewards(world, rewards), level).decide(range(world.num_states)).probabilities.double()


def risk_neutral(world: World, rewards: Any) -> Policy:
    """Maximises the mean return of the ensemble, [S, A]."""
    if isinstance(world, UncertainMDP):
        return k_of_n(world, rewards, Mean())
    return _optimum(world, step_rewards.mean_reward(all_rewards(world, rewards)))


def single_model(world: World, rewards: Any, *, model: int = 0) -> Tensor:
    """Trusts one model: its own optimum, [S, A]."""
    if isinstance(world, UncertainMDP):
        return _optima(world, rewards)[step_rewards.parse_model(model, len(world))]
    return _optimum(world, step_rewards.model_reward(all_rewards(world, rewards), model))


def mean_minus_std(world: TabularMDP, rewards: Any, *, deviations: float = 1.0) -> Tensor:
    """Maximises the mean less c standard deviations of the models, taken step by step, [S, A].

    The models agree that going round pays .5; the way ahead pays 1 or 0:

    >>> import torch
    >>> from cautious import TabularMDP
    >>> world = TabularMDP(torch.ones(1, 2, 1), [1.0], 0.9)
    >>> rewards = torch.tensor([[[0.5, 1.0]], [[0.5, 0.1]]])
    >>> risk_neutral(world, rewards).tolist(), mean_minus_std(world, rewards).tolist()
    ([[0.0, 1.0]], [[1.0, 0.0]])
    """
    return _optimum(world, step_rewards.penalised_reward(all_rewards(world, rewards), deviations))


def one_step_ranking(world: TabularMDP, rewards: Any, *, level: Any = "1-of-20") -> Tensor:
    """Ranks the models anew in every step, and maximises what the risk measure makes of each step, [S, A]."""
    return _optimum(world, step_rewards.ranked_reward(all_rewards(world, rewards), level))


def worst_case(world: World, rewards: Any, *, tolerance: float = TOLERANCE) -> Policy:
    """Maximises the return under the model that is worst for the policy, [S, A]."""
    return k_of_n(world, rewards, WorstCase(), tolerance=tolerance)


def broil(
    world: World, rewards: Any, *, alpha: float = 0.05, weight: float = 0.5, tolerance: float = TOLERANCE
) -> Policy:
    """BROIL (Brown et al. 2020): maximises (1 - w) · mean + w · CVaR_α of the models' returns, [S, A]."""
    return k_of_n(world, rewards, MeanCVaR(alpha, weight), tolerance=tolerance)


def thompson_sampling(world: World, rewards: Any) -> Policy:
    """Draws a model at the start of each episode and follows its optimum: the stationary policy with the same returns, [S, A].

    The average occupancy of the models' optima, x(s,a) = (1/M) Σ_m x_m(s,a), is that of one policy x(s,a) / Σ_b x(s,b), whose
    return is theirs on average under every reward function. Where dynamics are in doubt, the draw itself is returned.
    """
    if isinstance(world, UncertainMDP):
        return PolicyMixture(torch.full((len(world),), 1 / len(world), dtype=torch.float64), _optima(world, rewards))
    table = all_rewards(world, rewards)
    occupancy = sum(world.occupancy(optimal_policy(world, block).policy).sum(dim=0) for block in table.split(64))
    assert isinstance(occupancy, Tensor)
    reached = occupancy.sum(dim=-1, keepdim=True)
    return torch.where(
        reached > 0, occupancy / reached.clamp(min=torch.finfo(torch.float64).tiny), 1 / world.num_actions
    )


def novelty_penalty(
    world: TabularMDP, rewards: Any, *, novelty: ArrayLike | None = None, weight: float | None = None
) -> Tensor:
    """Maximises the mean less a penalty on novel states, [S, A].

    Args:
        world: The world.
        rewards: [M, S, A].
        novelty: How novel each state is, [S], or each state and action, [S, A], such as `distance_novelty` or `rnd_novelty`
            of its features. By default how far the models differ about it.
        weight: In rewards per unit of novelty. By default the range of the mean reward per largest novelty.
    """
    table = all_rewards(world, rewards)
    found = _novelty(table, novelty)
    if weight is None:
        mean, largest = step_rewards.mean_reward(table), float(found.max())
        weight = float(mean.max() - mean.min()) / largest if largest > 0 else 0.0
    return _optimum(world, step_rewards.novelty_reward(table, found, weight))


def fixed_fallback(
    world: TabularMDP,
    rewards: Any,
    *,
    action: int = -1,
    novelty: ArrayLike | None = None,
    threshold: float | None = None,
) -> Tensor:
    """Acts as the ordinary policy does, but takes one given action where that would lead into what is novel, [S, A].

    Args:
        world: The world.
        rewards: [M, S, A].
        action: The action that somebody has declared safe; -1 is the last one ("help" in the paper's tasks).
        novelty: As in `novelty_penalty`.
        threshold: Novelty above which a state, or the ordinary action there, counts as novel. By default half way between the
            lowest and the highest novelty.
    """
    table = all_rewards(world, rewards)
    if not -world.num_actions <= action < world.num_actions:
        raise InvalidInputError(f"action={action} does not exist; actions are 0 to {world.num_actions - 1}.")
    found = _novelty(table, novelty)
    limit = float((found.min() + found.max()) / 2) if threshold is None else as_number(threshold)
    ordinary = risk_neutral(world, table)
    novel = (found * ordinary).sum(dim=-1) > limit  # of the action that it takes
    fallback = torch.zeros_like(ordinary)
    fallback[:, action] = 1.0
    return torch.where(novel[:, None], fallback, ordinary)


def _optimum(world: TabularMDP, reward: Tensor) -> Tensor:
    return optimal_policy(world, reward).policy


def _optima(world: UncertainMDP, rewards: Any) -> Tensor:
    """Each model's own optimum, [M, S, A]."""
    if world.horizon is not None:
        raise InvalidInputError("world has a horizon: this rule returns policies that do not look at the time.")
    table = as_float_tensor(rewards, "rewards").double().expand(len(world), world.num_states, world.num_actions)
    return torch.stack([_optimum(model, reward) for model, reward in zip(world, table, strict=True)])


def all_rewards(world: TabularMDP, rewards: Any) -> Tensor:
    """All rewards in memory, float64 [M, S, A], checked against the world."""
    if isinstance(world, UncertainMDP):
        raise InvalidInputError(
            "world: this rule looks at rewards step by step, and says nothing where the dynamics are in doubt; pass a "
            "TabularMDP, or use k_of_n, worst_case, broil, risk_neutral, single_model or thompson_sampling."
        )
    source = as_rewards(rewards)
    mdp = parse_mdp(world)
    check_fits(mdp, source.num_models, source.num_states, source.num_actions)
    return source.rewards_for(torch.arange(source.num_models)).double()


def _novelty(table: Tensor, novelty: ArrayLike | None) -> Tensor:
    found = step_rewards.standard_deviation(table) if novelty is None else novelty
    return step_rewards.per_action(found, *table.shape[1:])
