"""The double oracle: a mixture of memoryless policies that does well against every point of the risk envelope.

Until nothing improves:

1. solve the matrix game of the policies found so far against the envelope (`envelope`): a mixture, its exact value, and the
   adversary's weights w over models;
2. search for policies that are worth more than that under w (`ascent`), from several starts: the nominal optimum under w, the
   optimum of mixed values, the policies of the mixture, the own optima of the models that weigh most;
3. where none is found, let regret matching look for policies that mix actions.

The searches of a round are independent of each other: threads share them, or the machines of a cluster (`cautious.executors`).
Step 2 is NP-hard, so the end of the loop proves nothing: the bound of `revealed` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cautious.mdp.evaluation import Dynamics, optimal_values
from cautious.parallel import BlockExecutor, parallel_map
from cautious.solvers.envelope import EnvelopeGame, Equilibrium
from cautious.solvers.uncertain.ascent import ascend, match_regret, mixed_values_policy
from cautious.solvers.uncertain.problem import UncertainProblem

MOST_ROUNDS, FEWEST_ROUNDS, SEARCH_WORK = 200, 3, 2**31
"""Rounds at most; fewer in large worlds without a horizon, by what an evaluation takes (`Dynamics.work`)."""
OWN_OPTIMA = 5
"""How many models' own optima a search starts from in each round."""
REGRET_ITERATIONS, FEWEST_ITERATIONS, REGRET_WORK = 200, 20, 2**34
"""Iterations of regret matching; fewer in large worlds without a horizon, by what an evaluation takes (`Dynamics.work`)."""
LARGEST_VALUES = 2**23
"""Most values of policies that are held at a time."""
IMPROVEMENT = 1e-7
"""A policy must be worth more by this share of the range of the models' best returns to be added."""


class Search(NamedTuple):
    """One search for policies, from one start."""

    number: int
    """Its place among those of the round: results come back in any order."""
    weights: np.ndarray
    """The adversary's weights over the models, [M]."""
    start: np.ndarray
    """Actions [T, S]; or the policy [T, S, A] that regret matching begins with."""
    num_iterations: int = 0
    """Of regret matching, which comes first; 0 for coordinate ascent alone."""
    weighs_ranks: bool = False
    """Whether regret matching weighs the models by the rank of their returns, not by `weights`."""


def search(problem: UncertainProblem, what: Search, progress: Any = None) -> list[np.ndarray]:
    """Policies [T, S, A] that one search finds; those of regret matching come before what ascent makes of them."""
    if not what.num_iterations:
        return [problem.of_actions(ascend(problem, what.weights, what.start))]
    found = match_regret(problem, what.start, what.num_iterations, None if what.weighs_ranks else what.weights)
    sharp = [ascend(problem, what.weights, policy.argmax(axis=-1)) for policy in found]
    return found + [problem.of_actions(actions) for actions in sharp]


