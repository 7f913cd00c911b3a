"""Every table of an image run, from the store alone: novel images, the paper's own tables, single networks, settings."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from cautious.types import Regime
from cautious_paper.experiments.images.settings import Setting, percent
from cautious_paper.experiments.store import Store
from cautious_paper.report.claims.data_extent import (
    GROUP,
    TABLES,
    finished_draws,
    interval_of_another,
    interval_of_mean,
    percent_of_draws,
)
from cautious_paper.report.claims.rules import help_percent
from cautious_paper.report.images.image_run import (
    HELP,
    INDEX,
    INDEX_HELP_AS_ZERO,
    READINGS,
    REGIMES,
    TABLE_ROWS,
    Cells,
    ImageRun,
    TableRow,
    bit_words,
    in_words,
    our_cells,
)
from cautious_paper.report.paper import SETTINGS_TABLE, PaperTable, Printed, paper_help, paper_table, paper_training
from cautious_paper.report.tables import ABSENT, Table, mean_and_spread


def image_tables(store: Store) -> list[Table]:
    """Novel images first, then the paper's own tables, then single networks; those without any stage are left out."""
    run = ImageRun(store)
    if run.setting is Setting.DRAWS:
        return [table for table in (*draws_tables(run), settings_table(run)) if table.rows]
    tables = [novel_table(run, variant) for variant in run.variants]
    tables += [digits_table(run, name) for name in TABLE_ROWS.get(run.task.name, {})]
    if run.task.name == "non-obvious":
        tables.append(own_digits_table(run))
    tables += [networks_table(run, variant) for variant in run.variants]
    return [table for table in (*tables, settings_table(run)) if table.rows]


def novel_table(run: ImageRun, variant: str) -> Table:
    """An ensemble on novel images: help in percent and the mean index, and what the paper's text says of them."""
    rows: list[tuple[str, ...]] = []
    for images in run.novel:
        for bit in run.bits:
            where = in_words(images, bit_words(bit))
            for regime, words in REGIMES.items():
                rows += ((where, words, *row) for row in _novel_rows(run, variant, images, bit, regime))
    note = "Mean ± standard deviation over runs; for optim, over networks. Index: of the labels, where one is chosen"
    note += "; or with help counted as 0." if run.task.help_bit else "."
    header = ("images", "regime", "", *run.levels, "optim")
    main = variant == run.main or run.task.name == "data-extent"  # whose three ensembles are one figure in the paper
    title = in_words("Novel images", run.words_for(variant))
    return Table(f"novel-{variant}", title, header, tuple(rows), note, num_labels=3, main=main)


QUANTITIES = {
    HELP: "help, %",
    "help_share": "help, % of images",
    INDEX: "mean index",
    INDEX_HELP_AS_ZERO: "index, help as 0",
}


def _novel_rows(
    run: ImageRun, variant: str, images: str, bit: bool | None, regime: Regime
) -> Iterator[tuple[str, ...]]:
    measured, arrays = run.measured(variant, images, bit), run.arrays(variant, images, bit)
    if measured is None or arrays is None:
        return
    for name, heading in QUANTITIES.items():
        if name in measured.numbers["optim"] and (name != INDEX_HELP_AS_ZERO or run.task.help_bit):
            factor = 1 if name in (INDEX, INDEX_HELP_AS_ZERO) else 100
            cells = [*measured.runs(regime, name), arrays[f"optim-{name}"].double()]
            yield (heading, *(mean_and_spread(factor * cell) for cell in cells))
    printed = [paper_help(REGIMES[regime], images, level) for level in measured.levels]
    if variant == "help-0.25" and any(value is not None for value in printed):
        yield ("help, %, paper", *(ABSENT if value is None else f"{value:g}" for value in printed), ABSENT)


