"""Memory of the C library while the paper's networks train."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Let glibc keep freed memory of up to 1 GiB while models train; nothing happens with other C libraries.

    A training step allocates and frees the same few megabytes over and over, many of them inside of library calls, which take
    no buffer from outside. Giving the pages back and faulting them in again costs processor time: `benchmarks/freed_memory.py`
    measures it, docs/architecture.md has the numbers. The setting is the process's, so it lasts only as long as the training;
    afterwards the thresholds are the largest that glibc chooses by itself, and what was kept goes back to the system.
    """
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        yield
        return
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    library.mallopt(trim_threshold, 2**30)
    library.mallopt(mmap_threshold, 2**30)
    try:
        yield
    finally:
        library.mallopt(mmap_threshold, 2**25)
        library.mallopt(trim_threshold, 2**26)
        library.malloc_trim(0)
