"""Lines of code, files and comments of two versions, with the modules of new features apart.

python tools/code_size.py BEFORE           a commit against the working tree
python tools/code_size.py BEFORE AFTER     two commits

A line of code is one that holds code: not blank, no comment alone, no part of a docstring (the text below an attribute is one).
Features that came after a reorganisation say nothing about whether the rest became simpler, so `NEW_FEATURES` names their
modules; the comparison is about all others.
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
SOURCE = "src/cautious/"
NEW_FEATURES = {
    "KofNPPO": ("rl/", "ops/means", "worlds/envs/random_stops"),
    "terrains and the wide road": (
        "beliefs/terrains",
        "beliefs/wide_driving",
        "worlds/driving_features",
        "worlds/envs/batch",
        "worlds/envs/driving_vector",
        "worlds/envs/terrains_env",
        "worlds/envs/terrains_minigrid",
        "worlds/envs/wide_driving_env",
        "worlds/terrains",
        "worlds/wide_driving",
    ),
    "discretised and estimated worlds": ("worlds/coverage", "worlds/envs/discretise"),
    "single states in compiled code and on a GPU": ("compiling", "solvers/per_state_cfr", "solvers/kernels/"),
    "image predictions in compiled code": ("beliefs/networks/image_prediction",),
    "tables by name, Parquet, holes, pictures": (
        "beliefs/datasets/cells",
        "beliefs/datasets/files",
        "beliefs/datasets/frames",
        "beliefs/datasets/learn_table",
        "beliefs/datasets/pictures",
        "beliefs/datasets/training_data",
        "policy/bad_rows",
    ),
    "blocks of rows": ("policy/blocks",),
    "any setting by name, runs as frames": ("experiments/changes", "experiments/run_frames"),
    "long training announced": ("beliefs/training/estimate",),
    "stories of reports": ("report/stories",),
    "playground": ("play/", "cli/play"),
}
"""Modules below src/cautious that were added since commit 30ad32a for something that the package could not do then."""
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


def feature_of(path: str) -> str | None:
    """The new feature that a module of the package belongs to, if any."""
    module = path.removeprefix(SOURCE).removesuffix(".py")
    for feature, places in NEW_FEATURES.items():
        if any(module == place or (place.endswith("/") and module.startswith(place)) for place in places):
            return feature
    return None


def summary(counts: Mapping[str, Counts]) -> dict[str, float]:
    """The figures of one version, by what they are."""
    source = {path: found for path, found in counts.items() if path.startswith(SOURCE)}
    code = {part: sum(found.code for path, found in counts.items() if path.startswith(part)) for part in FOLDERS}
    lines = sum(found.lines for found in source.values())
    figures: dict[str, float] = {
        "package: lines of code without new features": sum(
            found.code for path, found in source.items() if feature_of(path) is None
        ),
        "package: lines of code": code["src"],
        "package and tools: lines of code": code["src"] + code["tools"],
        "package: files": len(source),
        "package: lines of all kinds": lines,
        "package: median file, lines of all kinds": statistics.median(found.lines for found in source.values()),
        "package: largest file, lines of all kinds": max(found.lines for found in source.values()),
        "package: lines with a comment, percent": 100 * sum(found.comments for found in source.values()) / lines,
        "tests: lines of code per line of the package": code["tests"] / code["src"],
    }
    return figures | {f"{part}: lines of code": code[part] for part in FOLDERS[1:]}


def features(counts: Mapping[str, Counts]) -> dict[str, int]:
    """Lines of code of each new feature."""
    code = dict.fromkeys(NEW_FEATURES, 0)
    for path, found in counts.items():
        feature = feature_of(path) if path.startswith(SOURCE) else None
        if feature is not None:
            code[feature] += found.code
    return code


def print_rows(title: str, before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """One line per figure: before, after, difference."""
    print(f"{title:<52}{'before':>10}{'after':>10}{'change':>10}")
    for name, old in before.items():
        digits = 0 if float(old).is_integer() and float(after[name]).is_integer() else 2
        print(f"{name:<52}{old:>10,.{digits}f}{after[name]:>10,.{digits}f}{after[name] - old:>+10,.{digits}f}")


def main() -> None:
    """As the module says."""
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    versions = [read_commit(sys.argv[1]), read_commit(sys.argv[2]) if len(sys.argv) == 3 else read_working_tree()]
    before, after = ({path: count(text) for path, text in version.items()} for version in versions)
    print_rows("figure", summary(before), summary(after))
    print()
    print_rows("lines of code of new features", features(before), features(after))


if __name__ == "__main__":
    main()
