"""The hardware and the versions of packages that results were made with."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import torch

PACKAGES = ("cautious", "torch", "numpy", "scipy")
UNKNOWN = "not installed"


def hardware_name(device: torch.device | str) -> str:
    """Name of the GPU; or name of the CPU and the number of its cores."""
    kind = torch.device(device)
    return torch.cuda.get_device_name(kind) if kind.type == "cuda" else f"{cpu_name()}, {num_cpus()} cores"


def num_cpus() -> int | None:
    """Number of CPUs that this process may use; a container may allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def package_versions() -> dict[str, str]:
    """Versions of the packages that results depend on."""
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN


def cpu_name() -> str:
    """Name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
