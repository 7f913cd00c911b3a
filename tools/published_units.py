"""Tables of a task with both units of the rewards: in tenths, and as the paper prints them (deviation D18)."""

from __future__ import annotations

from collections.abc import Sequence

from cautious_paper.report.claims.rules import ClaimResult
from cautious_paper.report.images.image_run import REGIMES, TABLE_ROWS, Cells, ImageRun, in_words, our_cells
from cautious_paper.report.images.image_tables import printed_cell
from cautious_paper.report.paper import paper_table
from cautious_paper.report.tables import ABSENT, Table, mean_and_spread


def units_table(tenths: ImageRun | None, printed: ImageRun | None, *, task: str = "help-if-available") -> Table:
    """The paper's two tables of familiar digits, with both units of the rewards; a unit that was not run has dashes."""
    rows: list[tuple[str, ...]] = []
    levels = next(run for run in (tenths, printed) if run is not None).levels
    for name, groups in TABLE_ROWS[task].items():
        paper = paper_table(name)
        for group, table_row in groups.items():
            for quantity in paper.cells[group]:
                where = (in_words(REGIMES[table_row.regime], group), quantity)
                for words, run in (("tenths", tenths), ("as printed", printed)):
                    cells: Cells = {} if run is None else our_cells(run, table_row, quantity)
                    rows.append((*where, words, *_means(cells, levels)))
                rows.append(
                    (*where, "the paper", *(printed_cell(paper.cell(group, quantity, level)) for level in levels))
                )
    note = "Percent of the 10,000 test digits by mean probability: mean ± standard deviation over ten runs."
    header = ("images", "action", "rewards", *levels)
    return Table("units", "Both units of the rewards beside the paper", header, tuple(rows), note, num_labels=3)


def _means(cells: Cells, levels: Sequence[str]) -> list[str]:
    return [mean_and_spread(cells["probability"][level]) if cells else ABSENT for level in levels]


def units_ledger(tenths: Sequence[ClaimResult], printed: Sequence[ClaimResult]) -> Table:
    """The claims of a task judged in both units; claims that hardly depend on it (CV1, CO1) are left out."""
    both: dict[str, list[ClaimResult | None]] = {verdict.claim: [verdict, None] for verdict in tenths}
    for verdict in printed:
        both.setdefault(verdict.claim, [None, None])[1] = verdict
    rows = []
    for claim, pair in both.items():
        if claim not in ("CV1", "CO1"):
            says = next(one.says for one in pair if one is not None)
            rows.append((claim, says, *(ABSENT if one is None else f"**{one.word}**: {one.numbers}" for one in pair)))
    header = ("claim", "the paper", "in tenths", "as printed")
    return Table("units-ledger", "Claims in both units of the rewards", header, tuple(rows), num_labels=2)
