"""Lines of code, files and comments of two versions, for each of the two packages and for both.

python tools/code_size.py BEFORE           a commit against the working tree
python tools/code_size.py BEFORE AFTER     two commits

A line of code is one that holds code: not blank, no comment alone, no part of a docstring (the text below an attribute is one).
In commits up to 440e6bb the reproduction is a part of the library's package.
"""

from __future__ import annotations

import ast
import io
import statistics
import subprocess
import sys
import tarfile
import tokenize
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "tools", "benchmarks", "examples")
PACKAGES = {"library": "src/cautious/", "reproduction": "src/cautious_paper/"}
IGNORED_TOKENS = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


class Counts(NamedTuple):
    """Lines of a file."""

    lines: int
    """All of them."""
    code: int
    comments: int
    """Lines that hold a comment, beside code or alone."""


def count(text: str) -> Counts:
    r"""Lines of Python source.

    >>> count("'What it is.'\n\nx = 1  # why\n")
    Counts(lines=3, code=1, comments=1)
    """
    code, comments = set[int](), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in IGNORED_TOKENS:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return Counts(len(text.splitlines()), len(code), len(comments))


def read_commit(commit: str) -> dict[str, str]:
    """Text of the Python files of a commit, by path."""
    held = subprocess.run(
        ["git", "ls-tree", "--name-only", commit, *FOLDERS], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    archive = subprocess.run(["git", "archive", commit, *held], cwd=ROOT, check=True, capture_output=True).stdout
    texts = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.name.endswith(".py") else None
            if file is not None:
                texts[member.name] = file.read().decode()
    return texts


def read_working_tree() -> dict[str, str]:
    """Text of the Python files as they are now, by path."""
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def summary(counts: Mapping[str, Counts]) -> dict[str, float]:
    """The figures of one version, by what they are."""
    code = {part: sum(found.code for path, found in counts.items() if path.startswith(part)) for part in FOLDERS}
    source = [found for path, found in counts.items() if path.startswith("src/")]
    lines = sum(found.lines for found in source)
    figures: dict[str, float] = {"both packages: lines of code": code["src"], "both packages: files": len(source)}
    for package, folder in PACKAGES.items():
        own = [found for path, found in counts.items() if path.startswith(folder)]
        figures |= {
            f"{package}: lines of code": sum(found.code for found in own),
            f"{package}: lines of all kinds": sum(found.lines for found in own),
            f"{package}: files": len(own),
            f"{package}: median file, lines of all kinds": statistics.median(found.lines for found in own)
            if own
            else 0,
            f"{package}: largest file, lines of all kinds": max((found.lines for found in own), default=0),
        }
    figures["both packages: lines with a comment, percent"] = 100 * sum(found.comments for found in source) / lines
    figures["tests: lines of code per line of the packages"] = code["tests"] / code["src"]
    return figures | {f"{part}: lines of code": code[part] for part in FOLDERS[1:]}


def print_rows(before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """One line per figure: before, after, difference."""
    print(f"{'figure':<52}{'before':>10}{'after':>10}{'change':>10}")
    for name, old in before.items():
        digits = 0 if float(old).is_integer() and float(after[name]).is_integer() else 2
        print(f"{name:<52}{old:>10,.{digits}f}{after[name]:>10,.{digits}f}{after[name] - old:>+10,.{digits}f}")


def main() -> None:
    """As the module says."""
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    versions = [read_commit(sys.argv[1]), read_commit(sys.argv[2]) if len(sys.argv) == 3 else read_working_tree()]
    before, after = ({path: count(text) for path, text in version.items()} for version in versions)
    print_rows(summary(before), summary(after))


if __name__ == "__main__":
    main()
