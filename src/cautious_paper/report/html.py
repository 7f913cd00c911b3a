"""The report of a run as one self-contained HTML page: no scripts, no network, embedded figures.

It opens with what happened, in words and one picture; the ledger, the tables and the other figures follow, and how the run was
made comes last. On a narrow screen the ledger's rows become blocks, and wide tables and figures scroll by themselves.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from cautious.io.atomic import atomic_write
from cautious_paper.experiments.store import Store
from cautious_paper.report.claims.rules import ClaimResult
from cautious_paper.report.plotting import FigureEntry, save_figure
from cautious_paper.report.report_spec import ReportSpec, facts_of, report_spec
from cautious_paper.report.stories import claims_story, poor_fits
from cautious_paper.report.tables import Table

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } img { max-width: 100%; height: auto; } .story { font-size: 1.1rem; max-width: 46rem; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .3rem .7rem; border-bottom: 1px solid #ddd; }
th { text-align: left; background: #f5f5f5; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
td { white-space: nowrap; vertical-align: top; } th.number { text-align: right; }
.ledger td { white-space: normal; } .ledger td:nth-child(3) { white-space: nowrap; } tr.first td { border-top: 2px solid #bbb; }
.reproduced { color: #00695c; font-weight: 600; } .not { color: #b3261e; font-weight: 600; } .none { color: #777; }
figure { margin: 2rem 0; } figcaption { color: #555; } small { color: #666; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
:root { color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  body { background: #0e1116; color: #e9edf2; } a { color: #6ea6ff; } th { background: #171c23; }
  th, td { border-color: #28303a; } tr.first td { border-color: #46515e; } .none, figcaption, small { color: #98a3b0; }
  .reproduced { color: #4fc3a1; } .not { color: #ff8a80; }
  img { background: #fff; border-radius: 6px; }
}
@media (max-width: 45rem) {
  body { margin: 1rem auto; } h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; } .story { font-size: 1rem; }
  .picture { overflow-x: auto; } .picture img { max-width: none; width: 44rem; } .lead .picture img { width: 100%; }
  .ledger tr:first-child { display: none; } .ledger tr, .ledger td { display: block; border: 0; padding: .1rem 0; }
  .ledger tr { border-bottom: 1px solid #ddd; padding: .6rem 0; } .ledger td:first-child { font-weight: 600; }
  th, td { padding: .25rem .4rem; font-size: .9rem; }
}
"""


def write_report(store: Store, folder: Path | None = None) -> Path:
    """Draw every figure (PNG and SVG), judge every claim, and write report.html; returns its path.

    Args:
        store: A run of any of the experiments, finished or not.
        folder: Where to write; into the run's folder if None.
    """
    contents = report_spec(store)
    target = store.folder if folder is None else folder
    tables, verdicts = contents.tables(store), contents.ledger(store, None)
    figures = dict(contents.figures(store))
    parts = [_head(contents), _story([*poor_fits(store), *contents.story(store), claims_story(verdicts)])]
    if figures:
        lead = next(iter(figures))
        entry = figures.pop(lead)
        parts.append(f"<div class='lead'>{_picture(draw_figure(store, lead, entry, target), lead, entry[0])}</div>")
    parts.append(_ledger(verdicts))
    parts += [_table(table) for table in tables if table.main]
    parts.append("<h2>Figures</h2>" if figures else "")
    for name, entry in figures.items():
        parts.append(_picture(draw_figure(store, name, entry, target), name, entry[0]))
    parts += [_table(table) for table in tables if not table.main]
    parts.append(f"<h2>How this was made</h2><p><small>{html.escape(facts_of(store))}</small></p>")
    page = _page(contents.title, "\n".join(parts))
    atomic_write(target / "report.html", lambda path: path.write_text(page, encoding="utf-8"))
    return target / "report.html"


def draw_figure(store: Store, name: str, entry: FigureEntry, target: Path) -> Path:
    """Draw one figure into the folder's figures/, as SVG and PNG; returns the path of the latter."""
    path = target / "figures" / f"{name}.png"
    save_figure(entry[1](store), path.with_suffix(".svg"), path)
    return path


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _head(contents: ReportSpec) -> str:
    return f"<h1>{html.escape(contents.title)}</h1><p>{html.escape(contents.intro)}</p>"


def _story(paragraphs: Sequence[str]) -> str:
    text = "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in paragraphs)
    return f"<h2>What happened</h2><div class='story'>{text}</div>"


def _ledger(verdicts: list[ClaimResult]) -> str:
    kind = {True: "reproduced", False: "not", None: "none"}
    rows = "".join(
        f"<tr><td>{html.escape(verdict.claim)}</td><td>{html.escape(verdict.says)}</td>"
        f'<td class="{kind[verdict.reproduced]}">{verdict.word}</td><td>{html.escape(verdict.numbers)}</td></tr>'
        for verdict in verdicts
    )
    return (
        "<h2>What the paper claims, and what this run shows</h2><div class='wide ledger'><table>"
        f"{_header(('claim', 'the paper', 'verdict', 'numbers'))}{rows}</table></div>"
    )


def _table(table: Table) -> str:
    """A group of rows with the same first label starts with a line; the label is not repeated."""
    rows, before = [], None
    for row in table.rows:
        labels, numbers = row[: table.num_labels], row[table.num_labels :]
        new = table.num_labels > 1 and labels[:-1] != before
        before = labels[:-1]
        shown = labels if new or table.num_labels == 1 else ("",) * (len(labels) - 1) + labels[-1:]
        cells = [f"<td>{html.escape(label)}</td>" for label in shown]
        cells += [f'<td class="number">{html.escape(number)}</td>' for number in numbers]
        rows.append(f"<tr{' class=first' if new else ''}>{''.join(cells)}</tr>")
    return (
        f'<h2 id="{html.escape(table.id)}">{html.escape(table.title)}</h2><p>{html.escape(table.note)}</p>'
        f"<div class='wide'><table>{_header(table.header, table.num_labels)}{''.join(rows)}</table></div>"
    )


def _header(names: Sequence[str], num_labels: int | None = None) -> str:
    """Headings of columns of numbers are aligned to the right."""
    labels = len(names) if num_labels is None else num_labels
    cells = [f"<th>{html.escape(name)}</th>" for name in names[:labels]]
    cells += [f'<th class="number">{html.escape(name)}</th>' for name in names[labels:]]
    return f"<tr>{''.join(cells)}</tr>"


def _picture(path: Path, name: str, caption: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return (
        f"<figure><div class='picture'>"
        f'<img alt="{html.escape(name)}: {html.escape(caption)}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )
