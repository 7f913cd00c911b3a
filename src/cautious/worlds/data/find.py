"""Where image files are looked for, in order: the folder given, the user's cache, the embedded default."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cautious.errors import MissingFileError
from cautious.validation import as_path
from cautious.worlds.data.sources import SETS, Layout, known_split

DATA_VARIABLE = "CAUTIOUS_DATA"
CACHE_VARIABLE = "CAUTIOUS_CACHE"
CACHE = "cache"
EMBEDDED = Path(__file__).parent / "embedded"


@dataclass(frozen=True)
class Place:
    """A data folder, and in `kind` what it is to the user."""

    kind: str
    folder: Path

    def __str__(self) -> str:
        return self.kind if self.folder == EMBEDDED else f"{self.kind} {self.folder}"


@dataclass(frozen=True)
class ImageFiles:
    """The two files of a split, and where they were found."""

    place: Place
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


def places(data: str | Path | None = None) -> list[Place]:
    """The folders to look in, first choice first.

    Args:
        data: the user's folder; if None, the one that CAUTIOUS_DATA names, if it names one.

    Raises:
        MissingFileError: the user's folder is not there, or holds no set that is known here.
    """
    given = _given_place(data)
    cache = cache_folder()
    found = [given] if given else []
    found += [Place(CACHE, cache)] if cache else []
    return [*found, Place("embedded default", EMBEDDED)]


def _given_place(data: str | Path | None) -> Place | None:
    folder = os.environ.get(DATA_VARIABLE) if data is None else as_path(data, "data")
    if not folder:
        return None
    place = Place("given folder" if data is not None else f"{DATA_VARIABLE} folder", Path(folder).expanduser())
    if not place.folder.is_dir():
        raise MissingFileError(f"{place}: there is no such folder; leave it out to use the embedded default.")
    layouts = [layout for known in SETS.values() for split in known.splits.values() for layout in split.layouts]
    if not any(_file(place.folder, layout.images) for layout in layouts):
        wanted = ", ".join(dict.fromkeys(f"{layout.folder}/" for layout in layouts))
        raise MissingFileError(
            f"{place}: holds no image set that is known here; wanted are IDX files, plain or .gz, in one of {wanted}. "
            "Give the folder above these, or leave it out to use the embedded default."
        )
    return place


def locate(name: str, split: str, data: str | Path | None = None) -> ImageFiles | None:
    """The files of a split in the first place that has both, or None.

    Raises:
        InvalidInputError: a name or split that is not known.
        MissingFileError: the user's folder is unusable (see `places`), or holds half of the pair.
    """
    layouts = known_split(name, split).layouts
    for place in places(data):
        halves = []
        for layout in layouts:
            images, labels = _file(place.folder, layout.images), _file(place.folder, layout.labels)
            if images and labels:
                return ImageFiles(place, layout, images, labels)
            halves += [(images, layout.labels)] if images else [(labels, layout.images)] if labels else []
        if halves and place.kind != CACHE:  # half a pair in the cache is a download that was broken off
            there, lacking = halves[0]
            raise MissingFileError(f"{place}: has {there} but not {lacking}[.gz]; images and labels come together.")
    return None


def _file(folder: Path, name: str) -> Path | None:
    """The plain file, else the gzipped one: where both lie side by side, the plain one was unpacked to be used."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def missing(name: str, split: str, data: str | Path | None = None) -> MissingFileError:
    """The error for a split that is in none of the places: names them, and the way out."""
    looked = "; ".join(map(str, places(data)))
    return MissingFileError(
        f"{name} {split}: not found in: {looked}. Run 'cautious data fetch {name}' once where there is a network, or give "
        f"a folder that has it (--data FOLDER, or {DATA_VARIABLE})."
    )
