"""The claims about image experiments, judged from the store alone."""

from __future__ import annotations

from torch import Tensor

from cautious.experiments.images.settings import Setting
from cautious.experiments.store import Store
from cautious.report.claims.ask_for_help import ASK_FOR_HELP
from cautious.report.claims.base import Claim
from cautious.report.claims.data_extent import DATA_EXTENT
from cautious.report.claims.data_extent_draws import draws_claims
from cautious.report.claims.label_index import HELP_IF_AVAILABLE, NON_OBVIOUS
from cautious.report.claims.ledger import ClaimResult, levels_off, trained_on
from cautious.report.images.image_run import BITS, REGIMES, ImageRun
from cautious.report.paper import paper_gpu_hours

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "ask-for-help": ASK_FOR_HELP,
    "non-obvious": NON_OBVIOUS,
    "help-if-available": HELP_IF_AVAILABLE,
    "data-extent": DATA_EXTENT,
}
"""Task -> its rows of the ledger."""


def image_ledger(store: Store, beside: Store | None = None) -> list[ClaimResult]:
    """The claims of the run's task, then CV1 and CO1, which are about all of them.

    Args:
        store: The run.
        beside: For draws of 1 % of the digits, the run of data-extent itself, with which they are compared.
    """
    run = ImageRun(store)
    if run.setting is Setting.DRAWS:
        claims = draws_claims(run, None if beside is None else ImageRun(beside))
        return [*claims, levels_off(sampled_values(run))]
    judged = [claim.verdict(run, images) for claim in CLAIMS[run.task.name] for images in claim.sets]
    return [*judged, levels_off(sampled_values(run)), cost(run)]


def sampled_values(run: ImageRun) -> dict[str, Tensor]:
    """Value under the sampled rewards, [L, R, T], of every ensemble, set and regime that was run."""
    found = {}
    for variant in run.variants:
        for images in run.sets:
            for bit in run.bits:
                arrays = run.arrays(variant, images, bit) or {}
                place = " ".join(part for part in (variant, images, BITS[bit]) if part)
                for regime, words in REGIMES.items():
                    if f"{regime}-sampled_value" in arrays:
                        found[f"{place}, {words}"] = arrays[f"{regime}-sampled_value"]
    return found


def cost(run: ImageRun) -> ClaimResult:
    """CO1: hours to train the main ensemble against the paper's for an experiment, at the paper's sizes."""
    says = f"{paper_gpu_hours():g} GPU-hours (V100) to train an image experiment's 2,000 models: fewer"
    stage = f"belief-{run.main}"
    if not run.store.has(stage):
        return ClaimResult("CO1", says, None, "not run: training was not timed")
    numbers = run.store.numbers(stage)
    if numbers.get("resumed"):
        return ClaimResult(
            "CO1", says, None, "not judged: training was interrupted and resumed, so it was not timed as a whole"
        )
    hours = numbers["seconds"] / 3600
    training = run.settings["variants"][run.main]["training"]
    text = f"{hours:.2f} h" if hours >= 1 else f"{60 * hours:.1f} minutes"
    text += f" for {training['num_models']:,} models x {training['num_epochs']:,} epochs"
    text += f" on {trained_on(run.store, stage)}"
    judged = run.has_paper_sizes(run.main) and training["num_epochs"] >= 100
    return ClaimResult("CO1", says, hours < paper_gpu_hours() if judged else None, text)