class DoubleOracle:
    """Policies found so far, and the game between them and the adversary.

    Attributes:
        problem: The world, the rewards and the rank weights.
        policies: [T, S, A] each, in the order of the game's rows.
        equilibrium: The best mixture of them.
    """

    def __init__(self, problem: UncertainProblem, executor: BlockExecutor | None = None) -> None:
        """Begin with the nominal policy and with what ascent makes of it for the mean of all models.

        Args:
            problem: The world, the rewards and the rank weights.
            executor: Where searches run; None for the threads of this process.
        """
        self.problem = problem
        self._executor = executor
        self.policies: list[np.ndarray] = []
        self._game = EnvelopeGame(problem.rank_weights)
        self._scale = max(float(np.abs(problem.best_returns).max()), 1e-300)
        self._seen: set[bytes] = set()
        uniform = np.full(problem.num_models, 1 / problem.num_models)
        nominal = nominal_actions(problem, uniform)
        self._add(problem.of_actions(nominal))
        self._add(problem.of_actions(ascend(problem, uniform, nominal)))
        self.equilibrium = self._game.solve()

    @property
    def rows(self) -> np.ndarray:
        """Returns of the policies, [K, M]."""
        return self._game.rows

    @property
    def support(self) -> np.ndarray:
        """Numbers of the policies that the mixture draws."""
        return np.flatnonzero(self.equilibrium.mixture > 0)

    def support_values(self) -> tuple[np.ndarray, np.ndarray]:
        """Values [K, T, S, M] of the mixture's likeliest policies, as many as there is room for; and their numbers."""
        likeliest = self.support[np.argsort(-self.equilibrium.mixture[self.support], kind="stable")]
        num_stages, num_states, _ = self.problem.policy_shape
        room = max(1, LARGEST_VALUES // (num_stages * num_states * self.problem.num_models))
        return np.array([self.problem.values(self.policies[k]) for k in likeliest[:room]]), likeliest[:room]

    def run(self, report: Callable[[Equilibrium], bool]) -> None:
        """Improve the mixture until no search finds anything, or `report` says that it is good enough."""
        matched = False
        rounds = MOST_ROUNDS
        if self.problem.horizon is None:
            rounds = min(MOST_ROUNDS, max(FEWEST_ROUNDS, SEARCH_WORK // max(self.problem.dynamics.work, 1)))
        for _ in range(rounds):
            if report(self.equilibrium):
                return
            if self._improve(self._searches()):
                continue
            if matched and not self._improve(self._mixing()):
                return
            if not matched:
                matched = True
                self._improve(self._mixing())

    def _improve(self, candidates: list[np.ndarray]) -> bool:
        """Add what is worth more than the mixture under the adversary's weights; whether the mixture's value rose."""
        weights, before = self.equilibrium.weights, self.equilibrium.value
        for policy in {policy.tobytes(): policy for policy in candidates}.values():
            if self.problem.returns(policy) @ weights > before + IMPROVEMENT * self._scale:
                self._add(policy)
        if len(self.policies) > len(self.equilibrium.mixture):
            self.equilibrium = self._game.solve()
        return self.equilibrium.value > before + IMPROVEMENT * self._scale

    def _add(self, policy: np.ndarray) -> None:
        if policy.tobytes() not in self._seen:
            self._seen.add(policy.tobytes())
            self.policies.append(policy)
            self._game.add(self.problem.returns(policy))

    def _searches(self) -> list[np.ndarray]:
        """What coordinate ascent finds under the adversary's weights, from each start once."""
        weights = self.equilibrium.weights
        starts = [nominal_actions(self.problem, weights), mixed_values_policy(self.problem, weights)]
        starts += [self.policies[k].argmax(axis=-1) for k in self.support]
        heavy = np.argsort(-weights, kind="stable")[:OWN_OPTIMA]
        starts += [self.problem.optima[1][:, :, m] for m in heavy if weights[m] > 0]
        different = {start.tobytes(): start for start in starts}.values()
        found = self._search([Search(number, weights, start) for number, start in enumerate(different)])
        return [policy for policies in found for policy in policies]

    def _mixing(self) -> list[np.ndarray]:
        """Iterates of regret matching, and what ascent makes of them.

        With a horizon no policy that mixes actions is better under fixed weights: there they are starts alone.
        """
        weights, main = self.equilibrium.weights, self.policies[int(self.equilibrium.mixture.argmax())]
        uniform = np.full_like(main, 1 / main.shape[-1])
        if self.problem.horizon is not None:
            return self._search([Search(0, weights, uniform, REGRET_ITERATIONS, True)])[0]
        iterations = min(REGRET_ITERATIONS, max(FEWEST_ITERATIONS, REGRET_WORK // self.problem.dynamics.work))
        both = [(start, by_rank) for start in (uniform, main) for by_rank in (True, False)]
        found = self._search(
            [Search(number, weights, start, iterations, by_rank) for number, (start, by_rank) in enumerate(both)]
        )
        mixed = [policy for policies in found for policy in policies[: len(policies) // 2]]
        return mixed + [policy for policies in found for policy in policies[len(policies) // 2 :]]

    def _search(self, searches: list[Search]) -> list[list[np.ndarray]]:
        """What each search finds, in the order of the searches."""
        if self._executor is None:
            return parallel_map(lambda number: search(self.problem, searches[number]), len(searches))
        found = self._executor.map(search, self.problem, searches, device="cpu", title="searching")
        by_number = {what.number: policies for what, policies in found}
        return [by_number[what.number] for what in searches]


def nominal_actions(problem: UncertainProblem, weights: np.ndarray) -> np.ndarray:
    """Actions [T, S] that are optimal in the world whose probabilities and rewards are the weighted mean of the models'."""
    first, successor, chance, start, discount = problem.dynamics
    mean = Dynamics(first, successor, (chance @ weights)[:, None], start, discount)
    return optimal_values(mean, (problem.rewards @ weights)[:, None], problem.horizon)[1][:, :, 0]
