"""The numbers that the paper prints, as data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from cautious.validation import look_up

SETTINGS_TABLE = "parameters_last_action_std"
"""The ninth table, of training settings; its cells are no percentages."""

DRIVING_MODEL_EPOCH = 25 * 60 / 51_200
"""Seconds of training a driving model for one epoch, appendix B.2: 25 minutes per model, 833 CPU-hours for all (835 in all)."""
IMAGE_HOURS, DRIVING_HOURS = 300, 835
"""GPU-hours of all the image experiments, and CPU-hours of driving (appendix B)."""
DRIVING_SOLVE = 180.0
"""Seconds of 100 iterations of driving CFR, appendix B.2."""


class Printed(NamedTuple):
    """A cell as printed, in percent."""

    mean: float
    spread: float


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's eight tables of behaviour on familiar digits.

    Attributes:
        id: the paper's own label.
        title: what it shows.
        cells: group of rows -> quantity ("correct" or "help") -> column (a level, or "optim") -> cell.
        misprinted: columns that cannot be what they say: shown, never compared.
    """

    id: str
    title: str
    cells: dict[str, dict[str, dict[str, Printed]]]
    misprinted: tuple[str, ...]

    def cell(self, group: str, quantity: str, column: str) -> Printed | None:
        """What is printed there, or None where the paper has no such cell."""
        return self.cells[group][quantity].get(column)


class PaperTraining(NamedTuple):
    """A row of the paper's table of training settings."""

    batch_size: int
    num_epochs: int


def paper_table(name: str) -> PaperTable:
    """The table with this label.

    >>> paper_table("last_action_0.25").cell("single-image", "help", "1-of-20")
    Printed(mean=2.83, spread=0.01)
    """
    entry = look_up(_numbers()["tables"], name, "table")
    cells = {
        group: {quantity: {column: Printed(*cell) for column, cell in row.items()} for quantity, row in rows.items()}
        for group, rows in entry["groups"].items()
    }
    return PaperTable(name, entry["title"], cells, tuple(entry["misprinted"]))


def paper_training() -> dict[str, PaperTraining]:
    """Batch size and epochs by share of the digits; all other image experiments are as the last row."""
    return {share: PaperTraining(**row) for share, row in _numbers()["training"].items()}


def paper_help(regime: str, images: str, level: str) -> float | None:
    """Percent of help on novel images that the text of section 4 gives, where it gives one."""
    return _numbers()["help_on_novel_images"].get(regime, {}).get(images, {}).get(level)


def paper_gpu_hours() -> float:
    """GPU-hours of an image experiment (appendix B.1)."""
    return float(_numbers()["gpu_hours"])


@cache
def _numbers() -> dict[str, Any]:
    text = resources.files("cautious_paper.report").joinpath("paper_tables.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
