"""The exact model of a Gymnasium environment that has one, or an estimate from experience; imports no Gymnasium itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.ops.linear import sparse_tensor
from cautious.seeding import check_seed, derive_seed
from cautious.validation import parse_count


class Model(NamedTuple):
    """The dynamics and the rewards of an environment."""

    transitions: Tensor
    """Sparse [S*A, S]."""
    initial_state_dist: Tensor
    """[S]."""
    rewards: Tensor
    """Expected reward of each (state, action), [S, A]; 0 where nothing is known."""
    visits: Tensor | None
    """How often each (state, action) was tried, [S, A], where the model is an estimate; None where it is exact."""


def read_model(env: Any, num_steps: int | None = None, seed: int = 0) -> Model:
    """The model of an environment with discrete states and actions.

    Where an episode ends, the model stays in one more state for ever, the last one, in which nothing is paid. It exists
    only if an episode can end at all.

    Args:
        env: FrozenLake, Taxi, CliffWalking or any other that offers its table ``P[state][action]`` of (probability, next
            state, reward, terminated); driving of this package; or any with discrete spaces, if `num_steps` says for how long
            to try random actions.
        num_steps: Steps of experience to estimate from, where there is no table. A pair that was never tried is taken to stay
            where it is.
        seed: Starts the experience.
    """
    check_seed(seed)
    steps = None if num_steps is None else parse_count(num_steps, "num_steps")
    bare = getattr(env, "unwrapped", env)
    world = getattr(bare, "world", None)
    if world is not None and hasattr(world, "mdp"):
        return Model(_as_sparse(world.mdp.transitions), world.mdp.initial_state_dist, world.features["reward"], None)
    num_states, num_actions = _sizes(bare)
    if hasattr(bare, "P"):
        start = torch.as_tensor(getattr(bare, "initial_state_distrib", _first(num_states)), dtype=torch.float64)
        return _joined(_listed(bare.P, num_states, num_actions), num_states, num_actions, start, None)
    if steps is None:
        raise InvalidInputError(
            f"{type(bare).__name__} offers no table of its transitions (P); pass num_steps to estimate one from experience."
        )
    return _experienced(env, num_states, num_actions, steps, seed)


def _sizes(env: Any) -> tuple[int, int]:
    counts = [getattr(getattr(env, name, None), "n", None) for name in ("observation_space", "action_space")]
    if any(count is None for count in counts):
        raise InvalidInputError(
            f"{type(env).__name__}: states and actions must be discrete (spaces.Discrete) for a tabular model."
        )
    return int(counts[0]), int(counts[1])  # type: ignore[arg-type]


def _first(num_states: int) -> Tensor:
    start = torch.zeros(num_states, dtype=torch.float64)
    start[0] = 1
    return start


Row = tuple[int, int, int, float, float, bool]
"""(state, action, next state, probability, reward, whether the episode ends)."""


def _listed(table: Any, num_states: int, num_actions: int) -> list[Row]:
    return [
        (state, action, int(following), float(chance), float(reward), bool(ends))
        for state in range(num_states)
        for action in range(num_actions)
        for chance, following, reward, ends in table[state][action]
    ]


def _joined(rows: list[Row], num_states: int, num_actions: int, start: Tensor, visits: Tensor | None) -> Model:
    """Transitions, start and expected rewards from a list of outcomes."""
    ends = any(row[5] for row in rows)
    size = num_states + int(ends)
    pair = torch.tensor([state * num_actions + action for state, action, *_ in rows])
    target = torch.tensor([num_states if row[5] else row[2] for row in rows])
    chance = torch.tensor([row[3] for row in rows], dtype=torch.float64)
    outcome_rewards = torch.tensor([row[4] for row in rows], dtype=torch.float64)
    rewards = torch.zeros(num_states * num_actions, dtype=torch.float64).index_add_(0, pair, chance * outcome_rewards)
    if ends:
        last = num_states * num_actions + torch.arange(num_actions)
        pair, target = torch.cat([pair, last]), torch.cat([target, torch.full((num_actions,), num_states)])
        chance = torch.cat([chance, torch.ones(num_actions, dtype=torch.float64)])
        rewards = torch.cat([rewards, torch.zeros(num_actions, dtype=torch.float64)])
        start = torch.cat([start, torch.zeros(1, dtype=torch.float64)])
    transitions = sparse_tensor(torch.stack([pair, target]), chance, (size * num_actions, size))
    return Model(transitions, start, rewards.reshape(size, num_actions), visits)


def _experienced(env: Any, num_states: int, num_actions: int, num_steps: int, seed: int) -> Model:
    """Counts of what random actions did."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "experience"))
    actions = torch.randint(num_actions, (num_steps,), generator=generator).tolist()
    starts = torch.zeros(num_states, dtype=torch.float64)
    outcomes: dict[tuple[int, int, int, bool], list[float]] = {}
    visits = torch.zeros(num_states, num_actions, dtype=torch.long)
    state, _ = env.reset(seed=derive_seed(seed, "environment") % 2**31)
    starts[state] += 1
    for action in actions:
        following, reward, terminated, truncated, _ = env.step(action)
        outcomes.setdefault((int(state), action, int(following), bool(terminated)), []).append(float(reward))
        visits[state, action] += 1
        state = following
        if terminated or truncated:
            state, _ = env.reset()
            starts[state] += 1
    rows: list[Row] = [
        (s, a, following, len(paid) / int(visits[s, a]), sum(paid) / len(paid), ends)
        for (s, a, following, ends), paid in outcomes.items()
    ]
    rows += [(int(s), int(a), int(s), 1.0, 0.0, False) for s, a in (visits == 0).nonzero()]
    return _joined(rows, num_states, num_actions, starts / starts.sum(), visits)


def _as_sparse(transitions: Tensor) -> Tensor:
    if transitions.layout != torch.strided:
        return transitions
    return transitions.flatten(0, 1).to_sparse()
