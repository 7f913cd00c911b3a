"""A table of results, for the HTML page, the terminal and the published pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from cautious.io.atomic import atomic_write

ABSENT = "–"


@dataclass(frozen=True)
class Table:
    """Text in rows; the first `num_labels` columns name a row, the others are numbers."""

    id: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    num_labels: int = 1
    main: bool = False
    """Whether the terminal prints it after a run."""


def mean_and_spread(values: Tensor) -> str:
    """Mean ± standard deviation (none of a single run); values that were not measured do not count.

    >>> import torch
    >>> mean_and_spread(torch.tensor([1.0, 3.0]))
    '2.00 ± 1.41'
    """
    known = values[~values.isnan()]
    if not len(known):
        return ABSENT
    mean = f"{float(known.mean()):.2f}"
    return f"{mean} ± {float(known.std()):.2f}" if len(known) > 1 else mean


def write_csv(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write each table to <its id>.csv, as it is shown; returns the paths."""
    paths = []
    for table in tables:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([table.header, *table.rows])
        path = folder / f"{table.id}.csv"
        content = text.getvalue()
        atomic_write(path, lambda target, content=content: target.write_text(content, encoding="utf-8"))  # type: ignore[misc]
        paths.append(path)
    return paths
