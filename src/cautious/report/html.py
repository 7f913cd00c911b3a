"""A run as one self-contained HTML page: no scripts, no network, pictures inside."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

from cautious.beliefs.files import write_whole
from cautious.errors import InvalidInputError
from cautious.experiments.driving import stage_name
from cautious.experiments.store import Store
from cautious.report.driving import FIGURES, PANELS
from cautious.report.figures import save_figure
from cautious.report.ledger import Verdict, driving_ledger

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } img { max-width: 100%; height: auto; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .3rem .7rem; border-bottom: 1px solid #ddd; }
th { text-align: left; background: #f5f5f5; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
.shown { color: #00695c; font-weight: 600; } .not { color: #b3261e; font-weight: 600; } .none { color: #777; }
figure { margin: 2rem 0; } figcaption { color: #555; } small { color: #666; } .wide { overflow-x: auto; }
"""


def write_report(store: Store, folder: Path | None = None) -> Path:
    """Draw every figure (PNG and SVG), judge every claim, and write report.html; returns its path."""
    if store.manifest["experiment"] != "driving":
        raise InvalidInputError(f"{store.folder}: no report is known for experiment {store.manifest['experiment']!r}.")
    target = store.folder if folder is None else folder
    parts = [_head(store), _ledger_table(driving_ledger(store)), _numbers_table(store)]
    for name, (caption, draw) in FIGURES.items():
        for kind in ("svg", "png"):
            save_figure(draw(store), target / "figures" / f"{name}.{kind}")
        parts.append(_picture(target / "figures" / f"{name}.png", name, caption))
    page = _page("Driving: learning to be cautious", "\n".join(parts))
    write_whole(target / "report.html", lambda path: path.write_text(page, encoding="utf-8"))
    return target / "report.html"


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _head(store: Store) -> str:
    manifest = store.manifest
    training = manifest["settings"]["training"]
    hardware = manifest["hardware"]
    facts = (
        f"{training['num_models']} models x {training['num_epochs']} epochs, seed {training['seed']}, "
        f"{manifest['settings']['num_runs']} runs; {hardware['gpu'] or hardware['cpu']}, {hardware['cores']} cores; "
        f"{manifest['date']}; commit {manifest['commit']}; torch {manifest['versions']['torch']}"
    )
    return (
        "<h1>Driving: learning to be cautious</h1><p>Reward models were trained where obstacles lie in the ditches only. "
        "Then obstacles appear on the road. No model was ever told what that means; a k-of-20 policy heeds the k of 20 "
        f"models that expect the worst of it.</p><p><small>{html.escape(facts)}</small></p>"
    )


def _ledger_table(verdicts: list[Verdict]) -> str:
    kind = {True: "shown", False: "not", None: "none"}
    rows = "".join(
        f'<tr><td>{verdict.claim}</td><td>{html.escape(verdict.says)}</td><td class="{kind[verdict.shown]}">{verdict.word}'
        f"</td><td>{html.escape(verdict.numbers)}</td></tr>"
        for verdict in verdicts
    )
    return (
        "<h2>What the paper claims, and what this run shows</h2><div class='wide'><table><tr><th>claim</th><th>the paper"
        f"</th><th>verdict</th><th>numbers</th></tr>{rows}</table></div>"
    )


def _numbers_table(store: Store) -> str:
    numbers = store.numbers(stage_name(store.manifest["settings"]["default_probability"]))
    header = "".join(
        f"<th>{title}</th>" for title in ("level", *PANELS.values(), "value", "bound for every policy", "gap")
    )
    rows = "".join(f"<tr>{''.join(_cell(part) for part in row)}</tr>" for row in dial_rows(numbers))
    return (
        f"<h2>The caution dial</h2><p>Means over runs, p = {numbers['probability']:g}; value, bound and gap are of the best "
        f"policy of each level's exact run.</p><div class='wide'><table><tr>{header}</tr>{rows}</table></div>"
    )


def dial_rows(numbers: dict[str, Any]) -> list[list[str]]:
    """One row a level: safety statistics (means over runs), then the certificate of the exact run's best policy."""
    statistics, certificate = numbers["statistics"], numbers["certificates"]["exact"]["best"]
    rows = []
    for index, level in enumerate(numbers["levels"]):
        means = [sum(statistics["queue"][name][index]) / len(statistics["queue"][name][index]) for name in PANELS]
        bounds = [certificate[part][index] for part in ("lower", "upper", "gap")]
        rows.append([level, *(f"{value:.3f}" for value in means), *(f"{value:.4f}" for value in bounds)])
    optim = [sum(statistics["optim"][name]) / len(statistics["optim"][name]) for name in PANELS]
    rows.append(["optim", *(f"{value:.3f}" for value in optim), "", "", ""])
    return rows


def _cell(text: str) -> str:
    return f'<td class="number">{html.escape(text)}</td>'


def _picture(path: Path, name: str, caption: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return (
        f'<figure><img alt="{html.escape(name)}: {html.escape(caption)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )
