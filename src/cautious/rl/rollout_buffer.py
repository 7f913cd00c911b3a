"""A rollout buffer whose rewards come from the belief, once the rollout is complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer


class _PaidLater:
    """Rewards are filled in when the buffer is full, before advantages are computed; then steps may be weighted."""

    pay: Callable[[Any], None]
    """Adds rewards to the full buffer's."""
    weigh: Callable[[Any], None]
    """Changes the buffer's advantages."""

    def compute_returns_and_advantage(self, last_values: Any, dones: Any) -> None:
        self.pay(self)
        super().compute_returns_and_advantage(last_values, dones)  # type: ignore[misc]
        self.weigh(self)


def paid_later(base: type[RolloutBuffer] | None, observation_space: spaces.Space[Any]) -> type[RolloutBuffer]:
    """A class of rollout buffers that is paid when full; `base` is one of Stable-Baselines3's, None for its default."""
    if base is None:
        base = DictRolloutBuffer if isinstance(observation_space, spaces.Dict) else RolloutBuffer
    return type(f"Paid{base.__name__}", (_PaidLater, base), {})
