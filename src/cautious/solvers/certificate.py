"""How far a policy is from the best possible one: bounds that hold for every policy, whatever the solver did.

The *risk envelope* is the convex hull of all permutations of the rank weights. In four steps:

1. Rank weights never increase with the rank, so giving the largest of them to the lowest return minimises Σ_m w_m V_m(π)
   (rearrangement inequality): the k-of-N value of a policy is the least Σ_m w_m V_m(π) over the weights w of the envelope.
2. Returns are linear in the reward function: Σ_m w_m V_m(π) = return(π; r̄) with the mixture r̄ = Σ_m w_m r_m.
3. So any one mixture r̄ with weights of the envelope bounds all policies at once:

       max_π value(π)  <=  max_π return(π; r̄)                                upper: the ordinary optimum under r̄

   The exact value of the policy in hand is the lower bound.
4. Each exact answer of the adversary has one permutation of the rank weights as its weights; an average of such answers is in
   the hull. Where rounding ranks two nearly equal models the wrong way round, the weights are still a permutation: the bound
   may be a little looser, but holds.

How fast the gap closes: with r̄ the average of the exact answers r̄^t to the iterates π^t, and R^T the regret (Theorem 1),

    upper = max_π 1/T Σ_t return(π; r̄^t)  <=  1/T Σ_t return(π^t; r̄^t) + R^T/T  =  mean value of the iterates + R^T/T

so the best iterate is certified within R^T/T, at most C^T / ((1-γ) T). With the queue, regret is measured against the sampled
answers, whose mean over all draws is the exact answer: there the same holds in expectation (Theorem 2 bounds the noise).
Exploitability is the same measure for games.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cautious.mdp.coverage import Coverage
from cautious.risk import RiskMeasure
from cautious.solvers.cfr import CFROptions, Game, MDPGame, Problem, minimise_regret
from cautious.types import Sampling, Update


@dataclass(frozen=True, eq=False)
class Certificate:
    """Bounds on the k-of-N problem that hold for every policy.

    Shapes: scalar for one level and run, the batch's leading dimensions otherwise, and [..., S] in the single-state
    regime, where each state is a problem of its own.

    Attributes:
        lower: Exact k-of-N value of the certified policy over the M models.
        upper: The ordinary optimum under the adversary's average mixture of reward functions. That mixture is a point
            of the risk envelope, so no policy at all has a k-of-N value above it. (Averaged over all iterations, the
            last half and the last quarter; the lowest bound is kept.)
        gap: upper - lower, at least 0: how much any policy could still gain.
        level: The level, or the levels of the batch.
        estimated: None where the dynamics are exact, or where there are none. Otherwise how they were estimated: the bounds are
            then about the estimated world, and say nothing about how far that is from the real one.
    """

    lower: Tensor
    upper: Tensor
    gap: Tensor
    level: RiskMeasure | tuple[RiskMeasure, ...]
    estimated: Coverage | None = None

    def __str__(self) -> str:
        """The bounds, and which world they are about."""
        levels = ", ".join(map(str, self.level)) if isinstance(self.level, tuple) else str(self.level)
        bounds = ", ".join(f"{name} {_in_words(getattr(self, name))}" for name in ("lower", "upper", "gap"))
        about = "" if self.estimated is None else f"; about the estimated world only: {self.estimated}"
        return f"{levels}: {bounds}{about}"


def _in_words(bound: Tensor) -> str:
    """One number, or the range of several."""
    low, high = float(bound.min()), float(bound.max())
    return f"{low:.4g}" if bound.numel() == 1 else f"{low:.4g} to {high:.4g}"


def estimate_behind(game: Game) -> Coverage | None:
    """How the dynamics of a game were estimated; None if they were not."""
    return game.mdp.coverage if isinstance(game, MDPGame) else None


def certify(problem: Problem, policy: Tensor, mixtures: Tensor) -> Certificate:
    """The certificate of policies [B, S, A], by mixtures of reward functions of the risk envelope.

    Args:
        problem: The game, the reward functions and the levels.
        policy: [B, S, A].
        mixtures: [W, B, S, A]; the lowest of the W bounds is kept (`CFRResult.mixtures`, `exact_mixtures`).

    Returns:
        Bounds [B], or [B, S] in the single-state regime.
    """
    lower = problem.exact_value(policy)
    upper = envelope_bound(problem.game, mixtures)
    gap, estimated = (upper - lower).clamp(min=0), estimate_behind(problem.game)
    return Certificate(lower, upper, gap, problem.batch.levels, estimated)


def envelope_bound(game: Game, mixtures: Tensor) -> Tensor:
    """What no policy's k-of-N value exceeds: the lowest ordinary optimum under W mixtures, [W, B, S, A] -> [B] or [B, S]."""
    return torch.stack([game.best_return(mixture) for mixture in mixtures]).amin(dim=0)


def exact_mixtures(problem: Problem, num_iterations: int, update: Update) -> Tensor:
    """The adversary's average mixtures [W, B, S, A] over a fresh run with exact weights."""
    result = minimise_regret(problem, CFROptions(num_iterations, Sampling.EXACT, update))
    assert result.mixtures is not None  # exact weights are always tracked
    return result.mixtures
