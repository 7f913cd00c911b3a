"""A run on disk: what was asked, with what, on which machine, and what came out, stage by stage.

    manifest.json            settings, versions, hardware, commit, date
    <stage>.json             numbers of a finished stage
    <stage>.safetensors      its arrays

A stage is written whole; one that is there is finished, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

import cautious.errors
from cautious.beliefs.files import load_json, load_tensors, save_json, save_tensors
from cautious.errors import BadFileError, FolderInUseError

FORMAT = 1
PACKAGES = ("cautious", "torch", "numpy", "scipy")

Findings = tuple[dict[str, Any], dict[str, Tensor]]
"""What a stage comes to: numbers and arrays."""


class Store:
    """The folder of one run."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        """Wrap an opened folder."""
        self.folder = folder
        self.manifest = manifest

    @classmethod
    def create(cls, folder: Path | str, experiment: str, settings: Mapping[str, Any]) -> Store:
        """Start a run in `folder`, or go on with the one that is there; refuse one with other settings."""
        path = Path(folder) / "manifest.json"
        if path.exists():
            store = cls.open(folder)
            _refuse_if_different(store, experiment, settings)
            return store
        manifest = {"format": FORMAT, "experiment": experiment, "settings": dict(settings), **surroundings()}
        save_json(path, manifest)
        return cls(Path(folder), manifest)

    @classmethod
    def open(cls, folder: Path | str) -> Store:
        """Open a run to read it."""
        path = Path(folder) / "manifest.json"
        manifest = load_json(path)
        if not isinstance(manifest, dict) or not {"format", "experiment", "settings"} <= manifest.keys():
            raise BadFileError(f"{path}: not the manifest of a run (expected format, experiment and settings).")
        if manifest["format"] != FORMAT:
            raise BadFileError(f"{path}: written in format {manifest['format']!r}; this version reads format {FORMAT}.")
        return cls(Path(folder), manifest)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep the folder to this process while it writes; refuse it if another one is at work there.

        The lock belongs to the operating system, so a process that dies, however it dies, leaves none behind.
        """
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise FolderInUseError(
                f"{self.folder}: another process is working in this folder; wait for it, stop it, or choose another folder."
            ) from None
        try:
            yield
        finally:
            lock.release()

    def has(self, stage: str) -> bool:
        """Whether a stage is finished."""
        return (self.folder / f"{stage}.json").exists()

    def save(self, stage: str, numbers: Mapping[str, Any], arrays: Mapping[str, Tensor] | None = None) -> None:
        """Finish a stage: arrays first, numbers last, since those mark it as done."""
        if arrays:
            save_tensors(self.folder / f"{stage}.safetensors", arrays)
        save_json(self.folder / f"{stage}.json", dict(numbers))

    def numbers(self, stage: str) -> dict[str, Any]:
        """The numbers of a finished stage."""
        found = load_json(self.folder / f"{stage}.json")
        if not isinstance(found, dict):
            raise BadFileError(f"{self.folder / stage}.json: expected a JSON object.")
        return found

    def arrays(self, stage: str) -> dict[str, Tensor]:
        """The arrays of a finished stage."""
        return load_tensors(self.folder / f"{stage}.safetensors")


def _refuse_if_different(store: Store, experiment: str, settings: Mapping[str, Any]) -> None:
    found = _flat({"experiment": store.manifest["experiment"], **store.manifest["settings"]})
    wanted = _flat({"experiment": experiment, **settings})
    differing = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    if differing:
        what = "; ".join(f"{name}: {found.get(name)!r} there, {wanted.get(name)!r} here" for name in differing)
        raise BadFileError(
            f"{store.folder}: holds another run ({what}). Choose another folder with --out, or delete it."
        )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by path, such as training.seed."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def hardware_name(device: torch.device | str) -> str:
    """What does the work on a device, in words."""
    place = torch.device(device)
    return torch.cuda.get_device_name(place) if place.type == "cuda" else f"{_cpu_name()}, {os.cpu_count()} cores"


def as_lists(measured: Mapping[str, Tensor]) -> dict[str, Any]:
    """Tensors as nested lists for JSON, NaN (nothing to measure) as None."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(part) for part in value]
        return None if value != value else value

    return {name: plain(value.tolist()) for name, value in measured.items()}


def surroundings() -> dict[str, Any]:
    """Date, versions, hardware and commit: what a number needs beside it."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **package_versions()},
        "hardware": {"machine": platform.machine(), "cpu": _cpu_name(), "cores": os.cpu_count(), "gpu": gpu},
    }


def package_versions() -> dict[str, str]:
    """Versions of the packages that decide results."""
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def _commit() -> str | None:
    """The commit of the source tree that this package runs from, with a mark if it was changed since."""
    root = Path(cautious.errors.__file__).parent
    try:
        call = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
        found = subprocess.run(call, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
