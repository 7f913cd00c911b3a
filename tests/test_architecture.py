"""The order of the rooms, and the one home of each heavy dependency, read off the source."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "cautious"
GROUND = ("types", "errors", "seeding", "io", "progress", "parallel", "compiling", "validation")
ORDER = (
    "ops",
    "worlds",
    "solvers",
    "beliefs",
    "policy",
    "evaluation",
    "rl",
    "experiments",
    "report",
    "benchmarking",
    "play",
    "cli",
)
HOMES = {
    "gymnasium": ("worlds.envs", "rl"),
    "stable_baselines3": "rl",
    "minigrid": "worlds.envs.terrains_minigrid",
    "pooch": "worlds.data",
    "safetensors": "io.arrays",
    "ray": "experiments.executors",
    "triton": ("beliefs.kernels", "solvers.kernels"),
    "numba": "compiling",
    "pyarrow": "beliefs.datasets.frames",
    "pandas": ("policy.decision", "experiments.run_frames"),
    "polars": "nowhere",  # its frames are taken, it is never imported
    "matplotlib": "report",
    "PIL": "report",
    "tyro": "cli",
    "rich": "cli",
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
    return [(".".join(path.relative_to(SOURCE).with_suffix("").parts), path) for path in sorted(SOURCE.rglob("*.py"))]


def rank(module: str) -> int:
    room = module.split(".")[0]
    return -1 if room in GROUND else ORDER.index(room)


def test_a_room_imports_only_rooms_before_it():
    for module, path in modules():
        if module in ("__init__", "__main__"):
            continue
        for imported in imports_of(path):
            if imported.startswith("cautious."):
                target = imported.removeprefix("cautious.")
                assert rank(target) <= rank(module), f"{module} imports {imported}"
            assert imported != "cautious", f"{module} imports the package root: a hidden cycle"


def test_each_heavy_dependency_has_one_home():
    for module, path in modules():
        for imported in imports_of(path):
            home = HOMES.get(imported.split(".")[0])
            homes = (home,) if isinstance(home, str) else home
            assert homes is None or any(f"{module}.".startswith(f"{place}.") for place in homes), (
                f"{module} imports {imported}; its home is {home}"
            )


def test_what_is_imported_is_declared():
    """Not only installed because something else needs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(entry for extra in ("minigrid", "ray", "rl", "tables") for entry in extras[extra]),
    ]
    declared = {re.split(r"[><=;\[ ]", entry)[0].replace("-", "_") for entry in wanted}
    declared |= {"cautious", "triton"}  # the latter comes with torch for GPUs, and is done without elsewhere
    for module, path in modules():
        for name in {imported.split(".")[0] for imported in imports_of(path)} - set(sys.stdlib_module_names):
            assert {"PIL": "pillow"}.get(name, name) in declared, f"{module} imports {name}"


def test_the_source_package_has_what_the_readme_uses():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    used = {path.name for path in ROOT.iterdir() if path.is_file() and path.name in readme} | {"Makefile"}
    assert {"constraints.txt", "CONTRIBUTING.md"} <= used
    assert used <= set(build["targets"]["sdist"]["include"])


def test_nothing_can_run_code_from_a_file():
    rooms = (SOURCE, *(ROOT / name for name in ("tools", "examples", "benchmarks")))
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
