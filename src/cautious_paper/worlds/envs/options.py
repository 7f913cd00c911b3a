"""Options of the environments: render modes, kinds of observations, and the options of `reset`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from cautious.errors import InvalidInputError
from cautious_paper.worlds.driving import DrivingWorld
from cautious_paper.worlds.driving_features import NUM_FEATURES, driving_features

RENDER_MODES = ("ansi", "rgb_array")


def parse_render_mode(render_mode: Any) -> str | None:
    """How to draw, checked; None does not."""
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise InvalidInputError(f"render_mode={render_mode!r} is not known; choose one of None, 'ansi', 'rgb_array'.")
    return render_mode


def parse_observation(observation: Any, world: DrivingWorld) -> tuple[spaces.Space[Any], np.ndarray]:
    """The space of driving's observations, and what is shown in each state: [S] numbers, or [S, 22] features."""
    if observation == "number":
        return spaces.Discrete(len(world.states)), np.arange(len(world.states))
    if observation == "features":
        return spaces.Box(0, 1, (NUM_FEATURES,), np.float32), driving_features(world.states)
    raise InvalidInputError(f"observation={observation!r} is not known; choose one of 'number', 'features'.")


def option(options: Any, name: str, otherwise: Any) -> Any:
    """The option called `name`, or what to take if it is not given."""
    if options is not None and not isinstance(options, Mapping):
        raise InvalidInputError(f"options={options!r} must be a dictionary, such as {{{name!r}: ...}}, or None.")
    return (options or {}).get(name, otherwise)
