"""k-of-N counterfactual regret minimisation, from beginning to end.

One iteration, with the lines of the paper's Algorithm 1 (`step`):

    x(s,a) = d(s) π(a|s)                            occupancy of the current policy                    line 7
    r̄ = mixture of the worst models for x           the adversary's answer (`solvers.adversary`)       lines 6 to 8
    q(s,a) = (1-γ) r̄(s,a) + γ Σ_s' P(s'|s,a) v(s')   action values under r̄; r̄ itself in a bandit         section 5
    P^t(s,a) = q(s,a) - Σ_b π(b|s) q(s,b)           regret of this iteration                           line 9
    P^T = P^{T-1} + P^t                             cumulative regret (or another `Update`)            line 10
    π(a|s) ∝ max(0, P^T(s,a))                       next policy: regret matching                       line 11

`init` is line 4: no regret, the uniform policy. `minimise_regret` is the loop of line 5; it also records the averages, the
best policy and the trace (`History`). Every array has a leading dimension B: all levels and runs are solved together.

Where CFR's counterfactual weight is: nowhere. CFR for extensive-form games weighs the regret of a decision point with the
probability that chance and the other players reach it. The paper extends k-of-N CFR to continuing MDPs "in terms of expected
returns rather than counterfactual values" (section 5): regret in state s is the advantage of an action there, not multiplied by
any probability of reaching s. The guarantee stands nevertheless, by the performance difference lemma (Lemma 1): for every π',

    return(π'; r^t) - return(π^t; r^t) = 1/(1-γ) Σ_s d_π'(s) Σ_a π'(a|s) P^t(s,a)

Summed over t the right side is at most C^T / (1-γ) if no Σ_t P^t(s,a) exceeds C^T (Theorem 1), whatever d_π' is: transitions
are known, so d_π' does not change with t. The factor d(s) of x = d π is used to rank models, not to weigh regrets.

What is solved is a `Problem`: a game (how a policy is evaluated), M reward functions, and levels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from cautious.mdp.tabular import TabularMDP
from cautious.ops.bellman import PolicyEvaluation, Transitions
from cautious.ops.regret import RULES, accumulate, instantaneous_regret, regret_matching, uniform_policy
from cautious.progress import Progress
from cautious.solvers.adversary import Adversary, JointAdversary, PerStateAdversary, SolveBatch, queued
from cautious.solvers.kernels import plays_on_gpu
from cautious.solvers.optimal import optimal_return_bound
from cautious.solvers.rewards import Rewards
from cautious.types import Sampling, Update


class Evaluation(NamedTuple):
    """A batch of policies, evaluated in a game."""

    occupancy: Tensor
    """x(s,a) = d(s) π(a|s), [B, S, A]: the return under any reward function r is Σ_s,a x(s,a) r(s,a)."""
    action_values: Callable[[Tensor], Tensor]
    """Normalised q(s,a) under a reward function: [B, S, A] -> [B, S, A]."""


@dataclass(frozen=True, eq=False)
class BanditGame:
    """States drawn from a fixed distribution, which actions do not change (γ = 0)."""

    per_state: ClassVar[bool] = False
    state_dist: Tensor
    """Probability of each state, [S]."""

    def evaluate(self, policy: Tensor) -> Evaluation:
        """Occupancy is the state distribution times the policy; an action's value is its reward."""
        return Evaluation(self.state_dist.unsqueeze(-1) * policy, action_values=lambda reward: reward)

    def best_return(self, reward: Tensor) -> Tensor:
        """The ordinary optimum: the best action in each state, averaged over states; [B, S, A] -> [B]."""
        return (self.state_dist * reward.amax(dim=-1)).sum(dim=-1)


@dataclass(frozen=True, eq=False)
class PerStateGame:
    """The single-state regime: each state is a bandit of its own, visited for sure."""

    per_state: ClassVar[bool] = True

    def evaluate(self, policy: Tensor) -> Evaluation:
        """With d(s) = 1 the occupancy is the policy; an action's value is its reward."""
        return Evaluation(policy, action_values=lambda reward: reward)

    def best_return(self, reward: Tensor) -> Tensor:
        """The ordinary optimum of each state: [B, S, A] -> [B, S]."""
        return reward.amax(dim=-1)


@dataclass(frozen=True, eq=False)
class MDPGame:
    """A continuing MDP; each policy is evaluated by one factorisation of I - γ P_π."""

    per_state: ClassVar[bool] = False
    mdp: TabularMDP
    device: torch.device

    def evaluate(self, policy: Tensor) -> Evaluation:
        """One factorisation gives the occupancy now and action values on demand."""
        evaluation = PolicyEvaluation(self._dynamics, policy, self.mdp.discount)
        state_dist = evaluation.occupancy(self.mdp.initial_state_dist.to(self.device))  # d(s), [B, S]
        return Evaluation(state_dist.unsqueeze(-1) * policy, evaluation.action_values)

    def best_return(self, reward: Tensor) -> Tensor:
        """The ordinary optimum by policy iteration, or a little more, never less: [B, S, A] -> [B]."""
        return optimal_return_bound(self.mdp, reward)

    @cached_property
    def _dynamics(self) -> Transitions:
        return self.mdp.dynamics.to(self.device)


