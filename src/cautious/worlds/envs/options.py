"""Options of the environments: render modes, and the options of `reset`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cautious.errors import InvalidInputError

RENDER_MODES = ("ansi", "rgb_array")


def parse_render_mode(render_mode: Any) -> str | None:
    """How to draw, checked; None does not."""
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise InvalidInputError(f"render_mode={render_mode!r} is not known; choose one of None, 'ansi', 'rgb_array'.")
    return render_mode


def option(options: Any, name: str, otherwise: Any) -> Any:
    """The option called `name`, or what to take if it is not given."""
    if options is not None and not isinstance(options, Mapping):
        raise InvalidInputError(f"options={options!r} must be a dictionary, such as {{{name!r}: ...}}, or None.")
    return (options or {}).get(name, otherwise)
