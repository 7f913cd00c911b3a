"""Which kernels a device can run, and in which block sizes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
import triton
import triton.language as tl

from cautious.errors import InvalidInputError
from cautious.validation import parse_choice
from cautious_paper.kernels.image.layout import largest_block

GLUON_RUN, GLUON_COMPILED = "3.6.", "3.7."
"""Versions of Triton whose Gluon, an experimental dialect, the Hopper kernels were run with, and were only compiled with.
Later ones refuse its overlapping views of shared memory."""


class KernelVariant(StrEnum):
    """How the kernels are written: each gives the same function, rounded a little differently."""

    PORTABLE = "portable"
    """The Triton language alone: any GPU Triton knows, and its interpreter on the CPU."""

    PTX = "ptx"
    """Two 16-bit numbers at a time in NVIDIA's assembly: compute capability 8.0 and up."""

    HOPPER = "hopper"
    """Both convolutions in one kernel, and their gradients in another: compute capability 9.0."""

    @property
    def has_ptx(self) -> bool:
        """Whether elementwise work is in assembly."""
        return self is not KernelVariant.PORTABLE


def interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def bound(count: int) -> Any:
    """A loop's bound: a run-time number on a GPU, a constant in the interpreter, which cannot count to another."""
    return tl.constexpr(count) if interpreted() else count


def supported_variants(device: torch.device) -> tuple[KernelVariant, ...]:
    """What `device` can run, slowest first."""
    if interpreted() or device.type != "cuda" or torch.version.hip is not None:
        return (KernelVariant.PORTABLE,)
    capability = torch.cuda.get_device_capability(device)
    if capability[0] == 9 and triton.__version__.startswith((GLUON_RUN, GLUON_COMPILED)):
        return (KernelVariant.PORTABLE, KernelVariant.PTX, KernelVariant.HOPPER)
    return (KernelVariant.PORTABLE, KernelVariant.PTX) if capability[0] >= 8 else (KernelVariant.PORTABLE,)


def choose_variant(name: str, device: torch.device) -> KernelVariant:
    """The one named, if `device` can run it; for "auto" the fastest, but Hopper's only with a Triton it was run with."""
    supported = supported_variants(device)
    if name == "auto":
        was_run = triton.__version__.startswith(GLUON_RUN)
        return [each for each in supported if was_run or each is not KernelVariant.HOPPER][-1]
    variant = parse_choice(KernelVariant, name, "variant")
    if variant not in supported:
        known = ", ".join(repr(str(each)) for each in supported)
        raise InvalidInputError(f"variant={name!r} cannot run on {device}; choose one of {known}, or 'auto'.")
    return variant


@dataclass(frozen=True)
class Tuning:
    """Images per program and loads in flight, for one padded batch; the result's last bits depend on it, so models do not."""

    conv1_block: int
    conv1_stages: int
    conv2_block: int
    conv2_stages: int
    dense_block: int
    conv2_gradient_stages: int
    conv1_gradient_block: int
    conv1_gradient_stages: int

    @classmethod
    def of(cls, padded: int, device: torch.device) -> Tuning:
        """Block sizes for a padded batch: measured on an H200, smaller where shared memory is short."""
        roomy = device.type != "cuda" or _shared_memory(device) >= 200 * 1024
        return cls(
            conv1_block=64,
            conv1_stages=3,
            conv2_block=largest_block(padded, 256 if roomy else 128),
            conv2_stages=4 if roomy else 3,
            dense_block=largest_block(padded, 128 if roomy else 64),
            conv2_gradient_stages=4 if roomy else 2,
            conv1_gradient_block=64 if roomy else 32,
            conv1_gradient_stages=3 if roomy else 1,
        )


def _shared_memory(device: torch.device) -> int:
    """Bytes of shared memory a program may use (48 KiB where PyTorch does not say)."""
    return getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 48 * 1024)