def settings_table(run: ImageRun) -> Table:
    """Batch size and epochs of each ensemble, ours and the paper's."""
    rows = []
    for name, variant in run.settings["variants"].items():
        paper = paper_training().get(f"{percent(variant['fraction'])} %")
        batch_size, num_epochs = (
            (ABSENT, ABSENT) if paper is None else (f"{paper.batch_size:,}", f"{paper.num_epochs:,}")
        )
        training = variant["training"]
        rows.append(
            (
                name,
                f"{percent(variant['fraction'])} % of {run.num_images('digits, train'):,}",
                f"{training['num_models']:,} (2,000)",
                f"{training['batch_size']:,} ({batch_size})",
                f"{training['num_epochs']:,} ({num_epochs})",
            )
        )
    header = ("ensemble", "digits", "models", "batch size", "epochs")
    title = f"Training settings, and the paper's in brackets ({SETTINGS_TABLE})"
    note = "The paper uses all 60,000 digits as 100 %."
    return Table(SETTINGS_TABLE, title, header, tuple(rows), note)


# The paper's tables of familiar digits, with ours beside them

NOTE = (
    "Percent of the familiar digits: mean ± standard deviation over runs; for optim, over networks. Mean probability of "
    "the action, and share of images whose most likely action it is; difference: ours minus the paper's, by the second "
    "reading in brackets."
)
MISPRINT = " The paper's optim column repeats rows of other tables: a misprint, not compared."


def digits_table(run: ImageRun, name: str) -> Table:
    """One of the paper's tables, by its label: ours in both readings, the paper's, and the difference."""
    paper, columns = paper_table(name), (*run.levels, "optim")
    rows: list[tuple[str, ...]] = []
    for group, table_row in TABLE_ROWS[run.task.name][name].items():
        for quantity in ("correct", "help"):
            ours = our_cells(run, table_row, quantity)
            if ours:
                rows += _block(paper, group, quantity, columns, ours)
    header = ("images", "action", "", *columns)
    note = NOTE + (MISPRINT if paper.misprinted else "")
    return Table(name, f"{paper.title} ({name})", header, tuple(rows), note, num_labels=3)


def _block(
    paper: PaperTable, group: str, quantity: str, columns: tuple[str, ...], ours: Cells
) -> Iterator[tuple[str, ...]]:
    """Ours, ours, the paper's, the difference."""
    for reading, heading in READINGS.items():
        yield (group, quantity, heading, *(mean_and_spread(ours[reading][column]) for column in columns))
    printed = [paper.cell(group, quantity, column) for column in columns]
    yield (group, quantity, "paper", *(printed_cell(cell) for cell in printed))
    yield (
        group,
        quantity,
        "difference",
        *(
            ABSENT if cell is None or column in paper.misprinted else _difference(ours, column, cell)
            for column, cell in zip(columns, printed, strict=True)
        ),
    )


def printed_cell(cell: Printed | None) -> str:
    """As the paper prints it; a dash where it prints nothing."""
    return ABSENT if cell is None else f"{cell.mean:.2f} ± {cell.spread:.2f}"


def _difference(ours: Cells, column: str, cell: Printed) -> str:
    first, second = (float(ours[reading][column].nanmean()) - cell.mean for reading in READINGS)
    return f"{first:+.2f} ({second:+.2f})"


def own_digits_table(run: ImageRun) -> Table:
    """Correct labels on familiar digits where the paper prints no table ("while not shown")."""
    rows = []
    for regime, words in REGIMES.items():
        ours = our_cells(run, TableRow(run.main, regime), "correct")
        for reading, cells in ours.items():
            rows.append((words, "correct", READINGS[reading], *map(mean_and_spread, cells.values())))
    header = ("images", "action", "", *run.levels, "optim")
    return Table("digits", "Familiar digits, correct labels", header, tuple(rows), NOTE.split(";")[0] + ".", 3)


# Single networks: how they differ from each other, each by its own greedy policy (optim)

NETWORK_QUANTILES = {"lowest": 0.0, "5 %": 0.05, "20 %": 0.2, "median": 0.5, "80 %": 0.8, "95 %": 0.95, "highest": 1.0}
LOW, HIGH = 95.0, 50.0
"""Percent: networks are counted that name fewer digits correctly than the first, or ask more often than the second."""


