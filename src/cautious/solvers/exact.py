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
from cautious.solvers.optimal import optimal_policy
from cautious.solvers.rewards import as_rewards
from cautious.solvers.solution import Solution, Trace
from cautious.validation import as_distribution, as_float_tensor, check_shape

LARGEST_PROGRAM = 1_000_000
"""Most non-zero entries of a constraint matrix that is attempted: minutes, not hours."""


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
    reward = table.rewards_for(torch.arange(table.num_models)).double()  # [M, S, A]
    level = parse_level(level)
    rank_weights = weights_by_rank(level, table.num_models)
    if isinstance(mdp_or_state_dist, TabularMDP):
        check_fits(mdp_or_state_dist, table.num_models, table.num_states, table.num_actions)
    # x is the occupancy of some policy iff F x = b, and the returns R x are linear in it.
    game, flow, inflow = _flow_constraints(mdp_or_state_dist, table.num_states, table.num_actions)
    unit = _to_unit_range(reward)  # the program's tolerances are absolute
    occupancy, weights = _solve_program(unit.flatten(1).numpy(), rank_weights.numpy(), flow, inflow)
    mixture = torch.einsum("m,msa->sa", weights, reward)
    policy = _policy_of(occupancy.reshape(table.num_states, table.num_actions), mixture, mdp_or_state_dist)
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


def _to_unit_range(reward: Tensor) -> Tensor:
    """The rewards shifted and scaled to [-1, 1], which changes no policy's rank."""
    middle, half = (reward.max() + reward.min()) / 2, (reward.max() - reward.min()) / 2
    return (reward - middle) / half if half > 0 else torch.zeros_like(reward)


def _flow_constraints(world: Any, num_states: int, num_actions: int) -> tuple[Game, scipy.sparse.csr_array, np.ndarray]:
    """(game, matrix F, vector b) such that the occupancies of policies are the x >= 0 with F x = b.

    Σ_a x(s,a) - γ Σ_{s',a'} P(s|s',a') x(s',a') = (1-γ) d_∅(s).
    """
    outflow = scipy.sparse.kron(scipy.sparse.eye_array(num_states), np.ones((1, num_actions)), format="csr")
    if isinstance(world, TabularMDP):
        flow = outflow - world.discount * world.dynamics.sparse().T
        return (
            MDPGame(world, torch.device("cpu")),
            flow.tocsr(),
            (1 - world.discount) * world.initial_state_dist.numpy(),
        )
    check_shape(as_float_tensor(world, "state_dist", "cpu"), "S", "state_dist", S=num_states)
    state_dist = as_distribution(world, "state_dist", "cpu")
    return BanditGame(state_dist), outflow, state_dist.numpy()


def _solve_program(
    reward: np.ndarray, rank_weights: np.ndarray, flow: scipy.sparse.csr_array, inflow: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Optimal occupancy [S*A] and the adversary's weights [M], read off the dual of the matching constraints."""
    num_models, num_pairs = reward.shape
    weight, ranks = np.unique(rank_weights, return_counts=True)
    num_groups = len(weight)
    if 3 * num_groups * num_models + num_models * num_pairs > LARGEST_PROGRAM:
        raise InvalidInputError(
            f"solve_exact: M={num_models} models with {num_groups} different rank weights and {num_pairs} (state, action) "
            "pairs make too large a linear program; use solve_mdp or solve_bandit and their certificate."
        )
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
