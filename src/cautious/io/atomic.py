"""Atomic writes and locked folders: a file is written whole or not at all, through errors, kills, full disks and power cuts."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from cautious.errors import CautiousError, FolderInUseError, WriteError

try:
    import fcntl
except ModuleNotFoundError:  # not a POSIX system: no locks, and what a killed process leaves behind is not cleared away
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".part"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
LONGEST_SAVE = 600.0
"""Seconds that a writer waits for another one to finish its save."""


def atomic_write(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file in a folder beside `path`, then move it there: readers see the old file or the new one, complete.

    A process that is killed in the middle leaves that folder, .NAME.*.part; the next one to write `path` clears it away.

    Raises:
        WriteError: it could not be written; what was there before is still there, and nothing else.
    """
    with translate_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_abandoned(path.parent, f".{path.name}.")
        with _scratch_folder(path) as folder:
            target = folder / path.name
            write(target)
            _flush(target)
            target.chmod(_mode_of_new_files(folder))
            target.replace(path)
        with contextlib.suppress(OSError):  # some file systems cannot flush a folder
            _flush(path.parent)


def write_together(folder: Path, files: Mapping[str, Callable[[Path], object] | None]) -> None:
    """Fill several files beside `folder`'s own, in this order, then move all of them there; None removes a file.

    The folder is locked. Whatever is raised on the way, an interrupt too, leaves the old files. The moves follow one another:
    a kill, or a power cut, in those milliseconds can leave some files new and some old, so the last file should say which
    belong to it.

    Raises:
        WriteError: A file could not be written; the folder's files are what they were.
    """
    with translate_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(folder):
            together = folder / "together"
            clear_abandoned(folder, f".{together.name}.")
            with _scratch_folder(together) as scratch:
                mode = _mode_of_new_files(scratch)
                for name, write in files.items():
                    if write is not None:
                        write(scratch / name)
                        _flush(scratch / name)
                        (scratch / name).chmod(mode)
                _move_all(scratch, folder, files)
        with contextlib.suppress(OSError):
            _flush(folder)


def _move_all(scratch: Path, folder: Path, names: Iterable[str]) -> None:
    """Put the files of `scratch` in the place of those of `folder`: all of them, or none."""
    kept = scratch / "old"
    kept.mkdir()
    for name in names:
        if (folder / name).exists():
            shutil.copy2(folder / name, kept / name)
    try:
        for name in names:
            if (scratch / name).exists():
                (scratch / name).replace(folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
    except BaseException:
        for name in names:
            if (kept / name).exists():
                (kept / name).replace(folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's errors on writing `path` into a `WriteError` that says what to do."""
    try:
        yield
    except CautiousError:
        raise
    except OSError as error:
        way_out = "Put that right"
        if error.errno in NO_ROOM:
            way_out = "Make room on the disk"
        elif error.errno in NOT_ALLOWED:
            way_out = "Make the folder writable, or choose another"
        elif error.errno in IN_THE_WAY:
            way_out = "Choose another place: a file is where a folder should be, or a folder where a file should be"
        raise WriteError(
            f"{path}: could not be written ({error.strerror or error}). {way_out}, then run the same again: whatever was "
            "finished is kept."
        ) from error


def _mode_of_new_files(folder: Path) -> int:
    """The mode that the umask gives a new file; read off a file, since to read the umask itself is to set it."""
    probe = folder / ".mode"
    probe.touch()
    return stat.S_IMODE(probe.stat().st_mode)


def _flush(path: Path) -> None:
    """Flush to the disk, so that a power cut does not undo it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _scratch_folder(path: Path) -> Iterator[Path]:
    """A fresh folder beside `path`, claimed for as long as this process lives and needs it."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=SUFFIX))
        with _claim(folder) as ours:
            if ours is False or not folder.exists():  # another writer of the same file took it for abandoned
                continue
            try:
                yield folder
                return
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def clear_abandoned(folder: Path, prefix: str = ".") -> None:
    """Remove what killed processes left in `folder`; a process that is still writing holds a lock."""
    for scratch in folder.iterdir():
        if scratch.name.startswith(prefix) and scratch.name.endswith(SUFFIX):
            with _claim(scratch) as ours:
                if ours:
                    shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def folder_lock(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a folder for one save, or `shared` with other readers; waits for those who hold it otherwise.

    Where a folder does not exist or cannot be locked (some network file systems, systems that are not POSIX), there is no lock.

    Raises:
        FolderInUseError: It was held for longer than `LONGEST_SAVE`.
    """
    handle = None
    try:
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
        if handle is not None:
            _wait_for(handle, folder, shared)
        yield
    finally:
        if handle is not None:
            _release(handle)


def _wait_for(handle: int, folder: Path, shared: bool) -> None:
    give_up, pause = time.monotonic() + LONGEST_SAVE, 0.001
    while _locked(handle, shared) is False:
        if time.monotonic() > give_up:
            raise FolderInUseError(
                f"{folder}: another process has been saving in this folder for {LONGEST_SAVE:.0f} seconds; end it, or choose "
                "another folder."
            )
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


@contextlib.contextmanager
def _claim(folder: Path) -> Iterator[bool | None]:
    """Lock a folder: whether it is ours now, or None where folders cannot be locked.

    The lock is the operating system's, which takes it back when a process ends, however it ends.
    """
    handle = None
    try:
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
        yield None if handle is None else _locked(handle)
    finally:
        if handle is not None:
            _release(handle)


def _locked(handle: int, shared: bool = False) -> bool | None:
    """Whether the lock was free and is ours now; None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _release(handle: int) -> None:
    """Unlock and close; a process forked meanwhile has the handle too, and would keep the lock."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)
