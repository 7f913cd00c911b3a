"""What `cautious solve` prints: actions, certificates, caution and disagreement, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from cautious.cli.console import make_table
from cautious.cli.solution_files import UNDECIDED

if TYPE_CHECKING:
    from torch import Tensor

    from cautious.solvers.certificate import Certificate


def actions_table(
    rules: Sequence[str], actions: Tensor, ordinary: Tensor, num_actions: int, names: Sequence[str] | None
) -> Table:
    """In how many states each action is taken ordinarily [S] and by each of L rules, actions [L, S]; -1 is undecided."""
    counts = [(each + 1).bincount(minlength=num_actions + 1).tolist() for each in (ordinary, *actions)]
    labels = [UNDECIDED, *([str(number) for number in range(num_actions)] if names is None else names)]
    rows = [
        (label, *(f"{count:,}" for count in row))
        for label, *row in zip(labels, *counts, strict=True)
        if any(row) or (num_actions <= 20 and label != UNDECIDED)
    ]
    rows = [*rows[1:], rows[0]] if any(count[0] for count in counts) else rows
    return make_table("number of states per action", ("action", "ordinarily", *rules), rows, text_columns=("action",))


def certificate_table(levels: Sequence[str], certificates: Mapping[str, Certificate]) -> Table:
    """One row per level and policy: its exact value, the bound for every policy, the gap (means, if there is one per state)."""
    rows = []
    for number, level in enumerate(levels):
        for name, certificate in certificates.items():
            parts = (certificate.lower, certificate.upper, certificate.gap)
            means = [float(part.reshape(len(levels), -1)[number].mean()) for part in parts]
            rows.append((level, name, *(f"{mean:.6f}" for mean in means)))
    headings = ("level", "policy", "value (lower)", "bound for all (upper)", "gap")
    return make_table("distance from the best possible policy", headings, rows, text_columns=headings[:2])


def caution_table(levels: Sequence[str], caution: Tensor) -> Table:
    """How much each level departs from the ordinary policy: caution [S], or [L, S]."""
    rows = []
    for level, values in zip(levels, caution.reshape(len(levels), -1), strict=True):
        high = int((values > 0.5).sum())
        numbers = (f"{float(values.mean()):.3f}", f"{float(values.max()):.3f}", f"{high:,}")
        rows.append((level, f"{len(values):,}", *numbers))
    return make_table(
        "distance from ordinary behaviour",
        ("level", "states", "mean caution", "maximum", "states above 0.5"),
        rows,
        text_columns=("level",),
        caption="caution: 0 acts as usual, 1 entirely differently",
    )


def disagreement_table(disagreement: Tensor, has_unit: bool) -> Table:
    """How much the models differ, [S]; in units of familiar states if the belief has that unit."""
    row = [f"{len(disagreement):,}", f"{float(disagreement.median()):.3g}", f"{float(disagreement.max()):.3g}"]
    headings = ["states", "median", "maximum"]
    if has_unit:
        row.append(f"{int((disagreement > 1).sum()):,}")
        headings.append("states above 1")
    unit = "95 % of familiar states are below 1" if has_unit else "in units of the reward"
    return make_table("disagreement of the models", headings, [row], caption=unit)
