"""Both players learn: regret matching for the policy, optimistic gradient steps for the mixture of models.

In the paper's algorithm the adversary answers every policy with the worst weights. That answer jumps whenever two models
change rank, and the gap falls like 1/√T. Here the adversary moves in small steps too, and both players expect the next
round to be like the last one. One iteration (`step`):

    π(a|s) ∝ max(0, Q(s,a) + ρ(s,a))              predictive regret matching+: the last regret ρ counts once more
    J_m = Σ_s,a x_π(s,a) r_m(s,a)                 returns of the models
    q(s,a) under Σ_m v_m r_m                      action values under the adversary's present weights
    ρ(s,a) = q(s,a) - Σ_b π(b|s) q(s,b)           regret
    Q = max(0, Q + ρ)
    y = Π_W(y - η J);   v = Π_W(y - η J)          the second step is the prediction; Π_W projects onto the risk envelope

Regret matching needs no step size. The adversary's adapts to how much returns still change,

    η = c diam(W) / √(Σ_t ‖J^t - J^{t-1}‖²)

(Rakhlin and Sridharan, 2013; Farina, Kroer and Sandholm, 2021). Bounds are taken of the averages of both players' plays,
weighted by t². Their gap is the sum of what either player could still gain: where one part is far the larger, c moves
towards the player who lags (`_balance`), as primal and dual steps are balanced in first-order solvers of linear programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cautious.ops.regret import instantaneous_regret, regret_matching
from cautious.solvers.duel import Bounds, Duel
from cautious.solvers.envelope import diameter, project

STEP_SIZE, SMALLEST_STEP, LARGEST_STEP = 0.3, 0.003, 30.0
"""c at first, and between which numbers it is balanced."""

LAGGING, BALANCING = 4.0, 2.0
"""c changes where one player could gain more than the first times what the other could: the n-th time by the factor b^(1/√n), b
the second, so that it settles. Averages lag behind, and would let a constant factor swing."""

FIRST_CHECK, CHECK_GROWTH = 25, 1.15
"""Bounds are taken after so many iterations, then whenever their number has grown by this factor: each costs an MDP solve."""


@dataclass
class Learners:
    """What the next iteration needs, and the sums of what was played; filled in place."""

    regret: Tensor
    """Q, [S, A]."""
    prediction: Tensor
    """ρ of the last iteration, [S, A]."""
    centre: np.ndarray
    """y, [M]."""
    weights: np.ndarray
    """v, [M]."""
    returns: np.ndarray | None = None
    """J of the last iteration, less their mean, [M]."""
    change: float = 0.0
    """Σ_t ‖J^t - J^{t-1}‖²."""
    step_size: float = STEP_SIZE
    """c."""
    num_balanced: int = 0
    """How often c was changed."""
    occupancy_sum: Tensor | float = 0.0
    """Σ_t t² x_t, [S, A]."""
    weight_sum: np.ndarray | float = 0.0
    """Σ_t t² v_t, [M]."""
    total: float = 0.0
    """Σ_t t²."""
    steps: int = 0
    """t."""

    @classmethod
    def beginning(cls, duel: Duel, weights: np.ndarray | None = None) -> Learners:
        """No regret, and given weights or those of the mean."""
        shape = duel.rewards.num_states, duel.rewards.num_actions
        zeros = torch.zeros(shape, dtype=torch.float64, device=duel.rewards.device)
        start = np.full(len(duel.rank_weights), 1 / len(duel.rank_weights)) if weights is None else weights
        return cls(zeros, zeros, start, start)

    @property
    def occupancy(self) -> Tensor:
        """The average occupancy, [S, A]."""
        return torch.as_tensor(self.occupancy_sum / self.total)

    @property
    def average_weights(self) -> np.ndarray:
        """The average weights, [M]."""
        return np.asarray(self.weight_sum / self.total)


def step(duel: Duel, state: Learners) -> tuple[Tensor, np.ndarray]:
    """One iteration; returns the occupancy that was played [S, A] and its returns [M]."""
    policy = regret_matching(state.regret + state.prediction)
    occupancy, action_values_under = duel.evaluate(policy)
    returns = duel.returns(occupancy[0])
    action_values = action_values_under(duel.mixture(state.weights).unsqueeze(0))[0]
    state.steps += 1
    state.total += state.steps**2
    state.occupancy_sum = state.occupancy_sum + state.steps**2 * occupancy[0]
    state.weight_sum = state.weight_sum + state.steps**2 * state.weights
    state.prediction = instantaneous_regret(action_values, policy)
    state.regret = (state.regret + state.prediction).clamp(min=0)
    _move_adversary(duel, state, returns)
    return occupancy[0], returns


def _move_adversary(duel: Duel, state: Learners, returns: np.ndarray) -> None:
    """Y = Π_W(y - η J), and v = Π_W(y - η J) on the expectation that the returns stay as they are."""
    centred = returns - returns.mean()  # projections onto the envelope do not see a constant
    last = 0.0 if state.returns is None else state.returns
    state.change += float(((centred - last) ** 2).sum())
    state.returns = centred
    rate = state.step_size * diameter(duel.rank_weights) / np.sqrt(max(state.change, 1e-300))
    state.centre = project(state.centre - rate * centred, duel.rank_weights)
    state.weights = project(state.centre - rate * centred, duel.rank_weights)


def _balance(state: Learners, policy_gains: float, adversary_gains: float) -> None:
    """Larger steps for an adversary who could still gain far more than the policy could, smaller ones for the reverse."""
    adversary_lags, policy_lags = adversary_gains > LAGGING * policy_gains, policy_gains > LAGGING * adversary_gains
    if not adversary_lags and not policy_lags:
        return
    state.num_balanced += 1
    factor = BALANCING ** (state.num_balanced**-0.5)
    changed = state.step_size * factor if adversary_lags else state.step_size / factor
    state.step_size = min(max(changed, SMALLEST_STEP), LARGEST_STEP)


def learn(duel: Duel, bounds: Bounds, max_steps: int) -> Iterator[int]:
    """Iterate; yields the number of iterations whenever the bounds have been taken anew.

    Args:
        duel: What is solved.
        bounds: The best known, updated in place; learning begins from its weights, if it has any.
        max_steps: Most iterations.
    """
    state = Learners.beginning(duel, bounds.weights)
    check, answer = FIRST_CHECK, None
    for t in range(1, max_steps + 1):
        occupancy, returns = step(duel, state)
        if t >= check or t == max_steps:
            bounds.offer_policy(occupancy, returns)
            average = duel.returns(state.occupancy)
            worst = bounds.offer_policy(state.occupancy, average)
            answer, best = bounds.offer_weights(state.average_weights, answer)
            value = float(state.average_weights @ average)
            _balance(state, best - value, value - float(worst @ average))
            check = int(np.ceil(t * CHECK_GROWTH))
            yield t
