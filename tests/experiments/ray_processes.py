"""The processes of a Ray cluster that was started with a folder of its own, as the operating system knows them (Linux)."""

from __future__ import annotations

import os
import time
from pathlib import Path


def processes(folder: Path, title: str = "") -> list[int]:
    """Those that have the folder in their environment and the title in their command line; not this one, none that ended."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environment, command = (place / "environ").read_bytes(), (place / "cmdline").read_bytes()
        except OSError:  # it ended in this moment, or belongs to someone else
            continue
        if str(folder).encode() in environment and title.encode() in command and int(place.name) != os.getpid():
            found.append(int(place.name))
    return found


def wait_until(holds, seconds: float = 30.0) -> bool:
    """Whether something comes to hold in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
