"""Publish finished runs: results/<name>/ holds a run without its models, and pages of docs/ show them all.

python tools/publish_results.py NAME=RUN_FOLDER ...      copy runs into results/ and write the pages
python tools/publish_results.py                          write the pages and the figures again from results/ alone
python tools/publish_results.py --without-figures        write the pages alone

docs/results.md          summary and ledgers of the runs at the paper's sizes
docs/results-tables.md   every table and figure of these runs
docs/results-small.md    the runs at scale "small"
docs/deviations.md       the table of both units of the rewards, between two marks
README.md                how many claims are reproduced, and a few numbers, between two marks
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from published_claims import (
    AS_PRINTED,
    DRAWS,
    MAIN_RUNS,
    SMALL,
    ClaimSummary,
    claim_results,
    claims_table,
    cost_table,
    counted,
    ledger_beside,
    observations,
    runs_table,
)
from published_headlines import cells_figure, headline_table
from published_units import units_ledger, units_table

from cautious.io.atomic import atomic_write
from cautious_paper.experiments.store import MANIFEST, StageResult, Store
from cautious_paper.report.claims.rules import ClaimResult
from cautious_paper.report.images.image_run import ImageRun
from cautious_paper.report.plotting import save_figure
from cautious_paper.report.report_spec import facts_of, figures_of, tables_of
from cautious_paper.report.tables import Table

ROOT = Path(__file__).parents[1]
RESULTS, DOCS = ROOT / "results", ROOT / "docs"
PAGES = ("results.md", "results-tables.md", "results-small.md")
REASONS = RESULTS / "reasons.json"
"""Why a row of a ledger is not reproduced, as far as that is known: run -> claim -> reason."""
README = ROOT / "README.md"
OTHER_SEED = "-seed-"
"""Part of the names of runs that repeat another from another seed."""
UNIT_MARKS = ("<!-- units: written by tools/publish_results.py -->", "<!-- end of units -->")
"""The table of both units of the rewards in docs/deviations.md lies between these."""
RESULT_MARKS = ("<!-- results: written by tools/publish_results.py -->", "<!-- end of results -->")
"""What README.md says of results lies between these."""

HEAD = """# Results

The paper's experiments at the paper's sizes: which of its claims are reproduced, and the numbers. Written by
`python tools/publish_results.py` from `results/`, which holds every number below (and more) as the runs left them.
`cautious report results/NAME` draws all figures and tables of a run again, on any machine.
[Every table and figure](results-tables.md); [runs at scale `small`](results-small.md), minutes on two cores.

Differences are ours minus the paper's, in points. A claim is *reproduced* if every row of the ledgers that judges it is
reproduced, *in part* if some are. "Not run": the run lacks what the claim is about. "Not judged": it was run, but at other
sizes or levels than the rule is about.
"""
TABLES_HEAD = """# Results: tables and figures

Every table and figure of the runs at the paper's sizes, written by `python tools/publish_results.py` from `results/`. The
summary and the verdicts on the paper's claims: [results](results.md).
"""
SMALL_HEAD = """# Results at scale `small`

64 networks (fewer in some ensembles), few epochs of 6,000 digits, five runs: minutes on two cores, from the package's own
images. Most orderings are there; the numbers are those of short training, and claims that compare with the paper's numbers are
not judged. Written by `python tools/publish_results.py` from `results/small-*`. At the paper's sizes: [results](results.md).
"""
CELLS = (
    "Every percentage in the paper's tables of familiar digits, against ours: one point per cell (mean probability). Filled: "
    "the settings that the claims are judged on. Hollow: `help-if-available` with rewards as the paper prints them "
    "([deviation D18](deviations.md)). Grey: within 2 points."
)


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


def published_runs() -> dict[str, Store]:
    """All published runs, the paper's experiments first."""
    names = sorted(path.parent.name for path in RESULTS.glob(f"*/{MANIFEST}"))
    order = [*(name for name in MAIN_RUNS if name in names), *(name for name in names if name not in MAIN_RUNS)]
    return {name: Store.open(RESULTS / name) for name in order}


