"""Reads an image run for its tables, figures and claims: stages that may be missing, runs as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cautious.types import Regime
from cautious_paper.experiments.images.image_experiment import TEST_SETS, Stage
from cautious_paper.experiments.images.settings import Setting, image_experiment_at, percent
from cautious_paper.experiments.store import Store
from cautious_paper.worlds.data.sources import complete_size
from cautious_paper.worlds.image_tasks import ImageTask, RewardUnit, image_task

REGIMES = {Regime.ALL_STATES: "all-images", Regime.SINGLE_STATE: "single-image"}
"""The regimes in the paper's words for images."""
NOVEL = ("fashion", "letters")
HELP, INDEX, INDEX_HELP_AS_ZERO = "help_probability", "index", "index_help_as_zero"
"""What shows caution: how often help is asked for; the mean index of the labels, where one is taken; and the same with help
counted as an index of 0, as the paper's text has it (deviation D11)."""
BITS = {None: "", True: "available", False: "unavailable"}
PAPER_MODELS = 2000
PAPER_DIGITS, PAPER_LETTERS = complete_size("digits", "train"), complete_size("letters", "test")
PAPER_SETS = {
    "digits, train": PAPER_DIGITS,
    "digits, test": complete_size("digits", "test"),
    "fashion, test": complete_size("fashion", "test"),
}


@dataclass(frozen=True)
class Measured:
    """The numbers of a finished behaviour stage: one variant on one set of images."""

    numbers: dict[str, Any]

    @property
    def levels(self) -> list[str]:
        """Most cautious first."""
        return list(self.numbers["levels"])

    def runs(self, regime: Regime, name: str) -> Tensor:
        """One quantity of each level and run, [L, R]; NaN where there was nothing to measure."""
        return as_tensor(self.numbers["behaviour"][str(regime)][name])

    def means(self, regime: Regime, name: str) -> Tensor:
        """Mean over the runs, [L]."""
        return self.runs(regime, name).nanmean(dim=1)

    def optim(self, name: str) -> float:
        """Mean over the networks' own greedy policies; NaN where there was nothing to measure."""
        return _number(self.numbers["optim"][name]["mean"])

    def optim_half_width(self, name: str) -> float:
        """Half of that mean's 95 % interval."""
        return _number(self.numbers["optim"][name]["half_width"])


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


