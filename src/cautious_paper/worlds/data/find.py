"""Where image files are looked for, in order: the folder given, the user's cache, the embedded default."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cautious.errors import MissingFileError
from cautious.validation import as_path
from cautious_paper.worlds.data.sources import SETS, Layout, known_split

DATA_VARIABLE = "CAUTIOUS_DATA"
CACHE_VARIABLE = "CAUTIOUS_CACHE"
CACHE = "cache"
EMBEDDED = Path(__file__).parent / "embedded"


@dataclass(frozen=True)
class DataFolder:
    """A folder in which image sets are looked for, and in `kind` what it is to the user."""

    kind: str
    path: Path

    def __str__(self) -> str:
        return self.kind if self.path == EMBEDDED else f"{self.kind} {self.path}"


@dataclass(frozen=True)
class ImageFiles:
    """The two files of a split, and where they were found."""

    found_in: DataFolder
    layout: Layout
    images: Path
    labels: Path


def cache_folder() -> Path | None:
    """Where fetched sets are kept: CAUTIOUS_CACHE, or the platform's cache folder; None if neither is known.

    Only pooch knows the platform's folder, and reading data must work without pooch.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    try:
        import pooch
    except ModuleNotFoundError:
        return None
    return Path(pooch.os_cache("cautious"))


def data_folders(data: str | Path | None = None) -> list[DataFolder]:
    """The folders to look in, first choice first.

    Args:
        data: the user's folder; if None, the one that CAUTIOUS_DATA names, if it names one.

    Raises:
        MissingFileError: the user's folder is not there, or holds no set that is known here.
    """
    given = _given_folder(data)
    cache = cache_folder()
    folders = [given] if given else []
    folders += [DataFolder(CACHE, cache)] if cache else []
    return [*folders, DataFolder("embedded default", EMBEDDED)]


def _given_folder(data: str | Path | None) -> DataFolder | None:
    path = os.environ.get(DATA_VARIABLE) if data is None else as_path(data, "data")
    if not path:
        return None
    given = DataFolder("given folder" if data is not None else f"{DATA_VARIABLE} folder", Path(path).expanduser())
    if not given.path.is_dir():
        raise MissingFileError(f"{given}: there is no such folder; leave it out to use the embedded default.")
    layouts = [layout for known in SETS.values() for split in known.splits.values() for layout in split.layouts]
    if not any(_file(given.path, layout.images) for layout in layouts):
        wanted = ", ".join(dict.fromkeys(f"{layout.folder}/" for layout in layouts))
        raise MissingFileError(
            f"{given}: holds no image set that is known here; wanted are IDX files, plain or .gz, in one of {wanted}. "
            "Give the folder above these, or leave it out to use the embedded default."
        )
    return given


def check_data_folder(data: str | Path | None) -> None:
    """Raise unless the user's folder, if there is one, is there and holds a set that is known here."""
    _given_folder(data)


def locate(name: str, split: str, data: str | Path | None = None) -> ImageFiles | None:
    """The files of a split in the first folder that has both, or None.

    Raises:
        InvalidInputError: a name or split that is not known.
        MissingFileError: the user's folder is unusable (see `data_folders`), or holds half of the pair.
    """
    layouts = known_split(name, split).layouts
    for folder in data_folders(data):
        halves = []
        for layout in layouts:
            images, labels = _file(folder.path, layout.images), _file(folder.path, layout.labels)
            if images and labels:
                return ImageFiles(folder, layout, images, labels)
            halves += [(images, layout.labels)] if images else [(labels, layout.images)] if labels else []
        if halves and folder.kind != CACHE:  # half a pair in the cache is a download that was broken off
            there, lacking = halves[0]
            raise MissingFileError(f"{folder}: has {there} but not {lacking}[.gz]; images and labels come together.")
    return None


def _file(folder: Path, name: str) -> Path | None:
    """The plain file, else the gzipped one: where both lie side by side, the plain one was unpacked to be used."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def missing(name: str, split: str, data: str | Path | None = None) -> MissingFileError:
    """The error for a split that is in none of the folders: names them, and the way out."""
    looked = "; ".join(map(str, data_folders(data)))
    return MissingFileError(
        f"{name} {split}: not found in: {looked}. Run 'cautious data fetch {name}' once where there is a network, or give "
        f"a folder that has it (--data FOLDER, or {DATA_VARIABLE})."
    )
