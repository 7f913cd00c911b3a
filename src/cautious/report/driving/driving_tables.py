"""The caution dial of a driving run as a table."""

from __future__ import annotations

from typing import Any

from cautious.experiments.driving.experiment import stage_name
from cautious.experiments.store import Store
from cautious.report.driving.driving_figures import PANELS
from cautious.report.tables import Table


def driving_tables(store: Store) -> list[Table]:
    """The dial at the default appearance probability, if that was run."""
    stage = stage_name(store.manifest["settings"]["default_probability"])
    return [dial_table(store.numbers(stage))] if store.has(stage) else []


def dial_table(numbers: dict[str, Any]) -> Table:
    """One row a level: safety statistics (means over runs), then the certificate of the exact run's best policy."""
    statistics, certificate = numbers["statistics"], numbers["certificates"]["exact"]["best"]
    rows = []
    for index, level in enumerate(numbers["levels"]):
        means = [sum(statistics["queue"][name][index]) / len(statistics["queue"][name][index]) for name in PANELS]
        bounds = [certificate[part][index] for part in ("lower", "upper", "gap")]
        rows.append((level, *(f"{value:.3f}" for value in means), *(f"{value:.4f}" for value in bounds)))
    optim = [sum(statistics["optim"][name]) / len(statistics["optim"][name]) for name in PANELS]
    rows.append(("optim", *(f"{value:.3f}" for value in optim), "", "", ""))
    title = f"The caution dial: driving where obstacles were never on the road before (p = {numbers['probability']:g})"
    note = (
        "Safety: means over runs. Value, bound and gap: best policy of each level's exact run. Optim: each network's own best "
        "policy, averaged."
    )
    header = ("level", *PANELS.values(), "value", "bound for every policy", "gap")
    return Table("dial", title, header, tuple(rows), note, main=True)
