"""A table of results, for the HTML page, the terminal and the published pages."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

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
