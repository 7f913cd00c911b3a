"""Fused Triton kernels that train many copies of the paper's networks at once: `image.step` and `driving.fused`.

Nothing here imports Triton until it is used: those two do, and are for machines that have it
(`cautious.validation.triton_available`).
"""
