"""Runs as processes that can be watched and ended, and what became of their folders (for `survival.py`)."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cautious.io.arrays import load_json, load_tensors

TIMES = {"seconds", "solve_seconds", "predict_seconds", "resumed", "date", "commit"}
"""Entries that say how long something took, when it was, and from which source: not what came out."""
CHILD = Path(__file__).with_name("survival_child.py")
COMMANDS = {
    "ask-for-help": ["-m", "cautious", "reproduce", "ask-for-help", "--scale", "smoke", "--out"],
    "driving": ["-m", "cautious", "reproduce", "driving", "--scale", "smoke", "--out"],
    "longer": [str(CHILD)],
}
TITLE = re.compile(r"(.+): \d+ %")
START, END = "starting", "the end"


class Life:
    """One process of a run, from its start to its end."""

    def __init__(self, command: str, folder: Path, *options: str) -> None:
        """Start it."""
        self._titles: queue.Queue[str] = queue.Queue()
        self._lines: list[str] = []
        self.began = time.monotonic()
        self._first_seen: dict[str, float] = {START: 0.0}
        call = [sys.executable, *COMMANDS[command], str(folder), *options]
        self._process = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)
            found = TITLE.match(line)
            if found and found[1] not in self._first_seen:
                self._first_seen[found[1]] = time.monotonic() - self.began
                self._titles.put(found[1])
        self._titles.put(END)

    @property
    def timeline(self) -> dict[str, float]:
        """When each thing was first heard of, in seconds from the start."""
        return dict(self._first_seen)

    @property
    def doing(self) -> str:
        """What it was last heard to do."""
        return list(self._first_seen)[-1]

    @property
    def said(self) -> str:
        """All of its error stream."""
        return " ".join("".join(self._lines).split())

    def wait_for(self, titles: list[str]) -> str:
        """The first of these that it is heard to do; or the end."""
        while (title := self._titles.get()) not in (*titles, END):
            pass
        return title

    def send(self, number: int) -> float:
        """Send a signal; returns the seconds until it is gone."""
        sent = time.monotonic()
        os.kill(self._process.pid, number)
        self.end()
        return time.monotonic() - sent

    def end(self) -> int:
        """Wait for the end; returns the exit status, negative for a signal."""
        status = self._process.wait()
        self._listener.join()
        assert self._process.stderr is not None
        self._process.stderr.close()
        return status

    def kill_at(self, timeline: dict[str, float], moment: float) -> str | None:
        """Kill it when it is as far as `timeline` was at `moment`; returns what it was doing, None if it came to its end."""
        titles = list(timeline)
        place = max(number for number, title in enumerate(titles) if timeline[title] <= moment)
        if place > 0 and self.wait_for(titles[place:]) == titles[place]:
            time.sleep(moment - timeline[titles[place]])
        if place == 0:
            time.sleep(moment)
        if self._process.poll() is not None:
            self.end()
            return None
        self.send(signal.SIGKILL)
        return self.doing


class Kept(NamedTuple):
    """A finished file at some moment."""

    inode: int
    changed: int


def finished_files(folder: Path) -> dict[Path, Kept]:
    """What is not to be made again: finished stages with their files, finished shards, finished pieces of stages."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and _is_finished(path, folder):
            stat = path.stat()
            found[path.relative_to(folder)] = Kept(stat.st_ino, stat.st_mtime_ns)
    return found


def _is_finished(path: Path, folder: Path) -> bool:
    """Reports are drawn anew each time, and temporary files are none."""
    top, *below = path.relative_to(folder).parts
    if path.suffix not in (".json", ".safetensors") or any(part.endswith(".part") for part in (top, *below)):
        return False
    if top.endswith("-checkpoints") and path.suffix == ".safetensors":
        return int(load_tensors(path)["epoch"]) == load_json(path.with_name("training.json"))["num_epochs"]
    if below and not top.endswith((".parts", "-checkpoints")):
        return (folder / f"{top}.json").exists()
    return path.with_suffix(".json").exists()


def made_again(folder: Path, before: dict[Path, Kept]) -> list[str]:
    """Finished files that are no longer what they were; checkpoints and pieces may go once their stage is there."""
    now = finished_files(folder)
    wrong = []
    for path, kept in before.items():
        if path in now:
            wrong += [] if now[path] == kept else [f"{path} was written again"]
            continue
        stage = re.sub(r"(-checkpoints|\.parts)$", "", path.parts[0])
        if stage == path.parts[0] or not (folder / f"{stage}.json").exists():
            wrong.append(f"{path} is gone")
    return wrong


def differences(one: Path, other: Path) -> list[str]:
    """Files of two runs that differ in more than times, and whatever only one of them has."""
    names = [{path.relative_to(folder) for path in folder.rglob("*") if path.is_file()} for folder in (one, other)]
    wrong = [f"{path} is in one of them only" for path in sorted(names[0] ^ names[1])]
    for path in sorted(names[0] & names[1]):
        if path.suffix == ".json":
            same = without_times(load_json(one / path)) == without_times(load_json(other / path))
        elif path.name == "report.html":  # tells the date and the times
            same = (other / path).stat().st_size > 10_000
        else:
            same = (one / path).read_bytes() == (other / path).read_bytes()
        wrong += [] if same else [f"{path} differs"]
    return wrong


def without_times(content: Any) -> Any:
    """The same without entries about time."""
    if isinstance(content, dict):
        return {name: without_times(value) for name, value in content.items() if name not in TIMES}
    return [without_times(value) for value in content] if isinstance(content, list) else content


def litter(folder: Path) -> list[str]:
    """Temporary files."""
    return [f"{path.relative_to(folder)} was left" for path in folder.rglob("*.part")]


def _linked(source: str, target: str) -> None:
    """The same file where it is in its place, since nothing is ever written into one that is; else a copy."""
    if ".part" in Path(source).parent.suffixes:
        shutil.copyfile(source, target)
    else:
        os.link(source, target)


@contextlib.contextmanager
def snapshots(folder: Path, kept: Path) -> Iterator[list[Path]]:
    """Copies of `folder` as a kill at each write would leave it: half a file, all of it but not in its place, in its place."""
    taken: list[Path] = []
    replace, one_at_a_time = Path.replace, threading.Lock()

    def keep() -> None:
        taken.append(kept / f"{len(taken):03d}")
        try:
            shutil.copytree(folder, taken[-1], copy_function=_linked)
        except shutil.Error as error:  # another shard's writer may tidy up behind itself meanwhile: gone is gone
            if any(Path(source).exists() for source, *_ in error.args[0]):
                raise

    def watched(path: Path, target: Path) -> Path:
        with one_at_a_time:
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2])
            keep()
            path.write_bytes(whole)
            keep()
            moved = replace(path, target)
            keep()
            return moved

    Path.replace = watched  # type: ignore[method-assign, assignment]
    try:
        yield taken
    finally:
        Path.replace = replace  # type: ignore[method-assign]
