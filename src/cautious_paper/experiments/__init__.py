"""Which runs: built-in examples, the paper's settings as data, the pipeline and the store of results.

`load_run(folder)` reads a run for its numbers; it is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cautious_paper.experiments.run_frames import Run, load_run

__all__ = ["Run", "load_run"]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in __all__:
        raise AttributeError(
            f"module 'cautious_paper.experiments' has no attribute {name!r}; it offers {', '.join(__all__)}"
        )
    from cautious_paper.experiments import run_frames

    return getattr(run_frames, name)
