"""Do runs survive? Kill them, stop them, fill their disk, start them twice, turn the clock; then compare every bit.

python tools/survival.py [--kills 20] [--seed 0] [--only kills writes signals disk read-only two clock]

Each trial starts a run as a user does, ends it in some way, starts the same command again until it is done, and compares
every stored number, array and figure with those of an uninterrupted run: the same bits but for times and dates. Files that
were finished before must not have been written again. Prints a table; the exit status is 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from survival_child import TINY
from survival_runs import END, Life, differences, finished_files, litter, made_again, snapshots

from cautious_paper.experiments.store import provenance_line

Row = tuple[str, str, list[str]]
"""What was done, what was seen, what did not hold."""


class Trials:
    """All trials share uninterrupted runs, one for each command."""

    def __init__(self, folder: Path, seed: int, kills: int) -> None:
        """Work in `folder`."""
        self._folder = folder
        self._rng = random.Random(seed)
        self._kills = kills
        self._timelines: dict[str, dict[str, float]] = {}

    def reference(self, command: str) -> Path:
        """An uninterrupted run, made when first asked for."""
        folder = self._folder / f"{command}, uninterrupted"
        if command not in self._timelines:
            life = Life(command, folder)
            assert life.end() == 0, life.said
            self._timelines[command] = life.timeline | {END: time.monotonic() - life.began}
        return folder

    def finished(self, command: str, folder: Path, *options: str) -> list[str]:
        """Run to the end; returns what differs from the uninterrupted run."""
        before = finished_files(folder)
        life = Life(command, folder, *options)
        status = life.end()
        wrong = [] if status == 0 else [f"ended with {status}: {life.said[-300:]}"]
        return wrong + made_again(folder, before) + differences(self.reference(command), folder) + litter(folder)

    def kills(self) -> Iterator[Row]:
        """SIGKILL at moments spread over the run, each in a stretch of its own."""
        commands = ("ask-for-help", "driving", "longer")
        shares = [self._kills // 3 + (number < self._kills % 3) for number in range(3)]
        yield from (self._killed(command, share) for command, share in zip(commands, shares, strict=True))

    def _killed(self, command: str, num_kills: int) -> Row:
        self.reference(command)
        timeline = self._timelines[command]
        folder, wrong, lived = self._folder / f"{command}, killed", [], 0.0
        where: Counter[str] = Counter()
        while where.total() < num_kills:
            moment = self._moment(timeline, where.total() / num_kills, (where.total() + 1) / num_kills)
            before = finished_files(folder)
            life = Life(command, folder)
            doing = life.kill_at(timeline, moment)
            lived += time.monotonic() - life.began
            wrong += made_again(folder, before)
            if doing is not None:
                where[_kind(doing)] += 1
            else:  # it came to its end before: the next one starts from nothing
                wrong += differences(self.reference(command), folder)
                shutil.rmtree(folder)
        begun = time.monotonic()
        wrong += self.finished(command, folder)
        lived += time.monotonic() - begun
        places = ", ".join(f"{place} {times}" for place, times in where.items())
        seen = f"{num_kills} kills ({places}); {lived:.0f} s in all, {timeline[END]:.0f} s uninterrupted"
        return f"kill -9, {command}", seen, wrong

    def _moment(self, timeline: dict[str, float], low: float, high: float) -> float:
        """A random moment of something that a run does, between two shares of all that it does, one thing after another.

        Training, predicting and solving are as likely as each other, however often or long they are done there.
        """
        titles = list(timeline)[1:-1]  # without the start and the end
        share = titles[int(low * len(titles)) : max(int(high * len(titles)), int(low * len(titles)) + 1)]
        kind = self._rng.choice(sorted({_kind(title) for title in share}))
        title = self._rng.choice([title for title in share if _kind(title) == kind])
        begun, over = timeline[title], list(timeline.values())[titles.index(title) + 2]
        return self._rng.uniform(begun, (begun + over) / 2)  # the first half: the next time may be quicker

    def writes(self) -> Iterator[Row]:
        """Go on from every state that a kill during a write can leave."""
        for name, run in TINY.items():
            reference, wrong = self._folder / f"tiny {name}", []
            with snapshots(reference, self._folder / f"snapshots, {name}") as taken:
                run(reference)
            for folder in taken:
                before = finished_files(folder)
                run(folder)
                wrong += made_again(folder, before) + differences(reference, folder) + litter(folder)
            yield f"killed in every write, tiny run of {name}", f"{len(taken)} states gone on from", wrong

    def signals(self) -> Iterator[Row]:
        """Ctrl-C and the signal by which systems end processes, in training and in solving."""
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            folder, wrong, slowest = self._folder / number.name, [], 0.0
            for title in ("training", "solving, p = 0.5, queue"):
                life = Life("longer", folder)
                life.wait_for([title])
                time.sleep(1)
                slowest = max(slowest, life.send(number))
                found = life.end()
                polite = "keep what is finished" in life.said and "Traceback" not in life.said
                wrong += [] if found == status and polite else [f"{found} in {title}: {life.said[-300:]}"]
                wrong += litter(folder)
            wrong += self.finished("longer", folder)
            yield number.name, f"2 stops, gone within {slowest:.1f} s", wrong

    def disk(self) -> Iterator[Row]:
        """A disk that is full, again and again: each time there is a little more room."""
        folder, size, fills, wrong = self._folder / "disk" / "run", 8, 0, []
        _mounted(folder.parent, f"size={size}k")
        while True:
            before = finished_files(folder)
            life = Life("longer", folder)
            status = life.end()
            wrong += made_again(folder, before) + litter(folder)
            if status == 0 or size > 10**6:
                break
            clear = status == 2 and "Make room on the disk" in life.said and "Traceback" not in life.said
            wrong += [] if clear else [f"{size} kB: {status}: {life.said[-300:]}"]
            fills, size = fills + 1, int(1.5 * size) + 4
            _mounted(folder.parent, f"remount,size={size}k")
        wrong += [] if status == 0 else [f"ended with {status}"]
        wrong += differences(self.reference("longer"), folder)
        yield "full disk", f"full {fills} times, from 8 to {size} kB", wrong

    def read_only(self) -> Iterator[Row]:
        """A folder that cannot be written for a while."""
        folder, wrong = self._folder / "read-only" / "run", []
        _mounted(folder.parent, "size=100m")
        life = Life("longer", folder)
        life.wait_for(["solving, p = 0.5, queue"])
        life.send(signal.SIGKILL)
        before = finished_files(folder)
        _mounted(folder.parent, "remount,ro")
        life = Life("longer", folder)
        status = life.end()
        clear = status == 2 and "Make the folder writable" in life.said and "Traceback" not in life.said
        wrong += [] if clear else [f"{status}: {life.said[-300:]}"]
        wrong += made_again(folder, before)
        _mounted(folder.parent, "remount,rw")
        wrong += self.finished("longer", folder)
        yield "read-only folder", "refused once", wrong

    def two(self) -> Iterator[Row]:
        """Two processes on one folder: started at once, and one later."""
        folder, wrong = self._folder / "two", []
        lives = [Life("driving", folder), Life("driving", folder)]
        lives[0].wait_for(["training"])
        lives.append(Life("driving", folder))
        statuses = [life.end() for life in lives]
        refused = [life for life, status in zip(lives, statuses, strict=True) if status == 2]
        clear = all("another process is working in this folder" in life.said for life in refused)
        wrong += (
            [] if sorted(statuses) == [0, 2, 2] and clear else [f"{statuses}: {[life.said[-200:] for life in lives]}"]
        )
        wrong += differences(self.reference("driving"), folder)
        folder = self._folder / "two seeds"
        lives = [Life("driving", folder, "--seed", seed) for seed in ("0", "1")]
        statuses = [life.end() for life in lives]
        wrong += (
            [] if sorted(statuses) == [0, 2] else [f"two seeds: {statuses}: {[life.said[-200:] for life in lives]}"]
        )
        if statuses[0] == 0:
            wrong += differences(self.reference("driving"), folder)
        seen = f"{len(refused)} of 3 and {statuses.count(2)} of 2 refused"
        yield "two at once and a third later on one folder; two with different seeds at once", seen, wrong

    def clock(self) -> Iterator[Row]:
        """A clock that jumps years to and fro, and files from the future and the past."""
        folder, wrong = self._folder / "clock", []
        self.reference("longer")
        for number, title in enumerate(("training", "solving, p = 0.5, queue")):
            life = Life("longer", folder, "--clock", str(number))
            life.wait_for([title])
            time.sleep(2)
            life.send(signal.SIGKILL)
            for path in folder.rglob("*"):
                moment = self._rng.uniform(0, 4e9)
                os.utime(path, (moment, moment))
        life = Life("longer", folder, "--clock", "9")
        wrong += [] if life.end() == 0 else [life.said[-300:]]
        wrong += differences(self.reference("longer"), folder) + litter(folder)
        yield "clock jumping by up to ten years", "2 kills", wrong


def _kind(title: str) -> str:
    return title.split(",")[0]


def _mounted(folder: Path, options: str) -> None:
    """A small file system in memory at `folder`, or other options for the one that is there."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)


