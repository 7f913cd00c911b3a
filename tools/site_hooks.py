"""What the documentation site needs beyond `docs/`: published figures, the playground, links to other files, examples.

The pages are written to read well on a git host, where `../results/...` and `../examples/...` are files beside `docs/`. The
site contains only `docs/`, so this module adds the figures of published runs to it and replaces other such links by the file's
name. `CodeExamples` is an extension of Griffe, which reads the docstrings for the API page.
"""

from __future__ import annotations

import re
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PUBLISHED = "published"
"""Folder of the site for what lies in results/."""
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./(?!results/)([^)]+)\)")
"""A link to a file of the repository that is not a page."""
EXAMPLE = re.compile(r"^>>> .*\n?(?:.+\n?)*", re.MULTILINE)
"""A doctest: from its first prompt to the next empty line."""
PLAYGROUND = ROOT / "src" / "cautious" / "play" / "static"
PLAYED = {".html", ".css", ".js", ".json", ".bin", ".svg"}
"""What the playground is made of (`cautious.play.server.KINDS`)."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the figures of published runs, and the playground."""
    for path in sorted((ROOT / "results").glob("*/figures/*.png")):
        place = f"{PUBLISHED}/{path.relative_to(ROOT / 'results').as_posix()}"
        files.append(File.generated(config, place, abs_src_path=str(path)))
    for path in sorted(path for path in PLAYGROUND.rglob("*") if path.suffix in PLAYED):
        place = f"play/{path.relative_to(PLAYGROUND).as_posix()}"
        if path.name == "index.html":  # its links lead into this site
            page = path.read_text(encoding="utf-8").replace('data-docs=""', 'data-docs="../"')
            files.append(File.generated(config, place, content=page))
        else:
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Redirect links to published figures and to the playground, and replace links to other files by their names."""
    inside = markdown.replace("](../results/", f"]({PUBLISHED}/").replace("](../src/cautious/play/static/", "](play/")
    return OUTSIDE.sub(lambda link: _named(link[1], link[2]), inside)


def _named(text: str, path: str) -> str:
    name = text.strip("`")
    return f"`{path}`" if path.endswith(name) else f"{text} (`{path}`)"


class CodeExamples(griffe.Extension):
    """Marks the examples of docstrings as code: Markdown takes a bare `>>>` for three nested quotes."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Put a fence around each example."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