Game = BanditGame | PerStateGame | MDPGame


class Problem(NamedTuple):
    """A k-of-N problem: a game, M reward functions for it, and the levels and runs that are solved together."""

    game: Game
    rewards: Rewards
    batch: SolveBatch

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, S, A)."""
        return self.batch.size, self.rewards.num_states, self.rewards.num_actions

    @property
    def adversary_type(self) -> type[JointAdversary] | type[PerStateAdversary]:
        """Who answers policies: models are ranked in each state, or over all of them together."""
        return PerStateAdversary if self.game.per_state else JointAdversary

    def exact_value(self, policy: Tensor) -> Tensor:
        """Exact k-of-N value over all M models: [B, S, A] -> [B], or [B, S] in the single-state regime."""
        return self.adversary_type(self.rewards, self.batch).exact_value(self.game.evaluate(policy).occupancy)


class CFRState(NamedTuple):
    """What the next iteration needs."""

    policy: Tensor
    """π^t, [B, S, A]."""
    cumulative_regret: Tensor
    """P^T, [B, S, A]."""


class CFRInfo(NamedTuple):
    """What one iteration computed, for the history."""

    occupancy: Tensor
    """x(s,a) of the policy that was evaluated, [B, S, A]."""
    sampled_value: Tensor
    """Its value under the adversary's answer: [B], or [B, S] in the single-state regime."""
    regret: Tensor
    """P^t, [B, S, A]."""


def init(problem: Problem) -> CFRState:
    """The uniform policy and no regret (Alg. 1, line 4; the paper leaves the first policy open, deviation D2)."""
    policy = uniform_policy(*problem.shape, device=problem.rewards.device)
    return CFRState(policy, torch.zeros_like(policy))


def step(game: Game, adversary: Adversary, state: CFRState, t: int, update: Update) -> tuple[CFRState, CFRInfo]:
    """Iteration `t`: evaluate the policy, let the adversary answer, match the regret."""
    occupancy, action_values_under = game.evaluate(state.policy)  # x = d π
    response = adversary.respond(occupancy, t)  # lines 6 to 8: r̄, and the policy's value under it
    action_values = action_values_under(response.reward)  # q
    regret = instantaneous_regret(action_values, state.policy)  # line 9: P^t
    rule = RULES[update](t)
    cumulative_regret = accumulate(state.cumulative_regret, regret, rule)  # line 10: P^T
    expected = cumulative_regret + rule.prediction * regret if rule.prediction else cumulative_regret
    policy = regret_matching(expected)  # line 11
    return CFRState(policy, cumulative_regret), CFRInfo(occupancy, response.value, regret)


@dataclass
class History:
    """What is recorded of the iterates π^1 .. π^T; filled in place.

    `record` adds what every iteration gives. `track` adds exact values, which may come some iterations later, because the
    adversary ranks all models for many iterates at once.
    """

    occupancy_sum: Tensor
    """Σ_t x_t(s,a), [B, S, A]."""
    policy_sum: Tensor
    """Σ_t π_t(a|s), [B, S, A], for states that no iterate ever reaches."""
    signed_regret: Tensor
    """Σ_t P^t, unclipped whatever the update, [B, S, A]."""
    best_policy: Tensor
    """The iterate of highest exact value, [B, S, A]; the first where none is tracked."""
    best_value: Tensor
    """Its exact value: [B], or [B, S] in the single-state regime; -∞ where none is tracked."""
    sampled_value: Tensor
    """[T, B], as the next two. Rows of one array: thousands of small ones between the large would fragment the memory."""
    exact_value: Tensor
    """NaN where it is not tracked."""
    largest_regret: Tensor
    waiting: deque[Tensor] = field(default_factory=deque)
    """Iterates whose exact values are not known yet."""
    num_exact: int = 0
    """Rows of `exact_value` that are filled."""

    @classmethod
    def empty(cls, state: CFRState, num_iterations: int) -> History:
        """Room for T iterations that begin in `state`."""
        zeros = torch.zeros_like(state.policy)
        no_values = state.policy.new_full((num_iterations, len(state.policy)), torch.nan)
        return cls(
            occupancy_sum=zeros,
            policy_sum=zeros.clone(),
            signed_regret=zeros.clone(),
            best_policy=state.policy,
            best_value=state.policy.new_tensor(-torch.inf),
            sampled_value=no_values,
            exact_value=no_values.clone(),
            largest_regret=no_values.clone(),
        )

    def record(self, t: int, policy: Tensor, info: CFRInfo) -> None:
        """Add iterate `t`."""
        self.occupancy_sum += info.occupancy
        self.policy_sum += policy
        self.sampled_value[t] = mean_over_states(info.sampled_value)
        self.signed_regret += info.regret
        self.largest_regret[t] = self.signed_regret.amax(dim=(1, 2))

    def track(self, policy: Tensor, known_values: list[Tensor]) -> None:
        """Let `policy` wait for its exact value, and add the values known by now, of those that have waited longest."""
        self.waiting.append(policy)
        for value in known_values:
            self.exact_value[self.num_exact] = mean_over_states(value)
            self.num_exact += 1
            self.best_policy, self.best_value = better_policy(
                self.waiting.popleft(), value, self.best_policy, self.best_value
            )

    def average_policy(self) -> Tensor:
        """The average of the iterates weighted by occupancy: its return is the average of their returns."""
        num_iterations = len(self.largest_regret)
        weight = self.occupancy_sum.sum(dim=-1, keepdim=True)
        reached = weight > 1e-13 * num_iterations  # below that an occupancy is rounding, not a visit
        total = torch.where(reached, self.occupancy_sum, self.policy_sum)
        return total / torch.where(reached, weight, num_iterations)


