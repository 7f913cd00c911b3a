"""Results as terminal tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from cautious.solvers.solution import Certificate


def certificate_table(levels: Sequence[str], certificates: Mapping[str, Certificate]) -> Table:
    """One row a level and policy: its exact value, the bound for every policy, the gap (means over states, if many)."""
    table = Table(title="how far from the best possible policy")
    for heading in ("level", "policy", "value (lower)", "bound for all (upper)", "gap"):
        table.add_column(heading, justify="left" if heading in ("level", "policy") else "right")
    for number, level in enumerate(levels):
        for name, certificate in certificates.items():
            parts = (certificate.lower, certificate.upper, certificate.gap)
            own = [part.reshape(len(levels), -1)[number].mean() for part in parts]
            table.add_row(level, name, *(f"{float(part):.6f}" for part in own))
    return table
