"""A k-of-N problem as a game of two players, a policy against a mixture of the models: what solvers with a tolerance share.

    max over policies π   min over weights v of the envelope W   Σ_m v_m J_m(π),        J_m(π) = Σ_s,a x_π(s,a) r_m(s,a)

Returns are linear in the occupancy x, so both players' sets are convex and the game has a value. Each answers the other
exactly: the policy by an ordinary MDP solve under the mixture Σ_m v_m r_m, the adversary by a sort. Any answer is a bound
(`Bounds`):

    value of a policy, against its worst weights   <=   value of the game   <=   ordinary optimum under any one mixture
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cautious.solvers.cfr import Evaluation, Game, MDPGame
from cautious.solvers.envelope import worst_weights
from cautious.solvers.optimal import best_answer
from cautious.solvers.rewards import Rewards


@dataclass(frozen=True, eq=False)
class Duel:
    """One level's game: the world, M reward functions, and the weight of each rank."""

    game: Game
    rewards: Rewards
    rank_weights: np.ndarray
    """[M], the worst first."""

    def evaluate(self, policy: Tensor) -> Evaluation:
        """Occupancy and action values of one policy, each [1, S, A]."""
        return self.game.evaluate(policy.unsqueeze(0))

    def returns(self, occupancy: Tensor) -> np.ndarray:
        """J_m of an occupancy [S, A] under each model, [M]."""
        return self.rewards.returns(occupancy.unsqueeze(0))[0].cpu().numpy()

    def mixture(self, weights: np.ndarray) -> Tensor:
        """The reward function Σ_m v_m r_m, [M] -> [S, A]."""
        return self.rewards.mixture(torch.from_numpy(weights).to(self.rewards.device).unsqueeze(0))[0]

    def worst(self, returns: np.ndarray) -> np.ndarray:
        """The adversary's answer to returns [M], [M]."""
        return worst_weights(returns, self.rank_weights)

    def best(self, mixture: Tensor, start: Tensor | None = None) -> tuple[Tensor, float]:
        """The policy's answer to a mixture [S, A]: a policy [S, A], and a return that no policy exceeds."""
        if isinstance(self.game, MDPGame):
            return best_answer(self.game.mdp, mixture, start)
        policy = torch.nn.functional.one_hot(mixture.argmax(dim=-1), mixture.shape[-1]).double()
        return policy, float(self.game.best_return(mixture.unsqueeze(0))[0])


@dataclass
class Bounds:
    """The best that is known of a duel: between which numbers its value lies, and who has shown so; filled in place."""

    duel: Duel
    lower: float = -np.inf
    upper: float = np.inf
    occupancy: Tensor | None = None
    """Occupancy of the policy whose value is `lower`, [S, A]."""
    weights: np.ndarray | None = None
    """The mixture under which no policy is worth more than `upper`, [M]."""

    @property
    def gap(self) -> float:
        """How much better than the best policy known any policy can be."""
        return max(0.0, self.upper - self.lower)

    def offer_policy(self, occupancy: Tensor, returns: np.ndarray) -> np.ndarray:
        """Keep an occupancy with these returns if it is the best so far; returns the adversary's answer to it."""
        answer = self.duel.worst(returns)
        value = float(answer @ returns)
        if value > self.lower:
            self.lower, self.occupancy = value, occupancy
        return answer

    def offer_weights(self, weights: np.ndarray, start: Tensor | None = None) -> tuple[Tensor, float]:
        """Keep weights of the envelope if they bound policies best; returns the policy's answer [S, A] and the bound."""
        policy, bound = self.duel.best(self.duel.mixture(weights), start)
        if bound < self.upper:
            self.upper, self.weights = bound, weights
        return policy, bound
