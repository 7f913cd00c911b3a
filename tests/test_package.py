"""What would be released: a wheel from the source archive, installed in a fresh environment, run far from the checkout."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import cautious

pytest.importorskip("hatchling", reason="the package is not built here")
ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="needs the project's files")


def ran(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Standard output of a command that must end well."""
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, made from this checkout."""
    folder = tmp_path_factory.mktemp("archive")
    ran(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", folder, cwd=ROOT)
    return next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the source archive alone as an installer makes it."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    ran(sys.executable, "-m", "hatchling", "build", "--target", "wheel", cwd=next(folder.glob("cautious-*")))
    return next(folder.glob("*/dist/*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with this wheel; it sees the third-party packages of the present one, but not this checkout."""
    folder = tmp_path_factory.mktemp("environment")
    ran(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", folder / "bin" / "python"]
    ran(*pip, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    packages = {*site.getsitepackages(), *(path for path in sys.path if path.endswith("site-packages"))}
    own = next(folder.glob("lib/python*/site-packages"))
    (own / "third_party.pth").write_text("\n".join(sorted(packages)), encoding="utf-8")
    return folder


def clean(folder: Path) -> dict[str, str]:
    """The variables of a user's terminal: nothing that points to the checkout, and caches in a folder of their own."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CAUTIOUS_DATA")}
    return {**kept, "OMP_NUM_THREADS": "1", "CAUTIOUS_CACHE": str(folder / "cache")}


def test_the_wheel_has_every_file_of_both_packages(wheel: Path, archive: Path):
    inside = set(zipfile.ZipFile(wheel).namelist())
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True)
    files = (
        listed.stdout.split()
        if listed.returncode == 0
        else [f"src/{p.relative_to(SOURCE)}" for p in SOURCE.rglob("*.py")]
    )
    assert len(files) > 100
    missing = [name for name in files if (ROOT / name).exists() and name.removeprefix("src/") not in inside]
    assert not missing
    outside = {name.split("/")[0] for name in inside} - {"cautious", "cautious_paper"}
    assert all(name.endswith(".dist-info") for name in outside)
    with tarfile.open(archive) as packed:
        names = {name.split("/", 1)[1] for name in packed.getnames() if "/" in name}
    assert {"README.md", "CHANGELOG.md", "LICENSE", "CITATION.cff", "pyproject.toml", "tests/test_package.py"} <= names


def test_the_version_has_one_place(wheel: Path):
    assert wheel.name.startswith(f"cautious-{cautious.__version__}-")
    assert f"version: {cautious.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## {cautious.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_metadata_lead_to_the_project(wheel: Path):
    with zipfile.ZipFile(wheel) as packed:
        metadata = packed.read(next(name for name in packed.namelist() if name.endswith("/METADATA"))).decode()
    for label in ("Documentation", "Source", "Issues", "Changelog", "Paper"):
        assert re.search(rf"^Project-URL: {label}, https://", metadata, re.MULTILINE), label
    assert "Classifier: Programming Language :: Python :: 3.13" in metadata
    assert "# cautious" in metadata  # the README


WHERE = "import cautious, cautious_paper; print(cautious.__file__, cautious_paper.__file__)"
EXAMPLES = """
import doctest, sys
found = doctest.testfile("README.md", module_relative=False)
sys.exit(found.failed or not found.attempted)
"""


def test_installed_the_readme_runs_and_so_does_the_demo(environment: Path, archive: Path, tmp_path: Path):
    env, python = clean(tmp_path), environment / "bin" / "python"
    where = ran(python, "-c", WHERE, cwd=tmp_path, env=env)
    assert all(Path(name).is_relative_to(environment) for name in where.split())
    with tarfile.open(archive) as packed:
        member = packed.getmember(f"{archive.name.removesuffix('.tar.gz')}/README.md")
        (tmp_path / "README.md").write_bytes(packed.extractfile(member).read())
    ran(python, "-c", EXAMPLES, cwd=tmp_path, env=env)
    shown = ran(environment / "bin" / "cautious", "demo", cwd=tmp_path, env=env)
    assert "report" in shown
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000


def test_the_workflow_runs_every_python_that_is_promised():
    """And by the same commands as the README's: `make` and pip."""
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert re.search(r"python: \[(.*)\]", workflow)[1].replace('"', "").split(", ") == promised
    targets = set(re.findall(r"run: make (\w+)", workflow))
    assert {"check", "docs"} <= targets
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{target}:" in makefile for target in targets)
