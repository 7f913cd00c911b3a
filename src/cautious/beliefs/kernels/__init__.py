"""Fused Triton kernels that train many copies of the paper's networks at once: images (`step`) and driving (`driving_fused`).

Nothing here imports Triton until it is used: those two do, and are for machines that have it.
"""

from __future__ import annotations

from importlib.util import find_spec


def triton_available() -> bool:
    """Whether Triton is installed, so that `step` and `driving_fused` can be imported."""
    return find_spec("triton") is not None
