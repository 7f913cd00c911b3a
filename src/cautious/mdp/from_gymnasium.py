"""The exact model of a Gymnasium environment that has one, or an estimate from experience; imports no Gymnasium itself.

Wrappers count: what an environment shows and does is what its outermost wrapper shows and does. The table of transitions of an
inner environment is read only through wrappers that are known to change neither (`TRANSPARENT`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cautious.errors import CoverageWarning, InvalidInputError
from cautious.mdp.coverage import FEW, Coverage
from cautious.ops.linear import sparse_tensor
from cautious.seeding import check_seed, derive_seed
from cautious.validation import as_number, check_callable, parse_count

TRANSPARENT = {
    "Autoreset",
    "HumanRendering",
    "Monitor",
    "OrderEnforcing",
    "PassiveEnvChecker",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "RenderCollection",
    "TimeLimit",
}
"""Wrappers, of Gymnasium and of Stable-Baselines3, that leave observations, actions and transitions as they are. (A time limit
cuts an episode off; the world itself goes on.)"""
NUM_RESETS = 1000
"""Resets from which the start is estimated, where an environment offers a table of transitions but no start."""


class Endings(NamedTuple):
    """Every step that ends an episode, with the state that it enters; the model goes on to the state after the end."""

    pair: Tensor
    """s*A + a, [E]."""
    entered: Tensor
    """The state that the environment shows then, [E]."""
    chance: Tensor
    """Probability that the step enters this state, [E]."""


class Model(NamedTuple):
    """The dynamics and the rewards of an environment."""

    transitions: Tensor
    """Sparse [S*A, S]."""
    initial_state_dist: Tensor
    """Probability of each state at the start of an episode, [S]."""
    rewards: Tensor
    """Expected reward of each (state, action), [S, A]; 0 where nothing is known."""
    visits: Tensor | None
    """How often each (state, action) was tried, [S, A], where the model is an estimate; None where it is exact."""
    coverage: Coverage | None = None
    """How well an estimate covers the world; None where the model is exact."""
    endings: Endings | None = None
    """The steps that end an episode; None if none does."""


def read_model(
    env: Any,
    num_steps: int | None = None,
    seed: int = 0,
    prior: float = 0.0,
    explore: Callable[[int], int] | None = None,
) -> Model:
    """The model of an environment with discrete states and actions, wrappers included.

    Where an episode ends, the model stays in one more state for ever, the last one, in which nothing is paid. It exists
    only if an episode can end at all. The model counts states and actions from 0, even where the environment's spaces begin
    with another number.

    A table says nothing about the start. Where the environment does not either (``initial_state_distrib``), the start is
    estimated from `NUM_RESETS` (1,000) seeded resets: where all of them show one state, that is the start; otherwise the
    shares of the states are estimates, and a warning says so.

    Args:
        env: FrozenLake, Taxi, CliffWalking or any other that offers its table ``P[state][action]`` of (probability, next
            state, reward, terminated); driving of this package; or any with discrete spaces, if `num_steps` says for how long
            to try random actions. A wrapper that may change what happens hides the table.
        num_steps: Steps of experience to estimate from, where there is no table.
        seed: Starts the experience, and the resets.
        prior: For an estimate: how many pseudo-steps each pair starts with, in which it does what the actions that were tried
            did in the same state. 0: none, and a pair that was never tried is taken to stay where it is.
        explore: For an estimate: state -> action, asked in half of the steps, where random actions alone would not get far.

    Warns:
        CoverageWarning: Some pair of a state that was entered was tried fewer than `coverage.FEW` times; or the start
            beside a table was estimated, and resets showed several.
    """
    check_seed(seed)
    steps = None if num_steps is None else parse_count(num_steps, "num_steps")
    if not 0 <= as_number(prior) < math.inf:
        raise InvalidInputError(f"prior={prior!r} must be zero or a positive number of pseudo-steps.")
    check_callable(explore, "explore", "the number of a state")
    bare, hides = _behind_wrappers(env)
    world = getattr(bare, "world", None)
    if hides is None and world is not None and hasattr(world, "mdp"):
        return Model(_as_sparse(world.mdp.transitions), world.mdp.initial_state_dist, world.features["reward"], None)
    num_states, num_actions = _sizes(env)
    if hides is None and hasattr(bare, "P"):
        rows = _listed(bare, num_states, num_actions)
        known = getattr(bare, "initial_state_distrib", None)
        start = _resets(bare, num_states, seed) if known is None else torch.as_tensor(known, dtype=torch.float64)
        return _joined(rows, num_states, num_actions, start)
    if steps is None:
        raise InvalidInputError(
            f"{type(bare).__name__} offers no table of its transitions (P); pass num_steps to estimate one from experience."
            if hides is None
            else f"{type(bare).__name__}: its wrapper {hides} may change what is seen or what happens, so that no table of "
            "transitions (P) is read through it; pass num_steps to estimate one from experience, or env.unwrapped for the "
            "world without its wrappers."
        )
    return _experienced(env, num_states, num_actions, steps, seed, float(prior), explore)


def _behind_wrappers(env: Any) -> tuple[Any, str | None]:
    """The environment inside all wrappers, and the first wrapper that may change what it shows or does."""
    hides = None
    while (inner := vars(env).get("env") if hasattr(env, "__dict__") else None) is not None:
        if type(env).__name__ not in TRANSPARENT and hides is None:
            hides = type(env).__name__
        env = inner
    return env, hides


def _sizes(env: Any) -> tuple[int, int]:
    spaces = [getattr(env, name, None) for name in ("observation_space", "action_space")]
    counts = [getattr(space, "n", None) for space in spaces]
    if all(isinstance(count, int) or hasattr(count, "item") for count in counts):
        return int(counts[0]), int(counts[1])  # type: ignore[arg-type]
    name = type(getattr(env, "unwrapped", env)).__name__
    text = f"{name}: states and actions must be discrete (spaces.Discrete) for a tabular model"
    if spaces[0] is None or spaces[1] is None:
        raise InvalidInputError(f"{text}; pass a Gymnasium environment.")
    if not isinstance(counts[1], int) and not hasattr(counts[1], "item"):
        raise InvalidInputError(
            f"{text}; its actions are {spaces[1]}. Offer a few of them with a wrapper, such as "
            "gymnasium.wrappers.DiscretizeAction."
        )
    raise InvalidInputError(
        f"{text}; its observations are {spaces[0]}. Ways out: cautious.DiscretizeObservation(env, bins=20) cuts them into "
        "cells; cautious.KofNPPO learns a policy from the environment as it is; cautious.CautiousPolicy(belief) decides one "
        "step at a time."
    )


def _offsets(env: Any) -> tuple[int, int]:
    """The numbers that the environment gives its first state and its first action (the library counts both from 0)."""
    return int(getattr(env.observation_space, "start", 0)), int(getattr(env.action_space, "start", 0))


def _number(env: Any, observation: Any, num_states: int) -> int:
    """The number of a state, from 0."""
    state = int(observation) - _offsets(env)[0]
    if not 0 <= state < num_states:
        raise InvalidInputError(
            f"observation {observation!r} lies outside of {env.observation_space}; mend the environment or its wrapper."
        )
    return state


def _resets(env: Any, num_states: int, seed: int) -> Tensor:
    """How often each state is the first after a reset, [S]; warns if that is an estimate."""
    starts = torch.zeros(num_states, dtype=torch.float64)
    for number in range(NUM_RESETS):
        observation, _ = env.reset(seed=derive_seed(seed, "start", number) % 2**31)
        starts[_number(env, observation, num_states)] += 1
    if int((starts > 0).sum()) > 1:
        warnings.warn(
            f"{type(env).__name__} has a table of transitions (P) but no initial_state_distrib: its start is estimated from "
            f"{NUM_RESETS:,} resets, which showed {int((starts > 0).sum()):,} states. If you know the probabilities, set "
            "env.unwrapped.initial_state_distrib.",
            CoverageWarning,
            stacklevel=4,
        )
    return starts / NUM_RESETS


Row = tuple[int, int, int, float, float, bool]
"""(state, action, next state, probability, reward, whether the episode ends)."""


def _listed(env: Any, num_states: int, num_actions: int) -> list[Row]:
    """The environment's table of transitions, in our numbers."""
    first_state, first_action = _offsets(env)

    def outcomes(state: int, action: int) -> Any:
        try:
            return env.P[state][action]
        except (KeyError, IndexError):
            raise InvalidInputError(
                f"{type(env).__name__}: P[{state}][{action}] is missing; the table must have every state of "
                f"{env.observation_space} and every action of {env.action_space}, by the numbers that the spaces give them."
            ) from None

    return [
        (state, action, _number(env, following, num_states), float(chance), float(reward), bool(ends))
        for state in range(num_states)
        for action in range(num_actions)
        for chance, following, reward, ends in outcomes(state + first_state, action + first_action)
    ]


