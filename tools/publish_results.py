"""Publish finished runs: results/<name>/ holds a run without its models, and docs/results.md shows them all.

python tools/publish_results.py NAME=RUN_FOLDER ...      copy runs into results/ and write docs/results.md
python tools/publish_results.py                          write docs/results.md and the figures again from results/ alone
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cautious.experiments.store import MANIFEST, Findings, Store
from cautious.report.contents import contents_of, figures_of, ledger_of, tables_of
from cautious.report.figures import save_figure
from cautious.report.ledger import Verdict
from cautious.report.tables import Table
from cautious.writing import write_whole

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"

HEAD = """# Results

Written by `python tools/publish_results.py` from `results/`, which holds every number below (and more) as the runs left them.
`cautious report results/NAME` draws all figures and tables of a run again, on any machine.

Differences are ours minus the paper's. "Not run" is a claim that a run says nothing about (yet).
"""


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
        copy.save(stage, store.numbers(stage), arrays)
    for stage, findings in earlier.items():
        copy.save(stage, *findings)


def published_before(target: Path, store: Store) -> dict[str, Findings]:
    """Stages of another part of the same run that are published already: they are kept, under the new manifest."""
    if not (target / MANIFEST).exists():
        return {}
    before = Store.open(target)
    ours, theirs = ({**each.manifest["settings"], "data": None} for each in (store, before))
    if ours != theirs:
        raise SystemExit(f"{target} holds a run with other settings; delete it first.")
    kept = [path.stem for path in target.glob("*.json") if path.name != MANIFEST and not store.has(path.stem)]
    has_arrays = {path.stem for path in target.glob("*.safetensors")}
    return {stage: (before.numbers(stage), before.arrays(stage) if stage in has_arrays else {}) for stage in kept}


def section(folder: Path) -> str:
    """One run as Markdown; draws its figures beside it."""
    store = Store.open(folder)
    manifest, hardware = store.manifest, store.manifest["hardware"]
    note = folder / "note.txt"
    parts = [
        f"## {folder.name}\n",
        f"{contents_of(store).trained(manifest['settings'])}.\n",
        f"{hardware['gpu'] or hardware['cpu']}, {hardware['cores']} cores; {manifest['date'][:10]}; commit "
        f"{manifest['commit']}; torch {manifest['versions']['torch']}.\n",
        note.read_text(encoding="utf-8") if note.exists() else "",
        ledger_rows(ledger_of(store)),
    ]
    parts += [table_rows(table) for table in tables_of(store)]
    for name, (caption, draw) in figures_of(store).items():
        if name.startswith("samples-letters"):
            continue  # not kept, see `publish`
        save_figure(draw(store), folder / "figures" / f"{name}.png")
        parts.append(f"![{name}](../results/{folder.name}/figures/{name}.png)\n\n*{caption}*\n")
    return "\n".join(part for part in parts if part)


def ledger_rows(verdicts: list[Verdict]) -> str:
    """The ledger as a table."""
    rows = "".join(
        f"| {verdict.claim} | {verdict.says} | **{verdict.word}** | {verdict.numbers} |\n" for verdict in verdicts
    )
    return f"| claim | the paper | verdict | numbers |\n|---|---|---|---|\n{rows}"


def table_rows(table: Table) -> str:
    """A table as a table."""
    head = f"| {' | '.join(table.header)} |\n|{'---|' * len(table.header)}\n"
    note = f"\n{table.note}\n" if table.note else ""
    return f"### {table.title}\n\n{head}" + "".join(f"| {' | '.join(row)} |\n" for row in table.rows) + note


def main() -> None:
    """Publish what is named, then write the page."""
    for argument in sys.argv[1:]:
        name, _, run = argument.partition("=")
        publish(name, Path(run))
    sections = [section(folder) for folder in sorted(RESULTS.iterdir()) if (folder / "manifest.json").exists()]
    write_whole(PAGE, lambda path: path.write_text("\n".join([HEAD, *sections]), encoding="utf-8"))
    print(f"wrote {PAGE} from {len(sections)} runs")


if __name__ == "__main__":
    main()