def better_policy(policy: Tensor, value: Tensor, best: Tensor, best_value: Tensor) -> tuple[Tensor, Tensor]:
    """`policy` [B, S, A] where its value ([B], or [B, S] per state) is at least the best so far, with that value.

    On ties keep the later iterate: it is closer to converged in states that do not affect the value.
    """
    better = value >= best_value
    chosen = better.reshape(better.shape + (1,) * (policy.dim() - better.dim()))
    return torch.where(chosen, policy, best), torch.where(better, value, best_value)


def mean_over_states(value: Tensor) -> Tensor:
    """[B] as it is; [B, S] as its mean over states."""
    return value if value.dim() == 1 else value.mean(dim=-1)


class CFRResult(NamedTuple):
    """What T iterations give."""

    policy: Tensor
    """The last iterate, π^{T+1}, [B, S, A]."""
    history: History
    mixtures: Tensor | None
    """The adversary's average mixtures [W, B, S, A]; None where exact weights were not tracked."""


class CFROptions(NamedTuple):
    """How to iterate."""

    num_iterations: int
    """T."""
    sampling: Sampling
    """The paper's queue, or exact rank weights."""
    update: Update
    """How regret accumulates."""
    seed: int = 0
    """Starts the queues."""
    track_exact: bool = True
    """Whether to rank all M models in every iteration, for exact values and the adversary's mixtures."""
    progress: Progress | None = None
    """Called as the work advances with (done, total)."""


def minimise_regret(problem: Problem, options: CFROptions) -> CFRResult:
    """T iterations of k-of-N CFR for a batch of levels and runs.

    Single states of an array are played by compiled code on the CPU and by a kernel on a GPU, all else by
    `minimise_regret_of_all`.
    """
    if problem.game.per_state and not problem.rewards.streamed:
        if problem.rewards.device.type == "cpu":
            from cautious.solvers.recorded_states import minimise_regret_in_states  # loads the compiler

            return minimise_regret_in_states(problem, options)
        # A program works on all models of a state if it ranks them all, otherwise on those of a draw.
        ranks_all = options.track_exact or options.sampling is Sampling.EXACT
        most = problem.rewards.num_models if ranks_all else max(queued(level).n for level in problem.batch.levels)
        if plays_on_gpu(problem.rewards.device, most, problem.rewards.num_actions):
            from cautious.solvers.kernels.state_games import minimise_regret_on_gpu  # needs Triton

            return minimise_regret_on_gpu(problem, options)
    return minimise_regret_of_all(problem, options)


def minimise_regret_of_all(problem: Problem, options: CFROptions) -> CFRResult:
    """As `minimise_regret`, one iteration of all states after another, in tensors on any device."""
    num_iterations, sampling, update, seed, track_exact, progress = options
    adversary = problem.adversary_type(
        problem.rewards,
        problem.batch,
        sampling=sampling,
        seed=seed,
        num_iterations=num_iterations,
        track_exact=track_exact,
    )
    state = init(problem)
    history = History.empty(state, num_iterations)
    for t in range(num_iterations):
        next_state, info = step(problem.game, adversary, state, t, update)
        history.record(t, state.policy, info)  # π^t, the policy that was evaluated, not the one that the step ends with
        if adversary.tracks_exact:
            history.track(state.policy, adversary.pop_exact_values(last=t + 1 == num_iterations))
        state = next_state
        if progress is not None:
            progress(t + 1, num_iterations)
    return CFRResult(state.policy, history, adversary.average_mixtures())
