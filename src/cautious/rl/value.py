"""What a policy is worth by fresh rollouts: returns of all M models at once, with bounds that hold for all of them together.

An episode is cut after `horizon` steps, or where the environment cuts it. What comes after is unknown: it may pay the lowest or
the highest reward for ever, or end at once and pay nothing. With discount γ and t steps done it is worth γ^t times at least the
lowest reward or 0, whichever is lower, and at most the highest or 0. So every episode gives a low and a high sample of each
model's normalised return, and the bounds take the one on their side. The estimate takes the rest to go on as what was seen of
the episode, without an end: where episodes end after the cut, it is too far from 0 by up to γ^t of the rewards' size.

The k-of-N value never decreases in any return, so bounds that hold for all returns at once give bounds on it: each of the M
returns gets an equal share of the failure probability on either side (Bonferroni).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cautious.errors import InvalidInputError
from cautious.ops.means import bernstein_margin, student_margin
from cautious.rl.acting import Actor
from cautious.rl.environments import set_stopping
from cautious.rl.recorder import Recorder
from cautious.validation import as_number

if TYPE_CHECKING:
    from cautious.rl.judged import JudgedPPO

NEGLIGIBLE = 1e-3
"""The default horizon is where this share of the return is still to come."""
STEPS_AT_ONCE = 2**13
"""Steps that the belief is asked about in one call."""


class Value(NamedTuple):
    """A k-of-N value by fresh rollouts; with the stated confidence, the exact one lies between `lower` and `upper`."""

    estimate: float
    lower: float
    upper: float


class GapFound(NamedTuple):
    """How much better a best response was found to do under the adversary's averaged mixture than the policy's value.

    The k-of-N optimum lies between the policy's value and the return of the *best* policy under that mixture. A learned
    response may be worse than the best, so a small gap proves nothing; a large one shows room.
    """

    gap: float
    """response - value, of their estimates."""
    response: Value
    """Return of the response under the mixture."""
    value: Value
    """The policy's k-of-N value."""


class Returns(NamedTuple):
    """Normalised returns of M models by fresh rollouts; with the stated confidence all M lie within their bounds."""

    estimate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    num_episodes: int
    num_steps: int


class Episodes(NamedTuple):
    """n independent episodes, paid by M models."""

    paid: np.ndarray
    """(1 - γ) Σ_t γ^t r_t over the steps that were made, [n, M]."""
    rest: np.ndarray
    """γ^t where an episode was cut after t steps, the weight of what was not seen; 0 where it ended, [n, 1]; [n, M] where
    each model has episodes of its own."""
    range: np.ndarray
    """Lowest and highest reward that each model paid, [2, M]."""
    num_steps: int


def default_horizon(discount: float) -> int:
    """Steps after which γ^t is negligible."""
    return max(1, math.ceil(math.log(NEGLIGIBLE) / math.log(discount))) if discount > 0 else 1


def run_episodes(agent: JudgedPPO, recorder: Recorder, act: Actor, num_episodes: int, horizon: int) -> Episodes:
    """Run at least `num_episodes` episodes, as many in each environment: those that end first would be the short ones.

    Args:
        agent: Its `step_rewards` pays for the steps, in its environment.
        recorder: The environment's.
        act: Chooses the actions.
        num_episodes: At least.
        horizon: Steps after which an episode is cut.
    """
    env: Any = agent.env
    num_envs, discount = env.num_envs, agent.gamma
    paid, rests, num_steps = [], [], 0
    lowest, highest = np.full(agent.num_models, np.inf), np.full(agent.num_models, -np.inf)
    set_stopping(env, False)
    try:
        for _ in range(-(-num_episodes // num_envs)):
            observations = env.reset()
            total, rest = np.zeros((num_envs, agent.num_models)), np.ones(num_envs)
            alive, step = np.ones(num_envs, dtype=bool), 0
            while step < horizon and alive.any():
                weights = []
                with recorder.recording():
                    for _ in range(min(max(1, STEPS_AT_ONCE // num_envs), horizon - step)):
                        observations, _, dones, infos = env.step(act(observations))
                        weights.append(alive * (1 - discount) * discount**step)
                        step += 1
                        num_steps += int(alive.sum())
                        rest[alive] *= discount
                        for place in np.flatnonzero(dones & alive):
                            rest[place] *= infos[place].get("TimeLimit.truncated", False)
                        alive &= ~dones
                        if not alive.any():
                            break
                rewards = agent.step_rewards(recorder.take())
                weight = np.stack(weights)
                counted = rewards[:, weight.ravel() > 0]
                lowest = np.minimum(lowest, counted.min(axis=1, initial=np.inf))
                highest = np.maximum(highest, counted.max(axis=1, initial=-np.inf))
                total += np.einsum("te,mte->em", weight, rewards.reshape(-1, *weight.shape), optimize=True)
            paid.append(total)
            rests.append(rest)
    finally:
        set_stopping(env, True)
    return Episodes(np.concatenate(paid), np.concatenate(rests)[:, None], np.stack([lowest, highest]), num_steps)


def bound_returns(episodes: Episodes, confidence: float, reward_range: tuple[float, float] | None) -> Returns:
    """Estimates and simultaneous bounds of M returns.

    Args:
        episodes: What was seen.
        confidence: That all 2 M bounds hold.
        reward_range: Lowest and highest reward that any model pays: then the bounds are empirical Bernstein bounds, which hold
            for any number of episodes. None: Student's, an approximation that is much closer.
    """
    num, num_models = episodes.paid.shape
    failure = (1 - confidence) / (2 * num_models)
    if reward_range is None:
        low, high = episodes.range
    else:
        low, high = (np.full(num_models, bound) for bound in checked_range(reward_range, episodes.range))
    low, high = np.minimum(low, 0), np.maximum(high, 0)  # an episode that ends pays nothing afterwards
    rest = episodes.rest
    # As if the rest of an episode went on as what was seen of it, without an end.
    estimate = (episodes.paid / np.maximum(1 - rest, 1e-12) * rest + episodes.paid).mean(axis=0)
    samples = episodes.paid + rest * low, episodes.paid + rest * high
    if reward_range is None:
        margins = [student_margin(side, failure) for side in samples]
    else:
        margins = [bernstein_margin(side, high - low, failure) for side in samples]
    lower, upper = samples[0].mean(axis=0) - margins[0], samples[1].mean(axis=0) + margins[1]
    return Returns(np.clip(estimate, lower, upper), lower, upper, num, episodes.num_steps)


def checked_range(reward_range: Any, seen: np.ndarray) -> tuple[float, float]:
    """Lowest and highest reward; an error if a model paid others."""
    try:
        low, high = (as_number(bound) for bound in reward_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise InvalidInputError(
            f"reward_range={reward_range!r} must be two numbers, the lowest and the highest reward."
        )
    if seen[0].min() < low or seen[1].max() > high:
        raise InvalidInputError(
            f"reward_range={reward_range!r}: a model paid between {seen[0].min():.6g} and {seen[1].max():.6g}; give bounds "
            "that hold for every model."
        )
    return low, high
