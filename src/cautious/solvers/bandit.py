"""k-of-N policies where actions do not move the world: images, requests, patients (γ = 0)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cautious.parallel import single_threaded
from cautious.progress import Progress
from cautious.solvers.adversary import Adversary, JointAdversary
from cautious.solvers.games import BanditGame
from cautious.solvers.per_state_adversary import PerStateAdversary
from cautious.solvers.rewards import Rewards, as_rewards
from cautious.solvers.solution import Solution
from cautious.solvers.solve import Levels, make_options, solve, tracks_exact
from cautious.types import ArrayLike, Regime, Sampling
from cautious.validation import as_distribution, as_float_tensor, check_shape, parse_choice


@single_threaded
def solve_bandit(
    rewards: Any,
    level: Levels,
    *,
    regime: str = "all-states",
    num_iterations: int = 100,
    sampling: str = "queue",
    update: str = "regret-matching",
    state_dist: ArrayLike | None = None,
    num_runs: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    track_exact: bool | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Policies that are robust at a k-of-N level in a contextual bandit (Alg. 1).

    Args:
        rewards: What each of M models says each action pays, [M, S, A]: a tensor, a numpy array (memory-mapped too), or
            anything with ``num_models`` and ``rewards_for(indices) -> [N, S, A]``.
        level: A `KofN` or ``"k-of-n"``; a sequence of them adds a leading dimension to every array of the solution.
        regime: ``"all-states"`` ranks the models by their value over the distribution of states; ``"single-state"``
            treats each state as a problem of its own, and is far more cautious.
        num_iterations: T.
        sampling: ``"queue"`` draws N models an iteration from a shuffled queue (the paper); ``"exact"`` weighs all M
            models by rank in every iteration: no sampling noise.
        update: ``"regret-matching"``, ``"regret-matching+"`` or ``"as-printed"`` (Alg. 1 to the letter).
        state_dist: How likely each state is, [S]; uniform if not given. In the single-state regime it plays no part.
        num_runs: Repeat with this many shuffles of the queue; adds a dimension. Run r is the same alone or among others.
        seed: Starts the shuffles.
        device: Where to compute; where the rewards are, if not given.
        track_exact: Whether every iteration also ranks all M models, for `Trace.exact_value`, `best_policy` and a tight
            certificate. By default wherever that is cheap.
        progress: Called after each iteration with (done, total).

    Returns:
        `Solution`; for one level and no `num_runs` its policies are plain [S, A].

    Help pays 0.25 for sure; the gamble pays 1 under half of the models. Ordinarily one gambles, cautiously one asks:

    >>> models = torch.tensor([[[1.0, 0.25]], [[0.0, 0.25]]])
    >>> solution = solve_bandit(models, ["2-of-2", "1-of-2"], sampling="exact")
    >>> solution.policy[0, 0].tolist(), bool(solution.policy[1, 0, 1] > 0.8)
    ([1.0, 0.0], True)
    """
    table = as_rewards(rewards, device)
    kind = parse_choice(Regime, regime, "regime")
    distribution = _state_distribution(state_dist, table)
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
    game = BanditGame(distribution)
    separate = kind is Regime.SINGLE_STATE
    track = tracks_exact(track_exact, table, kind)

    def make_opponent(how: Sampling, count: int, exact: bool) -> Adversary:
        if separate:
            return PerStateAdversary(table, request.batch, how, seed, count, exact)
        return JointAdversary(game, table, request.batch, how, seed, count, exact)

    best_return = _best_action if separate else game.best_return
    return solve(request, table, make_opponent, best_return, track, {"regime": str(kind)})


def _best_action(reward: Tensor) -> Tensor:
    """The best action's reward in each state: [B, S, A] -> [B, S]."""
    return reward.amax(dim=-1)


def _state_distribution(state_dist: ArrayLike | None, rewards: Rewards) -> Tensor:
    """The given distribution over states, checked, or the uniform one: [S]."""
    if state_dist is None:
        return torch.full((rewards.num_states,), 1 / rewards.num_states, dtype=torch.float64, device=rewards.device)
    check_shape(as_float_tensor(state_dist, "state_dist"), "S", "state_dist", S=rewards.num_states)
    return as_distribution(state_dist, "state_dist", rewards.device)
