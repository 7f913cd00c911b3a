"""What a belief says about steps: the rewards of all M models for observations and actions of a rollout, [M, B]."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from cautious.beliefs.belief import TableBelief
from cautious.errors import InvalidInputError
from cautious.risk import RiskMeasure, weights_by_rank
from cautious.validation import as_float_tensor, check_shape, check_size

MOST_ENTRIES = 2**24
"""Of rewards [M, B, A] in one call of a belief."""


class StepRewards:
    """A belief, asked about steps.

    A belief is anything with one of these methods; if it has both, the second is used:

    - ``rewards(observations) -> [M, B, A]``: what each model says that each action pays (discrete actions);
    - ``step_rewards(observations, actions, next_observations) -> [M, B]``: what each model says that these steps paid. It
      serves continuous actions, and rewards that depend on what happened.

    Observations are those of the environment, one row each (a dictionary of arrays for a dictionary of spaces), before any
    normalisation by Stable-Baselines3. An array [M, S, A] is a belief about S numbered states.
    """

    def __init__(self, belief: Any, level: RiskMeasure, action_space: spaces.Space[Any], start: Any) -> None:
        """Check a belief against an environment.

        Args:
            belief: As above.
            level: It must be one that the belief's M models can serve.
            action_space: Of the environment.
            start: Observations [B, ...], about which the belief is asked once.
        """
        if isinstance(belief, (np.ndarray, torch.Tensor, list, tuple)):
            belief = TableBelief(belief)
        self.by_step = callable(getattr(belief, "step_rewards", None))
        if not self.by_step and not callable(getattr(belief, "rewards", None)):
            raise InvalidInputError(
                f"belief is a {type(belief).__name__}; pass one with rewards(observations) -> [M, B, A], such as a "
                "RewardEnsemble, or an array [M, S, A] over numbered states."
            )
        if not self.by_step and not isinstance(action_space, spaces.Discrete):
            raise InvalidInputError(
                f"actions are {action_space}; rewards(observations) -> [M, B, A] is about numbered actions. "
                f"{_way_out(action_space)}Or give the belief a method step_rewards(observations, actions, "
                "next_observations) -> [M, B], such as cautious.rewards_of_pairs(model) has: then PPO chooses among these "
                "actions as they are."
            )
        self.belief = belief
        self.num_actions = int(action_space.n) if isinstance(action_space, spaces.Discrete) else None
        num_rows = _num_rows(start)
        if self.by_step:
            actions = np.stack([action_space.sample() for _ in range(num_rows)])
            self.num_models = len(self._of_steps(start, actions, start))
        else:
            self.num_models = len(self.of_actions(start))
        weights_by_rank(level, self.num_models)

    def of_actions(self, observations: Any) -> torch.Tensor:
        """Rewards of every action, [M, B, A]."""
        if self.num_actions is None or not callable(getattr(self.belief, "rewards", None)):
            raise InvalidInputError("belief: it has no rewards(observations) -> [M, B, A], which this needs.")
        sizes = {"B": _num_rows(observations), "A": self.num_actions, **self._num_models}
        return checked(self.belief.rewards(observations), "M B A", "belief", **sizes)

    @property
    def _num_models(self) -> dict[str, int]:
        """M, once it is known."""
        return {"M": self.num_models} if hasattr(self, "num_models") else {}

    def _of_steps(self, observations: Any, actions: np.ndarray, following: Any) -> np.ndarray:
        given = self.belief.step_rewards(observations, actions, following)
        return checked(given, "M B", "belief", B=_num_rows(observations), **self._num_models).numpy()

    def __call__(self, observations: Any, actions: np.ndarray, following: Any) -> np.ndarray:
        """Rewards [M, B] of the steps from `observations` by `actions` to `following` (may be None unless `by_step`)."""
        num_rows = _num_rows(observations)
        paid = np.empty((self.num_models, num_rows), dtype=np.float64)
        size = max(1, MOST_ENTRIES // (self.num_models * (self.num_actions or 1)))
        for first in range(0, num_rows, size):
            rows = slice(first, first + size)
            if self.by_step:
                paid[:, rows] = self._of_steps(_rows(observations, rows), actions[rows], _rows(following, rows))
            else:
                every = self.of_actions(_rows(observations, rows)).numpy()
                chosen = actions[rows].reshape(-1).astype(np.int64)
                paid[:, rows] = every[:, np.arange(len(chosen)), chosen]
        return paid


def checked(values: Any, letters: str, name: str, **sizes: int) -> torch.Tensor:
    """What code of a user's returned, as a tensor on the CPU: of the right shape, with finite numbers of a usable size.

    Args:
        values: An array of one of the usual kinds.
        letters: The shape, such as "M B".
        name: For errors: what returned it.
        **sizes: Of those letters that are known.
    """
    tensor = as_float_tensor(values, name, "cpu")
    check_shape(tensor, letters, name, **sizes)
    check_size(tensor, name)
    return tensor


def _way_out(action_space: spaces.Space[Any]) -> str:
    """How to number actions that are not."""
    if not isinstance(action_space, spaces.Box):
        return ""
    if not action_space.is_bounded():
        return "Number them by a wrapper of your own: they have no bounds. "
    return (
        "Number them: env = gymnasium.wrappers.DiscretizeAction(env, bins=5), with as many values for each part of an action "
        "as the belief knows. "
    )


def _num_rows(observations: Any) -> int:
    return len(next(iter(observations.values())) if isinstance(observations, dict) else observations)


def _rows(observations: Any, rows: slice) -> Any:
    if isinstance(observations, dict):
        return {name: part[rows] for name, part in observations.items()}
    return observations[rows]
