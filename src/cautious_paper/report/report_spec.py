"""The contents of each experiment's report: title, introduction, tables, figures, claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cautious.errors import InvalidInputError
from cautious_paper.experiments.images.settings import Setting
from cautious_paper.experiments.store import Store
from cautious_paper.report.claims.ask_for_help import ASK_FOR_HELP
from cautious_paper.report.claims.data_extent import DATA_EXTENT, draws_claims
from cautious_paper.report.claims.driving import driving_ledger
from cautious_paper.report.claims.help_if_available import HELP_IF_AVAILABLE
from cautious_paper.report.claims.non_obvious import NON_OBVIOUS
from cautious_paper.report.claims.rules import Claim, ClaimResult, image_cost, levels_off, sampled_values
from cautious_paper.report.driving.driving_report import driving_figures, driving_tables
from cautious_paper.report.images.image_figures import image_figures
from cautious_paper.report.images.image_run import ImageRun
from cautious_paper.report.images.image_tables import image_tables
from cautious_paper.report.plotting import FigureEntry
from cautious_paper.report.stories import driving_story, image_story
from cautious_paper.report.tables import Table


@dataclass(frozen=True)
class ReportSpec:
    """The report of one experiment; everything but the words is read from the store."""

    title: str
    intro: str
    tables: Callable[[Store], list[Table]]
    figures: Callable[[Store], Mapping[str, FigureEntry]]
    ledger: Callable[[Store, Store | None], list[ClaimResult]]
    """Judges a run, and where one is given, another run beside it."""
    trained: Callable[[Store], str]
    """How many models, trained how, on what."""
    story: Callable[[Store], list[str]]
    """What happened, in words."""


IMAGE_CLAIMS: dict[str, tuple[Claim, ...]] = {
    "ask-for-help": ASK_FOR_HELP,
    "non-obvious": NON_OBVIOUS,
    "help-if-available": HELP_IF_AVAILABLE,
    "data-extent": DATA_EXTENT,
}
"""Task -> its rows of the ledger."""


def image_ledger(store: Store, comparison: Store | None = None) -> list[ClaimResult]:
    """The claims of the run's task, then CV1 and CO1, which are about all of them.

    Args:
        store: The run.
        comparison: For draws of 1 % of the digits, the run of data-extent itself, with which they are compared.
    """
    run = ImageRun(store)
    if run.setting is Setting.DRAWS:
        claims = draws_claims(run, None if comparison is None else ImageRun(comparison))
        return [*claims, levels_off(sampled_values(run))]
    judged = [claim.judge(run, images) for claim in IMAGE_CLAIMS[run.task.name] for images in claim.sets]
    return [*judged, levels_off(sampled_values(run)), image_cost(run)]


def _driving_training(store: Store) -> str:
    return _training(store.manifest["settings"]["training"])


def _image_training(store: Store) -> str:
    run = ImageRun(store)
    parts = [f"{name}: {_training(variant['training'])}" for name, variant in run.settings["variants"].items()]
    for name, what in run.settings["data"].items():
        origin = run.origins.get(name)
        parts.append(f"{name}: {what}" + ("" if origin is None else f" ({origin})"))
    return "; ".join(parts)


def facts_of(store: Store) -> str:
    """The line above a report: models, data, runs, hardware, date, commit and versions of everything that made it."""
    manifest, hardware = store.manifest, store.manifest["hardware"]
    facts = (
        f"{report_spec(store).trained(store)}; {manifest['settings']['num_runs']} runs; "
        f"{hardware['gpu'] or hardware['cpu']}, {hardware['cores']} cores; "
        f"{manifest['date'][:10]}; commit {manifest['commit']}; torch {manifest['versions']['torch']}"
    )
    others: dict[str, list[str]] = {}
    for stage in store.stages():
        if provenance := store.provenance(stage):
            others.setdefault(", ".join(f"{name} {value}" for name, value in provenance.items()), []).append(stage)
    return "; ".join([facts, *(f"with {what}: {', '.join(stages)}" for what, stages in others.items())])


def _training(training: Mapping[str, Any]) -> str:
    return f"{training['num_models']:,} models x {training['num_epochs']:,} epochs, seed {training['seed']}"


def _images(title: str, intro: str) -> ReportSpec:
    return ReportSpec(title, intro, image_tables, image_figures, image_ledger, _image_training, image_story)


NOVELTY_SENTENCE = (
    " Reward models were trained on digits alone; then they meet clothing and letters, which no model has seen. A k-of-n "
    "policy maximises the mean of the k worst of n sampled models."
)
REPORTS = {
    "driving": ReportSpec(
        "Driving: learning to be cautious",
        "Reward models were trained where obstacles lie in the ditches only. Then obstacles appear on the road, which no "
        "model has seen. A k-of-20 policy maximises the mean of the k worst of 20 sampled models.",
        driving_tables,
        driving_figures,
        driving_ledger,
        _driving_training,
        driving_story,
    ),
    "ask-for-help": _images(
        "Ask for help: learning to be cautious",
        "A right label pays 1, a wrong one nothing, asking for help a little, always." + NOVELTY_SENTENCE,
    ),
    "non-obvious": _images(
        "Non-obvious caution: learning to be cautious",
        "High labels pay more when right and cost more when wrong: no action is marked as the cautious one."
        + NOVELTY_SENTENCE,
    ),
    "help-if-available": _images(
        "Help if available: learning to be cautious",
        "Labels pay as in the non-obvious task; help pays a little where a signal says that it is available, and costs "
        "more than any mistake where it is not." + NOVELTY_SENTENCE,
    ),
    "data-extent": _images(
        "Data extent: learning to be cautious",
        "Asking for help with noisy rewards, trained on 1 %, 10 % and all of the digits." + NOVELTY_SENTENCE,
    ),
}
"""Experiment -> its report."""


def report_spec(store: Store) -> ReportSpec:
    """The report of a run's experiment."""
    experiment = store.manifest["experiment"]
    if experiment not in REPORTS:
        known = ", ".join(map(repr, REPORTS))
        raise InvalidInputError(f"{store.folder}: no report is known for experiment {experiment!r}, only for {known}.")
    return REPORTS[experiment]


def tables_of(store: Store) -> list[Table]:
    """Every table of a run."""
    return report_spec(store).tables(store)


def figures_of(store: Store) -> Mapping[str, FigureEntry]:
    """Figure id -> (caption, how to draw it)."""
    return report_spec(store).figures(store)


def chosen_of(store: Store, names: Sequence[str]) -> tuple[list[Table], dict[str, FigureEntry]]:
    """The tables and figures with these ids."""
    tables = {table.id: table for table in tables_of(store)}
    figures = figures_of(store)
    unknown = [name for name in names if name not in tables and name not in figures]
    if unknown:
        known = ", ".join(map(repr, (*tables, *figures)))
        raise InvalidInputError(f"{unknown[0]!r} is not a table or figure of this run; it has {known}.")
    chosen = {name: figures[name] for name in names if name in figures}
    return [tables[name] for name in names if name in tables], chosen


def ledger_of(store: Store, comparison: Store | None = None) -> list[ClaimResult]:
    """The claims that a run is about, judged.

    Args:
        store: The run.
        comparison: For draws of 1 % of the digits, the run of data-extent that they are compared with.
    """
    return report_spec(store).ledger(store, comparison)
