"""What happened in a run, in words: the sentences that open its report, from the store alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cautious.beliefs.diagnostics import POOR
from cautious.risk import KofN
from cautious.types import Regime
from cautious_paper.experiments.demos.first_decisions import STAGE as FIRST
from cautious_paper.experiments.driving.driving_experiment import stage_name
from cautious_paper.experiments.images.settings import Setting
from cautious_paper.experiments.store import Store
from cautious_paper.report.claims.rules import ClaimResult
from cautious_paper.report.images.image_run import HELP, INDEX, ImageRun, Measured

NOTHING = "Nothing was measured yet: the same command resumes the run."
IMAGES = {"fashion": "clothes", "letters": "letters"}


def claims_story(verdicts: Sequence[ClaimResult]) -> str:
    """How many claims the run reproduces."""
    judged = [verdict for verdict in verdicts if verdict.reproduced is not None]
    held = sum(bool(verdict.reproduced) for verdict in judged)
    if not judged:
        return "None of the paper's claims could be judged on this run."
    missed = ", ".join(verdict.claim for verdict in judged if not verdict.reproduced)
    text = f"Of the {len(judged)} rows of the paper's claims that this run can judge, {held} are reproduced"
    return f"{text}; not reproduced: {missed}." if missed else f"{text}."


def poor_fits(store: Store) -> list[str]:
    """A sentence for each belief of the run whose single models hardly know the familiar rewards.

    A cautious policy goes by single models: where they are wrong about what is familiar, their errors look like doubts, and
    what the run shows about caution is not to be trusted. Runs of before this was kept have nothing to say.
    """
    sentences = []
    for stage in store.stages():
        numbers = store.numbers(stage) if stage.startswith("belief") else {}
        if "mean_reward_loss" not in numbers:
            continue
        loss, nothing = numbers["loss_median"], numbers["mean_reward_loss"]
        if loss > POOR * nothing:
            worse = "single models are worse than no model" if loss > nothing else "the models have hardly learned"
            sentences.append(
                f"{stage}: {worse}: in the familiar states that they were trained on, the squared error of a model is "
                f"{loss:.3g} (median), that of always predicting the mean reward {nothing:.3g}. Their errors look like doubts, "
                "so caution may be missing, misplaced or upside down here. Train longer (num_epochs), or on more data."
            )
    return sentences


# Image runs


def image_story(store: Store) -> list[str]:
    """Familiar digits first, then what no model has seen; each image by itself, as a deployed policy meets it."""
    run = ImageRun(store)
    if run.setting is Setting.DRAWS:
        return _draws_story(run)
    variants = run.variants_by("fraction") if run.task.name == "data-extent" else [run.main]
    parts = [text for variant in variants if (text := _variant_story(run, variant, several=len(variants) > 1))]
    if not parts:
        return [NOTHING]
    unlike = run.unlike_paper()
    return [*parts, f"This is not the paper's experiment: it ran {unlike}."] if unlike else parts


def _variant_story(run: ImageRun, variant: str, several: bool) -> str:
    sentences = []
    for bit in run.bits:
        digits = run.measured(variant, "digits", bit)
        where = "" if bit is None else f"Where help is {'available' if bit else 'not available'}, "
        if digits is not None and bit is not False:
            named = f"names {_percent(digits, 'correct_probability', 0)} of the familiar digits correctly"
            asked = "" if run.task.help_action is None else f" and asks for help on {_percent(digits, HELP, 0)}"
            sentences.append(_sentence(f"{_who(run, 0)} {named}{asked}."))
        for images, words in IMAGES.items():
            measured = run.measured(variant, images, bit)
            if measured is not None:
                sentences.append(_sentence(where + _novel_sentence(run, measured, words, bit)))
                where = ""
    if not sentences:
        return ""
    trained = f"Trained on {run.words_for(variant)}: " if several else ""
    return trained + " ".join(sentences)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _novel_sentence(run: ImageRun, measured: Measured, words: str, bit: bool | None) -> str:
    """What the first level does on images that no model has seen, beside the last level and single networks."""
    if run.task.help_action is None or bit is False:
        index = [f"{float(value):.2f}" for value in measured.means(Regime.SINGLE_STATE, INDEX)]
        help_words = "" if bit is None else f" It asks for help on {_percent(measured, HELP, 0)}."
        return (
            f"on {words}, which no model has seen, {_who(run, 0)} chooses labels with a mean index of {index[0]}"
            f"{f'; {_who(run, -1)} with {index[-1]}' if len(index) > 1 else ''}. High labels cost more when wrong.{help_words}"
        )
    asks = f"{_percent(measured, HELP, 0)} of {words}, which no model has seen"
    others = f"{_who(run, -1)} on {_percent(measured, HELP, -1)}" if len(run.levels) > 1 else ""
    single = measured.optim(HELP)
    networks = "" if math.isnan(single) else f"single networks on {100 * single:.1f} %"
    return f"{_who(run, 0)} asks for help on {asks}; " + ", ".join(part for part in (others, networks) if part) + "."


def _who(run: ImageRun, place: int) -> str:
    level = KofN.parse(run.levels[place])
    return f"the ordinary policy ({level})" if level.k == level.n else str(level)


def _percent(measured: Measured, name: str, place: int) -> str:
    return f"{100 * float(measured.means(Regime.SINGLE_STATE, name)[place]):.1f} %"


def _draws_story(run: ImageRun) -> list[str]:
    found = [measured for name in run.variants if (measured := run.measured(name, "fashion")) is not None]
    if not found:
        return [NOTHING]
    asked = np.array([100 * measured.means(Regime.SINGLE_STATE, HELP).numpy() for measured in found])  # [draws, L]
    ranges = [f"{values.min():.1f} to {values.max():.1f} %" for values in (asked[:, 0], asked[:, -1])]
    return [
        f"{len(found)} random draws of 1 % of the digits: {_who(run, 0)} asks for help on {ranges[0]} of the clothes, "
        f"{_who(run, -1)} on {ranges[1]}, depending on the draw."
    ]


# Driving runs


def driving_story(store: Store) -> list[str]:
    """How the most cautious level drives beside the least cautious one, and why."""
    parts = [*_demo_story(store)]
    stage = stage_name(store.manifest["settings"]["default_probability"])
    if not store.has(stage):
        return [*parts, NOTHING]
    numbers = store.numbers(stage)
    levels, spread = numbers["levels"], numbers["belief_spread"]
    first = {name: float(np.mean(numbers["statistics"]["queue"][name][0])) for name in ("speed", "collisions")}
    text = f"On a road where obstacles were never seen before, {levels[0]} drives at a speed of {first['speed']:.2f} and hits "
    text += f"{100 * first['collisions']:.1f} obstacles in 100 steps"
    if len(levels) > 1:
        last = {name: float(np.mean(numbers["statistics"]["queue"][name][-1])) for name in ("speed", "collisions")}
        text += f"; {levels[-1]} drives at {last['speed']:.2f} and hits {100 * last['collisions']:.1f}"
        if first["collisions"] < last["collisions"]:
            text += f": {100 * (1 - first['collisions'] / last['collisions']):.0f} % fewer hits for "
            text += f"{100 * (1 - first['speed'] / last['speed']):.0f} % less speed"
    why = (
        "Nobody told the models that an obstacle on the road is dangerous. They differ by "
        f"{spread['familiar']:.2g} on familiar steps and by {spread['novel']:.2g} on new ones (standard deviation of the "
        "reward): that is the only source of caution."
    )
    return [*parts, f"{text}.", why]


def _demo_story(store: Store) -> list[str]:
    if not store.has(FIRST):
        return []
    numbers: dict[str, Any] = store.numbers(FIRST)
    by_set = {each["images"]: each for each in numbers["sets"]}
    cautious, ordinary = numbers["levels"][0], numbers["levels"][-1]
    digits, clothes = by_set["digits"], by_set["fashion"]
    return [
        f"{numbers['num_models']} reward models were trained on handwritten digits, where asking for help always paid a "
        f"little. On digits {cautious} names {100 * digits['correct'][0]:.0f} % and asks on {100 * digits['help'][0]:.0f} %. "
        f"On clothes, which no model has seen, it asks on {100 * clothes['help'][0]:.0f} %, and the ordinary policy "
        f"({ordinary}) on {100 * clothes['help'][-1]:.0f} %: it calls a shirt a digit."
    ]
