"""Where and when a run is made: what a number needs beside it."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import cautious.errors

PACKAGES = ("cautious", "torch", "numpy", "scipy")
UNKNOWN = "not installed"


def hardware_name(device: torch.device | str) -> str:
    """What does the work on a device, in words."""
    place = torch.device(device)
    return torch.cuda.get_device_name(place) if place.type == "cuda" else f"{_cpu_name()}, {os.cpu_count()} cores"


def provenance() -> dict[str, Any]:
    """Date, versions, hardware and commit: what a number needs beside it."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **identity(),
        "hardware": {"machine": platform.machine(), "cpu": _cpu_name(), "cores": os.cpu_count(), "gpu": gpu},
    }


def identity() -> dict[str, Any]:
    """Commit and versions: what decides results beside the settings."""
    return {"commit": _commit(), "versions": {"python": platform.python_version(), **package_versions()}}


def provenance_line() -> str:
    """The same in one line, for what the repository's tools print above their tables."""
    found = provenance()
    hardware, versions = found["hardware"], found["versions"]
    return (
        f"{found['date'][:10]}, commit {found['commit']}, {hardware['gpu'] or hardware['cpu']}, {hardware['cores']} cores, "
        f"Python {versions['python']}, torch {versions['torch']}"
    )


def package_versions() -> dict[str, str]:
    """Versions of the packages that decide results."""
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


@functools.cache
def _commit() -> str | None:
    """The commit of the source tree that this package runs from, with a mark if it was changed since."""
    root = Path(cautious.errors.__file__).parent
    try:
        call = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
        found = subprocess.run(call, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
