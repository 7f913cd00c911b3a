"""Spoil valid files of every kind that the package reads, read them, and count what comes of it.

python tools/fuzz_files.py --count 10000

Each spoilt file is read in a child process with limits on memory and time. It should be refused with one of the package's
errors, or give exactly what the valid one gives. Formats without checksums (plain IDX, .npy) and files whose checksum was
computed again ("signed again") cannot tell another number from damage: those are counted apart. The exit status is 1 if
anything else happens.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load as load_unchecked

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_kinds import KINDS, signature
from fuzz_mutations import mutations_for

from cautious.errors import CautiousError
from cautious.io.arrays import CHECKSUM, FILES, KIND, load_json, save_json, save_tensors
from cautious.seeding import make_rng
from cautious_paper.experiments.store import provenance_line

OUTCOMES = ("refused", "same", "different", "crash", "hang", "other error")
MEMORY = 6 * 2**30
SECONDS = 30.0


def serve() -> None:
    """The child: read folders that are named on standard input, and say what came of it."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        kind, folder = json.loads(line)
        try:
            answer = {"outcome": "read", "signature": signature(KINDS[kind].read(Path(folder)))}
        except CautiousError as error:
            answer = {"outcome": "refused", "says": f"{type(error).__name__}: {error}"}
        except BaseException as error:
            answer = {"outcome": "other error", "says": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


class Reader:
    """A child process that reads; replaced when it dies or hangs."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        call = [sys.executable, __file__, "--serve"]
        self._child = subprocess.Popen(
            call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def read(self, kind: str, folder: Path) -> dict[str, Any]:
        """What came of reading a folder."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps([kind, str(folder)]) + "\n")
        self._child.stdin.flush()
        ready, _, _ = select.select([self._child.stdout], [], [], SECONDS)
        line = self._child.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.close()
        status = self._child.returncode
        self._start()
        return {"outcome": "crash" if ready else "hang", "says": f"the child ended with {status}"}

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.communicate()


def files_in(folder: Path) -> list[Path]:
    """All files below a folder, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


class Case:
    """A spoilt file: everything follows from the seed and its number."""

    def __init__(self, valid: Path, seed: int, number: int, kinds: Sequence[str] = tuple(KINDS)) -> None:
        """Choose a kind in turn, then a file of it and how to spoil it."""
        rng = make_rng(seed, "case", number)
        self.kind = kinds[number % len(kinds)]
        self.folder = valid / self.kind
        files = [path.relative_to(self.folder) for path in files_in(self.folder)]
        self.file = files[int(rng.integers(len(files)))]
        content = (self.folder / self.file).read_bytes()
        self.spoilt, self.how = content, ""
        while self.spoilt == content:
            choices = mutations_for(self.file.name, KINDS[self.kind].signed_again)
            choice = int(rng.integers(len(choices) + 1))
            if choice < len(choices):
                self.spoilt, self.how = choices[choice](rng, content), choices[choice].__name__
            else:
                self.spoilt, self.how = self._another(valid, rng), "another file"

    def _another(self, valid: Path, rng: Any) -> bytes:
        """The same file of another save, or any other valid file; not one that may well stand in its place."""
        together = KINDS[self.kind].together
        if together and rng.random() < 0.5:
            ours, theirs = (files_in(folder) for folder in (self.folder, valid / "twins" / self.kind))
            return theirs[ours.index(self.folder / self.file)].read_bytes()  # its name may tell of its content
        others = [path for path in files_in(valid) if together or _first_word(path) != _first_word(self.file)]
        return others[int(rng.integers(len(others)))].read_bytes()

    def write(self, folder: Path) -> None:
        """All files of its kind, one of them spoilt."""
        shutil.copytree(self.folder, folder)
        (folder / self.file).write_bytes(self.spoilt)
        if KINDS[self.kind].signed_again:
            with contextlib.suppress(Exception):  # what is no JSON and no safetensors file cannot be signed
                sign_again(folder, folder / self.file)


def sign_again(folder: Path, file: Path) -> None:
    """Give a spoilt file, and what describes it, checksums that fit."""
    if file.suffix == ".json":
        content = {name: value for name, value in json.loads(file.read_text()).items() if name != CHECKSUM}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))  # with what is no number, too
        file.write_text(json.dumps({**content, CHECKSUM: KIND + hashlib.sha256(text.encode()).hexdigest()}))
        return
    checksum = save_tensors(file, load_unchecked(file.read_bytes()))
    (path,) = folder.glob("*.json")
    described = load_json(path)
    save_json(path, {**described, FILES: {**described[FILES], file.name: checksum}})


def _first_word(path: Path) -> str:
    """What a file is, by its name: "mdp" of mdp.safetensors, and of mdp-f3c15b.safetensors, which holds a world too."""
    return re.split(r"[-.]", path.name)[0]


@contextlib.contextmanager
def valid_files() -> Iterator[Path]:
    """A folder with valid files of each kind, and twins of them with other content."""
    with tempfile.TemporaryDirectory() as name:
        for seed, below in ((0, ""), (1, "twins")):
            for kind in KINDS:
                folder = Path(name) / below / kind
                folder.mkdir(parents=True)
                KINDS[kind].make(folder, seed)
                for lock in folder.glob(".lock"):
                    lock.unlink()
        yield Path(name)


def fuzz(
    count: int, seed: int, keep: Path | None = None, kinds: Sequence[str] = tuple(KINDS)
) -> tuple[dict[str, Counter[str]], list[str]]:
    """Outcomes by kind, and a line for each that should not be."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    wrong = []
    with valid_files() as valid, contextlib.closing(Reader()) as reader:
        expected = {kind: reader.read(kind, valid / kind)["signature"] for kind in kinds}
        for number in range(count):
            case, folder = Case(valid, seed, number, kinds), valid / "spoilt"
            case.write(folder)
            answer = reader.read(case.kind, folder)
            outcome = answer["outcome"]
            if outcome == "read":
                outcome = "same" if answer["signature"] == expected[case.kind] else "different"
            counts[case.kind][outcome] += 1
            if outcome not in ("refused", "same") and (outcome != "different" or KINDS[case.kind].checked):
                wrong.append(f"case {number}, {case.kind}: {case.file}, {case.how}: {outcome} {answer.get('says', '')}")
                if keep is not None:
                    shutil.copytree(folder, keep / str(number))
            shutil.rmtree(folder)
    return counts, wrong


def table(counts: dict[str, Counter[str]]) -> str:
    """A row a kind, and their sums with and without checksums."""
    rows = dict(counts)
    for checked, title in ((True, "**all with checksums**"), (False, "**all without**")):
        rows[title] = sum((own for kind, own in counts.items() if KINDS[kind].checked == checked), Counter())
    header = ("kind", "files", *OUTCOMES)
    lines = [
        f"| {kind} | {own.total()} | {' | '.join(str(own[name]) for name in OUTCOMES)} |" for kind, own in rows.items()
    ]
    return "\n".join([f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *lines])


def main() -> None:
    """Fuzz, print the table, fail if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kinds", nargs="*", choices=list(KINDS), default=list(KINDS), help="all, unless some are named"
    )
    parser.add_argument("--keep", type=Path, help="folder for files that were not dealt with as they should be")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    print(f"{provenance_line()}\n")
    started = time.perf_counter()
    counts, wrong = fuzz(arguments.count, arguments.seed, arguments.keep, arguments.kinds)
    print(table(counts))
    print(f"{arguments.count} files, seed {arguments.seed}, {time.perf_counter() - started:.0f} s")
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