def _joined(rows: list[Row], num_states: int, num_actions: int, start: Tensor) -> Model:
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
    return Model(transitions, start, rewards.reshape(size, num_actions), None, endings=_endings(rows, num_actions))


def _endings(rows: list[Row], num_actions: int) -> Endings | None:
    last = [
        (state * num_actions + action, following, chance) for state, action, following, chance, _, ends in rows if ends
    ]
    if not last:
        return None
    pair, entered, chance = zip(*last, strict=True)
    return Endings(torch.tensor(pair), torch.tensor(entered), torch.tensor(chance, dtype=torch.float64))


Outcomes = dict[tuple[int, int, int, bool], list[float]]
"""(state, action, next state, whether the episode ends) -> what was paid each time."""


def _experienced(
    env: Any,
    num_states: int,
    num_actions: int,
    num_steps: int,
    seed: int,
    prior: float,
    explore: Callable[[int], int] | None,
) -> Model:
    """Counts of what random actions did, and those that `explore` chose."""
    _, first_action = _offsets(env)
    generator = torch.Generator().manual_seed(derive_seed(seed, "experience"))
    actions = torch.randint(num_actions, (num_steps,), generator=generator).tolist()
    chosen = [False] * num_steps if explore is None else (torch.rand(num_steps, generator=generator) < 0.5).tolist()
    starts, entered = torch.zeros(num_states, dtype=torch.float64), torch.zeros(num_states, dtype=torch.bool)
    outcomes: Outcomes = {}
    visits = torch.zeros(num_states, num_actions, dtype=torch.long)
    state = _number(env, env.reset(seed=derive_seed(seed, "environment") % 2**31)[0], num_states)
    starts[state] += 1
    for action, is_chosen in zip(actions, chosen, strict=True):
        if is_chosen and explore is not None:
            action = parse_count(explore(state), "explore", 0)
            if action >= num_actions:
                raise InvalidInputError(f"explore chose action {action}; there are {num_actions}, counted from 0.")
        observation, reward, terminated, truncated, _ = env.step(action + first_action)
        following = _number(env, observation, num_states)
        outcomes.setdefault((state, action, following, bool(terminated)), []).append(float(reward))
        visits[state, action] += 1
        entered[state] = True
        entered[following] |= not terminated
        state = following
        if terminated or truncated:
            state = _number(env, env.reset()[0], num_states)
            starts[state] += 1
            entered[state] = True
    rows = _own_rows(outcomes, visits, prior) + (_prior_rows(outcomes, visits, prior) if prior else [])
    known = torch.zeros(num_states * num_actions, dtype=torch.bool)
    known[[s * num_actions + a for s, a, *_ in rows]] = True
    rows += [
        (pair // num_actions, pair % num_actions, pair // num_actions, 1.0, 0.0, False) for pair in _places(~known)
    ]
    model = _joined(rows, num_states, num_actions, starts / starts.sum())
    coverage = _covering(model, visits, entered, prior)
    return model._replace(visits=visits, coverage=coverage)


def _places(mask: Tensor) -> list[int]:
    return mask.nonzero().flatten().tolist()


def _own_rows(outcomes: Outcomes, visits: Tensor, prior: float) -> list[Row]:
    """What each pair did, weighted by how often it was tried beside the pseudo-steps."""
    return [
        (s, a, following, len(paid) / (int(visits[s, a]) + prior), sum(paid) / len(paid), ends)
        for (s, a, following, ends), paid in outcomes.items()
    ]


def _prior_rows(outcomes: Outcomes, visits: Tensor, prior: float) -> list[Row]:
    """The pseudo-steps of each pair of a state in which anything was tried: all that was seen there, whatever the action."""
    in_state: dict[tuple[int, int, bool], list[float]] = {}
    for (s, _, following, ends), paid in outcomes.items():
        in_state.setdefault((s, following, ends), []).extend(paid)
    tried = visits.sum(dim=1)
    return [
        (s, a, following, prior * len(paid) / int(tried[s]) / (int(visits[s, a]) + prior), sum(paid) / len(paid), ends)
        for (s, following, ends), paid in in_state.items()
        for a in range(visits.shape[1])
    ]


def _covering(model: Model, visits: Tensor, entered: Tensor, prior: float) -> Coverage:
    """The coverage, over the states of the model; warns where it is thin."""
    more = len(model.initial_state_dist) - len(visits)  # the state after the end, if there is one
    coverage = Coverage(
        torch.cat([visits, visits.new_zeros(more, visits.shape[1])]),
        torch.cat([entered, entered.new_zeros(more)]),
        prior,
    )
    if bool(coverage.hardly_tried.any()):
        cures = ["take more steps (num_steps)", "explore with a policy (explore)"]
        cures += [] if prior else ["give untried pairs a prior (prior=1)"]
        warnings.warn(
            f"The dynamics are {coverage}. To know more, {' or '.join(cures)}; mdp.coverage.hardly_tried marks the pairs with "
            f"fewer than {FEW} tries.",
            CoverageWarning,
            stacklevel=5,
        )
    return coverage


def _as_sparse(transitions: Tensor) -> Tensor:
    if transitions.layout != torch.strided:
        return transitions
    return transitions.flatten(0, 1).to_sparse()
