"""What the documentation site needs beyond `docs/`: published figures, the playground, and links to files that are not pages.

The pages are written to read well on a git host, where `../results/...` and `../examples/...` are files beside `docs/`. The
site has only what is in `docs/`, so figures of published runs are added to it, and other such links become the file's name.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PUBLISHED = "published"
"""Where the site keeps what lies in results/."""
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./(?!results/)([^)]+)\)")
"""A link to a file of the repository that is no page."""
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
    """Lead links to published figures there, and name other files instead of linking to them."""
    inside = markdown.replace("](../results/", f"]({PUBLISHED}/").replace("](../src/cautious/play/static/", "](play/")
    return OUTSIDE.sub(lambda link: _named(link[1], link[2]), inside)


def _named(text: str, path: str) -> str:
    name = text.strip("`")
    return f"`{path}`" if path.endswith(name) else f"{text} (`{path}`)"
