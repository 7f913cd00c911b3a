"""Folders of several files: saved by one process at a time, and read as one save.

New files have names with a stamp of their content, and lie beside the old ones until the JSON file that names them is written.
That write makes them the current files; only then are the old ones removed. A kill between any two steps leaves one of the two
saves complete. Writers lock the folder (`replacing`), so that one follows the other. A reader that misses a file reads again
while no writer is at work (`reading`).
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from cautious.errors import BadFileError, CautiousError, MissingFileError
from cautious.io.arrays import FILES, fingerprint_of, load_json, recorded_checksum, save_json, save_tensors
from cautious.io.atomic import folder_lock, translate_os_errors

Content = TypeVar("Content")


def with_stamp(name: str, stamp: str) -> str:
    """A plain name, such as models.safetensors or belief/ensemble.json, with a stamp of its content.

    >>> with_stamp("models.safetensors", "0123456789abcdef")
    'models-0123456789abcdef.safetensors'
    """
    stem, ending = _cut(name)
    return f"{stem}-{stamp[-16:]}{ending}"


def name_in(described: Any, name: str) -> str:
    """What a JSON file's content calls the file of this plain name; the plain name itself, where it lists none."""
    return next((file for file in _file_names(described) if _pattern(name).fullmatch(file)), name)


@contextlib.contextmanager
def replacing(description: Path, *names: str) -> Iterator[None]:
    """Lock the folder of `description` for a save, and remove what the save replaces.

    However the save ends, all files of these plain names go that `description` does not name in the end. Another process that
    saves into the same folder waits until the first has finished; what is saved last stays.

    Raises:
        FolderInUseError: Another process has been saving there for longer than `io.atomic.LONGEST_SAVE`.
    """
    folder = description.parent
    with translate_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder):
        try:
            yield
        finally:
            with contextlib.suppress(CautiousError, OSError):  # what is left does no harm, and the next save clears it
                kept = {file.split("/")[0] for file in _file_names(load_json(description)) or names}
                patterns = [_pattern(name.split("/")[0]) for name in names]
                for path in folder.iterdir():
                    if path.name not in kept and any(pattern.fullmatch(path.name) for pattern in patterns):
                        shutil.rmtree(path) if path.is_dir() else path.unlink()


class Part(NamedTuple):
    """A file of a folder, before it is written."""

    stamp: str
    """Of its content."""
    write: Callable[[Path], str]
    """Writes it at a path, and returns its checksum."""

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Part:
        """A file of tensors."""
        return cls(fingerprint_of(*tensors.values()), lambda path: save_tensors(path, tensors))


def save_parts(description: Path, content: Mapping[str, Any], parts: Mapping[str, Part | None]) -> None:
    """Write the files of a folder, and last the JSON file that names them: that write makes the new files the current ones.

    Args:
        description: The JSON file.
        content: What it says.
        parts: The other files by their plain names; None for a file that a save may have and this one has not.
    """
    with replacing(description, *parts):
        files = {}
        for plain, part in parts.items():
            if part is not None:
                name = with_stamp(plain, part.stamp)
                files[name] = part.write(description.parent / name)
        save_json(description, content, files)


def part_of(folder: Path, described: Any, name: str) -> tuple[Path, str | None]:
    """The file that a JSON file's content calls by this plain name, and the checksum that was noted of it, if one was."""
    file = name_in(described, name)
    return folder / file, recorded_checksum(described, file)


def reading(folder: Path, read: Callable[[], Content]) -> Content:
    """What `read()` returns of a folder's files: all of one save, while others may be saving there.

    A writer removes the files of the save before its own, perhaps between two reads. So where a file is missing, or does not
    belong to the others, `read` is called again while writers wait; what it then raises is true of the files.
    """
    with contextlib.suppress(BadFileError, MissingFileError):
        return read()
    with folder_lock(folder, shared=True):
        return read()


def _file_names(described: Any) -> list[str]:
    files = described.get(FILES) if isinstance(described, dict) else None
    return list(files) if isinstance(files, dict) else []


def _cut(name: str) -> tuple[str, str]:
    """A name as stem and ending, which begins with a dot or a slash."""
    border = re.search(r"[./]|$", name).start()  # type: ignore[union-attr]
    return name[:border], name[border:]


def _pattern(name: str) -> re.Pattern[str]:
    stem, ending = (re.escape(part) for part in _cut(name))
    return re.compile(f"{stem}(-[0-9a-f]{{16}})?{ending}")
