"""Publish finished runs: results/<name>/ holds a run without its models; two pages quote a few of its numbers.

python tools/publish_results.py NAME=RUN_FOLDER ...      copy runs into results/, draw their figures, write the numbers
python tools/publish_results.py NAME ...                 draw the figures of published runs and write the numbers again
python tools/publish_results.py                          the same for every published run
python tools/publish_results.py --without-figures        write the numbers alone

docs/results.md, docs/images.md and README.md have the numbers between two marks. `make docs` builds the pages with every table
(`tools/published_pages.py`).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from PIL import Image
from published_claims import claim_results, claims_table, counted
from published_headlines import cells_figure, headline_table
from published_letters import main_letters
from published_pages import RESULTS, at_paper_sizes, published_runs, shown_figures, without_title

from cautious.io.atomic import atomic_write
from cautious_paper.experiments.store import MANIFEST, StageResult, Store
from cautious_paper.report.plotting import save_figure

ROOT = Path(__file__).parents[1]
DOCS, README = ROOT / "docs", ROOT / "README.md"
MARKS = ("<!-- results: written by tools/publish_results.py -->", "<!-- end of results -->")
"""What a page quotes of results lies between these."""


def publish(name: str, run: Path) -> None:
    """Copy a run without its models, and without the pictures of letters, which are not ours to pass on."""
    store = Store.open(run)
    target = RESULTS / name
    target.mkdir(parents=True, exist_ok=True)
    earlier = published_before(target, store)
    letters = sorted(path.stem for path in store.folder.glob("*letters*.safetensors"))
    for path in sorted(store.folder.iterdir()):
        if path.suffix in (".json", ".safetensors", ".txt") and path.stem not in letters:
            shutil.copyfile(path, target / path.name)
    copy = Store.open(target)
    for stage in letters:
        arrays = {key: array for key, array in store.arrays(stage).items() if not key.startswith("samples-")}
        copy.save(stage, store.numbers(stage), arrays, provenance=store.provenance(stage))
    for stage, (findings, made_by) in earlier.items():
        copy.save(stage, *findings, provenance=copy.entries_unlike_manifest(made_by))


def published_before(target: Path, store: Store) -> dict[str, tuple[StageResult, dict[str, Any]]]:
    """Stages of another part of the same run that are published already: they are kept, under the new manifest."""
    if not (target / MANIFEST).exists():
        return {}
    before = Store.open(target)
    ours, theirs = ({**each.manifest["settings"], "data": None} for each in (store, before))
    if ours != theirs:
        raise SystemExit(f"{target} holds a run with other settings; delete it first.")
    kept = [path.stem for path in target.glob("*.json") if path.name != MANIFEST and not store.has(path.stem)]
    has_arrays = {path.stem for path in target.glob("*.safetensors")}
    return {
        stage: (
            (before.numbers(stage), before.arrays(stage) if stage in has_arrays else {}),
            before.made_by(stage),
        )
        for stage in kept
    }


def write_between(page: Path, text: str) -> None:
    """Replace what lies between the two marks of a page; a page without them is left alone."""
    found = page.read_text(encoding="utf-8") if page.exists() else ""
    if all(mark in found for mark in MARKS):
        before, rest = found.split(MARKS[0])
        _, after = rest.split(MARKS[1])
        whole = f"{before}{MARKS[0]}\n\n{text}\n{MARKS[1]}{after}"
        atomic_write(page, lambda path: path.write_text(whole, encoding="utf-8"))


def write_into_texts(runs: Mapping[str, Store]) -> None:
    """Bring the numbers in README.md and docs/results.md up to date."""
    results = claim_results(runs)
    opening = f"**{counted(results)}**, at the paper's own sizes:\n\n{without_title(headline_table(runs, first=True))}"
    write_between(README, opening)
    write_between(DOCS / "results.md", f"{opening}\n{without_title(claims_table(results))}")
    table = main_letters(RESULTS / "letters")
    write_between(DOCS / "images.md", f"{without_title(table)}\n{table.note}\n")


def draw(runs: Mapping[str, Store], names: Collection[str]) -> None:
    """Draw the published figures of these runs."""
    figure = DOCS / "figures" / "paper-cells.png"
    save_figure(cells_figure(at_paper_sizes(runs)), figure)
    few_colours(figure)
    for name in names:
        for title, (_, drawn) in shown_figures(name, runs[name]).items():
            figure = runs[name].folder / "figures" / f"{title}.png"
            save_figure(drawn(runs[name]), figure)
            few_colours(figure)


def few_colours(picture: Path) -> None:
    """Store a figure with 256 colours: a third of the bytes in the repository, and the same to the eye."""
    with Image.open(picture) as opened:
        reduced = opened.convert("RGB").quantize(256)
    atomic_write(picture, lambda path: reduced.save(path, format="png", optimize=True))


def main() -> None:
    """Publish what is named, then draw and write what is shown of it."""
    with_figures = "--without-figures" not in sys.argv
    names = []
    for argument in sys.argv[1:]:
        name, _, run = argument.partition("=")
        if run:
            publish(name, Path(run))
        if argument != "--without-figures":
            names.append(name)
    runs = published_runs()
    if unknown := [name for name in names if name not in runs]:
        raise SystemExit(
            f"{unknown[0]!r}: expected NAME=RUN_FOLDER, the name of a published run, or --without-figures."
        )
    if with_figures:
        draw(runs, names or runs)
    write_into_texts(at_paper_sizes(runs))
    print(f"wrote what is shown of {len(runs)} runs")


if __name__ == "__main__":
    main()
