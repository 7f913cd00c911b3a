"""The double oracle: a mixture of memoryless policies that does well against every point of the risk envelope.

Until nothing improves:

1. solve the matrix game of the policies found so far against the envelope (`envelope`): a mixture, its exact value, and the
   adversary's weights w over models;
2. search for policies that are worth more than that under w (`ascent`), from several starts: the nominal optimum under w, the
   optimum of mixed values, the policies of the mixture, the own optima of the models that weigh most;
3. where none is found, let regret matching look for policies that mix actions.

Step 2 is NP-hard, so the end of the loop proves nothing: the bound of `revealed` does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cautious.mdp.evaluation import Dynamics, optimal_values
from cautious.solvers.uncertain.ascent import ascend, match_regret, mixed_values_policy
from cautious.solvers.uncertain.envelope import EnvelopeGame, Equilibrium
from cautious.solvers.uncertain.problem import UncertainProblem

MOST_ROUNDS = 200
OWN_OPTIMA = 5
"""How many models' own optima a search starts from in each round."""
REGRET_ITERATIONS, FEWEST_ITERATIONS, REGRET_WORK = 200, 20, 2**34
"""Iterations of regret matching; fewer in large worlds without a horizon, by what an evaluation takes (`Dynamics.work`)."""
LARGEST_VALUES = 2**23
"""Most values of policies that are held at a time."""
IMPROVEMENT = 1e-7
"""A policy must be worth more by this share of the range of the models' best returns to be added."""


class DoubleOracle:
    """Policies found so far, and the game between them and the adversary.

    Attributes:
        problem: The world, the rewards and the rank weights.
        policies: [T, S, A] each, in the order of the game's rows.
        equilibrium: The best mixture of them.
    """

    def __init__(self, problem: UncertainProblem) -> None:
        """Begin with the nominal policy and with what ascent and regret matching make of the mean of all models."""
        self.problem = problem
        self.policies: list[np.ndarray] = []
        self._game = EnvelopeGame(problem)
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
        for _ in range(MOST_ROUNDS):
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
        for policy in candidates:
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
        found = [ascend(self.problem, weights, start) for start in different]
        return [self.problem.of_actions(actions) for actions in {each.tobytes(): each for each in found}.values()]

    def _mixing(self) -> list[np.ndarray]:
        """Iterates of regret matching, and what ascent makes of them.

        With a horizon no policy that mixes actions is better under fixed weights: there they are starts alone.
        """
        main = self.policies[int(self.equilibrium.mixture.argmax())]
        uniform = np.full_like(main, 1 / main.shape[-1])
        if self.problem.horizon is not None:
            found = match_regret(self.problem, uniform, REGRET_ITERATIONS)
        else:
            iterations = min(REGRET_ITERATIONS, max(FEWEST_ITERATIONS, REGRET_WORK // self.problem.dynamics.work))
            found = []
            for start in (uniform, main):
                found += match_regret(self.problem, start, iterations)
                found += match_regret(self.problem, start, iterations, self.equilibrium.weights)
        sharp = [ascend(self.problem, self.equilibrium.weights, policy.argmax(axis=-1)) for policy in found]
        return found + [self.problem.of_actions(actions) for actions in sharp]


def nominal_actions(problem: UncertainProblem, weights: np.ndarray) -> np.ndarray:
    """Actions [T, S] that are optimal in the world whose probabilities and rewards are the weighted mean of the models'."""
    first, successor, chance, start, discount = problem.dynamics
    mean = Dynamics(first, successor, (chance @ weights)[:, None], start, discount)
    return optimal_values(mean, (problem.rewards @ weights)[:, None], problem.horizon)[1][:, :, 0]