def summary(runs: Mapping[str, Store]) -> str:
    """Claims, headline numbers, one figure, time and cost, and what is not reproduced."""
    results = claim_results(runs)
    save_figure(cells_figure(runs), DOCS / "figures" / "paper-cells.png")
    return "\n".join(
        [
            f"## Summary\n\n**{counted(results)}.**\n",
            table_rows(headline_table(runs)),
            f"![Every cell of the paper's tables](figures/paper-cells.png)\n\n*{CELLS}*\n",
            table_rows(cost_table(runs)),
            table_rows(claims_table(results)),
            missed_rows(results, reasons()),
            observation_rows(observations(runs), reasons()),
        ]
    )


def reasons() -> dict[str, dict[str, str]]:
    """Why rows are not reproduced."""
    return dict(json.loads(REASONS.read_text(encoding="utf-8"))) if REASONS.exists() else {}


UNKNOWN = "Reason unknown."


def missed_rows(results: Sequence[ClaimSummary], why: Mapping[str, Mapping[str, str]]) -> str:
    """What is not reproduced: numbers and reason."""
    missed = [row for result in results for row in result.missed]
    if not missed:
        return ""
    rows = "".join(
        f"| {verdict.claim} | {verdict.says} | {verdict.numbers} | {why.get(run, {}).get(verdict.claim, UNKNOWN)} |\n"
        for run, verdict in missed
    )
    return f"### Not reproduced, and why\n\n| row | the paper | numbers | reason |\n|---|---|---|---|\n{rows}"


def observation_rows(found: Sequence[tuple[str, ClaimResult]], why: Mapping[str, Mapping[str, str]]) -> str:
    """What the paper does not claim, but what one would ask beside a claim."""
    rows = "".join(
        f"| {verdict.claim} | {verdict.says} | {verdict.numbers} | {why.get(run, {}).get(verdict.claim, '')} |\n"
        for run, verdict in found
    )
    head = "### Observations\n\nNot claims of the paper, and not judged.\n"
    return f"{head}\n| beside | what | numbers | remark |\n|---|---|---|---|\n{rows}" if rows else ""


def units(runs: Mapping[str, Store]) -> str:
    """Rewards in tenths and as printed, side by side: the paper's tables, then the claims."""
    parts = [
        "## Rewards in tenths and as printed\n\nWhy tenths are the main setting: [deviation D18](deviations.md).\n"
    ]
    table = units_of_help(runs)
    parts += [table_rows(table)] if table else []
    for task in ("help-if-available", "non-obvious"):
        ledgers = [ledger_beside(runs, name) if name in runs else [] for name in (task, f"{task}{AS_PRINTED}")]
        if any(ledgers):
            parts.append(table_rows(units_ledger(*ledgers), f"{task}: claims in both units of the rewards"))
    for name in runs:
        if OTHER_SEED in name and not name.startswith(SMALL):
            parts.append(f"### {name}\n\nThe same from another seed.\n\n{ledger_rows(ledger_beside(runs, name))}")
    return "\n".join(parts)


def units_of_help(runs: Mapping[str, Store]) -> Table | None:
    """Both units of help-if-available beside the paper, if either was run."""
    found = [ImageRun(runs[name]) if name in runs else None for name in UNITS]
    return units_table(*found) if any(found) else None


UNITS = ("help-if-available", f"help-if-available{AS_PRINTED}")


def write_between(page: Path, marks: tuple[str, str], text: str) -> None:
    """Replace what lies between two marks of a page; a page without them is left alone."""
    found = page.read_text(encoding="utf-8") if page.exists() else ""
    if all(mark in found for mark in marks):
        before, rest = found.split(marks[0])
        _, after = rest.split(marks[1])
        whole = f"{before}{marks[0]}\n\n{text}\n{marks[1]}{after}"
        atomic_write(page, lambda path: path.write_text(whole, encoding="utf-8"))


def without_title(table: Table) -> str:
    """A table without its heading and note, to stand in a text."""
    return table_rows(replace(table, note="")).split("\n", 2)[2]


