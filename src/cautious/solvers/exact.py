"""The true k-of-N optimum by linear programming (HiGHS), for small problems and as an independent reference.

k-of-N is a spectral risk: with rank weights w (non-increasing) the value of returns v is min over matchings of ranks to
models of Σ w_rank v_model. By duality of that assignment problem,

    value(v) = max Σ_g n_g α_g + Σ_m β_m   subject to   α_g + β_m <= w_g v_m     (g: ranks of equal weight, n_g of them)

and returns are linear in the discounted occupancy x(s,a), so that the best policy is one linear program.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse
import torch
from torch import Tensor

from cautious.errors import InvalidInputError, SolverError
from cautious.mdp.tabular import TabularMDP, check_fits
from cautious.parallel import single_threaded
from cautious.risk import RiskMeasure, parse_level, weights_by_rank
from cautious.solvers.adversary import SolveBatch
from cautious.solvers.cfr import BanditGame, Game, MDPGame, Problem
from cautious.solvers.duel import Duel
from cautious.solvers.optimal import optimal_policy
from cautious.solvers.rewards import Rewards, as_rewards
from cautious.solvers.solution import Solution, Trace
from cautious.validation import as_distribution, as_float_tensor, check_shape

LARGEST_PROGRAM, LARGEST_QUICK_PROGRAM = 1_000_000, 150_000
"""Most non-zero entries of constraints that are attempted where it is asked for (minutes, not hours), and unasked
(seconds)."""


@single_threaded
def solve_exact(mdp_or_state_dist: Any, rewards: Any, level: RiskMeasure | str) -> Solution:
    """The policy of highest k-of-N value over M reward functions.

    Args:
        mdp_or_state_dist: A `TabularMDP`; or a distribution over states [S], for a contextual bandit (all-states regime).
        rewards: [M, S, A], in memory.
        level: One level.

    Returns:
        `Solution` whose policies are all the optimal one; the certificate's gap is what rounding leaves.
    """
    table = as_rewards(rewards, "cpu")
    level = parse_level(level)
    rank_weights = weights_by_rank(level, table.num_models)
    game: Game
    if isinstance(mdp_or_state_dist, TabularMDP):
        check_fits(mdp_or_state_dist, table.num_models, table.num_states, table.num_actions)
        game = MDPGame(mdp_or_state_dist, torch.device("cpu"))
    else:
        check_shape(as_float_tensor(mdp_or_state_dist, "state_dist", "cpu"), "S", "state_dist", S=table.num_states)
        game = BanditGame(as_distribution(mdp_or_state_dist, "state_dist", "cpu"))
    occupancy, weights = optimal_play(Duel(game, table, rank_weights.numpy()))
    mixture = torch.einsum("m,msa->sa", torch.from_numpy(weights), _all_rewards(table))
    policy = _policy_of(occupancy, mixture, mdp_or_state_dist)
    nothing = torch.empty(0, dtype=torch.float64)
    return Solution(
        policy=policy,
        average_policy=policy,
        trace=Trace(nothing, nothing, nothing),
        level=level,
        record={"method": "linear program", "levels": [str(level)], "num_models": table.num_models},
        problem=Problem(game, table, SolveBatch((level,), 1)),
        mixtures=mixture[None, None],  # [1, 1, S, A]
    )


def optimal_play(duel: Duel) -> tuple[Tensor, np.ndarray]:
    """Both players' optimal plays: an occupancy [S, A], and weights of the risk envelope [M].

    Raises:
        InvalidInputError: The program is too large to attempt.
        SolverError: HiGHS did not solve it.
    """
    size = program_size(duel)
    if size > LARGEST_PROGRAM:
        raise InvalidInputError(
            f"solve_exact: {duel.rewards.num_models} models and {duel.rewards.num_states * duel.rewards.num_actions} (state, "
            f"action) pairs make too large a linear program: {size:,} entries, of at most {LARGEST_PROGRAM:,}. Use "
            "solve_mdp(..., tolerance=...) or solve_bandit and their certificate."
        )
    unit = _to_unit_range(_all_rewards(duel.rewards))  # the program's tolerances are absolute
    # x is the occupancy of some policy iff F x = b, and the returns R x are linear in it.
    occupancy, weights = _solve_program(unit.flatten(1).numpy(), duel.rank_weights, *_flow_constraints(duel))
    return occupancy.reshape(unit.shape[1:]), weights.numpy()


def program_size(duel: Duel) -> int:
    """Non-zero entries of the constraints."""
    num_models, num_pairs = duel.rewards.num_models, duel.rewards.num_states * duel.rewards.num_actions
    return (3 * len(np.unique(duel.rank_weights)) + num_pairs) * num_models


def _all_rewards(rewards: Rewards) -> Tensor:
    """All reward functions, [M, S, A] in float64."""
    return rewards.rewards_for(torch.arange(rewards.num_models)).double().cpu()


def _to_unit_range(reward: Tensor) -> Tensor:
    """The rewards shifted and scaled to [-1, 1], which changes no policy's rank."""
    middle, half = (reward.max() + reward.min()) / 2, (reward.max() - reward.min()) / 2
    return (reward - middle) / half if half > 0 else torch.zeros_like(reward)


