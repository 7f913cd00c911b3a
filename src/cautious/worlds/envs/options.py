"""What `reset` is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cautious.errors import InvalidInputError


def option(options: Any, name: str, otherwise: Any) -> Any:
    """The option called `name`, or what to take if it is not given."""
    if options is not None and not isinstance(options, Mapping):
        raise InvalidInputError(f"options={options!r} must be a dictionary, such as {{{name!r}: ...}}, or None.")
    return (options or {}).get(name, otherwise)
