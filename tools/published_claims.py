"""All published runs at a glance: how many of the paper's claims are reproduced, how each run was made, time and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cautious_paper.experiments.images.settings import Setting
from cautious_paper.experiments.store import MANIFEST, Store
from cautious_paper.report.claims.rules import NOT_JUDGED, NOT_RUN, OBSERVATION, ClaimResult
from cautious_paper.report.images.image_run import ImageRun
from cautious_paper.report.paper import DRIVING_HOURS, IMAGE_HOURS
from cautious_paper.report.report_spec import ledger_of
from cautious_paper.report.tables import Table

MAIN_RUNS = ("ask-for-help", "non-obvious", "help-if-available", "data-extent", "driving")
"""Runs that the paper's claims are judged on, by their name in results/."""
DRAWS, WHOLE = "data-extent-draws", "data-extent"
"""Draws of 1 % of the digits, and the run that they are compared with."""
AS_PRINTED = "-as-printed"
"""How the names of runs with the printed rewards end."""
SMALL = "small-"
"""How the names of runs at scale "small" begin."""
CLAIMS = {
    "AH1": "ask for help: familiar digits are labelled correctly",
    "AH2": "ask for help: help on familiar digits is rare",
    "AH3": "ask for help, all-images: help on clothes rises as k/N falls",
    "AH4": "ask for help, all-images: the same on letters, muted",
    "AH5": "ask for help, single-image: 1-of-20 asks on most novel images",
    "AH6": "ask for help: single networks ask least",
    "AH7": "ask for help: letters that look like digits get less help",
    "AH8": "ask for help: more reward for help, more help",
    "NO1": "non-obvious: familiar digits are labelled correctly",
    "NO2": "non-obvious: robust policies choose smaller indices on clothes",
    "NO3": "non-obvious: the same on letters",
    "HA1": "help if available: robust policies ask far more on novel images",
    "HA2": "help if available: never asked for when unavailable",
    "HA3": "help if available: the index falls more when help is available",
    "HA4": "help if available: the two tables of familiar digits",
    "HA5": "help if available: more reward for help, more help",
    "DE1": "data extent: 1 % of the data brings no caution",
    "DE2": "data extent: robustness and help are linked more strongly at 10 % than at 100 %",
    "DE3": "data extent: the two tables of familiar digits",
    "DR1": "driving: robust policies drive slower",
    "DR2": "driving: they hit obstacles less often",
    "DR3": "driving: they hit them at lower speed",
    "DR4": "driving: 20-of-20 and optim drive at full speed",
    "CV1": "all: values level off before T = 100",
    "TH1": "theory: regret stays under the bounds of Theorems 1 and 2",
    "TH2": "theory: Theorem 3 bounds the measured gap",
    "CO1": "cost: less than the paper's hours",
}
"""Every claim of the paper that is judged, in a few words."""


@dataclass(frozen=True)
class ClaimSummary:
    """One claim over all the runs that it is judged on."""

    id: str
    rows: tuple[tuple[str, ClaimResult], ...]
    """(run, verdict); a claim may have several rows in a run: both novel sets, an order and the paper's numbers."""

    @property
    def judged(self) -> list[tuple[str, ClaimResult]]:
        """Rows with a verdict."""
        return [row for row in self.rows if row[1].reproduced is not None]

    @property
    def missed(self) -> list[tuple[str, ClaimResult]]:
        """Rows that were not reproduced."""
        return [row for row in self.rows if row[1].reproduced is False]

    @property
    def word(self) -> str:
        """The result: "in part" if some rows are reproduced and others are not."""
        if not self.judged:
            return NOT_JUDGED if any(verdict.word == NOT_JUDGED for _, verdict in self.rows) else NOT_RUN
        if not self.missed:
            return "reproduced"
        return "not reproduced" if len(self.missed) == len(self.judged) else "in part"


def ledger_beside(runs: Mapping[str, Store], name: str) -> list[ClaimResult]:
    """A run's ledger; draws of the digits are compared with the run of data-extent where it is there."""
    return ledger_of(runs[name], runs.get(WHOLE) if name == DRAWS else None)


def claim_results(runs: Mapping[str, Store]) -> list[ClaimSummary]:
    """Every claim, judged on the main runs. DE1 and DE3 are judged over draws where there are draws to judge them on."""
    rows: dict[str, list[tuple[str, ClaimResult]]] = {claim: [] for claim in CLAIMS}
    for name in (*MAIN_RUNS, DRAWS):
        for verdict in ledger_beside(runs, name) if name in runs else []:
            if verdict.word != OBSERVATION:
                rows[verdict.claim.split(",")[0]].append((name, verdict))
    for claim in ("DE1", "DE3"):
        over_draws = [row for row in rows[claim] if row[0] == DRAWS and row[1].reproduced is not None]
        rows[claim] = over_draws or [row for row in rows[claim] if row[0] != DRAWS]
    return [ClaimSummary(claim, tuple(own)) for claim, own in rows.items()]


