"""The documentation: its examples run, its names exist, its pages are all in the site."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from cautious.cli.main import parse

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
RUN = ["README.md", *(f"docs/{path.name}" for path in PAGES if ">>>" in path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", RUN)
def test_examples_run(page: str):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    found = doctest.testfile(str(ROOT / page), module_relative=False, optionflags=flags)
    assert found.attempted > 0
    assert found.failed == 0


def test_a_visitor_reads_the_readme_in_one_screen():
    assert len((ROOT / "README.md").read_bytes()) < 6000


def commands() -> list[tuple[str, str]]:
    """Every line `    cautious VERB ...` of a code block, with its page."""
    found = []
    for path in [ROOT / "README.md", *PAGES]:
        lines = re.findall(r"^    cautious (\w.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        found += [(path.name, line.split("#")[0]) for line in lines]
    return found


def test_commands_on_the_pages_are_valid():
    assert len(commands()) > 10
    for page, line in commands():
        try:
            parse(line.split())
        except SystemExit:
            pytest.fail(f"{page}: cautious {line}")


def looked_up(name: str) -> Any:
    """The module, function, class or method of this dotted name below `cautious`."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(["cautious", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"cautious.{name} is not there")


def test_the_paper_map_names_what_there_is():
    text = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
    names = re.findall(r"`((?:[a-z_]+\.)+\w+)`", text)
    assert len(names) > 50
    for name in names:
        assert looked_up(name) is not None, name


def test_every_page_is_in_the_site():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f": {path.name}" in nav for path in PAGES)


def test_the_api_page_has_every_public_name():
    import cautious

    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name in {*cautious.__all__, "KofNPPO"} - {"__version__", "CautiousError", "InvalidInputError"}:
        assert re.search(rf"^::: cautious\..*\.{name}$", text, re.MULTILINE), name


def test_links_between_files_lead_somewhere():
    for path in [*PAGES, ROOT / "README.md", ROOT / "examples" / "README.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
            assert target.startswith("http") or (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_notebook_runs_and_shows_what_it_says():
    """On the site and on git hosts it is read with the outputs that are stored in it."""
    nbformat = pytest.importorskip("nbformat")
    spec = importlib.util.spec_from_file_location("run_notebook", ROOT / "tools" / "run_notebook.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    stored = nbformat.read(tool.NOTEBOOK, as_version=4)
    shown = tool.texts(stored)
    assert len(shown) >= 5
    assert "image/png" in shown
    assert tool.texts(tool.executed(stored)) == shown, "run: python tools/run_notebook.py"
