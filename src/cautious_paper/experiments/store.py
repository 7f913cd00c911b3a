"""A run on disk: its settings, its provenance (versions, hardware, commit, date), and its results, stage by stage.

    manifest.json            settings, versions, hardware, commit, date, where data came from
    <stage>.json             numbers of a finished stage
    <stage>.safetensors      its arrays
    <stage>.parts            pieces of an unfinished stage

The numbers of a stage are written last and atomically: a stage whose JSON file exists is finished, so that an interrupted run
resumes with the first missing stage. A stage records the checksum of its arrays, and the run that it belongs to.
"""

from __future__ import annotations

import datetime
import functools
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from cautious.errors import BadFileError, FolderInUseError
from cautious.io.arrays import (
    FILES,
    FORMAT,
    checksum_of,
    load_json,
    load_tensors,
    recorded_checksum,
    save_json,
    save_tensors,
)
from cautious.io.atomic import SUFFIX, clear_abandoned, translate_os_errors
from cautious.machine import UNKNOWN, cpu_name, num_cpus, package_versions

MANIFEST = "manifest.json"
RUN = "run"
"""The entry of a stage that identifies it: a hash of its name and of the run's experiment and settings."""
MADE_WITH = "made_with"
"""The entry of a stage with the commit and versions that made it, where they differ from the manifest's."""

ENTRIES = ("format", FILES, RUN, MADE_WITH)
"""Entries of a stage's file that are not its numbers."""

StageResult = tuple[dict[str, Any], dict[str, Tensor]]
"""What a stage produces: numbers and arrays."""


