"""What results were made with: the processor, how many there are, and the versions of the packages that decide results."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import torch

PACKAGES = ("cautious", "torch", "numpy", "scipy")
UNKNOWN = "not installed"


def hardware_name(device: torch.device | str) -> str:
    """The name of a GPU; or that of the CPU, with the number of its cores."""
    kind = torch.device(device)
    return torch.cuda.get_device_name(kind) if kind.type == "cuda" else f"{cpu_name()}, {num_cpus()} cores"


def num_cpus() -> int | None:
    """How many CPUs this process may use; a container or a batch system may allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def package_versions() -> dict[str, str]:
    """Versions of the packages that decide results."""
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN


def cpu_name() -> str:
    """The processor, as the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