class ImageRun:
    """A store of one of the image experiments."""

    def __init__(self, store: Store) -> None:
        """Wrap an opened store."""
        self.store = store
        self.settings: dict[str, Any] = store.manifest["settings"]
        self.task: ImageTask = image_task(store.manifest["experiment"])
        self.read: dict[str, dict[str, Any]] = {}
        """Numbers of the behaviour stages that were asked for, by name; whoever wants to know clears it first."""

    @cached_property
    def variants(self) -> list[str]:
        """Names of the ensembles, the main one first."""
        return list(self.settings["variants"])

    @cached_property
    def setting(self) -> Setting:
        """Which of the task's settings was run; without a unit it is the printed one (`ImageExperiment.as_settings`)."""
        if "-draw-" in self.main:
            return Setting.DRAWS
        unit = self.settings["variants"][self.main].get("unit", RewardUnit.AS_PRINTED)
        return Setting.AS_PRINTED if self.task.weighted_loss and unit == RewardUnit.AS_PRINTED else Setting.MAIN

    @property
    def main(self) -> str:
        """The task's main ensemble."""
        return self.variants[0]

    @property
    def levels(self) -> list[str]:
        """Most cautious first."""
        return list(self.settings["levels"])

    @property
    def bits(self) -> tuple[bool | None, ...]:
        """Whether help is available: both, or None where the task has no such bit."""
        return (True, False) if self.task.help_bit else (None,)

    @property
    def sets(self) -> list[str]:
        """Sets of images that the run was given, finished or not."""
        return [name for name in TEST_SETS if f"{name}, test" in self.settings["data"]]

    @property
    def origins(self) -> dict[str, str]:
        """Where each set came from, as far as the run records it.

        In its manifest, or (results/ask-for-help and others) in its stages.
        """
        if "origins" in self.store.manifest:
            return dict(self.store.manifest["origins"])
        by_set = {name: self.measured(self.main, name, self.bits[0]) for name in self.sets}
        recorded = {f"{name}, test": part.numbers.get("origin") for name, part in by_set.items() if part is not None}
        return {name: origin for name, origin in recorded.items() if origin is not None}

    @property
    def novel(self) -> list[str]:
        """Names of this run's novel image sets."""
        return [name for name in self.sets if name in NOVEL]

    def variants_by(self, setting: str) -> list[str]:
        """The ensembles in rising order of one of their settings."""
        return sorted(self.variants, key=lambda name: self.settings["variants"][name][setting])

    def words_for(self, variant: str) -> str:
        """What distinguishes an ensemble from the others of its task."""
        settings = self.settings["variants"][variant]
        if self.task.name == "data-extent":
            draw = f", draw {variant.rsplit('-', 1)[1]}" if self.setting is Setting.DRAWS else ""
            return f"{percent(settings['fraction'])} % of the digits{draw}"
        return "" if settings["help_reward"] is None else f"help pays {settings['help_reward']:g}"

    def stage(self, variant: str, images: str, bit: bool | None = None, study: str = "behaviour") -> str:
        """A stage's name in the store."""
        return Stage(variant, images, bit, study).name

    def measured(self, variant: str, images: str, bit: bool | None = None) -> Measured | None:
        """Behaviour of a variant on a set, or None if that was not run."""
        name = self.stage(variant, images, bit)
        if not self.store.has(name):
            return None
        self.read[name] = self.store.numbers(name)
        return Measured(self.read[name])

    def arrays(self, variant: str, images: str, bit: bool | None = None) -> dict[str, Tensor] | None:
        """The arrays of the same stage."""
        name = self.stage(variant, images, bit)
        return self.store.arrays(name) if self.store.has(name) else None

    def study(self, kind: str, images: str, bit: bool | None = None) -> dict[str, Any] | None:
        """Numbers of the main variant's "dial" or "models" study on a set, or None."""
        name = self.stage(self.main, images, bit, kind)
        return self.store.numbers(name) if self.store.has(name) else None

    def num_models(self, variant: str) -> int:
        """How many models an ensemble has."""
        return int(self.settings["variants"][variant]["training"]["num_models"])

    def num_images(self, data: str) -> int:
        """How many images of a set such as "digits, train" the run used."""
        return int(self.settings["data"][data].split()[0])

    def unlike_paper(self, *variants: str) -> str:
        """In what these ensembles (all, if none is named) differ from the paper's, in a few words; empty if in nothing."""
        experiment = image_experiment_at(self.task.name, "paper", setting=self.setting)
        wanted = {variant["name"]: variant for variant in map(asdict, experiment.variants)}
        for name in variants or self.variants:
            if name not in self.variants or name not in wanted:
                return f"without {name}" if name not in self.variants else f"with {name}, which the paper lacks"
            own, printed = self.settings["variants"][name], wanted[name]
            trained_on = ("help_reward", "fraction", "noise", "unit")
            if any(own.get(part, RewardUnit.AS_PRINTED) != printed[part] for part in trained_on):
                return f"with other rewards or digits for {name} than the paper's"
            training = own["training"]
            if any(training[part] != printed["training"][part] for part in training if part != "seed"):
                return self._sizes(variants)
        if self.levels != list(experiment.levels):
            return f"with other levels than the paper's {', '.join(experiment.levels)}"
        if any(self.num_images(images) != count for images, count in PAPER_SETS.items()):
            return self._sizes(variants)
        ours, paper = ((each["num_iterations"], each["num_runs"]) for each in (self.settings, experiment.as_settings()))
        return (
            ""
            if ours == paper
            else f"at {ours[0]} iterations and {ours[1]} runs (the paper: {paper[0]} and {paper[1]})"
        )

    def _sizes(self, variants: Sequence[str]) -> str:
        models, digits = (
            min(self.num_models(name) for name in variants or self.variants),
            self.num_images("digits, train"),
        )
        return f"at {models:,} models and {digits:,} digits (the paper: {PAPER_MODELS:,} and {PAPER_DIGITS:,})"

    def has_paper_sizes(self, *variants: str) -> bool:
        """Whether these ensembles (all, if none is named) are trained, solved and judged at the paper's sizes."""
        return not self.unlike_paper(*variants)


