"""Every table of an image run, from the store alone."""

from __future__ import annotations

from collections.abc import Iterator

from cautious.experiments.images.settings import Setting
from cautious.experiments.store import Store
from cautious.report.claims.data_extent_draws import draws_tables
from cautious.report.images.digits_tables import PLACES, digits_table, own_digits_table
from cautious.report.images.image_run import HELP, INDEX, INDEX_HELP_AS_ZERO, REGIMES, ImageRun, bit_words, in_words
from cautious.report.images.network_tables import networks_table
from cautious.report.paper import SETTINGS_TABLE, paper_help, paper_training
from cautious.report.tables import ABSENT, Table, mean_and_spread
from cautious.types import Regime


def image_tables(store: Store) -> list[Table]:
    """Novel images first, then the paper's own tables, then single networks; those without any stage are left out."""
    run = ImageRun(store)
    if run.setting is Setting.DRAWS:
        return [table for table in (*draws_tables(run), settings_table(run)) if table.rows]
    tables = [novel_table(run, variant) for variant in run.variants]
    tables += [digits_table(run, name) for name in PLACES.get(run.task.name, {})]
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
    said = [paper_help(REGIMES[regime], images, level) for level in measured.levels]
    if variant == "help-0.25" and any(value is not None for value in said):
        yield ("help, %, paper", *(ABSENT if value is None else f"{value:g}" for value in said), ABSENT)


def settings_table(run: ImageRun) -> Table:
    """Batch size and epochs of each ensemble, ours and the paper's."""
    rows = []
    for name, variant in run.settings["variants"].items():
        paper = paper_training()[f"{round(100 * variant['fraction'])} %"]
        training = variant["training"]
        rows.append(
            (
                name,
                f"{round(100 * variant['fraction'])} % of {run.num_images('digits, train'):,}",
                f"{training['num_models']:,} (2,000)",
                f"{training['batch_size']:,} ({paper.batch_size:,})",
                f"{training['num_epochs']:,} ({paper.num_epochs:,})",
            )
        )
    header = ("ensemble", "digits", "models", "batch size", "epochs")
    title = f"Training settings, and the paper's in brackets ({SETTINGS_TABLE})"
    note = "The paper uses all 60,000 digits as 100 %."
    return Table(SETTINGS_TABLE, title, header, tuple(rows), note)
