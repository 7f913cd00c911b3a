"""k-of-N counterfactual regret minimisation.

One iteration, in the paper's order:

1. the opponent draws N reward models, ranks them by the current policy's value and answers with the mean of the k worst;
2. the regret of each action in each state under that answer joins the cumulative regret;
3. the next policy is proportional to positive cumulative regret.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cautious.ops.regret import UPDATES, instantaneous_regret
from cautious.ops.simplex import regret_matching, uniform_policy
from cautious.progress import Progress
from cautious.solvers.adversary import Adversary, Response
from cautious.types import Update


@dataclass
class CFRState:
    """What the next iteration needs."""

    policy: Tensor
    """π^t, [B, S, A]."""
    cumulative_regret: Tensor
    """P^T, [B, S, A]."""


@dataclass
class History:
    """What a person wants to see of the iterations; filled in place."""

    policy_sum: Tensor
    """Σ_t d_t(s) π_t(a|s), [B, S, A]; `plain_sum` itself where every state is a problem of its own."""
    plain_sum: Tensor
    """Σ_t π_t(a|s), also for states that no iterate ever reaches."""
    signed_regret: Tensor
    """Σ_t P^t, unclipped whatever the update, [B, S, A]."""
    best_policy: Tensor
    best_value: Tensor
    sampled_value: Tensor
    """[T, B], as the two below. Rows of one array: thousands of small ones between the large would keep freed memory apart."""
    exact_value: Tensor
    """NaN where it is not tracked."""
    regret: Tensor
    num_settled: int = 0
    """Rows of `exact_value` that are filled."""

    def average_policy(self) -> Tensor:
        """The occupancy-weighted average of the iterates: its return is the average of their returns."""
        weight = self.policy_sum.sum(dim=-1, keepdim=True)
        reached = weight > 1e-13 * len(self.regret)  # below that an occupancy is rounding, not a visit
        return torch.where(reached, self.policy_sum, self.plain_sum) / torch.where(reached, weight, len(self.regret))

    def update_best(self, policy: Tensor, value: Tensor) -> None:
        """Take over policies [B, S, A] where no value so far ([B], or [B, S] a state) is higher than theirs.

        Of equally good ones the later: in states that the value does not depend on, it has come further.
        """
        better = value >= self.best_value
        chosen = better.reshape(better.shape + (1,) * (policy.dim() - better.dim()))
        self.best_policy = torch.where(chosen, policy, self.best_policy)
        self.best_value = torch.where(better, value, self.best_value)


def step(state: CFRState, response: Response, update: Update) -> tuple[CFRState, Tensor]:
    """One regret-matching step against the opponent's answer; also returns this iteration's regret [B, S, A]."""
    regret = instantaneous_regret(response.action_values, state.policy)  # P^t
    cumulative_regret = UPDATES[update](state.cumulative_regret, regret)  # P^T
    return CFRState(regret_matching(cumulative_regret), cumulative_regret), regret


def minimise_regret(
    adversary: Adversary,
    shape: tuple[int, int, int],
    device: torch.device,
    *,
    num_iterations: int,
    update: Update,
    progress: Progress | None = None,
) -> tuple[CFRState, History]:
    """T iterations from the uniform policy for a whole batch of levels and runs at once.

    Args:
        adversary: Answers policies.
        shape: (B, S, A).
        device: Where to compute.
        num_iterations: T.
        update: How regret accumulates.
        progress: Told after each iteration.

    Returns:
        The last state, and the history of the iterates π^1 .. π^T.
    """
    zeros = torch.zeros(shape, dtype=torch.float64, device=device)
    state = CFRState(uniform_policy(*shape, device=device), zeros)
    history: History | None = None
    for t in range(num_iterations):
        response = adversary.respond(state.policy, t)
        if history is None:
            lowest, plain = torch.full_like(response.sampled_value, -torch.inf), zeros.clone()
            weighted = plain if response.occupancy is None else zeros.clone()
            sampled, exact, regrets = (zeros.new_full((num_iterations, shape[0]), torch.nan) for _ in range(3))
            history = History(weighted, plain, zeros.clone(), state.policy, lowest, sampled, exact, regrets)
        _note(history, state.policy, response, t)
        state, regret = step(state, response, update)
        for policy, value in adversary.flush_exact_values(last=t + 1 == num_iterations):
            history.exact_value[history.num_settled] = _over_states(value)
            history.num_settled += 1
            history.update_best(policy, value)
        history.signed_regret += regret
        history.regret[t] = history.signed_regret.amax(dim=(1, 2))
        if progress is not None:
            progress(t + 1, num_iterations)
    assert history is not None
    return state, history


def _note(history: History, policy: Tensor, response: Response, t: int) -> None:
    """Add iterate `t` and its answer to the history."""
    history.plain_sum += policy
    if response.occupancy is not None:
        history.policy_sum += response.occupancy.unsqueeze(-1) * policy
    history.sampled_value[t] = _over_states(response.sampled_value)


def _over_states(value: Tensor) -> Tensor:
    """[B] as it is; [B, S] as its mean over states."""
    return value if value.dim() == 1 else value.mean(dim=-1)
