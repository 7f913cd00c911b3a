"""The documentation: its examples run, its names exist, its pages are all in the site."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cautious.cli.main import parse

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
RUN = ["README.md", *(f"docs/{path.name}" for path in PAGES if ">>>" in path.read_text(encoding="utf-8"))]


def tool(name: str) -> ModuleType:
    """A module of tools/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs", reason="the site is not built here")
    if not list((ROOT / "results").glob("*/manifest.json")):
        pytest.skip("this copy of the source has no results/")
    return tool("site_hooks")


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
    """The module, function, class or method of this dotted name: whole, or below one of the two packages."""
    parts = name.split(".")
    for package in ([], ["cautious"], ["cautious_paper"]):
        for cut in range(len(parts), 0, -1):
            try:
                found: Any = importlib.import_module(".".join([*package, *parts[:cut]]))
            except ModuleNotFoundError:
                continue
            for part in parts[cut:]:
                found = getattr(found, part, None)
            if found is not None:
                return found
    raise AssertionError(f"{name} is not there")


def test_the_paper_map_names_what_there_is():
    text = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
    names = re.findall(r"`((?:[a-z_]+\.)+\w+)`", text)
    assert len(names) > 50
    for name in names:
        assert looked_up(name) is not None, name


def test_every_page_is_in_the_site():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f": {path.relative_to(ROOT / 'docs').as_posix()}" in nav for path in PAGES)


def test_built_pages_are_in_the_site_and_their_links_lead_somewhere(hooks: ModuleType):
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    built = hooks.built_pages()
    assert {"bad-input.md", "results-ledgers.md", "results-tables.md", "results-small.md"} <= built.keys()
    for name, text in built.items():
        assert f": {name}" in nav
        assert not (ROOT / "docs" / name).exists(), f"docs/{name} is built, not kept"
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            found = target.startswith("http") or target in built or (ROOT / "docs" / target).exists()
            assert found, f"{name}: {target}"


def test_a_link_to_what_a_page_is_built_from_leads_to_that_page(hooks: ModuleType):
    def shown(link: str) -> str:
        return hooks.on_page_markdown(f"[text]({link})")

    assert shown("../results/README.md") == "[text](results-ledgers.md)"
    assert shown("../tests/bad_input_cases.py") == "[text](bad-input.md)"
    assert shown("../results/driving") == "[text](results-tables.md#driving)"
    assert shown("../results/small-non-obvious/") == "[text](results-small.md#small-non-obvious)"
    assert shown("../results/driving/figures/a.png") == "[text](published/driving/figures/a.png)"
    linked = {link for page in PAGES for link in hooks.RUN.findall(page.read_text(encoding="utf-8"))}
    assert len(linked) > 5
    for name in linked:
        assert f"\n## {name}\n" in hooks.built_pages()[hooks.page_of_run(name)]


def test_the_api_pages_have_every_public_name():
    import cautious

    text = "\n".join(path.read_text(encoding="utf-8") for path in PAGES if path.name.startswith("api-"))
    for name in set(dir(cautious)) - {"__version__"}:
        found = re.search(rf"^::: (cautious|cautious_paper\.\S+)\.{name}(\.\w+)?$", text, re.MULTILINE)
        assert found, f"add '::: cautious.{name}' to the page of its topic, docs/api-*.md"


def test_links_between_files_lead_somewhere():
    for path in [*PAGES, ROOT / "README.md", ROOT / "examples" / "README.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
            assert target.startswith("http") or (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_notebook_runs_and_shows_what_it_says():
    """On the site and on git hosts it is read with the outputs that are stored in it."""
    nbformat = pytest.importorskip("nbformat")
    notebook = tool("run_notebook")
    stored = nbformat.read(notebook.NOTEBOOK, as_version=4)
    shown = notebook.texts(stored)
    assert len(shown) >= 5
    assert "image/png" in shown
    assert notebook.texts(notebook.executed(stored)) == shown, "run: python tools/run_notebook.py"
