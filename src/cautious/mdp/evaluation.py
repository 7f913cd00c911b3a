"""Policies in all models of an uncertain world at once, in machine code: values, and how often each model gets anywhere.

A stationary policy is a policy of one stage. Values and reaches are then solutions of linear systems, one per model: by LU
factors in small worlds, by sweeps over all states where these take fewer steps (`takes_sweeps`). With a horizon they are one
sweep over the stages. All are in units of the rewards that are passed (`UncertainMDP.scaled_rewards`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cautious.compiling import compiled

SWEPT = 1e-13
"""Share of their size by which values and reaches that sweeps find may be off."""
CHECK = 8
"""Sweeps between two looks at how much still changes."""


class Dynamics(NamedTuple):
    """Transitions of M models in shared places (`mdp.uncertain`), start and discount."""

    first: np.ndarray
    """Where the places of each pair s*A + a begin, [S*A + 1]."""
    successor: np.ndarray
    """The state that each place leads to, [Z]."""
    chance: np.ndarray
    """Probability of each place in each model, [Z, M]."""
    start: np.ndarray
    """Initial state distribution, [S]."""
    discount: float

    @property
    def num_sweeps(self) -> int:
        """Sweeps after which values without a horizon are as exact as `SWEPT` says: the error falls by γ in each."""
        return 1 if self.discount == 0 else math.ceil(math.log(SWEPT * (1 - self.discount)) / math.log(self.discount))

    @property
    def takes_sweeps(self) -> bool:
        """Whether sweeps are quicker than factors: K sweeps over Z/A places each, against S³/3 steps of an LU in each model.

        Searches by sweeps evaluate more policies, about four times as many: from 100 sparse states on they are quicker.
        """
        num_pairs, num_states = len(self.first) - 1, len(self.start)
        return 4 * 3 * self.num_sweeps * len(self.successor) * num_states < num_pairs * num_states**3

    @property
    def work(self) -> int:
        """Steps of evaluating one stationary policy in all models, roughly."""
        num_states, num_models = len(self.start), self.chance.shape[1]
        return num_models * (self.num_sweeps * len(self.successor) if self.takes_sweeps else num_states**3)


def policy_values(dynamics: Dynamics, rewards: np.ndarray, policy: np.ndarray, horizon: int | None) -> np.ndarray:
    """Values V[t, s, m] of a policy [T, S, A] from each stage and state, [T, S, M]; T = 1 where it is stationary."""
    first, successor, chance, _, discount = dynamics
    if horizon is None and dynamics.takes_sweeps:
        return _swept_values(first, successor, chance, rewards, discount, policy[0], dynamics.num_sweeps)[None]
    if horizon is None:
        return _stationary_values(first, successor, chance, rewards, discount, policy[0])[None]
    return _stage_values(first, successor, chance, rewards, discount, policy)


def policy_reach(dynamics: Dynamics, policy: np.ndarray, horizon: int | None) -> np.ndarray:
    """Discounted reach d[t, s, m] = Σ γ^t P_m[S_t = s] of a policy [T, S, A]: [T, S, M]; summed over time if stationary."""
    first, successor, chance, start, discount = dynamics
    if horizon is None and dynamics.takes_sweeps:
        return _swept_reach(first, successor, chance, start, discount, policy[0], dynamics.num_sweeps)[None]
    if horizon is None:
        return _stationary_reach(first, successor, chance, start, discount, policy[0])[None]
    return _stage_reach(first, successor, chance, start, discount, policy)


def action_values(dynamics: Dynamics, rewards: np.ndarray, values: np.ndarray, horizon: int | None) -> np.ndarray:
    """Q[t, pair, m] = r + γ Σ P_m V[t + 1] from values [T, S, M]; the last stage is followed by nothing: [T, S*A, M]."""
    following = values if horizon is None else np.concatenate([values[1:], np.zeros_like(values[:1])])
    first, successor, chance, _, discount = dynamics
    return _backed_up(first, successor, chance, rewards, discount, following)


def optimal_values(dynamics: Dynamics, rewards: np.ndarray, horizon: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Each model's own optimum: values [T, S, M] and actions [T, S, M]; T = 1 without a horizon."""
    first, successor, chance, start, discount = dynamics
    if horizon is None:
        if dynamics.takes_sweeps:
            values, actions = _swept_optimum(
                first, successor, chance, rewards, discount, len(start), dynamics.num_sweeps
            )
        else:
            values, actions = _stationary_optimum(first, successor, chance, rewards, discount, len(start))
        return values[None], actions[None]
    return _stage_optimum(first, successor, chance, rewards, discount, len(start), horizon)


@compiled
def _stage_values(first, successor, chance, rewards, discount, policy):  # type: ignore[no-untyped-def]
    num_stages, num_states, num_actions = policy.shape
    num_models = chance.shape[1]
    values = np.zeros((num_stages + 1, num_states, num_models))
    for t in range(num_stages - 1, -1, -1):
        for s in range(num_states):
            for a in range(num_actions):
                share, pair = policy[t, s, a], s * num_actions + a
                if share > 0:
                    for m in range(num_models):
                        values[t, s, m] += share * rewards[pair, m]
                    for z in range(first[pair], first[pair + 1]):
                        for m in range(num_models):
                            values[t, s, m] += share * discount * chance[z, m] * values[t + 1, successor[z], m]
    return values[:num_stages]