def write_into_texts(runs: Mapping[str, Store]) -> None:
    """Bring the tables in docs/deviations.md and README.md up to date."""
    table = units_of_help(runs)
    if table is not None:
        write_between(DOCS / "deviations.md", UNIT_MARKS, f"{without_title(table)}\n{table.note}\n")
    words = f"**{counted(claim_results(runs))}**, at the paper's own sizes"
    few = without_title(headline_table(runs, first=True))
    write_between(README, RESULT_MARKS, f"{words}:\n\n{few}")


def ledgers(runs: Mapping[str, Store]) -> str:
    """The ledgers of the runs that claims are judged on."""
    names = [name for name in (*MAIN_RUNS, DRAWS) if name in runs]
    parts = [f"### {name}\n\n{ledger_rows(ledger_beside(runs, name))}" for name in names]
    return "\n".join(["## Ledgers\n", *parts])


def section(name: str, runs: Mapping[str, Store], *, with_ledger: bool, with_figures: bool = True) -> str:
    """One run as Markdown; draws its figures beside it unless told not to."""
    store = runs[name]
    note = store.folder / "note.txt"
    parts = [
        f"## {name}\n",
        f"{facts_of(store)}.\n",
        note.read_text(encoding="utf-8") if note.exists() else "",
        ledger_rows(ledger_beside(runs, name)) if with_ledger else "",
    ]
    parts += [table_rows(table) for table in tables_of(store)]
    # Variations of a run are shown by their tables; `cautious report` draws their figures.
    figures = {} if OTHER_SEED in name or name.endswith(AS_PRINTED) else figures_of(store)
    for figure, (caption, draw) in figures.items():
        if figure.startswith("samples-letters"):
            continue  # not kept, see `publish`
        if with_figures:
            save_figure(draw(store), store.folder / "figures" / f"{figure}.png")
        parts.append(f"![{figure}](../results/{name}/figures/{figure}.png)\n\n*{caption}*\n")
    return "\n".join(part for part in parts if part)


def ledger_rows(verdicts: Sequence[ClaimResult]) -> str:
    """The ledger as a table."""
    rows = "".join(
        f"| {verdict.claim} | {verdict.says} | **{verdict.word}** | {verdict.numbers} |\n" for verdict in verdicts
    )
    return f"| claim | the paper | verdict | numbers |\n|---|---|---|---|\n{rows}"


def table_rows(table: Table, title: str | None = None) -> str:
    """A table as a table."""
    head = f"| {' | '.join(table.header)} |\n|{'---|' * len(table.header)}\n"
    note = f"\n{table.note}\n" if table.note else ""
    return f"### {title or table.title}\n\n{head}" + "".join(f"| {' | '.join(row)} |\n" for row in table.rows) + note


def write_page(name: str, text: str) -> None:
    """Write a page of docs/ whole."""
    atomic_write(DOCS / name, lambda path: path.write_text(text, encoding="utf-8"))


def main() -> None:
    """Publish what is named, then write the pages."""
    with_figures = "--without-figures" not in sys.argv
    for argument in sys.argv[1:]:
        name, _, run = argument.partition("=")
        if run:
            publish(name, Path(run))
        elif argument != "--without-figures":
            raise SystemExit(f"{argument!r}: expected NAME=RUN_FOLDER or --without-figures.")
    runs = published_runs()
    large = {name: store for name, store in runs.items() if not name.startswith(SMALL)}
    small = {name: store for name, store in runs.items() if name.startswith(SMALL)}
    write_page(
        PAGES[0],
        "\n".join([HEAD, summary(large), units(large), ledgers(large), table_rows(runs_table(large))]),
    )
    judged = (*MAIN_RUNS, DRAWS)  # whose ledgers are on the first page
    sections = [section(name, large, with_ledger=name not in judged, with_figures=with_figures) for name in large]
    write_page(PAGES[1], "\n".join([TABLES_HEAD, *sections]))
    sections = [section(name, small, with_ledger=True, with_figures=with_figures) for name in small]
    write_page(PAGES[2], "\n".join([SMALL_HEAD, table_rows(runs_table(small)), *sections]))
    write_into_texts(large)
    print(f"wrote the pages of {len(runs)} runs")


if __name__ == "__main__":
    main()