def as_tensor(values: Any) -> Tensor:
    """Nested lists as numbers, float64; None, which JSON has for "nothing to measure", as NaN."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(part) for part in value]
        return float("nan") if value is None else value

    return torch.tensor(plain(values), dtype=torch.float64)


def bit_words(bit: bool | None) -> str:
    """Whether help is there, in words; empty where the task has no such bit."""
    return "" if bit is None else f"help {BITS[bit]}"


def in_words(*parts: str) -> str:
    """What there is of several parts, between commas.

    >>> in_words("fashion", "", "single-image")
    'fashion, single-image'
    """
    return ", ".join(part for part in parts if part)


# Where the cells of the paper's tables of familiar digits are in a store

READINGS = {"probability": "ours, mean probability", "share": "ours, most likely action"}
"""Both readings of "frequency", which the paper leaves open: suffix in the store -> heading."""


class TableRow(NamedTuple):
    """Which results of the store a group of rows of one of the paper's tables is compared with."""

    variant: str
    regime: Regime
    bit: bool | None = None


def _by_regime(variant: str) -> dict[str, TableRow]:
    return {words: TableRow(variant, regime) for regime, words in REGIMES.items()}


def _by_bit(regime: Regime) -> dict[str, TableRow]:
    return {f"help {BITS[bit]}": TableRow("help-0.05", regime, bit) for bit in (True, False)}


def _by_extent(regime: Regime) -> dict[str, TableRow]:
    return {f"{percent} %": TableRow(f"extent-{percent}", regime) for percent in (1, 10, 100)}


TABLE_ROWS: dict[str, dict[str, dict[str, TableRow]]] = {
    "ask-for-help": {
        "last_action_test": _by_regime("help-0.25"),
        "last_action_0.1": _by_regime("help-0.1"),
        "last_action_0.25": _by_regime("help-0.25"),
        "last_action_0.5": _by_regime("help-0.5"),
    },
    "help-if-available": {"bit_TEST": _by_bit(Regime.ALL_STATES), "bit_test": _by_bit(Regime.SINGLE_STATE)},
    "data-extent": {
        "last_action_std_TEST": _by_extent(Regime.ALL_STATES),
        "last_action_std_test": _by_extent(Regime.SINGLE_STATE),
    },
}
"""Task -> the paper's label of a table -> its groups of rows, in the paper's words -> the results they are compared with."""

Cells = dict[str, dict[str, Tensor]]
"""For each reading and each column (a level, or "optim"): percentages, one per run (for "optim", one per network)."""


def our_cells(run: ImageRun, table_row: TableRow, quantity: str) -> Cells:
    """Our values of a table's row, per run; empty if that was not run."""
    measured = run.measured(table_row.variant, "digits", table_row.bit)
    arrays = run.arrays(table_row.variant, "digits", table_row.bit)
    if measured is None or arrays is None:
        return {}
    by_reading: Cells = {}
    for reading in READINGS:
        name = f"{quantity}_{reading}"
        cells = dict(zip(measured.levels, 100 * measured.runs(table_row.regime, name), strict=True))
        by_reading[reading] = cells | {"optim": 100 * arrays[f"optim-{name}"].double()}
    return by_reading
