"""Settings of the C library's memory: to keep what is freed, where that is speed, or to give it back, where memory is short."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory(num_bytes: int = 2**30) -> None:
    """Let glibc keep freed blocks of up to `num_bytes` for the next allocation instead of giving them back.

    A training step allocates and frees the same few megabytes over and over; handing the pages back and faulting them in
    again can cost as much as the arithmetic. Elsewhere than on glibc nothing happens.
    """
    _set(M_TRIM_THRESHOLD, num_bytes)
    _set(M_MMAP_THRESHOLD, num_bytes)


def give_back_freed_memory(num_bytes: int = 2**25) -> None:
    """Let glibc give freed blocks of `num_bytes` and more back to the system, and now whatever it has kept.

    For work with arrays of many sizes, where what is kept fits nothing that is asked for next.
    """
    _set(M_MMAP_THRESHOLD, num_bytes)
    _set(M_TRIM_THRESHOLD, 2 * num_bytes)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _set(name: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(name, value)