def _flow_constraints(duel: Duel) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """(matrix F, vector b) such that the occupancies of policies are the x >= 0 with F x = b.

    Σ_a x(s,a) - γ Σ_{s',a'} P(s|s',a') x(s',a') = (1-γ) d_∅(s).
    """
    num_states, num_actions = duel.rewards.num_states, duel.rewards.num_actions
    outflow = scipy.sparse.kron(scipy.sparse.eye_array(num_states), np.ones((1, num_actions)), format="csr")
    if isinstance(duel.game, MDPGame):
        world = duel.game.mdp
        flow = outflow - world.discount * world.dynamics.sparse().T
        return flow.tocsr(), (1 - world.discount) * world.initial_state_dist.numpy()
    assert isinstance(duel.game, BanditGame)
    return outflow, duel.game.state_dist.cpu().numpy()


def _solve_program(
    reward: np.ndarray, rank_weights: np.ndarray, flow: scipy.sparse.csr_array, inflow: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Optimal occupancy [S*A] and the adversary's weights [M], read off the dual of the matching constraints."""
    num_models, num_pairs = reward.shape
    weight, ranks = np.unique(rank_weights, return_counts=True)
    num_groups = len(weight)
    # Variables: x [S*A], v [M], α [G], β [M]. Rows: F x = b;  v - R x = 0;  α_g + β_m - w_g v_m <= 0 (g-major).
    group = scipy.sparse.kron(scipy.sparse.eye_array(num_groups), np.ones((num_models, 1)))
    model = scipy.sparse.kron(np.ones((num_groups, 1)), scipy.sparse.eye_array(num_models))
    weighted = scipy.sparse.kron(weight[:, None], scipy.sparse.eye_array(num_models))
    matching = scipy.sparse.hstack(
        [scipy.sparse.csr_array((len(weight) * num_models, num_pairs)), -weighted, group, model]
    )
    identity = scipy.sparse.eye_array(num_models)
    equal = scipy.sparse.block_array(
        [
            [
                flow,
                None,
                scipy.sparse.csr_array((flow.shape[0], num_groups)),
                scipy.sparse.csr_array((flow.shape[0], num_models)),
            ],
            [scipy.sparse.csr_array(-reward), identity, None, None],
        ]
    )
    result = scipy.optimize.linprog(
        -np.concatenate([np.zeros(num_pairs + num_models), ranks, np.ones(num_models)]),
        A_ub=matching.tocsc(),
        b_ub=np.zeros(matching.shape[0]),
        A_eq=equal.tocsc(),
        b_eq=np.concatenate([inflow, np.zeros(num_models)]),
        bounds=[(0, None)] * num_pairs + [(None, None)] * (2 * num_models + num_groups),
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if result.status != 0:
        raise SolverError(f"solve_exact: the linear program was not solved (HiGHS: {result.message}).")
    # The dual variables are the adversary's answer; the tolerances leave entries of -1e-12 and sums of 1 + 1e-12.
    matched = -result.ineqlin.marginals.reshape(num_groups, num_models)  # how much of each rank group each model holds
    weights = torch.from_numpy(weight @ np.clip(matched, 0, None))
    return torch.from_numpy(np.clip(result.x[:num_pairs], 0, None)), weights / weights.sum()


def _policy_of(occupancy: Tensor, mixture: Tensor, world: Any) -> Tensor:
    """π(a|s) = x(s,a) / Σ_b x(s,b); where x does not reach, the best action against the adversary's mixture."""
    total = occupancy.sum(dim=-1, keepdim=True)
    if isinstance(world, TabularMDP):
        elsewhere = optimal_policy(world, mixture).policy
    else:
        elsewhere = torch.nn.functional.one_hot(mixture.argmax(dim=-1), mixture.shape[-1]).double()
    return torch.where(total > 1e-12, occupancy / total.clamp(min=1e-12), elsewhere)
