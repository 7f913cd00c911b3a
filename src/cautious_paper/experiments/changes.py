"""Settings of an experiment, changed by name: `--set levels=1-of-30,15-of-30 --set num_iterations=200`.

A value is read by the type of its field. Three kinds of fields have names: those of the experiment itself, those of how its
models are trained (`TrainingSettings`), and in the image experiments those of its ensembles (`EnsembleVariant`). The last two
hold for every ensemble of the experiment. What a task varies from ensemble to ensemble (`VARIED`) may have several values:
there is one ensemble for each, the first of them the main one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cautious.beliefs.training.state import TrainingSettings
from cautious.errors import InvalidInputError
from cautious.risk import KofN
from cautious.validation import look_up, parse_choice
from cautious_paper.experiments.driving.driving_experiment import DrivingExperiment
from cautious_paper.experiments.images.settings import (
    VARIED,
    EnsembleVariant,
    ImageExperiment,
    Setting,
    check_image_experiment,
    variant_name,
)

Experiment = ImageExperiment | DrivingExperiment


@dataclass(frozen=True)
class Field:
    """A setting that has a name."""

    name: str
    kind: Any
    """Its type, as declared."""
    home: type
    """The dataclass that it belongs to."""

    def read(self, text: str) -> Any:
        """The value that a text stands for."""
        try:
            return _read(self.kind, text)
        except ValueError:
            raise InvalidInputError(f"--set {self.name}={text}: {self.name} must be {self.takes}.") from None

    @property
    def takes(self) -> str:
        """What a value looks like, in words."""
        return _words(self.kind)


def known_settings(experiment: Experiment) -> dict[str, Field]:
    """Every setting that may be changed, by name."""
    homes: list[type] = [type(experiment), TrainingSettings]
    homes += [EnsembleVariant] if isinstance(experiment, ImageExperiment) else []
    left_out = {"task", "variants", "training", "name", "seed"}  # --seed starts every draw
    found: dict[str, Field] = {}
    for home in homes:
        hints = typing.get_type_hints(home)
        found |= {
            f.name: Field(f.name, hints[f.name], home) for f in dataclasses.fields(home) if f.name not in left_out
        }
    if isinstance(experiment, ImageExperiment):
        found["variants"] = Field("variants", tuple[str, ...], ImageExperiment)
        if experiment.image_task.help_action is None:
            del found["help_reward"]
    else:
        found["levels"] = Field("levels", tuple[str, ...], DrivingExperiment)
    return found


def parse_changes(assignments: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE texts as names and texts of values.

    >>> parse_changes(["levels=1-of-30,15-of-30", "num_iterations = 200"])
    {'levels': '1-of-30,15-of-30', 'num_iterations': '200'}
    """
    found: dict[str, str] = {}
    for assignment in assignments:
        name, sign, value = (part.strip() for part in assignment.partition("="))
        name = name.replace("-", "_")
        if not sign or not name or not value:
            raise InvalidInputError(f"--set {assignment!r}: write it as NAME=VALUE, for example num_iterations=200.")
        if name in found:
            raise InvalidInputError(
                f"--set {name} is given twice; give all of its values at once, separated by commas."
            )
        found[name] = value
    return found


def changed(experiment: Experiment, changes: Mapping[str, str]) -> Experiment:
    """The experiment with other settings.

    >>> from cautious_paper.experiments.images.settings import image_experiment_at
    >>> other = changed(image_experiment_at("ask-for-help", "small"), {"help_reward": "0.3", "levels": "15-of-30,1-of-30"})
    >>> other.levels, [variant.name for variant in other.variants]
    (('1-of-30', '15-of-30'), ['help-0.3'])
    """
    known = known_settings(experiment)
    if unknown := [name for name in changes if name not in known]:
        task = experiment.task if isinstance(experiment, ImageExperiment) else "driving"
        raise InvalidInputError(f"--set {unknown[0]}: no setting of {task}; it has {', '.join(known)}.")
    if isinstance(experiment, ImageExperiment):
        return _changed_images(experiment, changes, known)
    return _changed_driving(experiment, changes, known)


