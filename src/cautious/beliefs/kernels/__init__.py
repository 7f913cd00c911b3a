"""Fused Triton kernels that train many copies of the paper's image network at once.

Nothing here imports Triton until it is used: `cautious.beliefs.kernels.step` does, and is for machines that have it.
"""

from __future__ import annotations

from importlib.util import find_spec


def triton_available() -> bool:
    """Whether Triton is installed, so that `cautious.beliefs.kernels.step` can be imported."""
    return find_spec("triton") is not None