def may_mount() -> bool:
    """Whether this process may mount: in a mount namespace of its own, which `main` has put it in where that is allowed."""
    return "SURVIVAL_NAMESPACE" in os.environ


def enter_namespace() -> None:
    """Start again in a namespace of its own, so that disks can be mounted and are gone with the process."""
    probe = ["unshare", "--map-root-user", "--mount", "true"]
    if may_mount() or shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        return
    os.environ["SURVIVAL_NAMESPACE"] = "1"
    os.execvp("unshare", ["unshare", "--map-root-user", "--mount", sys.executable, *sys.argv])


def main() -> None:
    """Try everything that is asked for, print the table, fail if something did not hold."""
    names = ("kills", "writes", "signals", "disk", "read-only", "two", "clock")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    arguments = parser.parse_args()
    enter_namespace()
    started, failed = time.monotonic(), False
    with tempfile.TemporaryDirectory() as folder:
        trials = Trials(Path(folder), arguments.seed, arguments.kills)
        print(f"{provenance_line()}\n")
        print("| what was done | what was seen | did not hold |\n|---|---|---|", flush=True)
        for name in arguments.only:
            if name in ("disk", "read-only") and not may_mount():
                print(f"| {name} | skipped: no file system can be mounted here | |", flush=True)
                continue
            trial: Callable[[], Iterator[Row]] = getattr(trials, name.replace("-", "_"))
            for done, seen, wrong in trial():
                failed |= bool(wrong)
                print(f"| {done} | {seen} | {'; '.join(wrong) or 'nothing'} |", flush=True)
        for mounted in ("disk", "read-only"):
            subprocess.run(["umount", str(Path(folder) / mounted)], capture_output=True)
    print(f"{time.monotonic() - started:.0f} s, seed {arguments.seed}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