def _changed_images(
    experiment: ImageExperiment, changes: Mapping[str, str], known: Mapping[str, Field]
) -> ImageExperiment:
    varied = VARIED.get(experiment.task)
    variants = experiment.variants
    if "variants" in changes:
        variants = _chosen(variants, known["variants"].read(changes["variants"]))
    own: dict[str, Any] = {}
    for name, text in changes.items():
        field = known[name]
        if name == "variants":
            continue
        if name == varied:
            variants = _one_for_each(experiment.task, variants[0], varied, [field.read(part) for part in _parts(text)])
        elif field.home is EnsembleVariant:
            variants = tuple(replace(variant, **{name: field.read(text)}) for variant in variants)
        elif field.home is TrainingSettings:
            value = {name: field.read(text)}
            variants = tuple(replace(variant, training=replace(variant.training, **value)) for variant in variants)
        else:
            own[name] = field.read(text)
    if "levels" in own:
        own["levels"] = most_cautious_first(own["levels"])
    return check_image_experiment(replace(experiment, variants=variants, **own))


def _chosen(variants: Sequence[EnsembleVariant], names: Sequence[str]) -> tuple[EnsembleVariant, ...]:
    by_name = {variant.name: variant for variant in variants}
    return tuple(look_up(by_name, name, "variant") for name in names)


def _one_for_each(task: str, first: EnsembleVariant, varied: str, values: Sequence[Any]) -> tuple[EnsembleVariant, ...]:
    """Ensembles that differ in one setting, trained as the main one."""
    if len(set(values)) < len(values):
        raise InvalidInputError(f"{varied}={','.join(f'{value:g}' for value in values)}: give each value once.")
    changed = [replace(first, **{varied: value}) for value in values]
    return tuple(replace(variant, name=variant_name(task, variant)) for variant in changed)


def _changed_driving(
    experiment: DrivingExperiment, changes: Mapping[str, str], known: Mapping[str, Field]
) -> DrivingExperiment:
    own: dict[str, Any] = {}
    training = experiment.training
    for name, text in changes.items():
        field = known[name]
        if field.home is TrainingSettings:
            training = replace(training, **{name: field.read(text)})
        elif name == "levels":
            if {"ks", "n"} & changes.keys():
                raise InvalidInputError("levels: they are the same as ks and n; set either.")
            levels = [KofN.parse(level) for level in most_cautious_first(field.read(text))]
            if len({level.n for level in levels}) > 1:
                raise InvalidInputError(
                    f"levels={text!r}: driving compares levels with the same n, such as 1-of-20,20-of-20."
                )
            own |= {"ks": tuple(level.k for level in levels), "n": levels[0].n}
        else:
            own[name] = field.read(text)
    if "ks" in own:
        own["ks"] = tuple(sorted(set(own["ks"])))
    probabilities = own.get("probabilities", experiment.probabilities)
    if "default_probability" not in own and experiment.default_probability not in probabilities:
        own["default_probability"] = probabilities[0]
    return replace(experiment, training=training, **own).checked()


def most_cautious_first(levels: Sequence[str]) -> tuple[str, ...]:
    """Levels in the order that reports expect: by k/n, and the larger n first where that is equal; each once."""
    parsed = {KofN.parse(level) for level in levels}
    return tuple(str(level) for level in sorted(parsed, key=lambda level: (level.k / level.n, -level.n)))


def folder_suffix(changes: Mapping[str, str]) -> str:
    """What distinguishes the folder of a changed run: its changes, as far as they fit a name.

    >>> folder_suffix({"help_reward": "0.3", "levels": "1-of-30,15-of-30"})
    '-help_reward-0.3-levels-1-of-30_15-of-30'
    """
    words = "".join(f"-{name}-{value}" for name, value in sorted(changes.items()))
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", words)
    return plain if len(plain) <= 80 else f"{plain[:60]}-{hashlib.sha256(words.encode()).hexdigest()[:8]}"


def check_setting(setting: str, changes: Mapping[str, str]) -> None:
    """Draws of the digits are a setting of their own: what they vary is the draw."""
    if setting == Setting.DRAWS and {"fraction", "variants"} & changes.keys():
        raise InvalidInputError(
            "fraction and variants: --setting draws varies the draw of 1 % of the digits, nothing else."
        )


# Values from text, by declared type


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _read(kind: Any, text: str) -> Any:
    options = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return tuple(_read(options[0], part) for part in _parts(text))
    if isinstance(kind, types.UnionType):  # such as int | None
        if text.lower() == "none":
            return None
        return _read(next(option for option in options if option is not type(None)), text)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return parse_choice(kind, text, "value")
    return kind(text.replace("_", "")) if kind is int else kind(text)


def _words(kind: Any) -> str:
    options = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return f"{_words(options[0])}s, separated by commas".replace("a ", "").replace("texts", "names")
    if isinstance(kind, types.UnionType):
        return f"{_words(next(option for option in options if option is not type(None)))}, or none"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return f"one of {', '.join(kind)}"
    return {int: "a whole number", float: "a number", str: "a text"}[kind]
