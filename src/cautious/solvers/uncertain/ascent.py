"""Memoryless policies that do well on average over a weighted mixture of models: local search from a given policy.

The best one is NP-hard to find. Coordinate ascent and dynamic programming (Su & Petrik, UAI 2023) changes the action of one
(stage, state) at a time to the best one, everything else fixed, weighing each model by how often it gets there:

    a(t, s) = argmax_a Σ_m w_m d_m(t, s) Q_m(t, s, a)

Every change raises the mixture's return, so the search ends in a policy that no change of a single action improves.
"""

from __future__ import annotations

import numpy as np

from cautious.compiling import compiled
from cautious.mdp.evaluation import _chain, _factorise, _solve, action_values, policy_reach
from cautious.solvers.uncertain.problem import UncertainProblem

MARGIN = 1e-12
"""An action must be better by this share of the values' size, so that rounding cannot make the search cycle."""
MOST_SWEEPS = 100


def ascend(problem: UncertainProblem, weights: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Actions [T, S] that no change of one action improves under a mixture of models, from a start [T, S].

    Args:
        problem: The world and the rewards.
        weights: How much each model counts, [M]; those with no weight are left out.
        actions: Where to start.
    """
    if problem.horizon is None and problem.dynamics.takes_sweeps:
        return _ascend_together(problem, weights, actions)
    counted = np.flatnonzero(weights > 0)
    first, successor, chance, start, discount = problem.dynamics
    chance, rewards = np.ascontiguousarray(chance[:, counted]), np.ascontiguousarray(problem.rewards[:, counted])
    result = np.ascontiguousarray(actions)
    share = weights[counted]
    if problem.horizon is None:
        return _ascend_stationary(first, successor, chance, rewards, start, discount, share, result[0].copy())[None]
    return _ascend_stages(first, successor, chance, rewards, start, discount, share, result.copy())


def _ascend_together(problem: UncertainProblem, weights: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """As `ascend` in worlds too large for an inverse per model: many states change at a time.

    The slope Σ_m w_m d_m(s) (Q_m(s, a) - V_m(s)) says which. All states with a better action change; while that does not raise
    the mixture's return, only the better half of them does.
    """
    current = problem.of_actions(actions)
    values = problem.values(current)
    worth = float(problem.dynamics.start @ values[0] @ weights)
    for _ in range(MOST_SWEEPS):
        reach = policy_reach(problem.dynamics, current, None)[0] * weights  # [S, M]
        q = action_values(problem.dynamics, problem.rewards, values, None)[0].reshape(*current.shape[1:], -1)
        slope = np.einsum("sam,sm->sa", q, reach) - np.einsum("sm,sm->s", values[0], reach)[:, None]
        size = np.einsum("sm,sm->s", np.abs(values[0]), reach)
        gain = slope.max(axis=1)
        states = np.flatnonzero(gain > MARGIN * size)
        states = states[np.argsort(-gain[states], kind="stable")]
        while len(states):
            changed = actions.copy()
            changed[0, states] = slope.argmax(axis=1)[states]
            tried = problem.of_actions(changed)
            found = problem.values(tried)
            if (better := float(problem.dynamics.start @ found[0] @ weights)) > worth + MARGIN * abs(worth):
                actions, current, values, worth = changed, tried, found, better
                break
            states = states[: len(states) // 2]
        else:
            break
    return actions


def mixed_values_policy(problem: UncertainProblem, weights: np.ndarray) -> np.ndarray:
    """Actions [T, S] that are best for the weighted values of all models, as if each kept its weight everywhere (WSU).

    Without a horizon: for the values of each model's own optimum.
    """
    num_stages, num_states, num_actions = problem.policy_shape
    values = np.zeros((num_states, problem.num_models)) if problem.horizon else problem.optima[0][0]
    actions = np.empty((num_stages, num_states), np.int64)
    for t in range(num_stages - 1, -1, -1):
        q = action_values(problem.dynamics, problem.rewards, values[None], None)[0]
        q = q.reshape(num_states, num_actions, -1)
        actions[t] = (q @ weights).argmax(axis=1)
        values = q[np.arange(num_states), actions[t]]
    return actions


def match_regret(
    problem: UncertainProblem, policy: np.ndarray, num_iterations: int, weights: np.ndarray | None = None
) -> list[np.ndarray]:
    """Iterates of regret matching+ in every (stage, state), each model weighed by its rank and by its own reach.

        R(t, s, a) += Σ_m w_m d_m(t, s) (Q_m(t, s, a) - V_m(t, s))

    It guarantees no regret against changes in one state only, but its iterates are policies that mix actions, which the ascent
    never finds: starts and columns for the double oracle.

    Args:
        problem: The world, the rewards and the rank weights.
        policy: Where to start, [T, S, A].
        num_iterations: How many.
        weights: A fixed mixture of models [M]; if not given, the rank weights of each iterate's returns.

    Returns:
        The iterate of the highest value, and ten others that are spread over the run; each [T, S, A].
    """
    shape = problem.policy_shape
    uniform = np.full(shape, 1 / shape[2])
    regret = np.zeros(shape)
    best, best_value, kept = policy, -np.inf, []
    for iteration in range(num_iterations):
        values = problem.values(policy)
        returns = problem.dynamics.start @ values[0] - problem.offset
        share = problem.ranked(returns) if weights is None else weights
        if (value := float(share @ returns)) > best_value:
            best, best_value = policy, value
        reach = policy_reach(problem.dynamics, policy, problem.horizon) * share
        q = action_values(problem.dynamics, problem.rewards, values, problem.horizon)
        q = q.reshape(*shape, -1)
        regret += np.einsum("tsm,tsam->tsa", reach, q) - np.einsum("tsm,tsm->ts", reach, values)[..., None]
        regret = np.maximum(regret, 0)
        total = regret.sum(axis=-1, keepdims=True)
        policy = np.where(total > 0, regret / np.where(total > 0, total, 1), policy if iteration == 0 else uniform)
        if (iteration + 1) % max(1, num_iterations // 10) == 0:
            kept.append(policy)
    return [best, *kept]


@compiled
def _ascend_stages(first, successor, chance, rewards, start, discount, weights, actions):  # type: ignore[no-untyped-def]
    num_stages, num_states = actions.shape
    num_models = chance.shape[1]
    num_actions = (len(first) - 1) // num_states
    reach = np.zeros((num_stages, num_states, num_models))
    values = np.zeros((num_stages + 1, num_states, num_models))
    q = np.empty((num_actions, num_models))
    for _ in range(MOST_SWEEPS):
        reach[:] = 0
        for s in range(num_states):
            for m in range(num_models):
                reach[0, s, m] = start[s] * weights[m]
        for t in range(num_stages - 1):
            for s in range(num_states):
                pair = s * num_actions + actions[t, s]
                for z in range(first[pair], first[pair + 1]):
                    for m in range(num_models):
                        reach[t + 1, successor[z], m] += chance[z, m] * reach[t, s, m]
        changed = False
        for t in range(num_stages - 1, -1, -1):
            for s in range(num_states):
                best, best_value = actions[t, s], 0.0
                # The current action comes first: another one must be better than it.
                for number in range(num_actions + 1):
                    a = actions[t, s] if number == 0 else number - 1
                    pair = s * num_actions + a
                    for m in range(num_models):
                        q[a, m] = rewards[pair, m]
                    for z in range(first[pair], first[pair + 1]):
                        for m in range(num_models):
                            q[a, m] += discount * chance[z, m] * values[t + 1, successor[z], m]
                    value, size = 0.0, 0.0
                    for m in range(num_models):
                        value += reach[t, s, m] * q[a, m]
                        size += reach[t, s, m] * abs(q[a, m])
                    if number == 0 or value > best_value + MARGIN * size:
                        best, best_value = a, value
                if best != actions[t, s]:
                    actions[t, s] = best
                    changed = True
                for m in range(num_models):
                    values[t, s, m] = q[best, m]
        if not changed:
            break
    return actions


@compiled
def _ascend_stationary(first, successor, chance, rewards, start, discount, weights, actions):  # type: ignore[no-untyped-def]
    """As `_ascend_stages`, where a state's action counts at all times: (I - γ P_π)⁻¹ follows each change (rank one)."""
    num_states, num_models = len(actions), chance.shape[1]
    num_actions = (len(first) - 1) // num_states
    inverse = np.empty((num_models, num_states, num_states))
    values, reach = np.empty((num_models, num_states)), np.empty((num_models, num_states))
    row = np.empty(num_states)
    for _ in range(MOST_SWEEPS):
        policy = np.zeros((num_states, num_actions))
        for s in range(num_states):
            policy[s, actions[s]] = 1
        for m in range(num_models):  # afresh in each sweep, so that rounding does not add up
            factors = _chain(first, successor, chance, discount, policy, m)
            _factorise(factors)
            for s in range(num_states):
                row[:] = 0
                row[s] = 1
                _solve(factors, row)
                inverse[m, :, s] = row
            values[m], reach[m] = 0, 0
            for i in range(num_states):
                for s in range(num_states):
                    values[m, i] += inverse[m, i, s] * rewards[s * num_actions + actions[s], m]
                    reach[m, s] += start[i] * inverse[m, i, s]
        changed = False
        for s in range(num_states):
            best, best_gain, size = actions[s], 0.0, 0.0
            for m in range(num_models):
                size += weights[m] * reach[m, s] * abs(values[m, s])
            for a in range(num_actions):
                gain = 0.0
                for m in range(num_models):
                    advantage, back = _change(
                        first, successor, chance, rewards, num_actions, inverse, values, m, s, actions[s], a
                    )
                    factor = 1 / (1 - discount * back)
                    gain += weights[m] * reach[m, s] * (advantage[0] + discount * advantage[1]) * factor
                if gain > best_gain + MARGIN * size:
                    best, best_gain = a, gain
            if best != actions[s]:
                changed = True
                for m in range(num_models):
                    advantage, back = _change(
                        first, successor, chance, rewards, num_actions, inverse, values, m, s, actions[s], best
                    )
                    factor = 1 / (1 - discount * back)
                    row[:] = 0  # (p_best - p_now) (I - γ P)⁻¹
                    for sign, a in ((1.0, best), (-1.0, actions[s])):
                        pair = s * num_actions + a
                        for z in range(first[pair], first[pair + 1]):
                            for j in range(num_states):
                                row[j] += sign * chance[z, m] * inverse[m, successor[z], j]
                    step, there = (advantage[0] + discount * advantage[1]) * factor, reach[m, s]
                    for i in range(num_states):
                        column = inverse[m, i, s]
                        values[m, i] += step * column
                        if column != 0:
                            for j in range(num_states):
                                inverse[m, i, j] += discount * factor * column * row[j]
                    for j in range(num_states):
                        reach[m, j] += discount * factor * there * row[j]
                actions[s] = best
        if not changed:
            break
    return actions


@compiled
def _change(first, successor, chance, rewards, num_actions, inverse, values, m, s, now, other):  # type: ignore[no-untyped-def]
    """What action `other` in place of `now` changes in state s of model m.

    Returns:
        ((difference of the rewards, of the expected next values), of the expected next return to s).
    """
    reward = rewards[s * num_actions + other, m] - rewards[s * num_actions + now, m]
    future, back = 0.0, 0.0
    for sign, a in ((1.0, other), (-1.0, now)):
        pair = s * num_actions + a
        for z in range(first[pair], first[pair + 1]):
            future += sign * chance[z, m] * values[m, successor[z]]
            back += sign * chance[z, m] * inverse[m, successor[z], s]
    return (reward, future), back
