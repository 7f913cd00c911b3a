"""Policies for worlds that actions move, solved once and then looked up.

In an uncertain world one policy of the mixture is drawn per episode, and kept to its end.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.belief import TableBelief
from cautious.errors import ConvergenceWarning, InvalidInputError
from cautious.mdp.tabular import TabularMDP
from cautious.mdp.uncertain import UncertainMDP
from cautious.policy.decision import disagreement_of, with_baseline
from cautious.policy.states import Games, SolvedStates
from cautious.progress import Progress
from cautious.risk import RiskMeasure
from cautious.solvers.solve import solve_mdp
from cautious.types import Method, Sampling
from cautious.validation import as_float_tensor

if TYPE_CHECKING:
    from cautious.solvers.uncertain.solution import UncertainSolution  # loads numba


class WorldPolicy(Protocol):
    """What levels do in a whole world."""

    @property
    def gap(self) -> float:
        """How much more than the first level's policy any policy can be worth."""
        ...

    @property
    def solution(self) -> UncertainSolution | None:
        """What `solve_mdp` found for the first level, in an uncertain world."""
        ...

    def reset(self, seed: int) -> None:
        """Begin an episode."""
        ...

    def step(self) -> None:
        """A step of the episode has passed."""
        ...

    def at(self, states: Tensor, rewards: Tensor) -> SolvedStates:
        """What L levels do in states [B], about which the models say `rewards` [M, B, A]."""
        ...


def solve_world(
    world: TabularMDP | UncertainMDP,
    belief: Any,
    levels: Sequence[RiskMeasure],
    games: Games,
    progress: Progress | None = None,
) -> WorldPolicy:
    """The policies of L levels in a world, to a tolerance or by the iterations that `games` name."""
    if isinstance(world, UncertainMDP):
        if not isinstance(belief, TableBelief):
            raise InvalidInputError("belief: with an UncertainMDP it must be an array, [S, A] or [M, S, A].")
        episodes = [EpisodePolicy(world, belief.table, level, games.tolerance, progress) for level in levels]
        return episodes[0] if len(episodes) == 1 else _Together(episodes)
    if not isinstance(belief, TableBelief):
        raise InvalidInputError(
            "belief: with an MDP it must be an array [M, S, A] over the MDP's states; ask the belief there, as in "
            "CautiousPolicy(belief.rewards(features), level, mdp=mdp) with the features of each state."
        )
    how: dict[str, Any] = {"tolerance": games.tolerance}
    if games.num_iterations is not None or games.sampling is Sampling.QUEUE:
        how = {"method": Method.CFR, "num_iterations": games.num_iterations, "sampling": games.sampling}
    solution = solve_mdp(world, belief.table, list(levels), seed=games.seed, progress=progress, **how)
    policies, ordinary = with_baseline(solution.best_policy, levels, belief.table, world)
    certificate = solution.certificate(policies)
    return MDPPolicies(policies, ordinary, certificate.gap, certificate.lower)


class MDPPolicies(NamedTuple):
    """What L levels do in an MDP."""

    policies: Tensor
    """The policy of each level, [L, S, A]."""
    ordinary: Tensor
    """The ordinary policy nearest to each, [L, S, A]."""
    gaps: Tensor
    """How much more than each policy any policy can be worth, [L]."""
    values: Tensor
    """Exact values of the policies, from the world's start, [L]."""

    @property
    def gap(self) -> float:
        """Of the first level."""
        return float(self.gaps[0])

    @property
    def solution(self) -> None:
        """None: the policies are all there is to know."""
        return None

    def reset(self, seed: int) -> None:
        """Nothing depends on the episode."""

    def step(self) -> None:
        """Nothing depends on the step."""

    def at(self, states: Tensor, rewards: Tensor) -> SolvedStates:
        """The rows of the states."""
        policies, ordinary = self.policies[:, states], self.ordinary[:, states]
        gaps, values = (part[:, None].expand(policies.shape[:2]) for part in (self.gaps, self.values))
        nothing = torch.zeros(len(states), dtype=torch.bool)
        return SolvedStates(policies, ordinary, gaps, values, disagreement_of(rewards), nothing)


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

    @property
    def gap(self) -> float:
        """How much more than the mixture any policy can be worth."""
        return float(self.solution.certificate().gap)

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


class _Together:
    """Levels that were solved one by one, as one answer."""

    def __init__(self, each: Sequence[EpisodePolicy]) -> None:
        self._each = each
        self.gap, self.solution = each[0].gap, each[0].solution

    def reset(self, seed: int) -> None:
        """All begin with the same seed."""
        for policy in self._each:
            policy.reset(seed)

    def step(self) -> None:
        """All take a step."""
        for policy in self._each:
            policy.step()

    def at(self, states: Tensor, rewards: Tensor) -> SolvedStates:
        """One answer after another."""
        found = [policy.at(states, rewards) for policy in self._each]
        policies, ordinary, gaps, values = (
            torch.cat(parts) for parts in zip(*((e.policies, e.ordinary, e.gaps, e.values) for e in found), strict=True)
        )
        return SolvedStates(policies, ordinary, gaps, values, found[0].spread, found[0].too_large)