@compiled
def _stage_reach(first, successor, chance, start, discount, policy):  # type: ignore[no-untyped-def]
    num_stages, num_states, num_actions = policy.shape
    num_models = chance.shape[1]
    reach = np.zeros((num_stages, num_states, num_models))
    for s in range(num_states):
        reach[0, s, :] = start[s]
    for t in range(num_stages - 1):
        for s in range(num_states):
            for a in range(num_actions):
                share, pair = policy[t, s, a], s * num_actions + a
                if share > 0:
                    for z in range(first[pair], first[pair + 1]):
                        for m in range(num_models):
                            reach[t + 1, successor[z], m] += share * discount * chance[z, m] * reach[t, s, m]
    return reach


@compiled
def _backed_up(first, successor, chance, rewards, discount, following):  # type: ignore[no-untyped-def]
    num_stages, num_models = following.shape[0], chance.shape[1]
    num_pairs = len(first) - 1
    result = np.empty((num_stages, num_pairs, num_models))
    for t in range(num_stages):
        for pair in range(num_pairs):
            for m in range(num_models):
                result[t, pair, m] = rewards[pair, m]
            for z in range(first[pair], first[pair + 1]):
                for m in range(num_models):
                    result[t, pair, m] += discount * chance[z, m] * following[t, successor[z], m]
    return result


@compiled
def _stage_optimum(first, successor, chance, rewards, discount, num_states, horizon):  # type: ignore[no-untyped-def]
    num_models, num_pairs = chance.shape[1], len(first) - 1
    values = np.zeros((horizon + 1, num_states, num_models))
    actions = np.zeros((horizon, num_states, num_models), np.int64)
    num_actions = num_pairs // num_states
    for t in range(horizon - 1, -1, -1):
        action_value = _backed_up(first, successor, chance, rewards, discount, values[t + 1 : t + 2])[0]
        for s in range(num_states):
            for m in range(num_models):
                best = 0
                for a in range(1, num_actions):
                    if action_value[s * num_actions + a, m] > action_value[s * num_actions + best, m]:
                        best = a
                values[t, s, m] = action_value[s * num_actions + best, m]
                actions[t, s, m] = best
    return values[:horizon], actions


@compiled
def _chain(first, successor, chance, discount, policy, model):  # type: ignore[no-untyped-def]
    """I - γ P_π of one model, [S, S]."""
    num_states, num_actions = policy.shape
    system = np.eye(num_states)
    for s in range(num_states):
        for a in range(num_actions):
            share, pair = policy[s, a], s * num_actions + a
            if share > 0:
                for z in range(first[pair], first[pair + 1]):
                    system[s, successor[z]] -= discount * share * chance[z, model]
    return system


@compiled
def _factorise(system):  # type: ignore[no-untyped-def]
    """LU factors in place. The diagonal of I - γ P dominates its row, so that it is a safe pivot."""
    size = len(system)
    for k in range(size):
        for i in range(k + 1, size):
            if system[i, k] != 0:
                system[i, k] /= system[k, k]
                for j in range(k + 1, size):
                    system[i, j] -= system[i, k] * system[k, j]


@compiled
def _solve(factors, x):  # type: ignore[no-untyped-def]
    """In place, x becomes A⁻¹ x."""
    size = len(x)
    for i in range(size):
        for j in range(i):
            x[i] -= factors[i, j] * x[j]
    for i in range(size - 1, -1, -1):
        for j in range(i + 1, size):
            x[i] -= factors[i, j] * x[j]
        x[i] /= factors[i, i]


@compiled
def _solve_transposed(factors, x):  # type: ignore[no-untyped-def]
    """In place, x becomes A⁻ᵀ x."""
    size = len(x)
    for i in range(size):
        x[i] /= factors[i, i]
        for j in range(i + 1, size):
            x[j] -= factors[i, j] * x[i]
    for i in range(size - 1, -1, -1):
        for j in range(i):
            x[j] -= factors[i, j] * x[i]


@compiled
def _stationary_values(first, successor, chance, rewards, discount, policy):  # type: ignore[no-untyped-def]
    num_states, num_actions = policy.shape
    num_models = chance.shape[1]
    values = np.empty((num_states, num_models))
    for m in range(num_models):
        factors = _chain(first, successor, chance, discount, policy, m)
        _factorise(factors)
        x = np.zeros(num_states)
        for s in range(num_states):
            for a in range(num_actions):
                x[s] += policy[s, a] * rewards[s * num_actions + a, m]
        _solve(factors, x)
        values[:, m] = x
    return values


@compiled
def _stationary_reach(first, successor, chance, start, discount, policy):  # type: ignore[no-untyped-def]
    num_models = chance.shape[1]
    reach = np.empty((len(policy), num_models))
    for m in range(num_models):
        factors = _chain(first, successor, chance, discount, policy, m)
        _factorise(factors)
        x = start.copy()
        _solve_transposed(factors, x)
        reach[:, m] = x
    return reach


