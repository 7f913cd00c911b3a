"""The package's exceptions. Each message names the value, the rule it breaks and the way out."""


class CautiousError(Exception):
    """Everything this package raises on purpose."""


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


class ClusterWarning(UserWarning):
    """Machines of a cluster compute results that differ in their last bits."""


class ConvergenceWarning(UserWarning):
    """A policy whose certified gap is wider than the tolerance that was asked for; the message has the gap and the way out."""


class CoverageWarning(UserWarning):
    """Estimated dynamics of which some part was hardly ever tried."""


class FewModelsWarning(UserWarning):
    """A level that looks at the tail of a handful of models."""


class FolderInUseError(CautiousError):
    """Another process is writing to the same run."""


class WriteError(CautiousError, OSError):
    """A file that could not be written: no room, no permission, no such place. What was there before is still there."""
