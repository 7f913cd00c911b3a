"""One setting of the C library that decides whether training on the CPU computes or waits for the kernel."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory(num_bytes: int = 2**30) -> None:
    """Let glibc keep freed blocks of up to `num_bytes` for the next allocation instead of giving them back.

    A training step allocates and frees the same few megabytes over and over; handing the pages back and faulting them in
    again can cost as much as the arithmetic. Elsewhere than on glibc nothing happens.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, num_bytes)
        mallopt(M_MMAP_THRESHOLD, num_bytes)
