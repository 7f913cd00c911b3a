"""The package's exceptions. Each message names the value, the rule it breaks and the way out.

A message that names an argument of a function may be shown to somebody who typed an option of a command. So it is made of
parts: texts, and `Argument`s that word themselves for Python or for the command line.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

NO_VALUE: Any = ...


class Argument(NamedTuple):
    """An argument that a message names, with its value or without one.

    >>> str(Argument("num_models", 0)), Argument("num_models", 0).typed(["num_models"])
    ('num_models=0', '--num-models 0')
    >>> str(Argument("at_most")), Argument("at_most").typed(["at_most"]), Argument("at_most").typed(["n"])
    ('at_most', '--at-most', 'at_most')
    """

    name: str
    """Name of the argument in Python."""
    value: Any = NO_VALUE

    def __str__(self) -> str:
        """The argument as it is written in Python."""
        return self.name if self.value is NO_VALUE else f"{self.name}={self.value!r}"

    def typed(self, options: Collection[str]) -> str:
        """The argument as an option of the command line; as in Python if the command has no such option."""
        other = OTHER_NAMES.get(self.name)
        name = self.name if other is None or other not in options else other
        if name not in options:
            return str(self)
        option = f"--{name.replace('_', '-')}"
        return option if self.value is NO_VALUE else f"{option} {self.value!r}"


class Advice(Argument):
    """An argument with the value that a message advises to give.

    >>> str(Advice("ignore", ["name", "date"])), Advice("ignore", ["name", "date"]).typed(["ignore"])
    ('ignore=["name", "date"]', '--ignore name date')
    """

    def __str__(self) -> str:
        """The argument as it is written in Python."""
        return f"{self.name}={json.dumps(self.value, ensure_ascii=False)}"

    def typed(self, options: Collection[str]) -> str:
        """The argument as an option of the command line; as in Python if the command has no such option."""
        if self.name not in options:
            return str(self)
        values = self.value if isinstance(self.value, list) else [self.value]
        return f"{Argument(self.name).typed(options)} {' '.join(map(str, values))}"


OTHER_NAMES = {"num_iterations": "iterations", "action": "fallback"}
"""Arguments whose option has another name."""


def worded(parts: Sequence[Any], options: Collection[str] | None = None) -> str:
    """A message of parts as one text: for Python, or for a command with these options."""
    return "".join(part.typed(options) if isinstance(part, Argument) and options else str(part) for part in parts)


class CautiousError(Exception):
    """Everything this package raises on purpose; its `args` are the parts of its message."""

    def __str__(self) -> str:
        """The message, for Python."""
        return worded(self.args)


class InvalidInputError(CautiousError, ValueError):
    """A value, name or shape that breaks a stated rule."""


class BadFileError(CautiousError, ValueError):
    """A file that is damaged, of another kind, or without the content that was asked for."""


class OtherRunError(BadFileError):
    """Checkpoints of another training run than the one that was asked for."""


class MissingFileError(CautiousError, FileNotFoundError):
    """A file or folder that does not exist."""


class SolverError(CautiousError, RuntimeError):
    """A numerical method failed; the message has its report."""


class MissingPackageError(CautiousError, ImportError):
    """An optional package that is not installed and that a request needs."""


class ClusterError(CautiousError, RuntimeError):
    """A cluster that cannot be reached, or whose workers failed."""


class WordedWarning(UserWarning):
    """A warning of this package, whose `args` are the parts of its message."""

    def __str__(self) -> str:
        """The message, for Python."""
        return worded(self.args)


class ClusterWarning(UserWarning):
    """Machines of a cluster compute results that differ in their last bits."""


class ConvergenceWarning(WordedWarning):
    """A policy whose certified gap is wider than the tolerance that was asked for; the message has the gap and the way out."""


class CoverageWarning(UserWarning):
    """Estimated dynamics of which some part was hardly ever tried."""


class FewModelsWarning(UserWarning):
    """A level that looks at the tail of a handful of models."""


class FolderInUseError(CautiousError):
    """Another process is writing to the same run."""


class WriteError(CautiousError, OSError):
    """A file that could not be written: no room, no permission, no such place. What was there before is still there."""
