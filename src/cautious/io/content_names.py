"""Content-addressed file names, so that saving over an earlier save never touches the files that it needs.

New files lie beside the old ones until the JSON file that names them is written, which makes them the current ones; only then
are the old ones removed. A kill between any two steps leaves one of the two saves complete.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cautious.errors import CautiousError
from cautious.io.arrays import FILES, load_json


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
    """Remove, however a save ends, all files of these plain names that `description` does not name in the end."""
    try:
        yield
    finally:
        with contextlib.suppress(CautiousError, OSError):  # what is left over does no harm, and the next save clears it
            kept = {file.split("/")[0] for file in _file_names(load_json(description)) or names}
            patterns = [_pattern(name.split("/")[0]) for name in names]
            for path in description.parent.iterdir():
                if path.name not in kept and any(pattern.fullmatch(path.name) for pattern in patterns):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


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
