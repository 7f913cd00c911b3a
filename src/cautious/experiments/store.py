"""A run on disk: what was asked, with what, on which machine, and what came out, stage by stage.

    manifest.json            settings, versions, hardware, commit, date, where data came from
    <stage>.json             numbers of a finished stage
    <stage>.safetensors      its arrays
    <stage>.parts            pieces of an unfinished stage

A stage is written whole; one that is there is finished, so that an interrupted run goes on where it was. It knows the
checksum of its arrays, and the run that it belongs to.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import Tensor

from cautious.errors import BadFileError, FolderInUseError
from cautious.experiments.provenance import UNKNOWN, identity, package_versions, provenance
from cautious.io.arrays import (
    FILES,
    FORMAT,
    checksum_of,
    listed,
    load_json,
    load_tensors,
    save_json,
    save_tensors,
)
from cautious.io.atomic import SUFFIX, clear_abandoned, translate_os_errors

MANIFEST = "manifest.json"
RUN = "run"
"""The entry of a stage that says which one it is, of which run: a hash of its name and of what the manifest asks for."""
MADE_WITH = "made_with"
"""The entry of a stage with the commit and versions that made it, where they are not those that began the run."""

ENTRIES = ("format", FILES, RUN, MADE_WITH)
"""Of a stage's file, beside its numbers."""

StageResult = tuple[dict[str, Any], dict[str, Tensor]]
"""What a stage comes to: numbers and arrays."""


