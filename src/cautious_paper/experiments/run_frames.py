"""The numbers of a run as a tidy table: one row per measured value (`load_run(folder).to_frame()`).

Columns, in this order; what does not apply to a row is empty (None, in a frame missing):

    task, variant     the experiment, and the ensemble ("p=0.5": the appearance probability of driving)
    images            the set: digits, fashion, letters; empty in driving
    help_available    True or False in help-if-available
    study             behaviour: what the paper measures; dial: every k of 20; models: against the number of models; training
    regime            all-states or single-state
    sampling          queue (the paper) or exact
    num_models        how many models were solved for
    level             k-of-n; optim: each network's own best policy; mean: the best policy under the mean of the models
    run               number of the run (for optim, of the network; in the study of models, of the random part)
    measure, value    what was measured, and its value: probabilities and shares as fractions of 1
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cautious.errors import Argument, InvalidInputError, MissingFileError
from cautious.io.atomic import atomic_write
from cautious.tables.frames import pandas_for
from cautious.types import Sampling
from cautious.validation import as_path
from cautious_paper.experiments.store import MANIFEST, Store

if TYPE_CHECKING:
    import pandas


class Row(NamedTuple):
    """One measured value, with where it was measured."""

    task: str
    variant: str
    images: str | None = None
    help_available: bool | None = None
    study: str = "behaviour"
    regime: str | None = None
    sampling: str | None = None
    num_models: int | None = None
    level: str | None = None
    run: int | None = None
    measure: str = ""
    value: float | None = None
    """None where there was nothing to measure, such as the index where help was asked for everywhere."""


class Run:
    """A run on disk, read for its numbers."""

    def __init__(self, store: Store) -> None:
        """Wrap an opened store."""
        self.store = store

    def __repr__(self) -> str:
        """The task and the finished stages."""
        stages = self.store.stages()
        return f"Run({self.task!r}, {str(self.store.folder)!r}, {len(stages)} finished stages)"

    @property
    def task(self) -> str:
        """The experiment."""
        return str(self.store.manifest["experiment"])

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decided the results."""
        return dict(self.store.manifest["settings"])

    def rows(self) -> Iterator[Row]:
        """Every measured value of the finished stages."""
        for stage in self.store.stages():
            numbers = self.store.numbers(stage)
            if "loss_median" in numbers:
                yield from _training_rows(self.task, stage, numbers)
            elif "statistics" in numbers:
                yield from _driving_rows(self.task, numbers)
            elif "behaviour" in numbers and "images" in numbers:
                yield from self._image_rows(stage, numbers)

    def to_frame(self) -> pandas.DataFrame:
        """The same as a pandas DataFrame; `cautious_paper.experiments.run_frames` describes its columns.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        frame = pandas_for("to_frame").DataFrame(list(self.rows()), columns=list(Row._fields))
        whole = dict.fromkeys(("num_models", "run"), "Int64")
        return frame.astype({**whole, "help_available": "boolean", "value": "float64"})

    def to_csv(self, path: Path | str) -> None:
        """Write the same rows to a CSV file; needs no pandas."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(["" if cell is None else cell for cell in row] for row in self.rows())
        atomic_write(as_path(path, "path"), lambda target: target.write_text(text.getvalue(), encoding="utf-8"))

    def _image_rows(self, stage: str, numbers: Mapping[str, Any]) -> Iterator[Row]:
        study = "dial" if "gap" in numbers else "models" if "sizes" in numbers else "behaviour"
        place = Row(
            self.task, numbers["variant"], numbers["images"], numbers.get("help_available"), study,
            num_models=numbers["num_models"],
        )  # fmt: skip
        if study == "models":
            yield from _model_rows(place, numbers)
            return
        sampling = Sampling.EXACT if study == "dial" else Sampling.QUEUE
        for regime, measured in numbers["behaviour"].items():
            where = place._replace(regime=regime, sampling=str(sampling))
            for measure, by_level in measured.items():
                yield from _rows_by_level(where, numbers["levels"], measure, by_level)
        for regime, gaps in numbers.get("gap", {}).items():
            where = place._replace(regime=regime, sampling=str(sampling))
            yield from _rows_by_level(where, numbers["levels"], "certified_gap", gaps)
        if "optim" in numbers:
            arrays = self.store.arrays(stage)
            for measure in numbers["optim"]:
                values = arrays[f"optim-{measure}"].double().tolist()  # one per network
                yield from _rows_by_run(place._replace(level="optim"), measure, values)


def load_run(folder: Path | str) -> Run:
    """A run that `cautious reproduce` or `cautious demo` wrote, finished or not.

    >>> load_run("results/small-ask-for-help")  # doctest: +SKIP
    Run('ask-for-help', 'results/small-ask-for-help', 13 finished stages)

    Raises:
        MissingFileError: There is no run in the folder.
    """
    path = as_path(folder, "folder")
    if path.is_file():
        raise InvalidInputError(Argument("folder", str(folder)), " is a file; pass the folder of a run.")
    if not (path / MANIFEST).exists():
        raise MissingFileError(f"{path}: there is no run here (no {MANIFEST}); pass the folder that 'reproduce' wrote.")
    return Run(Store.open(path))


def _rows_by_level(place: Row, levels: list[str], measure: str, by_level: list[Any]) -> Iterator[Row]:
    """Values [L], or [L, R] where there are several runs."""
    for level, values in zip(levels, by_level, strict=True):
        where = place._replace(level=level)
        if isinstance(values, list):
            yield from _rows_by_run(where, measure, values)
        else:
            yield where._replace(measure=measure, value=values)


def _rows_by_run(place: Row, measure: str, values: list[Any]) -> Iterator[Row]:
    for run, value in enumerate(values):
        missing = value is None or value != value  # NaN: nothing to measure
        yield place._replace(run=run, measure=measure, value=None if missing else value)


def _model_rows(place: Row, numbers: Mapping[str, Any]) -> Iterator[Row]:
    """The curve over the number of models: [sizes, parts]."""
    for regime, by_sampling in numbers["behaviour"].items():
        for sampling, measured in by_sampling.items():
            for measure, by_size in measured.items():
                for size, values in zip(numbers["sizes"], by_size, strict=True):
                    where = place._replace(regime=regime, sampling=sampling, num_models=size, level=numbers["level"])
                    yield from _rows_by_run(where, measure, values)


def _training_rows(task: str, stage: str, numbers: Mapping[str, Any]) -> Iterator[Row]:
    variant = stage.removeprefix("belief").removeprefix("-")
    for measure in ("seconds", "loss_median", "loss_largest"):
        if measure in numbers:
            yield Row(task, variant, study="training", measure=measure, value=numbers[measure])


def _driving_rows(task: str, numbers: Mapping[str, Any]) -> Iterator[Row]:
    place = Row(task, f"p={numbers['probability']:g}")
    for name, measured in numbers["statistics"].items():
        for measure, values in measured.items():
            if name in (Sampling.QUEUE, Sampling.EXACT):
                yield from _rows_by_level(place._replace(sampling=name), numbers["levels"], measure, values)
            elif isinstance(values, list):
                yield from _rows_by_run(place._replace(level=name), measure, values)
            else:
                yield place._replace(level=name, measure=measure, value=values)
    for sampling, by_policy in numbers["certificates"].items():
        for policy, bounds in by_policy.items():
            for bound, values in bounds.items():
                where = place._replace(sampling=sampling)
                yield from _rows_by_level(where, numbers["levels"], f"certificate_{bound}_{policy}", values)
