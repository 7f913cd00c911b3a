"""What the documentation site needs beyond `docs/`: built pages, published figures, the playground, notebooks, links, examples.

The pages are written to read well on a git host, where `../results/...` and `../examples/...` are files beside `docs/`. The
site contains only `docs/`, so this module adds the figures of published runs to it and replaces other such links by the file's
name. Pages that are made from stored results or from tests are built here and not kept in the repository. A page written by
hand links to the source of such a page; on the site that link leads to the built page. A notebook becomes a page with the
outputs that are stored in it: this takes a few lines, where a plugin would bring thirty packages and scripts from other sites.
`CodeExamples` is an extension of Griffe, which reads the docstrings for the API pages.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

import bad_input_page  # noqa: E402
import published_pages  # noqa: E402

PUBLISHED = "published"
"""Folder of the site for what lies in results/."""
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./(?!results/)([^)]+)\)")
"""A link to a file of the repository that is not a page."""
EXAMPLE = re.compile(r"^>>> .*\n?(?:.+\n?)*", re.MULTILINE)
"""A doctest: from its first prompt to the next empty line."""
NOTEBOOK = re.compile(r"\]\((\w+)\.ipynb\)")
"""A link to a notebook, which on the site is a page; only the page itself links to the file."""
BUILT_FROM = {
    "../tests/bad_input_cases.py": "bad-input.md",
    "../results/README.md": published_pages.LEDGERS,
    "../CONTRIBUTING.md": "contributing.md",
}
"""Where a link to the source of a built page leads on the site."""
PROMPTED = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
"""The fence of an example with prompts, which the copy button leaves out where they are marked as prompts."""
RUN = re.compile(r"\]\(\.\./results/([\w-]+)/?\)")
"""A link to the folder of a published run; on the site it leads to the tables of that run."""
PLAYGROUND = ROOT / "src" / "cautious_paper" / "play" / "static"
PLAYED = {".html", ".css", ".js", ".json", ".bin", ".svg"}
"""What the playground is made of (`cautious_paper.play.server.KINDS`)."""


@functools.cache
def built_pages() -> dict[str, str]:
    """Pages that are made from what the repository stores, as Markdown by file name."""
    return {
        **published_pages.pages(published_pages.published_runs()),
        "bad-input.md": bad_input_page.page(),
        "contributing.md": from_root("CONTRIBUTING.md"),
        "changes.md": f"---\nsearch: {{boost: 0.2}}\n---\n\n{from_root('CHANGELOG.md')}",
    }


def from_root(name: str) -> str:
    """A page that lies beside docs/, with its links as seen from docs/."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?:)(docs/)?", lambda link: "](" if link[1] else "](../", text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the built pages, the figures of published runs, the playground, and a page for each notebook."""
    for name, page in built_pages().items():
        files.append(File.generated(config, name, content=page))
    for path in sorted((ROOT / "docs").glob("*.ipynb")):
        files.append(File.generated(config, f"{path.stem}.md", content=notebook_page(path)))
    for path in sorted((ROOT / "results").glob("*/figures/*.png")):
        place = f"{PUBLISHED}/{path.relative_to(ROOT / 'results').as_posix()}"
        files.append(File.generated(config, place, abs_src_path=str(path)))
    for path in sorted(path for path in PLAYGROUND.rglob("*") if path.suffix in PLAYED):
        place = f"play/{path.relative_to(PLAYGROUND).as_posix()}"
        if path.name == "index.html":  # its links lead into this site
            page = path.read_text(encoding="utf-8")
            files.append(File.generated(config, place, content=in_site(page, config.site_url, config.repo_url)))
        else:
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def in_site(page: str, site_url: str | None, repo_url: str | None) -> str:
    """The playground's page as part of the site: with links to its pages and the source, and a picture for shared links."""
    picture = f'<meta property="og:image" content="{site_url or "../"}figures/playground-card.png">\n</head>'
    page = page.replace('data-docs=""', 'data-docs="../"').replace("</head>", picture)
    return page.replace('data-source=""', f'data-source="{repo_url or ""}"')


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: text, code, and what each cell showed when it was last run."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [part for cell in cells for part in _cell_parts(cell)]
    return "\n\n".join([*parts, f"*This page is a [notebook]({path.name}): download it and run it.*\n"])


def _cell_parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        shown = output.get("data", {})
        if "image/png" in shown:
            yield f"![what the cell draws](data:image/png;base64,{''.join(shown['image/png']).strip()})"
        else:
            yield "```text\n" + "".join(output.get("text") or shown["text/plain"]).rstrip() + "\n```"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Redirect links to published figures and to the playground, and replace links to other files by their names."""
    markdown = NOTEBOOK.sub(r"](\1.md)", markdown) if "](notebook.ipynb): download" not in markdown else markdown
    markdown = PROMPTED.sub("```pycon\n", markdown)
    for source, page in BUILT_FROM.items():
        markdown = markdown.replace(f"]({source}", f"]({page}")
    markdown = RUN.sub(lambda link: f"]({page_of_run(link[1])}#{link[1]})", markdown)
    inside = markdown.replace("](../results/", f"]({PUBLISHED}/").replace(
        "](../src/cautious_paper/play/static/", "](play/"
    )
    return OUTSIDE.sub(lambda link: _named(link[1], link[2]), inside)


def page_of_run(name: str) -> str:
    """The built page that has the tables of a published run."""
    small = name.startswith(published_pages.SMALL)
    return published_pages.SMALL_RUNS if small else published_pages.TABLES


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
