"""Every number on letters with the 3,128 of a cut and with the 20,800 of the rebuilt set, side by side, from results/letters/.

`tools/run_letters.py` measures the same models on both sets. `results-ledgers.md` shows every ensemble, docs/images.md the main
ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cautious.types import Regime
from cautious_paper.report.images.image_run import BITS, HELP, INDEX, REGIMES
from cautious_paper.report.tables import ABSENT, Table

ROWS = Path(__file__).parents[1] / "results" / "letters"
"""What `tools/run_letters.py` measured: a file for each run."""
EDITIONS = {"subset": "3,128 letters", "rebuilt": "20,800 letters"}
"""Edition of the letters -> heading."""
RUNS = (
    "ask-for-help",
    "non-obvious",
    "help-if-available",
    "data-extent-1000-models",
    "shipped",
    "small-ask-for-help",
    "small-non-obvious",
    "small-help-if-available",
    "small-data-extent",
    "small-non-obvious-as-printed",
    "small-help-if-available-as-printed",
)
NOTE = (
    "1-of-20, 1-of-10, 5-of-10, 10-of-10; then single networks (optim). Means over runs. Both columns are of the same models "
    "on whole sets; 14,800 of the 20,800 letters are the official test images, the others are EMNIST letters too. "
    "`data-extent-1000-models` has half of the paper's networks, `shipped` is the package's own belief of 100 networks for "
    "`ask-for-help`, solved as at the paper's size."
)


class Measured(NamedTuple):
    """One quantity of an ensemble in one regime: numbers by edition of the letters."""

    run: str
    variant: str
    help_available: bool | None
    quantity: str
    regime: Regime
    by_edition: dict[str, list[float]]

    def cells(self) -> tuple[str, ...]:
        """A row of a table."""
        bit = f", help {BITS[self.help_available]}" if self.help_available is not None else ""
        words = "help, %" if self.quantity == HELP else "index of the labels"
        numbers = (_in_words(self.by_edition.get(edition), self.quantity) for edition in EDITIONS)
        return (f"`{self.run}`", f"{self.variant}{bit}", words, REGIMES[self.regime], *numbers)


def _in_words(values: Sequence[float] | None, quantity: str) -> str:
    if values is None:
        return ABSENT
    scaled = [f"{100 * value:.1f}" if quantity == HELP else f"{value:.2f}" for value in values]
    return f"{', '.join(scaled[:-1])}; {scaled[-1]}"


def letter_rows(run: str, folder: Path = ROWS) -> list[dict[str, Any]]:
    """The rows of a run as `tools/run_letters.py` left them; none if it was not run."""
    path = folder / f"{run}.json"
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def measured(run: str, folder: Path = ROWS) -> Iterator[Measured]:
    """What a run measured on letters, both sets side by side."""
    rows = letter_rows(run, folder)
    for variant, bit in dict.fromkeys((row["variant"], row["help_available"]) for row in rows):
        own = {row["edition"]: row for row in rows if (row["variant"], row["help_available"]) == (variant, bit)}
        for quantity in (HELP, INDEX):
            if (bit is False and quantity == HELP) or any(quantity not in row for row in own.values()):
                continue
            if bit is None and quantity == INDEX and "non-obvious" not in run:
                continue  # the index of an agent that may ask for help is no claim without a bit
            for regime in REGIMES:
                values = {
                    edition: [*row[quantity][str(regime)], row[quantity]["optim"]] for edition, row in own.items()
                }
                yield Measured(run, variant, bit, quantity, regime, values)


def all_letters(folder: Path = ROWS) -> Table:
    """Every ensemble, quantity and regime."""
    header = ("run", "ensemble", "what", "regime", *EDITIONS.values())
    rows = tuple(found.cells() for run in RUNS for found in measured(run, folder))
    return Table("letters", "Letters: 3,128 and 20,800", header, rows, NOTE, num_labels=4)


def main_letters(folder: Path = ROWS) -> Table:
    """The first ensemble of each run, which the claims are judged on."""
    header = ("run", "ensemble", "what", "regime", *EDITIONS.values())
    rows = []
    for run in RUNS:
        found = list(measured(run, folder))
        variants = dict.fromkeys(each.variant for each in found)
        shown = list(variants) if "data-extent" in run else list(variants)[:1]
        rows += [each.cells() for each in found if each.variant in shown and not run.endswith("-as-printed")]
    return Table("letters", "Letters: 3,128 and 20,800", header, tuple(rows), NOTE, num_labels=4)


def shipped_by_letter(folder: Path = ROWS) -> Table:
    """How often the shipped belief asks on each letter, by set of letters and regime."""
    by_edition = {row["edition"]: row["help_by_letter"] for row in letter_rows("shipped", folder)}
    header = ("letter", *(f"{words}, {there}" for words in REGIMES.values() for there in EDITIONS.values()))
    columns = [
        by_edition[edition][str(regime)][0] for regime in REGIMES for edition in EDITIONS if edition in by_edition
    ]
    rows = tuple(
        (chr(ord("a") + letter), *(f"{100 * column[letter]:.1f}" for column in columns))
        for letter in range(len(columns[0]) if columns else 0)
    )
    note = "Help at 1-of-20 in percent, mean over ten runs."
    return Table("shipped-letters", "The shipped belief, by letter", header, rows, note)
