"""Beliefs from models of other arguments: of an observation and an action together, or of the state that a step enters.

`KofNPPO` asks a belief ``step_rewards(observations, actions, next_observations) -> [M, B]``. Many reward models take less than
that, r(s, a) or r(s'). The functions here turn such models into beliefs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.rl.belief import checked
from cautious.validation import parse_count


def rewards_of_pairs(model: Any, num_actions: int | None = None) -> PairRewards:
    """A belief from models of (observation, action), r_m(s, a).

    Args:
        model: One of

            - a function ``model(observations, actions) -> [M, B]``;
            - a sequence of M functions ``model(observations, actions) -> [B]``;
            - a belief such as a `RewardEnsemble` about rows of an observation and an action together,
              ``rewards(rows [B, D + K]) -> [M, B, 1]``. Observations and continuous actions are flattened; of K numbered
              actions the row has a one in the place of the action (one-hot).
        num_actions: K, where actions are numbered: then the belief also has ``rewards(observations) -> [M, B, K]``, and
            `KofNPPO.certificate` can be asked. None for continuous actions.

    Returns:
        A belief for `KofNPPO`.

    >>> import numpy as np
    >>> belief = rewards_of_pairs([lambda s, a: s[:, 0] * a, lambda s, a: -a], num_actions=2)
    >>> states = np.array([[3.0], [5.0]])
    >>> belief.step_rewards(states, np.array([0, 1]), states).tolist()
    [[0.0, 5.0], [0.0, -1.0]]
    >>> belief.rewards(states).tolist()
    [[[0.0, 3.0], [0.0, 5.0]], [[0.0, -1.0], [0.0, -1.0]]]
    """
    return PairRewards(model, None if num_actions is None else parse_count(num_actions, "num_actions"))


def rewards_of_next_states(model: Any) -> NextStateRewards:
    """A belief from models of the state that a step enters, r_m(s').

    Args:
        model: One of

            - a function ``model(next_observations) -> [M, B]``;
            - a sequence of M functions ``model(next_observations) -> [B]``;
            - a belief such as a `RewardEnsemble` with one output, ``rewards(next_observations) -> [M, B, 1]``.

    Returns:
        A belief for `KofNPPO`.

    >>> import numpy as np
    >>> belief = rewards_of_next_states(lambda entered: np.stack([entered[:, 0], -entered[:, 0]]))
    >>> belief.step_rewards(np.zeros((2, 1)), np.zeros(2, dtype=int), np.array([[3.0], [5.0]])).tolist()
    [[3.0, 5.0], [-3.0, -5.0]]
    """
    return NextStateRewards(model)


class PairRewards:
    """What `rewards_of_pairs` returns."""

    def __init__(self, model: Any, num_actions: int | None) -> None:
        """Keep the models, and K if actions are numbered."""
        self.model, self.num_actions = _check_models(model, "rewards_of_pairs"), num_actions
        if num_actions is not None:
            self.rewards = self._of_every_action

    def step_rewards(self, observations: Any, actions: np.ndarray, next_observations: Any) -> Tensor:
        """What each model pays for each step, [M, B]; the next observations do not matter."""
        if callable(getattr(self.model, "rewards", None)):
            return _only_output(self.model.rewards(self._joined(observations, actions)), "rewards_of_pairs")
        return _asked(self.model, "rewards_of_pairs", observations, actions)

    def _of_every_action(self, observations: Any) -> Tensor:
        """Rewards of every action, [M, B, K]."""
        num_rows = len(next(iter(observations.values())) if isinstance(observations, dict) else observations)
        columns = [
            self.step_rewards(observations, np.full(num_rows, action), None) for action in range(self.num_actions or 0)
        ]
        return torch.stack(columns, dim=2)

    def _joined(self, observations: Any, actions: np.ndarray) -> np.ndarray:
        """Rows of an observation and an action, [B, D + K], float32."""
        if isinstance(observations, dict):
            raise InvalidInputError("rewards_of_pairs: observations are dictionaries; pass a function that joins them.")
        actions = np.asarray(actions)
        if actions.ndim == 1 and np.issubdtype(actions.dtype, np.integer):
            if self.num_actions is None:
                raise InvalidInputError("rewards_of_pairs: actions are numbered; pass num_actions, to encode them.")
            actions = np.eye(self.num_actions, dtype=np.float32)[actions]
        rows = np.asarray(observations, dtype=np.float32).reshape(len(actions), -1)
        return np.concatenate([rows, actions.reshape(len(actions), -1).astype(np.float32)], axis=1)


class NextStateRewards:
    """What `rewards_of_next_states` returns."""

    def __init__(self, model: Any) -> None:
        """Keep the models."""
        self.model = _check_models(model, "rewards_of_next_states")

    def step_rewards(self, observations: Any, actions: np.ndarray, next_observations: Any) -> Tensor:
        """What each model pays for each step, [M, B]; only the next observations matter."""
        if callable(getattr(self.model, "rewards", None)):
            return _only_output(self.model.rewards(next_observations), "rewards_of_next_states")
        return _asked(self.model, "rewards_of_next_states", next_observations)


def _check_models(model: Any, name: str) -> Any:
    one = callable(getattr(model, "rewards", None)) or callable(model)
    many = isinstance(model, Sequence) and len(model) > 0 and all(map(callable, model))
    if not one and not many:
        raise InvalidInputError(
            f"{name}: model is a {type(model).__name__}; pass a function that returns [M, B], a list of M functions that "
            "return [B], or a belief with rewards(rows) -> [M, B, 1]."
        )
    return model


def _asked(model: Any, name: str, *arguments: Any) -> Tensor:
    """What one function for all models says, or one function for each: [M, B]."""
    if callable(model):
        return checked(model(*arguments), "M B", name)
    return torch.stack([checked(each(*arguments), "B", name).double() for each in model])


def _only_output(rewards: Any, name: str) -> Tensor:
    """[M, B, 1] -> [M, B]."""
    return checked(rewards, "M B A", f"{name}: the belief's rewards", A=1)[:, :, 0]