def claims_table(results: Sequence[ClaimSummary]) -> Table:
    """One row per claim."""
    rows = tuple(
        (
            result.id,
            CLAIMS[result.id],
            result.word,
            f"{len(result.judged) - len(result.missed)} of {len(result.judged)}",
        )
        for result in results
    )
    note = "Rows: a claim is judged on each novel set, and by its order and by the paper's numbers, where it has them."
    over_draws = [result.id for result in results if result.rows and {name for name, _ in result.rows} == {DRAWS}]
    if over_draws:
        note += (
            f" {' and '.join(over_draws)} are judged over draws of 1 % of the digits (`{DRAWS}`); the rows of the same claims "
            f"under `{WHOLE}` are about a single draw and are not counted."
        )
    return Table("claims", "The paper's claims", ("claim", "what it says", "result", "rows"), rows, note, num_labels=2)


def counted(results: Sequence[ClaimSummary]) -> str:
    """How many claims are reproduced, in a sentence."""
    words = [result.word for result in results]
    parts = [f"{words.count('reproduced')} of {len(words)} claims are reproduced"]
    parts += [
        f"{words.count(word)} {word}" for word in ("in part", "not reproduced", NOT_JUDGED, NOT_RUN) if word in words
    ]
    return ", ".join(parts)


def observations(runs: Mapping[str, Store]) -> list[tuple[str, ClaimResult]]:
    """What the ledgers of the main runs show beside the paper's claims."""
    return [
        (name, verdict)
        for name in MAIN_RUNS
        if name in runs
        for verdict in ledger_beside(runs, name)
        if verdict.word == OBSERVATION
    ]


def command_of(store: Store, name: str) -> str:
    """The command that makes a run."""
    manifest = store.manifest
    scale = "small" if name.startswith(SMALL) else "paper"
    parts = ["cautious reproduce", manifest["experiment"], "--scale", scale]
    if manifest["experiment"] == "driving":
        return " ".join(parts)
    run = ImageRun(store)
    parts += [] if run.setting is Setting.MAIN else ["--setting", str(run.setting)]
    seed = run.settings["variants"][run.main]["training"]["seed"]
    return " ".join(parts + ([f"--seed {seed}"] if seed else []))


def runs_table(runs: Mapping[str, Store]) -> Table:
    """How each run was made: command, hardware, date, commit."""
    rows = []
    for name, store in runs.items():
        manifest, hardware = store.manifest, store.manifest["hardware"]
        commits = {manifest["commit"], *(store.provenance(stage).get("commit") for stage in store.stages())} - {None}
        made_by = f"{hardware['gpu'] or hardware['cpu']}, {hardware['cores']} cores"
        rows.append((name, f"`{command_of(store, name)}`", made_by, manifest["date"][:10], ", ".join(sorted(commits))))
    note = "Some runs were made in several calls, one ensemble each; notes say at which commit each was."
    return Table("runs", "How the runs were made", ("run", "command", "hardware", "date", "commit"), tuple(rows), note)


def cost_table(runs: Mapping[str, Store]) -> Table:
    """Seconds of every run, and what the paper's took in all."""
    rows, totals, missing = [], {True: 0.0, False: 0.0}, []
    for name, store in runs.items():
        stages = {stage: store.numbers(stage) for stage in _stages(store)}
        training = sum(numbers["seconds"] for stage, numbers in stages.items() if stage.startswith("belief"))
        after = sum(_seconds(numbers) for stage, numbers in stages.items() if not stage.startswith("belief"))
        ensembles = sum(stage.startswith("belief") for stage in stages)
        rows.append((name, str(ensembles), f"{training:,.0f}", f"{after:,.0f}"))
        totals[name in MAIN_RUNS] += training + after
        wanted = store.manifest["settings"].get("variants", {}) if name in MAIN_RUNS else ()
        missing += [f"{name} {variant}" for variant in wanted if f"belief-{variant}" not in stages]
    note = (
        "Seconds on one GPU (driving: solved on a CPU), as each run's files have them; where runs overlapped, each has the "
        "whole of its time. The extra studies (the full dial, the number of models) are not timed by themselves. "
        f"The paper's experiments ({', '.join(MAIN_RUNS)}) take {totals[True] / 3600:.1f} hours in all, the other runs "
        f"{totals[False] / 3600:.1f} more. The paper (appendix B): {IMAGE_HOURS:,} GPU-hours on a V100 for its image "
        f"experiments and {DRIVING_HOURS:,} CPU-hours for driving, {IMAGE_HOURS + DRIVING_HOURS:,} hours."
    )
    missing += [name for name in MAIN_RUNS if name not in runs]
    note += f" Not run yet: {', '.join(missing)}." if missing else ""
    header = ("run", "ensembles", "training", "predicting and solving")
    return Table("cost", "Time and cost", header, tuple(rows), note)


def _stages(store: Store) -> list[str]:
    return sorted(path.stem for path in store.folder.glob("*.json") if path.name != MANIFEST)


def _seconds(numbers: Mapping[str, Any]) -> float:
    """What a stage took to predict and to solve, as far as it says so."""
    solving = (
        numbers.get("seconds", {}).values()
        if "seconds" in numbers
        else [numbers.get("solve_seconds", {}).get("queue", 0)]
    )
    return float(numbers.get("predict_seconds", 0.0) + sum(solving))
