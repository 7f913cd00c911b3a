"""How the single networks of a belief differ from each other, each by its own greedy policy (optim)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from cautious.report.images.image_run import ImageRun, bit_words, in_words
from cautious.report.tables import Table

QUANTILES = {"lowest": 0.0, "5 %": 0.05, "20 %": 0.2, "median": 0.5, "80 %": 0.8, "95 %": 0.95, "highest": 1.0}
LOW, HIGH = 95.0, 50.0
"""Percent: networks are counted that name fewer digits correctly than the first, or ask more often than the second."""


def networks_table(run: ImageRun, variant: str) -> Table:
    """Quantiles over the networks of an ensemble: digits named correctly, and help asked for on each set, in percent."""
    rows: list[tuple[str, ...]] = []
    for images in ("digits", *run.novel):
        for bit in run.bits:
            where = in_words(images, bit_words(bit))
            rows += ((where, *row) for row in _rows(run.arrays(variant, images, bit)))
    title = in_words("Single networks", run.words_for(variant))
    note = (
        f"Quantiles over networks; then, for digits, how many networks name fewer than {LOW:g} % correctly, and for help, "
        f"how many ask in more than {HIGH:g} %."
    )
    return Table(f"networks-{variant}", title, ("images", "", *QUANTILES, "networks"), tuple(rows), note, num_labels=2)


def _rows(arrays: dict[str, Tensor] | None) -> Iterator[tuple[str, ...]]:
    if arrays is None:
        return
    for name, heading in (("correct_probability", "correct, %"), ("help_probability", "help, %")):
        if f"optim-{name}" in arrays:
            values = 100 * arrays[f"optim-{name}"].double()
            cells = torch.quantile(values, torch.tensor(list(QUANTILES.values()), dtype=values.dtype)).tolist()
            counted = values < LOW if name == "correct_probability" else values > HIGH
            yield (heading, *(f"{cell:.2f}" for cell in cells), _count(counted))


def _count(chosen: Tensor) -> str:
    """How many, and what share.

    >>> _count(torch.tensor([True, False, False, False]))
    '1 of 4 (25.0 %)'
    """
    return f"{int(chosen.sum()):,} of {len(chosen):,} ({100 * float(chosen.double().mean()):.1f} %)"
