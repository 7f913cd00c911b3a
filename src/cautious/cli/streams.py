"""Standard output and error that cannot be written: a reader that has left, a full disk, a closed stream.

A command's results are its files. So what cannot be printed does not end the work: it is dropped, and at the end the status
tells of it, unless the reader left on purpose (`cautious train ... | head -1`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any

CANNOT_PRINT = 1
"""Exit status of a command that did its work and could not say so."""


class Outlet:
    """A stream whose writes never fail; everything else is the stream's own."""

    def __init__(self, stream: Any) -> None:
        """Write to `stream` for as long as that works."""
        self._stream = stream
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        """Write, or drop what cannot be written."""
        with self._noticing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Pass on what is buffered, or drop it."""
        with self._noticing():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = self.failure or error
            # What is still buffered would fail again when the interpreter ends, which would print that.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)


@contextlib.contextmanager
def surviving_streams() -> Iterator[None]:
    """In the block that follows nothing fails because it cannot be printed.

    Raises:
        SystemExit: With status `CANNOT_PRINT` and a sentence on standard error, after a block that would have ended well, if
            standard output could not be written for another reason than that its reader has left.
    """
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # for a stream that was closed from the start
        out, err = (Outlet(nowhere if stream is None else stream) for stream in before)
        sys.stdout, sys.stderr = out, err
        stop: SystemExit | None = None
        try:
            yield
        except SystemExit as error:
            stop = error
        finally:
            out.flush()
            err.flush()
            sys.stdout, sys.stderr = before
        if stop is not None and stop.code:
            raise stop
        if out.failure is not None and out.failure.errno != errno.EPIPE:
            err.write(f"error: standard output could not be written ({out.failure.strerror}).\n")
            err.flush()
            sys.exit(CANNOT_PRINT)
        if stop is not None:
            raise stop
