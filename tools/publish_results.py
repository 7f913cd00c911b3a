"""Publish finished runs: results/<name>/ holds a run without its models, and docs/results.md shows them all.

python tools/publish_results.py NAME=RUN_FOLDER ...      copy runs into results/ and write docs/results.md
python tools/publish_results.py                          write docs/results.md and the figures again from results/ alone
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from cautious.experiments.store import MANIFEST, Findings, Store
from cautious.report.contents import facts_of, figures_of, ledger_of, tables_of
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
        copy.save(stage, store.numbers(stage), arrays, made_with=store.made_with(stage))
    for stage, (findings, made_by) in earlier.items():
        copy.save(stage, *findings, made_with=copy.unlike_the_manifest(made_by))


def published_before(target: Path, store: Store) -> dict[str, tuple[Findings, dict[str, Any]]]:
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


def section(folder: Path) -> str:
    """One run as Markdown; draws its figures beside it."""
    store = Store.open(folder)
    note = folder / "note.txt"
    parts = [
        f"## {folder.name}\n",
        f"{facts_of(store)}.\n",
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


def cost_rows(folders: list[Path]) -> str:
    """Seconds of every part at the paper's sizes, beside what the paper says it took."""
    rows, total, missing = "", 0.0, []
    for folder in folders:
        store = Store.open(folder)
        stages = {path.stem: store.numbers(path.stem) for path in folder.glob("*.json") if path.name != MANIFEST}
        training = sum(numbers["seconds"] for stage, numbers in stages.items() if stage.startswith("belief"))
        after = sum(_seconds(numbers) for stage, numbers in stages.items() if not stage.startswith("belief"))
        wanted = store.manifest["settings"].get("variants", {})
        missing += [f"{folder.name} {variant}" for variant in wanted if f"belief-{variant}" not in stages]
        ensembles = sum(stage.startswith("belief") for stage in stages)
        rows += f"| {folder.name} | {ensembles} | {training:,.0f} | {after:,.0f} |\n"
        total += training + after
    left = f" Not run yet: {', '.join(missing)}." if missing else ""
    return (
        "## Time and cost\n\n"
        "Seconds on one GPU (driving: solved on a CPU), as each run's files have them; where runs overlapped, each has "
        "the whole of its time. The extra studies (the full dial, the number of models) are not timed by themselves.\n\n"
        f"| run | ensembles | training | predicting and solving |\n|---|---|---|---|\n{rows}\n"
        f"In all {total / 3600:.1f} hours. The paper (appendix B): 300 GPU-hours on a V100 for its image experiments, and "
        f"835 CPU-hours for driving.{left}\n"
    )


def _seconds(numbers: dict[str, Any]) -> float:
    """What a stage took to predict and to solve, as far as it says so."""
    solving = (
        numbers.get("seconds", {}).values()
        if "seconds" in numbers
        else [numbers.get("solve_seconds", {}).get("queue", 0)]
    )
    return float(numbers.get("predict_seconds", 0.0) + sum(solving))


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
    folders = [folder for folder in sorted(RESULTS.iterdir()) if (folder / MANIFEST).exists()]
    sections = [section(folder) for folder in folders]
    cost = cost_rows([folder for folder in folders if not folder.name.startswith("small-")])
    write_whole(PAGE, lambda path: path.write_text("\n".join([HEAD, cost, *sections]), encoding="utf-8"))
    print(f"wrote {PAGE} from {len(sections)} runs")


if __name__ == "__main__":
    main()