class Store:
    """The folder of one run."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        """Wrap an opened folder."""
        self.folder = folder
        self.manifest = manifest
        self._asked = [manifest["experiment"], manifest["settings"]]

    @classmethod
    def create(
        cls, folder: Path | str, experiment: str, settings: Mapping[str, Any], origins: Mapping[str, str] | None = None
    ) -> Store:
        """Start a run in `folder`, or go on with the one that is there; refuse one with other settings or of another version.

        Args:
            folder: Where the run lives.
            experiment: Its name.
            settings: What decides the results.
            origins: Where its data came from, in words; the same data from elsewhere is the same run.
        """
        path = Path(folder) / MANIFEST
        if not path.exists():
            with _alone_in(Path(folder)):
                if not path.exists():  # nor made by another process in the meantime
                    asked = {"format": FORMAT, "experiment": experiment, "settings": dict(settings)}
                    save_json(path, asked | provenance() | ({} if origins is None else {"origins": dict(origins)}))
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
    def alone(self) -> Iterator[None]:
        """Keep the folder to this process while it writes; refuse it if another one is at work there."""
        with _alone_in(self.folder):
            self._tidy()
            yield

    def _tidy(self) -> None:
        """Remove what a killed process had no time to: pieces of stages that are finished, and temporary files."""
        for parts in self.folder.glob("*.parts"):
            if self.has(parts.stem):
                shutil.rmtree(parts, ignore_errors=True)
        for folder in {path.parent for path in self.folder.rglob(f"*{SUFFIX}")}:
            clear_abandoned(folder)

    def parts(self, stage: str) -> Store:
        """Where pieces of a stage are kept until it is finished, so that an interruption costs one piece at most."""
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
        """Finish a stage: arrays first, numbers last, since those mark it as done.

        Args:
            stage: Its name.
            numbers: What came out.
            arrays: The same, where it is large.
            files: Checksums of what else belongs to the stage, by path below the run's folder.
            provenance: What made it (`Store.provenance`), if not this process.
        """
        if provenance is None:
            pieces, provenance = self.parts(stage), {}
            for piece in pieces.stages():
                provenance |= pieces.provenance(piece)
            provenance |= self.unlike_the_manifest(_flat(identity()))
        own = dict(files or {})
        if arrays:
            path = self._path(stage, "safetensors")
            own[path.name] = save_tensors(path, arrays)
        save_json(
            self._path(stage, "json"),
            {"format": FORMAT, **numbers, RUN: self._identity(stage)} | _entry(provenance),
            own,
        )
        shutil.rmtree(self._path(stage, "parts"), ignore_errors=True)

    def numbers(self, stage: str) -> dict[str, Any]:
        """The numbers of a finished stage."""
        return {name: value for name, value in self._described(stage).items() if name not in ENTRIES}

    def provenance(self, stage: str) -> dict[str, Any]:
        """Commit and versions that made a finished stage, where they are not the manifest's; else empty."""
        return dict(self._described(stage).get(MADE_WITH, {}))

    def made_by(self, stage: str) -> dict[str, Any]:
        """The same with what the manifest says of it."""
        return self._begun_with() | self.provenance(stage)

    def unlike_the_manifest(self, made_by: Mapping[str, Any]) -> dict[str, Any]:
        """Of commit and versions, what the process that began the run did not have."""
        there = self._begun_with()
        return {name: value for name, value in made_by.items() if there.get(name) != value}

    def _begun_with(self) -> dict[str, Any]:
        return _flat({name: self.manifest[name] for name in identity() if self.manifest.get(name) is not None})

    def arrays(self, stage: str) -> dict[str, Tensor]:
        """The arrays of a finished stage."""
        path = self._path(stage, "safetensors")
        return load_tensors(path, self.listed(stage, path.name))

    def listed(self, stage: str, file: str) -> str | None:
        """The checksum that a finished stage has for one of its files; None if it has none."""
        return listed(self._described(stage), file)

    def _described(self, stage: str) -> dict[str, Any]:
        path = self._path(stage, "json")
        found = load_json(path, checked=True)
        if not isinstance(found, dict):
            raise BadFileError(f"{path}: expected a JSON object.")
        if not self._is_own(stage, found):
            raise BadFileError(
                f"{path}: another stage than its name says, or of a run with other settings than this folder's manifest has. "
                "Delete it to have it made again."
            )
        return found

    def _is_stage(self, name: str) -> bool:
        """Whether a file of that name is a stage of this run, and not something else that lies here."""
        try:
            return "format" in self._described(name)
        except BadFileError:
            return False

    def _is_own(self, stage: str, entries: Mapping[str, Any]) -> bool:
        """Whether a file holds this stage of this run."""
        return entries.get(RUN) == self._identity(stage)

    def _identity(self, stage: str) -> str:
        """Tells a stage of this run from any other."""
        return checksum_of([*self._asked, stage])[-16:]

    def _path(self, stage: str, ending: str) -> Path:
        if Path(stage).name != stage:
            raise BadFileError(f"{self.folder}: stage {stage!r} is no plain name.")
        return self.folder / f"{stage}.{ending}"


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep a folder to this process; refuse it if another one is at work there.

    The lock belongs to the operating system, so a process that dies, however it dies, leaves none behind.
    """
    lock = FileLock(folder / ".lock")
    with translate_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise FolderInUseError(
                f"{folder}: another process is working in this folder; wait for it, stop it, or choose another folder."
            ) from None
    try:
        yield
    finally:
        lock.release()


def _as_object(found: Any) -> dict[str, Any]:
    """What a JSON file holds, if it is an object; else an empty one."""
    return found if isinstance(found, dict) else {}


def _entry(provenance: Mapping[str, Any]) -> dict[str, Any]:
    return {MADE_WITH: dict(provenance)} if provenance else {}


def _refuse_another_version(store: Store) -> None:
    """Results of two versions in one run would pass for those of one. A version that is not known (not installed) will do."""
    there, here = (versions.get("cautious", UNKNOWN) for versions in (_versions(store), package_versions()))
    if UNKNOWN not in (there, here) and there != here:
        raise BadFileError(
            f"{store.folder}: holds a run that version {there} of cautious began, and this is version {here}. 'cautious "
            "report' reads it; to go on with it, install that version. Or choose another folder with --out."
        )


def _versions(store: Store) -> Mapping[str, Any]:
    return _as_object(store.manifest.get("versions"))


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


def as_lists(measured: Mapping[str, Tensor]) -> dict[str, Any]:
    """Tensors as nested lists for JSON, NaN (nothing to measure) as None."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(part) for part in value]
        return None if value != value else value

    return {name: plain(value.tolist()) for name, value in measured.items()}
