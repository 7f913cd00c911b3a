"""k-of-N policies in a continuing MDP whose dynamics are known and whose reward is not (section 5 of the paper)."""

from __future__ import annotations

from typing import Any

import torch

from cautious.parallel import single_threaded
from cautious.progress import Progress
from cautious.solvers.adversary import JointAdversary
from cautious.solvers.games import MDPGame
from cautious.solvers.rewards import as_rewards
from cautious.solvers.solution import Solution
from cautious.solvers.solve import Levels, make_options, solve, tracks_exact
from cautious.types import Regime
from cautious.worlds.mdp import TabularMDP, check_fits, parse_mdp


@single_threaded
def solve_mdp(
    mdp: TabularMDP,
    rewards: Any,
    level: Levels,
    *,
    num_iterations: int = 100,
    sampling: str = "queue",
    update: str = "regret-matching",
    num_runs: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    track_exact: bool | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Policies that are robust at a k-of-N level in a continuing MDP.

    Each iteration factorises I - γP_π once: its transpose gives the occupancy, with which the returns of all M models are
    one product; a second solve gives the action values under the worst-k reward.

    Args:
        mdp: The world; all returns are normalised by (1 - discount).
        rewards: What each of M models says each (state, action) pays, [M, S, A]: a tensor, a numpy array (memory-mapped
            too), or anything with ``num_models`` and ``rewards_for(indices) -> [N, S, A]``.
        level: A `KofN` or ``"k-of-n"``; a sequence of them adds a leading dimension to every array of the solution.
        num_iterations: T.
        sampling: ``"queue"`` (the paper) or ``"exact"``; see `solve_bandit`.
        update: ``"regret-matching"``, ``"regret-matching+"`` or ``"as-printed"``.
        num_runs: Repeat with this many shuffles of the queue; adds a dimension.
        seed: Starts the shuffles.
        device: Where to compute; where the rewards are, if not given.
        track_exact: Whether every iteration also ranks all M models; by default wherever that is cheap.
        progress: Called after each iteration with (done, total).

    Returns:
        `Solution`; for one level and no `num_runs` its policies are plain [S, A].
    """
    mdp, table = parse_mdp(mdp), as_rewards(rewards, device)
    check_fits(mdp, table.num_models, table.num_states, table.num_actions)
    request = make_options(
        level,
        table.num_models,
        num_runs=num_runs,
        num_iterations=num_iterations,
        sampling=sampling,
        update=update,
        seed=seed,
        progress=progress,
    )
    game = MDPGame(mdp, table.device)
    track = tracks_exact(track_exact, table, Regime.ALL_STATES)
    return solve(
        request,
        table,
        lambda how, count, exact: JointAdversary(game, table, request.batch, how, seed, count, exact),
        game.best_return,
        track,
        {"discount": mdp.discount},
    )
