"""Pages of the site that are made from the published runs in results/: ledgers, every table and figure, scale "small".

The pages are not kept in the repository: `make docs` builds them (`tools/site_hooks.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

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
from published_headlines import headline_table
from published_letters import all_letters, shipped_by_letter
from published_units import units_ledger, units_table

from cautious_paper.experiments.store import MANIFEST, Store
from cautious_paper.report.claims.rules import ClaimResult
from cautious_paper.report.images.image_run import ImageRun
from cautious_paper.report.report_spec import FigureEntry, facts_of, figures_of, tables_of
from cautious_paper.report.tables import Table

RESULTS = Path(__file__).parents[1] / "results"
LEDGERS, TABLES, SMALL_RUNS = "results-ledgers.md", "results-tables.md", "results-small.md"
OTHER_SEED = "-seed-"
"""Part of the names of runs that repeat another run from another seed."""

HEAD = """# Results: ledgers

Every claim of the paper with its verdict and its numbers, from the runs at the paper's sizes. `make docs` builds this page from
`results/`. [The summary](results.md); [every table and figure](results-tables.md); [runs at scale `small`](results-small.md).

Differences are ours minus the paper's, in points. A claim is *reproduced* if every row of the ledgers that judges the claim is
reproduced, and *in part* if some rows are. "Not run": the run lacks what the claim is about. "Not judged": the claim was run
at other sizes or levels than the rule is about.
"""
TABLES_HEAD = """# Results: tables and figures

Every table and figure of the runs at the paper's sizes. `make docs` builds this page from `results/`.
[The summary](results.md); [the verdicts on the paper's claims](results-ledgers.md).
"""
SMALL_HEAD = """# Results at scale `small`

64 networks (fewer in some ensembles), few epochs of 6,000 digits, five runs: minutes on two cores. The digits, the 1,000 images
of each set and the 988 letters are chosen from the complete sets; without `--data` the package's own cuts are used. Most
orderings are there. The numbers are those of short training, and claims that compare with the paper's numbers are not judged.
`make docs` builds this page from `results/small-*`. At the paper's sizes: [results](results.md).
"""


def published_runs() -> dict[str, Store]:
    """All published runs by name, the paper's experiments first."""
    names = sorted(path.parent.name for path in RESULTS.glob(f"*/{MANIFEST}"))
    order = [*(name for name in MAIN_RUNS if name in names), *(name for name in names if name not in MAIN_RUNS)]
    return {name: Store.open(RESULTS / name) for name in order}


def at_paper_sizes(runs: Mapping[str, Store]) -> dict[str, Store]:
    """The runs that are not at scale "small"."""
    return {name: store for name, store in runs.items() if not name.startswith(SMALL)}


def pages(runs: Mapping[str, Store]) -> dict[str, str]:
    """The three pages as Markdown, by file name."""
    large = at_paper_sizes(runs)
    small = {name: store for name, store in runs.items() if name not in large}
    judged = (*MAIN_RUNS, DRAWS)  # the ledgers of these runs are on the page of ledgers
    tables = [section(name, large, with_ledger=name not in judged) for name in large]
    at_small = [section(name, small, with_ledger=True) for name in small]
    return {
        LEDGERS: "\n".join(
            [HEAD, summary(large), units(large), ledgers(large), letters(), table_rows(runs_table(large))]
        ),
        TABLES: "\n".join([TABLES_HEAD, *tables]),
        SMALL_RUNS: "\n".join([SMALL_HEAD, table_rows(runs_table(small)), *at_small]),
    }


def summary(runs: Mapping[str, Store]) -> str:
    """Claims, headline numbers, time and cost, and what is not reproduced."""
    results = claim_results(runs)
    return "\n".join(
        [
            f"## Summary\n\n**{counted(results)}.**\n",
            table_rows(headline_table(runs)),
            table_rows(cost_table(runs)),
            table_rows(claims_table(results)),
            missed_rows(results, reasons()),
            observation_rows(observations(runs), reasons()),
        ]
    )


def reasons() -> dict[str, dict[str, str]]:
    """Why a row of a ledger is not reproduced, as far as that is known: run -> claim -> reason."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if (path := RESULTS / "reasons.json").exists() else {}


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


def letters() -> str:
    """Every number on letters with both sets of them, and the shipped belief by letter; nothing if neither was measured."""
    found = [
        table for table in (all_letters(RESULTS / "letters"), shipped_by_letter(RESULTS / "letters")) if table.rows
    ]
    return "\n".join(["## Letters\n", *map(table_rows, found)]) if found else ""


def ledgers(runs: Mapping[str, Store]) -> str:
    """The ledgers of the runs that claims are judged on."""
    names = [name for name in (*MAIN_RUNS, DRAWS) if name in runs]
    parts = [f"### {name}\n\n{ledger_rows(ledger_beside(runs, name))}" for name in names]
    return "\n".join(["## Ledgers\n", *parts])


def section(name: str, runs: Mapping[str, Store], *, with_ledger: bool) -> str:
    """One run as Markdown, with the figures that lie beside it."""
    store = runs[name]
    note = store.folder / "note.txt"
    parts = [
        f"## {name}\n",
        f"{facts_of(store)}.\n",
        note.read_text(encoding="utf-8") if note.exists() else "",
        ledger_rows(ledger_beside(runs, name)) if with_ledger else "",
    ]
    parts += [table_rows(table) for table in tables_of(store)]
    parts += [
        f"![{figure}](../results/{name}/figures/{figure}.png)\n\n*{caption}*\n"
        for figure, (caption, _) in shown_figures(name, store).items()
    ]
    return "\n".join(part for part in parts if part)


def shown_figures(name: str, store: Store) -> dict[str, FigureEntry]:
    """Figures of a run that are published: caption and how it is drawn, by name."""
    # Variations of a run are shown by their tables; `cautious report` draws their figures.
    figures = {} if OTHER_SEED in name or name.endswith(AS_PRINTED) else figures_of(store)
    return {figure: entry for figure, entry in figures.items() if not figure.startswith("samples-letters")}  # not kept


def without_title(table: Table) -> str:
    """A table without its heading and note, to stand in a text."""
    return table_rows(replace(table, note="")).split("\n", 2)[2]


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
