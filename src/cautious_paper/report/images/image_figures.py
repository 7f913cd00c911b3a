"""Every figure of an image run by its id: the paper's kinds, and what the paper lacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from matplotlib.figure import Figure

from cautious_paper.experiments.images.settings import Setting
from cautious_paper.experiments.store import Store
from cautious_paper.report.images.action_figures import distribution_figure, heat_map_figure, samples_figure
from cautious_paper.report.images.image_run import BITS, HELP, INDEX, INDEX_HELP_AS_ZERO, ImageRun, bit_words
from cautious_paper.report.images.level_figures import (
    convergence_figure,
    dial_figure,
    models_figure,
    quantities_of,
    violin_figure,
)
from cautious_paper.report.plotting import FigureEntry

STARS = (
    " All-images regime left, single-image regime right; f is fashion, α letters. One star per run; violins show their spread, "
    "bars their mean; optim is the mean over networks with its 95 % interval."
)


def image_figures(store: Store) -> dict[str, FigureEntry]:
    """Figure id -> (caption, how to draw it), in the order of the report.

    What the run lacks altogether (letters that were not available, studies not yet run) has no figure; a missing part of
    a figure is marked as "not run".
    """
    run = ImageRun(store)
    return {
        **_main(run),
        **_dial(run),
        **_samples(run),
        **_sensitivity(run),
        **_distributions(run),
        **_heat_maps(run),
        **_convergence(run),
    }


def _shown_variants(run: ImageRun) -> list[str]:
    """The ensembles that the paper's appendix draws one by one, of those with any behaviour in the store."""
    if run.setting is Setting.DRAWS:
        return []  # one figure shows all draws side by side
    wanted = run.variants_by("fraction") if run.task.name == "data-extent" else [run.main]
    return [name for name in wanted if _any_stage(run, name)]


def _any_stage(run: ImageRun, variant: str, study: str = "behaviour", images: str | None = None) -> bool:
    sets = run.sets if images is None else [images]
    return any(run.store.has(run.stage(variant, name, bit, study)) for name in sets for bit in run.bits)


def _words(variant: str, run: ImageRun) -> str:
    """An ensemble in words, where a task draws several."""
    return f"; {run.words_for(variant)}" if _several(run) else ""


def _several(run: ImageRun) -> bool:
    return run.task.name == "data-extent"


def _suffix(variant: str, run: ImageRun) -> str:
    return f"-{variant}" if _several(run) else ""


def _main(run: ImageRun) -> dict[str, FigureEntry]:
    """The paper's main figure of the task; that of data extent is its sensitivity figure."""
    if _several(run) or not any(_any_stage(run, run.main, images=images) for images in run.novel):
        return {}
    figures: dict[str, FigureEntry] = {}
    rows = {
        HELP: ("help", "How often help is asked for on novel images."),
        INDEX: ("index", f"{_index_words(run)}."),
        INDEX_HELP_AS_ZERO: (
            "index-help-as-zero",
            "The mean action index with help counted as 0, so that it falls as help takes the place of labels, as in "
            "the paper (claim HA3).",
        ),
    }
    for name in [*quantities_of(run), *([INDEX_HELP_AS_ZERO] if run.task.help_bit else [])]:
        ident, caption = rows[name]
        figures[ident] = (caption + STARS, partial(violin_figure, rows=[(run.main, name)]))
    return figures


def _index_words(run: ImageRun) -> str:
    """What an index is the mean of."""
    return "The mean action index" + (
        " among the labels, where one is taken" if run.task.help_action is not None else ""
    )


