"""A policy for an uncertain world, as it is played: one policy of the mixture is drawn per episode, and kept to its end."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cautious.errors import ConvergenceWarning
from cautious.mdp.uncertain import UncertainMDP
from cautious.policy.decision import disagreement_of
from cautious.policy.states import SolvedStates
from cautious.progress import Progress
from cautious.risk import RiskMeasure
from cautious.solvers.solve import solve_mdp
from cautious.validation import as_float_tensor


def reward_of_each(belief: Any, world: UncertainMDP) -> Any:
    """Rewards as a belief of M models takes them: those that all models share, [S, A], once for each."""
    if callable(getattr(belief, "rewards", None)):
        return belief
    table = as_float_tensor(belief, "belief", "cpu")
    return table.expand(len(world), -1, -1) if table.dim() == 2 else table


class EpisodePolicy:
    """The solution of an uncertain world, the policy of the present episode, and how many steps of it have passed.

    Attributes:
        solution: What `solve_mdp` returned.
        ordinary: The optimum of the mean of all models, [T, S, A]; T = 1 without a horizon.
    """

    def __init__(
        self, world: UncertainMDP, rewards: Tensor, level: RiskMeasure, tolerance: float, progress: Progress | None
    ) -> None:
        """Solve the world at a level, and begin an episode."""
        from cautious.solvers.uncertain.oracle import nominal_actions  # loads numba
        from cautious.solvers.uncertain.problem import UncertainProblem

        self.solution = solve_mdp(world, rewards, level, tolerance=tolerance, progress=progress)
        gap, largest = float(self.solution.certificate().gap), tolerance * float(rewards.max() - rewards.min())
        if gap > largest:
            warnings.warn(
                f"{level}: the policy is certified within {gap:.3g} of the best, with memory or without; {largest:.3g} was "
                "asked for. A larger tolerance accepts that; in an uncertain world part of the gap may be what memory is "
                "worth: solve_mdp(..., memory=True).",
                ConvergenceWarning,
                stacklevel=5,
            )
        uniform = np.full(len(world), 1 / len(world))
        problem = UncertainProblem(world.dynamics, world.scaled_rewards(rewards), uniform, world.horizon)
        self.ordinary = torch.from_numpy(problem.of_actions(nominal_actions(problem, uniform)))
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Begin an episode: draw its policy; equal seeds draw the same."""
        drawn = self.solution.mixture.draw(seed)
        self._policy = drawn if drawn.dim() == 3 else drawn[None]  # [T, S, A]
        self._stage = 0

    def step(self) -> None:
        """A step has passed; where there is a horizon, what follows it is as its last step."""
        self._stage = min(self._stage + 1, len(self._policy) - 1)

    def at(self, states: Tensor, rewards: Tensor) -> SolvedStates:
        """What the policy does in states [B], about which the models say `rewards` [M, B, A]."""
        certificate = self.solution.certificate()
        gap, value = (bound.expand(1, len(states)) for bound in (certificate.gap, certificate.lower))
        policy, ordinary = self._policy[self._stage][states], self.ordinary[self._stage][states]
        nothing = torch.zeros(len(states), dtype=torch.bool)
        return SolvedStates(policy[None], ordinary[None], gap, value, disagreement_of(rewards), nothing)


def joined(solved: Sequence[SolvedStates]) -> SolvedStates:
    """Levels that were solved one by one, as one answer."""
    together = (
        torch.cat([getattr(each, name) for each in solved]) for name in ("policies", "ordinary", "gaps", "values")
    )
    policies, ordinary, gaps, values = together
    return SolvedStates(policies, ordinary, gaps, values, solved[0].spread, solved[0].too_large)
