"""Ways to be careful about several unknown kinds of ground, as decision rules with a dial, and how harm and use are measured.

A rule of one reward function (the mean, one model, mean - c std, one-step ranking, a novelty threshold) is optimised by policy
iteration; a rule over returns (k-of-N, BROIL) by `solve_mdp`. `benchmarks/deep_comparison.py` runs them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cautious import KofN, optimal_policy, solve_mdp
from cautious_paper.worlds.terrains import (
    DELIVERY,
    GOAL,
    GOOD,
    HARMFUL,
    KNOWN,
    TerrainWorld,
    cell_number,
    possible_truths,
)

STAY = 4
FORBIDDEN = -5.0
"""What a forbidden step is paid: as much as a parcel is worth. (With -100, carriers stand still for fear of slipping.)"""
ITERATIONS = 300
"""Of `solve_mdp`; the certificate says what they leave open."""

LEVELS = (*(f"{k}-of-20" for k in (20, 15, 10, 7, 5, 3, 2, 1)), "1-of-40", "1-of-100")
DEVIATIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
BROIL = ((0.75, 0.95), (0.5, 0.95), (0.25, 0.95), (0.0, 0.5), (0.0, 0.75), (0.0, 0.9), (0.0, 0.95), (0.0, 0.99))


@dataclass(frozen=True)
class BroilLevel(KofN):
    """PG-BROIL's weights in place of k-of-N's: w_i = (λ + (1 - λ)/(1 - α) [return_i <= VaR]) / M, by rank."""

    mean_weight: float = 0.5
    confidence: float = 0.95

    def rank_weights(self, num_models: int, replacement: bool = False) -> Tensor:
        """The value at risk is the lowest return with at least 1 - α of the models at or below it, itself included.

        Where (1 - α) M is not a whole number they do not sum to one, as in PG-BROIL.
        """
        worst = int(np.ceil((1 - self.confidence) * num_models - 1e-9))
        weights = torch.full((num_models,), self.mean_weight / num_models, dtype=torch.float64)
        weights[:worst] += (1 - self.mean_weight) / ((1 - self.confidence) * num_models)
        return weights


def broil_level(mean_weight: float, confidence: float) -> BroilLevel:
    """λ and α as a level."""
    return BroilLevel(1, 1, mean_weight, confidence)


def penalised(kind_rewards: Tensor, deviations: float) -> Tensor:
    """Mean - c std of the models for each kind: [M, K] -> [K]."""
    return kind_rewards.mean(dim=0) - deviations * kind_rewards.std(dim=0)


def ranked_in_each_state(kind_rewards: Tensor, level: str) -> Tensor:
    """The k-of-N value of each kind's own rewards, ranked anew in each state: [M, K] -> [K]."""
    return KofN.parse(level).value(kind_rewards.T)


def thresholds(kind_rewards: Tensor) -> list[float]:
    """Between the deviations of unseen kinds, from all allowed to none: [M, K] -> one more than there are unseen kinds."""
    spread = kind_rewards.std(dim=0)[len(KNOWN) :].sort(descending=True).values
    return [float("inf"), *((spread[:-1] + spread[1:]) / 2).tolist(), float(spread[-1]) / 2]


def avoiding(kind_rewards: Tensor, threshold: float) -> Tensor:
    """The mean, with kinds forbidden whose models deviate by more than a threshold: [M, K] -> [K]."""
    novel = kind_rewards.std(dim=0) > threshold
    return torch.where(novel, FORBIDDEN, kind_rewards.mean(dim=0))


def stopping(world: TerrainWorld, kind_rewards: Tensor, threshold: float) -> Tensor:
    """The ordinary policy, but it stays where it would step onto a kind more novel than a threshold: [S, A]."""
    ordinary = optimal_policy(world.mdp, world.state_rewards(kind_rewards.mean(dim=0))).policy
    novel = (kind_rewards.std(dim=0) > threshold).numpy()[world.kinds]
    into = torch.from_numpy(novel[world.targets[np.arange(world.num_states), ordinary.argmax(dim=1).numpy()]])
    stay = torch.nn.functional.one_hot(torch.tensor(STAY), world.num_actions).double()
    return torch.where(into[:, None], stay, ordinary)


def policies(world: TerrainWorld, kind_rewards: Tensor) -> dict[str, dict[str, Tensor]]:
    """The optimal policy of each rule at each setting of its dial, from bold to careful: name -> setting -> [S, A]."""
    table = world.state_rewards(kind_rewards)

    def optima(by_kind: list[Tensor]) -> Tensor:
        return optimal_policy(world.mdp, world.state_rewards(torch.stack(by_kind))).policy

    def robust(levels: list[KofN]) -> Tensor:
        return solve_mdp(
            world.mdp, table, levels, sampling="exact", update="regret-matching+", num_iterations=ITERATIONS
        ).best_policy

    dials: dict[str, tuple[list[str], Tensor]] = {
        "k-of-N": (list(LEVELS), robust([KofN.parse(level) for level in LEVELS])),
        "BROIL": (
            [f"λ={weight:g}, α={alpha:g}" for weight, alpha in BROIL],
            robust([broil_level(*one) for one in BROIL]),
        ),
        "mean - c std": (
            [f"c={c:g}" for c in DEVIATIONS],
            optima([penalised(kind_rewards, c) for c in DEVIATIONS]),
        ),
        "one-step ranking": (list(LEVELS), optima([ranked_in_each_state(kind_rewards, level) for level in LEVELS])),
        "novelty, avoids": (
            [f"τ={limit:.2f}" for limit in thresholds(kind_rewards)],
            optima([avoiding(kind_rewards, limit) for limit in thresholds(kind_rewards)]),
        ),
        "novelty, stops": (
            [f"τ={limit:.2f}" for limit in thresholds(kind_rewards)],
            torch.stack([stopping(world, kind_rewards, limit) for limit in thresholds(kind_rewards)]),
        ),
        "ensemble mean": ([""], optima([kind_rewards.mean(dim=0)])),
        "one model": ([f"no. {i}" for i in range(10)], optima(list(kind_rewards[:10]))),
    }
    return {name: dict(zip(settings, found, strict=True)) for name, (settings, found) in dials.items()}


def measures(world: TerrainWorld, policy: Tensor) -> dict[str, float]:
    """Harm, use and true returns of a policy [S, A] over all truths, exactly (docs/deep-comparison.md defines them)."""
    occupancy = world.mdp.occupancy(policy).sum(dim=-1)
    share = world.visits(policy).numpy()
    unseen = share[len(KNOWN) :]
    parcels = float(occupancy[cell_number(GOAL)])
    harmful = possible_truths(world.num_unseen)  # [T, U]
    harm = harmful @ unseen
    known = DELIVERY * parcels + float(share[: len(KNOWN)] @ list(KNOWN.values()))
    returns = known + harm * HARMFUL + (~harmful @ unseen) * GOOD
    bad = max(1, len(harmful) // 10)
    return {
        "use": 100 * parcels,
        "harm": float(np.sort(harm)[-bad:].mean()),
        "mean harm": float(harm.mean()),
        "return": float(returns.mean()),
        "bad return": float(np.sort(returns)[:bad].mean()),
        "unseen": float(unseen.sum()),
    }
