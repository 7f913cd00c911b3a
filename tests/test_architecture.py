"""The order of the rooms, and the one home of each heavy dependency, read off the source."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ORDER = {
    "cautious": (
        "types errors seeding io progress parallel compiling machine validation",
        "ops",
        "risk",
        "mdp",
        "solvers",
        "tables",
        "beliefs",
        "policy",
        "executors ray",
        "rl",
        "baselines estimator",
        "cli",
    ),
    "cautious_paper": (
        "worlds",
        "networks kernels",
        "beliefs",
        "evaluation",
        "experiments",
        "benchmark report timing play",
        "cli",
    ),
}
"""Rooms of each package: a room imports its own line and the lines above it; the reproduction also imports the library."""
HOMES = {
    "gymnasium": ("cautious.rl", "cautious.mdp.discretize", "cautious_paper.worlds.envs"),
    "stable_baselines3": ("cautious.rl",),
    "sklearn": ("cautious.estimator", "cautious.baselines"),
    "minigrid": ("cautious_paper.worlds.envs.terrains_minigrid",),
    "pooch": ("cautious_paper.worlds.data",),
    "requests": ("cautious_paper.worlds.data",),
    "safetensors": ("cautious.io.arrays",),
    "ray": ("cautious.ray", "cautious.executors"),
    "triton": (
        "cautious.beliefs.training.adam",
        "cautious.solvers.kernels",
        "cautious_paper.kernels",
    ),
    "numba": ("cautious.compiling",),
    "pyarrow": ("cautious.tables",),
    "pandas": (
        "cautious.tables.frames",
        "cautious.baselines.comparing",
        "cautious_paper.benchmark.scores",
        "cautious_paper.experiments.run_frames",
    ),
    "polars": (),  # its frames are taken, it is never imported
    "matplotlib": ("cautious_paper.report", "cautious.baselines.evaluation_files"),
    "PIL": ("cautious_paper.report",),
    "tyro": ("cautious.cli", "cautious_paper.cli"),
    "rich": ("cautious.cli", "cautious_paper.cli"),
}
FORBIDDEN = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def imports_of(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.append(node.module or "")
    return found


def modules() -> list[tuple[str, Path]]:
    """Every module of both packages by its full name; a package's own file by the name of the package."""
    found = []
    for path in sorted(path for package in ORDER for path in (ROOT / "src" / package).rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def rank(module: str) -> int | None:
    """The line of a module's room in `ORDER`; None for the front doors of the packages."""
    package, _, rest = module.partition(".")
    room = rest.split(".")[0]
    if room in ("", "__main__", "moved"):
        return None
    return next(number for number, line in enumerate(ORDER[package]) if room in line.split())


def faults(module: str, imported: Iterable[str]) -> list[str]:
    """What a module may not import."""
    found = []
    package, here = module.split(".")[0], rank(module)
    for name in imported:
        target = name.split(".")[0]
        if target not in ORDER:
            homes = HOMES.get(target)
            if homes is not None and not any(f"{module}.".startswith(f"{home}.") for home in homes):
                found.append(f"{module} imports {name}; its home is {' or '.join(homes) or 'nowhere'}")
        elif package == "cautious" and target == "cautious_paper":
            found.append(f"{module} imports {name}: the library never imports the reproduction")
        elif here is None or target != package:
            continue
        elif name == package:
            found.append(f"{module} imports the package root: a hidden cycle")
        elif (there := rank(name)) is not None and there > here:
            found.append(f"{module} imports {name}, of a later room")
    return found


@pytest.mark.parametrize("package", ORDER)
def test_a_room_imports_only_what_stands_before_it(package):
    named = [(module, path) for module, path in modules() if module.split(".")[0] == package]
    assert len(named) > 50
    assert [fault for module, path in named for fault in faults(module, imports_of(path))] == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("cautious.beliefs.fit", "cautious_paper.networks.image"),
        ("cautious", "cautious_paper.worlds"),
        ("cautious.cli.main", "cautious_paper.cli.demo"),  # the table of verbs is text
        ("cautious.ops.regret", "cautious.solvers.cfr"),
        ("cautious.solvers.cfr", "cautious"),
        ("cautious_paper.worlds.driving", "cautious_paper.cli.demo"),
        ("cautious.mdp.tabular", "gymnasium"),
        ("cautious_paper.experiments.store", "matplotlib.pyplot"),
    ],
)
def test_a_wrong_import_is_noticed(module, imported):
    assert len(faults(module, [imported])) == 1


def test_a_right_import_is_none():
    assert faults("cautious_paper.worlds.driving", ["cautious", "cautious.mdp.tabular", "numpy"]) == []
    assert faults("cautious.cli.main", ["tyro", "cautious.beliefs.fit"]) == []


def test_what_is_imported_is_declared():
    """Not only installed because something else needs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(entry for extra in ("minigrid", "ray", "rl", "sklearn", "tables") for entry in extras[extra]),
    ]
    declared = {re.split(r"[><=;\[ ]", entry)[0].replace("-", "_") for entry in wanted}
    declared |= {*ORDER, "triton"}  # the latter comes with torch for GPUs, and is done without elsewhere
    for module, path in modules():
        for name in {imported.split(".")[0] for imported in imports_of(path)} - set(sys.stdlib_module_names):
            assert {"PIL": "pillow", "sklearn": "scikit_learn"}.get(name, name) in declared, f"{module} imports {name}"


def test_the_source_package_has_what_the_readme_uses():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    used = {path.name for path in ROOT.iterdir() if path.is_file() and path.name in readme} | {"Makefile"}
    assert {"constraints.txt", "CONTRIBUTING.md"} <= used
    assert used <= set(build["targets"]["sdist"]["include"])


def test_nothing_can_run_code_from_a_file():
    rooms = (ROOT / "src", *(ROOT / name for name in ("tools", "examples", "benchmarks")))
    paths = [path for room in rooms for path in sorted(room.rglob("*.py"))]
    assert len(paths) > 100
    for path in paths:
        assert not FORBIDDEN & {name.split(".")[0] for name in imports_of(path)}, path
        text = path.read_text(encoding="utf-8")
        for call in (r"torch\.load\(", r"yaml\.load\(", r"allow_pickle=True", r"\beval\((?!\))", r"\bexec\("):
            assert not re.search(call, text), f"{path}: {call}"
        for call in re.findall(r"np\.load\([^)]*\)", text):
            assert "allow_pickle=False" in call, f"{path}: {call}"


def test_no_global_random_state():
    for module, path in modules():
        text = path.read_text(encoding="utf-8")
        for forbidden in ("np.random.seed", "np.random.rand", "torch.manual_seed", "import random"):
            assert forbidden not in text, f"{module}: {forbidden}"


def test_no_two_files_of_tests_have_one_name():
    """Pytest imports them by their names alone, and stops where two are the same."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_hashes_are_of_the_versions_that_are_installed():
    def versions(name):
        lines = [line.split("#")[0].split(";")[0].split() for line in (ROOT / name).read_text().splitlines()]
        pairs = [words[0].split("==") for words in lines if words and "==" in words[0]]
        return {package.lower().replace("_", "-"): version.partition("+")[0] for package, version in pairs}

    hashed, pinned = versions("demo-hashes.txt"), versions("constraints.txt")
    pinned["setuptools"] = hashed["setuptools"]  # which torch asks for, in any version
    assert {name: pinned.get(name) for name in hashed} == hashed
    assert {"torch", "numpy", "safetensors", "rich", "tyro"} <= set(hashed)
