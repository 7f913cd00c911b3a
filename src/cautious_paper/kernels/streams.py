"""CUDA streams that work side by side, for launches whose last programs would leave multiprocessors idle."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch


@functools.cache
def streams_of(device: torch.device, count: int) -> tuple[torch.cuda.Stream, ...]:
    """A device's streams, the same for all callers: memory that one frees is given to the next, which a new stream's is not."""
    return tuple(torch.cuda.Stream(device) for _ in range(count))


@contextmanager
def side_by_side(streams: Sequence[torch.cuda.Stream]) -> Iterator[None]:
    """Let `streams` start after what the current stream has to do, and the current one go on after all of them.

    Also after an error: what one of them still writes to must not be given to others before.
    """
    # Events on the GPU, not on the host: this thread goes on at once and only queues work.
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream(stream.device))
    try:
        yield
    finally:
        for stream in streams:
            torch.cuda.current_stream(stream.device).wait_stream(stream)