class Store:
    """The folder of one run."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        """Wrap an opened folder."""
        self.folder = folder
        self.manifest = manifest
        self._hashed = [manifest["experiment"], manifest["settings"]]

    @classmethod
    def create(
        cls, folder: Path | str, experiment: str, settings: Mapping[str, Any], origins: Mapping[str, str] | None = None
    ) -> Store:
        """Start a run in `folder`, or resume the one that is there; refuse one with other settings or of another version.

        Args:
            folder: Folder of the run.
            experiment: Name of the experiment.
            settings: Everything that decides the results.
            origins: Where its data came from, in words; the same data from elsewhere is the same run.
        """
        path = Path(folder) / MANIFEST
        if not path.exists():
            with _lock_of(Path(folder)):
                if not path.exists():  # another process may have written it before this one had the lock
                    manifest = {"format": FORMAT, "experiment": experiment, "settings": dict(settings)} | provenance()
                    save_json(path, manifest | ({} if origins is None else {"origins": dict(origins)}))
        # Read back even if it was written just now: a run that is begun and one that is resumed take the same path from here.
        store = cls.open(folder)
        _refuse_another_version(store)
        _refuse_if_different(store, experiment, settings)
        return store

    @classmethod
    def open(cls, folder: Path | str) -> Store:
        """Open a run to read it."""
        path = Path(folder) / MANIFEST
        manifest = load_json(path)
        if not isinstance(manifest, dict) or not {"format", "experiment", "settings"} <= manifest.keys():
            raise BadFileError(f"{path}: not the manifest of a run (expected format, experiment and settings).")
        if manifest["format"] != FORMAT:
            raise BadFileError(f"{path}: written in format {manifest['format']!r}; this version reads {FORMAT}.")
        if not isinstance(manifest["experiment"], str) or not isinstance(manifest["settings"], dict):
            raise BadFileError(f"{path}: experiment must be a name, and settings a JSON object.")
        return cls(Path(folder), manifest)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock for the duration of the block; refuse the folder if another process has it."""
        with _lock_of(self.folder):
            self._tidy()  # under the lock: nobody else's unfinished files can be among what is removed
            yield

    def _tidy(self) -> None:
        """Remove what a killed process left behind: pieces of finished stages, and temporary files."""
        for parts in self.folder.glob("*.parts"):
            if self.has(parts.stem):
                shutil.rmtree(parts, ignore_errors=True)
        for folder in {path.parent for path in self.folder.rglob(f"*{SUFFIX}")}:
            clear_abandoned(folder)

    def parts(self, stage: str) -> Store:
        """The store of a stage's pieces while it is unfinished, so that an interruption costs one piece at most."""
        # The run's own manifest: a piece of a run with other settings is refused like a stage of one.
        return Store(self._path(stage, "parts"), self.manifest)

    def stages(self) -> list[str]:
        """Names of the finished stages."""
        names = (path.stem for path in self.folder.glob("*.json") if path.name != MANIFEST)
        return sorted(name for name in names if self._is_stage(name))

    def has(self, stage: str) -> bool:
        """Whether a stage is finished."""
        return self._path(stage, "json").exists()

    def save(
        self,
        stage: str,
        numbers: Mapping[str, Any],
        arrays: Mapping[str, Tensor] | None = None,
        files: Mapping[str, str] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a finished stage: arrays first, numbers last, because the numbers mark it as finished.

        Args:
            stage: Name of the stage.
            numbers: Results that are numbers and texts.
            arrays: Results that are arrays.
            files: Checksums of other files of the stage, by path below the run's folder.
            provenance: Commit and versions that made it (`Store.provenance`), if not this process.
        """
        if provenance is None:
            # Pieces may come from earlier calls, with another commit or torch: the stage names whatever took part in it.
            pieces, provenance = self.parts(stage), {}
            for piece in pieces.stages():
                provenance |= pieces.provenance(piece)
            provenance |= self.entries_unlike_manifest(_flat(identity()))
        checksums = dict(files or {})
        if arrays:
            path = self._path(stage, "safetensors")
            checksums[path.name] = save_tensors(path, arrays)
        entries = {"format": FORMAT, **numbers, RUN: self._identity(stage)}
        entries |= {MADE_WITH: dict(provenance)} if provenance else {}
        save_json(self._path(stage, "json"), entries, checksums)  # from here on the stage is finished
        # Only now: stopped before this line, the pieces stay, and `_tidy` removes them the next time.
        shutil.rmtree(self._path(stage, "parts"), ignore_errors=True)

    def numbers(self, stage: str) -> dict[str, Any]:
        """The numbers of a finished stage."""
        return {name: value for name, value in self._described(stage).items() if name not in ENTRIES}

    def provenance(self, stage: str) -> dict[str, Any]:
        """Commit and versions that made a finished stage, as far as they differ from the manifest's."""
        return dict(self._described(stage).get(MADE_WITH, {}))

    def made_by(self, stage: str) -> dict[str, Any]:
        """Commit and versions that made a finished stage, complete."""
        return self._manifest_entries() | self.provenance(stage)

    def entries_unlike_manifest(self, made_by: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of commit and versions that differ from the manifest's."""
        of_manifest = self._manifest_entries()
        return {name: value for name, value in made_by.items() if of_manifest.get(name) != value}

    def _manifest_entries(self) -> dict[str, Any]:
        return _flat({name: self.manifest[name] for name in identity() if self.manifest.get(name) is not None})

    def arrays(self, stage: str) -> dict[str, Tensor]:
        """The arrays of a finished stage."""
        path = self._path(stage, "safetensors")
        return load_tensors(path, self.recorded_checksum(stage, path.name))

    def recorded_checksum(self, stage: str, file: str) -> str | None:
        """The checksum that a finished stage records for one of its files; None if it has none."""
        return recorded_checksum(self._described(stage), file)

    def _described(self, stage: str) -> dict[str, Any]:
        path = self._path(stage, "json")
        # Checked: a stage without a checksum was edited by hand, and its numbers are not the run's.
        entries = load_json(path, checked=True)
        if not isinstance(entries, dict):
            raise BadFileError(f"{path}: expected a JSON object.")
        if not self._is_own(stage, entries):
            raise BadFileError(
                f"{path}: holds another stage than its name says, or one of a run with other settings than this folder's "
                "manifest. Delete it, and the same command makes it again."
            )
        return entries

    def _is_stage(self, name: str) -> bool:
        """Whether a file of that name is a stage of this run, and not some other JSON file."""
        try:
            return "format" in self._described(name)
        except BadFileError:
            return False

    def _is_own(self, stage: str, entries: Mapping[str, Any]) -> bool:
        """Whether a file holds this stage of this run."""
        return entries.get(RUN) == self._identity(stage)

    def _identity(self, stage: str) -> str:
        """Distinguishes a stage of this run from all others."""
        # Not of commit and versions: a run may be resumed after an update, and then says so (`provenance`).
        return checksum_of([*self._hashed, stage])[-16:]

    def _path(self, stage: str, ending: str) -> Path:
        if Path(stage).name != stage:  # names also come from files, and must not lead out of the folder
            raise BadFileError(f"{self.folder}: stage {stage!r} must be a plain file name, without folders.")
        return self.folder / f"{stage}.{ending}"


@contextmanager
def _lock_of(folder: Path) -> Iterator[None]:
    """Hold a folder's lock for the duration of the block; refuse the folder if another process has it.

    The operating system holds the lock, so that a process that is killed leaves none behind.
    """
    lock = FileLock(folder / ".lock")
    with translate_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)  # no waiting: a run takes hours, and two in one folder are a mistake
        except Timeout:
            raise FolderInUseError(
                f"{folder}: another process is working in this folder; wait for it, stop it, or choose another folder."
            ) from None
    try:
        yield
    finally:
        lock.release()


def _refuse_another_version(store: Store) -> None:
    """Refuse a run of another version, because its results would be mixed with ours. An unknown version is accepted."""
    versions = store.manifest.get("versions")
    began_with = versions.get("cautious", UNKNOWN) if isinstance(versions, dict) else UNKNOWN
    installed = package_versions()["cautious"]
    if UNKNOWN not in (began_with, installed) and began_with != installed:
        raise BadFileError(
            f"{store.folder}: holds a run that version {began_with} of cautious began, and this is version {installed}. "
            "'cautious report' reads it; to resume it, install that version. Or choose another folder with --out."
        )


def _refuse_if_different(store: Store, experiment: str, settings: Mapping[str, Any]) -> None:
    stored = _flat({"experiment": store.manifest["experiment"], **store.manifest["settings"]})
    wanted = _flat({"experiment": experiment, **settings})
    differing = [name for name in {**stored, **wanted} if stored.get(name) != wanted.get(name)]
    if differing:
        what = "; ".join(f"{name}: {stored.get(name)!r} there, {wanted.get(name)!r} here" for name in differing)
        raise BadFileError(
            f"{store.folder}: holds another run ({what}). Choose another folder with --out, or delete it."
        )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by path, such as training.seed."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def as_lists(measured: Mapping[str, Tensor]) -> dict[str, Any]:
    """Tensors as nested lists for JSON, NaN (nothing to measure) as None."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(part) for part in value]
        return None if value != value else value

    return {name: plain(value.tolist()) for name, value in measured.items()}


def provenance() -> dict[str, Any]:
    """Date, versions, hardware and commit."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    hardware = {"machine": platform.machine(), "cpu": cpu_name(), "cores": num_cpus(), "gpu": gpu}
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": date, **identity(), "hardware": hardware}


def identity() -> dict[str, Any]:
    """Commit and versions: what decides results beside the settings."""
    return {"commit": _commit(), "versions": {"python": platform.python_version(), **package_versions()}}


def provenance_line() -> str:
    """The provenance in one line, which the repository's tools print above their tables."""
    entries = provenance()
    hardware, versions = entries["hardware"], entries["versions"]
    return (
        f"{entries['date'][:10]}, commit {entries['commit']}, {hardware['gpu'] or hardware['cpu']}, "
        f"{hardware['cores']} cores, Python {versions['python']}, torch {versions['torch']}"
    )


@functools.cache
def _commit() -> str | None:
    """The commit of the source tree that this package runs from, marked as dirty if it has changed since."""
    call = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        described = subprocess.run(call, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None