@compiled
def _stationary_optimum(first, successor, chance, rewards, discount, num_states):  # type: ignore[no-untyped-def]
    """Policy iteration in each model; the margin keeps rounding from making it cycle."""
    num_models, num_pairs = chance.shape[1], len(first) - 1
    num_actions = num_pairs // num_states
    values = np.empty((num_states, num_models))
    actions = np.zeros((num_states, num_models), np.int64)
    for m in range(num_models):
        margin = 1e-13 * np.abs(rewards[:, m]).max() / (1 - discount)
        changed = True
        while changed:
            changed = False
            policy = np.zeros((num_states, num_actions))
            for s in range(num_states):
                policy[s, actions[s, m]] = 1
            factors = _chain(first, successor, chance, discount, policy, m)
            _factorise(factors)
            x = np.empty(num_states)
            for s in range(num_states):
                x[s] = rewards[s * num_actions + actions[s, m], m]
            _solve(factors, x)
            values[:, m] = x
            for s in range(num_states):
                best = x[s] + margin
                for a in range(num_actions):
                    pair = s * num_actions + a
                    value = rewards[pair, m]
                    for z in range(first[pair], first[pair + 1]):
                        value += discount * chance[z, m] * x[successor[z]]
                    if value > best:
                        best, changed = value, True
                        actions[s, m] = a
    return values, actions


@compiled
def _swept_values(first, successor, chance, rewards, discount, policy, num_sweeps):  # type: ignore[no-untyped-def]
    """Gauss and Seidel: V(s) <- r + γ P V, each state with the newest values of the others, all models side by side."""
    num_states, num_actions = policy.shape
    num_models = chance.shape[1]
    values, row = np.zeros((num_states, num_models)), np.empty(num_models)
    for sweep in range(num_sweeps):
        checks, change, size = (sweep + 1) % CHECK == 0, 0.0, 0.0
        for s in range(num_states):
            row[:] = 0
            for a in range(num_actions):
                share, pair = policy[s, a], s * num_actions + a
                if share > 0:
                    for m in range(num_models):
                        row[m] += share * rewards[pair, m]
                    for z in range(first[pair], first[pair + 1]):
                        for m in range(num_models):
                            row[m] += share * discount * chance[z, m] * values[successor[z], m]
            if checks:
                for m in range(num_models):
                    change, size = max(change, abs(row[m] - values[s, m])), max(size, abs(row[m]))
            values[s] = row
        if checks and change <= SWEPT * (1 - discount) * size:
            break
    return values


@compiled
def _swept_reach(first, successor, chance, start, discount, policy, num_sweeps):  # type: ignore[no-untyped-def]
    """What has arrived in a state counts, and moves on at once, until hardly anything moves."""
    num_states, num_actions = policy.shape
    num_models = chance.shape[1]
    reach, arrived = np.zeros((num_states, num_models)), np.empty((num_states, num_models))
    for s in range(num_states):
        arrived[s, :] = start[s]
    leaving = np.empty(num_models)
    for sweep in range(num_sweeps):
        for s in range(num_states):
            leaving[:] = arrived[s]
            arrived[s] = 0
            for m in range(num_models):
                reach[s, m] += leaving[m]
            for a in range(num_actions):
                share, pair = policy[s, a], s * num_actions + a
                if share > 0:
                    for z in range(first[pair], first[pair + 1]):
                        for m in range(num_models):
                            arrived[successor[z], m] += share * discount * chance[z, m] * leaving[m]
        if (sweep + 1) % CHECK == 0 and arrived.max() <= SWEPT * (1 - discount) / num_states:
            break
    return reach


@compiled
def _swept_optimum(first, successor, chance, rewards, discount, num_states, num_sweeps):  # type: ignore[no-untyped-def]
    """Value iteration in each model from above, so that no value is below the optimum's by more than rounding."""
    num_models, num_actions = chance.shape[1], (len(first) - 1) // num_states
    values, actions = np.empty((num_states, num_models)), np.zeros((num_states, num_models), np.int64)
    for m in range(num_models):
        values[:, m] = rewards[:, m].max() / (1 - discount)
    row, best = np.empty(num_models), np.empty(num_models)
    for sweep in range(num_sweeps):
        checks, change, size = (sweep + 1) % CHECK == 0, 0.0, 0.0
        for s in range(num_states):
            best[:] = -np.inf
            for a in range(num_actions):
                pair = s * num_actions + a
                row[:] = rewards[pair]
                for z in range(first[pair], first[pair + 1]):
                    for m in range(num_models):
                        row[m] += discount * chance[z, m] * values[successor[z], m]
                for m in range(num_models):
                    if row[m] > best[m]:
                        best[m] = row[m]
                        actions[s, m] = a
            if checks:
                for m in range(num_models):
                    change, size = max(change, values[s, m] - best[m]), max(size, abs(best[m]))
            values[s] = best
        if checks and change <= SWEPT * (1 - discount) * size:
            break
    return values, actions