def _sensitivity(run: ImageRun) -> dict[str, FigureEntry]:
    """One row of panels per help reward, or per share of the digits."""
    if len(run.variants) < 2:
        return {}
    by, words = ("fraction", "share of the digits") if _several(run) else ("help_reward", "reward of help")
    words = "draw of the digits" if run.setting is Setting.DRAWS else words
    variants = [name for name in run.variants_by(by) if any(_any_stage(run, name, images=each) for each in run.novel)]
    if len(variants) < (1 if _several(run) else 2):
        return {}
    figures: dict[str, FigureEntry] = {}
    for name in quantities_of(run):
        ident = "help" if name == HELP else "index"
        caption = f"{'Help' if name == HELP else _index_words(run)} by {words}, one row each.{STARS}"
        figures[f"sensitivity-{ident}"] = (caption, partial(violin_figure, rows=[(each, name) for each in variants]))
    return figures


def _convergence(run: ImageRun) -> dict[str, FigureEntry]:
    key = " Thin: single runs. Bold: their mean. All-images regime above, single-image below."
    return _by_variant(
        run, "convergence", "Value under the sampled k-of-N reward in each iteration", key, convergence_figure
    )


def _distributions(run: ImageRun) -> dict[str, FigureEntry]:
    among = " among the labels" if run.task.help_action is not None else ""
    key = f" Dotted: each policy's mean action index{among}." if run.task.weighted_loss else ""
    return _by_variant(run, "actions", "Actions that each policy takes on novel images", key, distribution_figure)


def _by_variant(
    run: ImageRun, ident: str, caption: str, key: str, draw: Callable[..., Figure]
) -> dict[str, FigureEntry]:
    """One figure for each ensemble, with help available and without; `key` says what its marks mean."""
    return {
        f"{ident}{_suffix(variant, run)}{_bit_suffix(bit)}": (
            f"{caption}{_words(variant, run)}{_bit(bit)}.{key}",
            partial(draw, variant=variant, bit=bit),
        )
        for variant in _shown_variants(run)
        for bit in run.bits
    }


def _heat_maps(run: ImageRun) -> dict[str, FigureEntry]:
    figures: dict[str, FigureEntry] = {}
    for variant in _shown_variants(run):
        for images in run.novel:
            if _any_stage(run, variant, images=images):
                what = "letter, upper and lower case together" if images == "letters" else "class of clothing"
                caption = f"How often each action is taken on each {what}{_words(variant, run)}."
                ident = f"by-label-{images}{_suffix(variant, run)}"
                figures[ident] = (caption, partial(heat_map_figure, variant=variant, images=images))
    return figures


def _dial(run: ImageRun) -> dict[str, FigureEntry]:
    figures: dict[str, FigureEntry] = {}
    which = f" ({run.words_for(run.main)})" if len(run.variants) > 1 else ""
    if _any_stage(run, run.main, "dial"):
        caption = f"The full caution dial: every k of N = 20, exact sampling{which}. Not in the paper."
        figures["dial"] = (caption, dial_figure)
    if _any_stage(run, run.main, "models"):
        caption = (
            f"How many models are needed: {run.levels[0]} on random parts of the ensemble{which}, by the paper's queue and by "
            "exact sampling; mean and range over parts. At the full size all parts are the whole ensemble. Not in the paper."
        )
        figures["models"] = (caption, models_figure)
    return figures


def _samples(run: ImageRun) -> dict[str, FigureEntry]:
    figures: dict[str, FigureEntry] = {}
    action = "action" if run.task.help_action is None else "action (H is help)"
    if run.setting is Setting.DRAWS:
        return figures
    for images in run.sets:
        for bit in run.bits:
            if run.store.has(run.stage(run.main, images, bit)):
                caption = f"Images of {images}{_bit(bit)}, the predicted rewards of each {action}, and both policies."
                draw = partial(samples_figure, images=images, bit=bit)
                figures[f"samples-{images}{_bit_suffix(bit)}"] = (f"{caption} Not in the paper.", draw)
    return figures


def _bit(bit: bool | None) -> str:
    return "" if bit is None else f", {bit_words(bit)}"


def _bit_suffix(bit: bool | None) -> str:
    return "" if bit is None else f"-{BITS[bit]}"
