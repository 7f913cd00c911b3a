"""Downloads of the published image sets into the user's cache, by pooch; only when asked for.

A file gets its name after its checksum was found right, so a broken download is never mistaken for data.
"""

from __future__ import annotations

import importlib.util
import logging
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from cautious.errors import BadFileError, MissingFileError
from cautious.io.atomic import atomic_write, translate_os_errors
from cautious.progress import TitledProgress
from cautious.validation import look_up
from cautious_paper.worlds.data.find import DATA_VARIABLE, cache_folder
from cautious_paper.worlds.data.sources import SETS, SOURCES, RemoteFile, Source

CHUNK = 2**16
SCRATCH = ".fetch-"
ABANDONED_AFTER = 600.0
"""A download that writes nothing for this many seconds has failed; requests gives up long before."""


def fetch_images(
    names: Sequence[str] = tuple(SETS),
    progress: TitledProgress | None = None,
    *,
    folder: Path | None = None,
    sources: Mapping[str, Source] = SOURCES,
) -> list[Path]:
    """Download whole published sets; what is there already, with the right checksum, is left as it is.

    Args:
        names: which of "digits", "fashion" and "letters". Letters are two small files out of one archive of 0.5 GB.
        progress: called with (file, bytes done, bytes in all).
        folder: where to put them; the user's cache, in which `load_images` looks, if None.
        sources: addresses and checksums; another mirror can be given here.

    Returns:
        The files, whether downloaded now or before.

    Raises:
        InvalidInputError: a name that is not known.
        MissingFileError: a file could not be downloaded, or pooch is not installed.
        BadFileError: the downloaded file does not match its checksum; it is deleted.
        WriteError: there is no room for it, or no permission.
    """
    names = [names] if isinstance(names, str) else list(names)
    wanted = {name: look_up(sources, name, "name") for name in names}
    target = folder or cache_folder()
    if target is None or importlib.util.find_spec("pooch") is None:
        raise MissingFileError("downloads need the package pooch: pip install pooch.")
    fetched: list[Path] = []
    with translate_os_errors(target):
        for source in wanted.values():
            fetched += _fetch(source, target / source.folder, progress)
    return fetched


def _fetch(source: Source, folder: Path, progress: TitledProgress | None) -> list[Path]:
    """The files of a source; an archive itself is not kept: it is a hundred times as large."""
    missing = [file for file in source.files if not _matches(folder / file.name, file)]
    for file in source.files:
        if file not in missing:
            _Progress(file.name, progress).finish()
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        _clear_abandoned(folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix=SCRATCH) as scratch:
            for path in _downloaded_files(source, missing, Path(scratch), progress):
                atomic_write(folder / path.name, partial(shutil.copyfile, path))
    return [folder / file.name for file in source.files]


def _downloaded_files(
    source: Source, files: list[RemoteFile], scratch: Path, progress: TitledProgress | None
) -> Iterator[Path]:
    """Files one after another, each with the right checksum; all members of an archive are checked before any is yielded."""
    if source.archive is None:
        for file in files:
            yield _download(source.address, file, scratch, progress)
        return
    packed = _download(source.address, source.archive, scratch, progress)
    yield from [_unpack(packed, file, scratch) for file in files]


def _clear_abandoned(folder: Path) -> None:
    """Remove what killed downloads left behind; running downloads keep writing to their files."""
    for scratch in folder.glob(f"{SCRATCH}*"):
        with suppress(OSError):  # another process has just removed it, or may not be read by this one
            times = [path.stat().st_mtime for path in (scratch, *scratch.iterdir())]
            if time.time() - max(times) > ABANDONED_AFTER:
                shutil.rmtree(scratch, ignore_errors=True)


def _unpack(archive: Path, file: RemoteFile, folder: Path) -> Path:
    """One member, found by its name in whatever folder of the archive, checked and written to `folder`."""
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [member for member in opened.infolist() if Path(member.filename).name == file.name]
            if not members or file.num_bytes not in (None, members[0].file_size):
                raise BadFileError(f"{archive.name}: holds no {file.name} of the right size; the archive has changed.")
            path = folder / file.name
            path.write_bytes(opened.read(members[0]))
    except (zipfile.BadZipFile, EOFError) as error:
        raise BadFileError(f"{archive.name}: not a complete zip archive ({error}).") from None
    if not _matches(path, file):
        raise BadFileError(
            f"{archive.name}: its {file.name} does not match the checksum {file.checksum}; it was deleted."
        )
    return path


def _matches(path: Path, file: RemoteFile) -> bool:
    import pooch

    algorithm, _, expected = file.checksum.rpartition(":")
    return path.is_file() and pooch.file_hash(str(path), alg=algorithm or "sha256") == expected


def _download(address: str, file: RemoteFile, folder: Path, progress: TitledProgress | None) -> Path:
    """One file into `folder`, by pooch: first its content, then the checksum, then its name."""
    import pooch
    import requests

    url = address + file.name
    bar = _Progress(file.name, progress)
    by_hand = f"Try again later, or bring the files by other means and give their folder (--data, {DATA_VARIABLE})."
    try:
        with _quiet(pooch.get_logger()):
            downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK)
            path = pooch.retrieve(url, file.checksum, fname=file.name, path=folder, downloader=downloader)
    except requests.RequestException as error:
        raise MissingFileError(f"{url}: could not be downloaded ({error}). {by_hand}") from None
    except ValueError:
        raise BadFileError(
            f"{url}: the downloaded file does not match the checksum {file.checksum}; it is truncated or a different file, and "
            f"was deleted. {by_hand}"
        ) from None
    bar.finish()
    return Path(path)


class _Progress:
    """The progress bar that pooch expects; passes on (file, done, total)."""

    def __init__(self, title: str, report: TitledProgress | None) -> None:
        self.title = title
        self.report = report
        self.total = 0  # pooch sets it; it stays 0 where the server does not say
        self.done = 0

    def update(self, num_bytes: int) -> None:
        """Pooch counts the last chunk as a whole one, hence the minimum."""
        before, self.done = self.done, min(self.done + num_bytes, self.total)
        if self.report is not None and self.done > before:
            self.report(self.title, self.done, self.total)

    def reset(self) -> None:
        """Ignored: pooch resets the count when a download is complete."""

    def close(self) -> None:
        """Nothing to close."""

    def finish(self) -> None:
        """Report the end, also of a file that existed or came without a size."""
        if self.report is not None and (not self.total or self.done < self.total):
            self.report(self.title, max(self.total, 1), max(self.total, 1))


@contextmanager
def _quiet(logger: logging.Logger | Any) -> Iterator[None]:
    """Without pooch's own lines, which would tear a progress bar; its level is put back."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
