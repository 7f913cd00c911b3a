"""Fused Triton kernels that train many copies of the paper's networks at once: `image.step` and `driving.fused`.

Nothing here imports Triton until it is used: those two do, and are for machines that have it.
"""

from __future__ import annotations

from importlib.util import find_spec


def triton_available() -> bool:
    """Whether Triton is installed, so that the kernels can be imported."""
    return find_spec("triton") is not None