def networks_table(run: ImageRun, variant: str) -> Table:
    """Quantiles over the networks of an ensemble: digits named correctly, and help asked for on each set, in percent."""
    rows: list[tuple[str, ...]] = []
    for images in ("digits", *run.novel):
        for bit in run.bits:
            where = in_words(images, bit_words(bit))
            rows += ((where, *row) for row in _network_rows(run.arrays(variant, images, bit)))
    title = in_words("Single networks", run.words_for(variant))
    note = (
        f"Quantiles over networks; then, for digits, how many networks name fewer than {LOW:g} % correctly, and for help, "
        f"how many ask in more than {HIGH:g} %."
    )
    return Table(
        f"networks-{variant}", title, ("images", "", *NETWORK_QUANTILES, "networks"), tuple(rows), note, num_labels=2
    )


def _network_rows(arrays: dict[str, Tensor] | None) -> Iterator[tuple[str, ...]]:
    if arrays is None:
        return
    for name, heading in (("correct_probability", "correct, %"), ("help_probability", "help, %")):
        if f"optim-{name}" in arrays:
            values = 100 * arrays[f"optim-{name}"].double()
            cells = torch.quantile(values, torch.tensor(list(NETWORK_QUANTILES.values()), dtype=values.dtype)).tolist()
            counted = values < LOW if name == "correct_probability" else values > HIGH
            yield (heading, *(f"{cell:.2f}" for cell in cells), _count(counted))


def _count(chosen: Tensor) -> str:
    """How many, and what share.

    >>> _count(torch.tensor([True, False, False, False]))
    '1 of 4 (25.0 %)'
    """
    return f"{int(chosen.sum()):,} of {len(chosen):,} ({100 * float(chosen.double().mean()):.1f} %)"


# Several draws of 1 % of the digits


def draws_tables(run: ImageRun) -> list[Table]:
    """Help on each novel set draw by draw, and the paper's tables at 1 % over draws."""
    return [*(_novel_over_draws(run, images) for images in run.novel), _digits_over_draws(run)]


def _novel_over_draws(run: ImageRun, images: str) -> Table:
    rows: list[tuple[str, ...]] = []
    for regime, words in REGIMES.items():
        found = {name: help_percent(run, images, regime, name) for name in finished_draws(run, images)}
        for name, (levels, optim) in found.items():
            values = [*levels, optim, levels[0] - levels[-1]]
            rows.append((words, f"draw {name.rsplit('-', 1)[1]}", *(f"{value:.2f}" for value in values)))
        if len(found) > 1:
            each = torch.tensor([[*levels, optim, levels[0] - levels[-1]] for levels, optim in found.values()])
            cells = [str(interval_of_mean(column)) for column in each.double().T]
            rows.append((words, "mean, 95 % interval", *cells))
    header = ("regime", "", *run.levels, "optim", "rise")
    note = "Percent of the images; mean over runs. Rise: the first level minus the last. Every draw is of other digits, with "
    note += "other reward noise and other first weights."
    return Table(
        f"draws-{images}", f"Help on {images}, draw by draw", header, tuple(rows), note, num_labels=2, main=True
    )


def _digits_over_draws(run: ImageRun) -> Table:
    rows: list[tuple[str, ...]] = []
    columns = (*run.levels, "optim")
    for table, regime in TABLES.items():
        paper = paper_table(table)
        for quantity in ("correct", "help"):
            draws = {column: percent_of_draws(run, regime, quantity, column) for column in columns}
            if not len(draws["optim"]):
                continue
            printed = [paper.cell(GROUP, quantity, column) for column in columns]
            where = (REGIMES[regime], quantity)
            rows.append((*where, "ours, over draws", *(mean_and_spread(draws[column]) for column in columns)))
            if len(draws["optim"]) > 1:
                intervals = [interval_of_another(draws[column]) for column in columns]
                rows.append((*where, "one more draw", *(f"{each.low:.2f} to {each.high:.2f}" for each in intervals)))
            rows.append((*where, "paper", *(ABSENT if cell is None else f"{cell.mean:.2f}" for cell in printed)))
    header = ("regime", "action", "", *columns)
    note = "Percent of the familiar digits by mean probability: mean ± standard deviation over draws; then the 95 % interval "
    note += "for one more draw of the same kind; then what the paper prints."
    return Table(
        "draws-digits", "Familiar digits, 1 % of the data: over draws", header, tuple(rows), note, num_labels=3
    )
