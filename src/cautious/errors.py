"""One family of errors. Each message names the value, the rule it breaks and the way out."""


class CautiousError(Exception):
    """Everything this package raises on purpose."""


class InvalidInputError(CautiousError, ValueError):
    """A value, name or shape that breaks a stated rule."""


class BadFileError(CautiousError, ValueError):
    """A file that is truncated, of another kind, or does not hold what was asked of it."""


class MissingFileError(CautiousError, FileNotFoundError):
    """A file or folder that is not there."""


class SolverError(CautiousError, RuntimeError):
    """A numerical method that could not finish, with what it reported."""


class MissingPackageError(CautiousError, ImportError):
    """An optional package that is not installed and that a request needs."""


class ClusterError(CautiousError, RuntimeError):
    """A cluster that cannot be reached, or whose workers cannot do what they are asked."""


class ClusterWarning(UserWarning):
    """Machines of a cluster that give results of their own."""


class FolderInUseError(CautiousError):
    """Another process is writing to the same run."""


class WriteError(CautiousError, OSError):
    """A file that could not be written: no room, no permission, no such place. What was there before is still there."""
