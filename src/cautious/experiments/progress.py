"""How an experiment tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

from cautious.progress import Progress as OneProgress

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""

Tell = OneProgress
"""The same for one thing: (steps done, steps in all)."""


def titled(progress: Progress | None, title: str) -> Tell | None:
    """A progress that already says what it is about."""
    return None if progress is None else lambda done, total: progress(title, done, total)


class SharedBar:
    """One bar for several calls of a solver."""

    def __init__(self, tell: Tell | None, num_calls: int) -> None:
        """Divide a bar among `num_calls` calls of equal length."""
        self._tell = tell
        self._num_calls = num_calls
        self._begun = 0

    def next_call(self) -> Tell | None:
        """The progress of the next call."""
        number, tell, calls = self._begun, self._tell, self._num_calls
        self._begun += 1
        return None if tell is None else lambda done, total: tell(number * total + done, calls * total)
