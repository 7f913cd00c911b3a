"""Functions compiled to machine code by numba: loops without a tensor operation. Sums keep the order that is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.extending import intrinsic


def compiled(function: Callable[..., Any]) -> Any:
    """The function, compiled to machine code at its first call. It releases the interpreter lock while it runs.

    The code is cached on disk where a folder is writable, so that only the first process compiles. Without fast-math sums keep
    their order.
    """
    options: Any = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # a package that cannot be written to, and no home either
        return numba.njit(function, **options)


def _multiply_add(_: Any, factor: Any, other: Any, term: Any) -> Any:
    """In compiled code, float32: ``factor * other + term``, rounded once (fused), as matrix libraries do."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return numba.float32(numba.float32, numba.float32, numba.float32), generate


multiply_add: Any = intrinsic(_multiply_add)
