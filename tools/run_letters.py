"""The image experiments on whole letters: one command that runs what is missing, packs it as it goes on, and publishes it.

python tools/run_letters.py --data DATA --folder runs/letters --device cuda --minutes 28 --pack OUT
python tools/run_letters.py --data DATA --folder runs/letters --scale small --device cpu
python tools/run_letters.py --data DATA --folder runs/letters --scale shipped --device cpu
python tools/run_letters.py --folder runs/letters --publish

DATA holds the digits, the clothes and one or more sets of letters. The best set is decided on (official, rebuilt, subset), and
the same models are measured on every set that is there, in OUT/letters-NAME.json. The same command goes on where it stopped.
At the paper's size the models are those of the published runs (same seeds), so that only letters are decided on; should the
losses of a training differ from the published ones, the other sets follow at the end. A step is begun only if it is expected to
end within the given minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from run_ensemble import Teller

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.io.atomic import atomic_write
from cautious.types import Regime
from cautious.validation import resolve_device
from cautious_paper.experiments.images.image_experiment import (
    ImageStageInputs,
    Stage,
    run_images,
    run_stage,
)
from cautious_paper.experiments.images.settings import EnsembleVariant, ImageExperiment, image_experiment_at
from cautious_paper.experiments.runs import load_stage_belief
from cautious_paper.experiments.store import Store, identity, provenance_line
from cautious_paper.report.images.image_run import HELP, INDEX, Measured
from cautious_paper.worlds.data import ImageSet, load_images
from cautious_paper.worlds.data.sources import SETS

ROOT = Path(__file__).parents[1]
RESULTS, SHIPPED = ROOT / "results", ROOT / "src" / "cautious_paper" / "shipped" / "ask-for-help"
DIGITS = 7
"""Of the numbers in the rows."""


class Step(NamedTuple):
    """A part of a run: some of its ensembles."""

    name: str
    task: str
    setting: str = "main"
    only: tuple[str, ...] = ()
    """Ensembles; all if empty."""
    num_models: int | None = None
    """Fewer models than the scale has."""
    seconds: float = 0
    """How long it takes on one H200."""


STEPS = {
    "paper": (
        Step("ask-for-help", "ask-for-help", only=("help-0.25",), seconds=370),
        Step("non-obvious", "non-obvious", seconds=345),
        Step("help-if-available", "help-if-available", only=("help-0.05",), seconds=385),
        # Two ensembles of 2,000 do not fit into half an hour beside the others.
        Step("data-extent-1000-models", "data-extent", only=("extent-100", "extent-10"), num_models=1000, seconds=370),
        Step("data-extent", "data-extent", only=("extent-100", "extent-10"), seconds=730),
        Step("ask-for-help", "ask-for-help", only=("help-0.1", "help-0.5"), seconds=700),
        Step("help-if-available", "help-if-available", only=("help-0.02", "help-0.2"), seconds=800),
        Step("data-extent", "data-extent", only=("extent-1",), seconds=700),
    ),
    "small": (
        Step("small-ask-for-help", "ask-for-help"),
        Step("small-non-obvious", "non-obvious"),
        Step("small-help-if-available", "help-if-available"),
        Step("small-data-extent", "data-extent"),
        Step("small-non-obvious-as-printed", "non-obvious", "as-printed"),
        Step("small-help-if-available-as-printed", "help-if-available", "as-printed"),
    ),
}
"""Scale -> what is run, in order."""
OTHER_SETS_SECONDS = 120


def run_step(step: Step, options: argparse.Namespace, device: torch.device) -> None:
    """Run the step's ensembles, and measure them on every set of letters."""
    experiment = image_experiment_at(step.task, options.scale, setting=step.setting)
    if step.num_models is not None:
        variants = (
            replace(each, training=replace(each.training, num_models=step.num_models)) for each in experiment.variants
        )
        experiment = replace(experiment, variants=tuple(variants), num_dial_images=0)
    folder = options.folder / step.name
    published = RESULTS / step.name if options.scale == "paper" else None
    for name in step.only or [variant.name for variant in experiment.variants]:
        sets = ("letters",) if published is not None else None
        teller = Teller(folder, options.pack and options.pack / f"{step.name}.tar")
        try:
            store = run_images(
                experiment, folder, data=options.data, device=device, only=[name], sets=sets, progress=teller
            )
        finally:
            teller.pack()
        variant = next(each for each in experiment.variants if each.name == name)
        write_rows(step.name, list(rows_of(step, experiment, variant, store, options.data, device)), options)


def decide_on_other_sets(options: argparse.Namespace, device: torch.device, began: float) -> None:
    """Digits and clothes too where the models are not the published ones, as far as there is time."""
    for step in STEPS["paper"]:
        folder = options.folder / step.name
        if step.num_models is not None or not folder.exists():
            continue
        trained = [name for name in step.only or (step.name,) if (folder / f"belief-{name}.json").exists()]
        for name in trained:
            same, spent = same_models(step, name, folder), time.monotonic() - began
            print(f"{spent:7.1f} s  {step.name} {name}: losses {'as' if same else 'NOT as'} published", flush=True)
            if not same and spent + OTHER_SETS_SECONDS < 60 * options.minutes:
                experiment = image_experiment_at(step.task, "paper")
                teller = Teller(folder, options.pack and options.pack / f"{step.name}.tar")
                run_images(experiment, folder, data=options.data, device=device, only=[name], progress=teller)
                teller.pack()


def same_models(step: Step, variant: str, folder: Path) -> bool:
    """Whether a trained ensemble has the losses of the published one, to the bit."""
    published, stage = RESULTS / step.name, f"belief-{variant}"
    if not (published / f"{stage}.json").exists():
        return True
    ours, theirs = (Store.open(each).arrays(stage)["losses"] for each in (folder, published))
    return torch.equal(ours, theirs)


def letters_of(data: Path) -> Iterator[ImageSet]:
    """Every set of letters in a data folder, whole, best first."""
    for layout in SETS["letters"].splits["test"].layouts:
        if (data / layout.folder).is_dir():
            with tempfile.TemporaryDirectory() as alone:
                link = Path(alone) / layout.folder
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to((data / layout.folder).resolve())
                yield load_images("letters", "test", alone)


def rows_of(
    step: Step, experiment: ImageExperiment, variant: EnsembleVariant, store: Store, data: Path, device: torch.device
) -> Iterator[dict[str, Any]]:
    """What an ensemble does on each whole set of letters: from the run where it has that stage, measured where not."""
    ensemble = None
    for letters in letters_of(data):
        for bit in (True, False) if experiment.image_task.help_bit else (None,):
            stage = Stage(variant.name, "letters", bit)
            numbers = store.numbers(stage.name)
            if (numbers["sha256"], numbers["num_images"]) == (letters.checksum, len(letters)):
                arrays = store.arrays(stage.name)
            else:
                ensemble = ensemble or load_stage_belief(store, f"belief-{variant.name}")
                numbers, arrays = run_stage(
                    ImageStageInputs(experiment, ensemble, {"letters": letters}, device), stage, None
                )
            yield row_of(step.name, experiment, numbers, arrays)


def rows_of_shipped(data: Path, device: torch.device) -> list[dict[str, Any]]:
    """What the package's own 100 models of ask-for-help do on each whole set of letters."""
    experiment = image_experiment_at("ask-for-help", "paper")
    ensemble = RewardEnsemble.load(SHIPPED)
    inputs = (ImageStageInputs(experiment, ensemble, {"letters": letters}, device) for letters in letters_of(data))
    stage = Stage(experiment.main.name, "letters")
    return [row_of("shipped", experiment, *run_stage(each, stage, None)) for each in inputs]


def row_of(
    run: str, experiment: ImageExperiment, numbers: dict[str, Any], arrays: dict[str, torch.Tensor]
) -> dict[str, Any]:
    """The numbers of one ensemble on one set of letters: means over runs for each level, and help for each letter."""
    kept = ("variant", "help_available", "levels", "num_images", "num_models", "edition", "sha256", "hardware")
    row: dict[str, Any] = {"run": run, **{name: numbers[name] for name in kept}, "made_by": identity()}
    measured = Measured(numbers)
    for quantity in (HELP, INDEX):
        if quantity in numbers["optim"]:
            means = {str(regime): _rounded(measured.means(regime, quantity)) for regime in Regime}
            row[quantity] = means | {"optim": round(measured.optim(quantity), DIGITS)}
    help_action = experiment.image_task.help_action
    if help_action is not None:
        by_letter = {str(regime): arrays[f"{regime}-by_label"] for regime in Regime} | {
            "optim": arrays["optim-by_label"]
        }
        row["help_by_letter"] = {name: _rounded(found[..., help_action]) for name, found in by_letter.items()}
    return row


def _rounded(values: torch.Tensor) -> Any:
    return values.double().mul(10**DIGITS).round().div(10**DIGITS).tolist()


def write_rows(name: str, rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Add an ensemble's rows to the run's file, in place of those that it had."""
    folder = options.pack or options.folder
    path = folder / f"letters-{name}.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    kept = [row for row in before if row["variant"] != rows[0]["variant"]]
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(path, lambda target: target.write_text(json.dumps([*kept, *rows]), encoding="utf-8"))


def publish(folder: Path) -> None:
    """Put finished runs and rows into results/; figures and pages are then drawn by `tools/publish_results.py`."""
    from publish_results import publish as publish_run

    for path in sorted(folder.glob("*/manifest.json")):
        if path.parent.name != "data-extent-1000-models":  # rows alone: it is no run of the paper's size
            publish_run(path.parent.name, path.parent)
            print(f"published {path.parent.name}")
    (RESULTS / "letters").mkdir(exist_ok=True)
    for path in sorted(folder.glob("letters-*.json")):
        shutil.copyfile(path, RESULTS / "letters" / path.name.removeprefix("letters-"))


def main() -> None:
    """Run, pack, publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with image data")
    parser.add_argument("--folder", type=Path, required=True, help="where the runs live")
    parser.add_argument("--scale", choices=[*STEPS, "shipped"], default="paper")
    parser.add_argument("--only", nargs="+", help="names of runs; all if not given")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no step that is expected to take longer"
    )
    parser.add_argument("--pack", type=Path, help="folder for the finished stages, packed, and for the rows")
    parser.add_argument("--publish", action="store_true", help="put finished runs into results/, and run nothing")
    options = parser.parse_args()
    if options.publish:
        publish(options.folder)
        return
    began, device = time.monotonic(), resolve_device(options.device)
    print(provenance_line(), flush=True)
    if options.scale == "shipped":
        write_rows("shipped", rows_of_shipped(options.data, device), options)
    for step in STEPS.get(options.scale, ()):
        if options.only and step.name not in options.only:
            continue
        spent = time.monotonic() - began
        if spent + step.seconds > 60 * options.minutes:
            print(f"{spent:7.1f} s  left out for lack of time: {step.name} {' '.join(step.only)}", flush=True)
            continue
        print(f"{spent:7.1f} s  {step.name} {' '.join(step.only)}", flush=True)
        run_step(step, options, device)
    if options.scale == "paper":
        decide_on_other_sets(options, device, began)
    print(f"{time.monotonic() - began:7.1f} s in all", flush=True)


if __name__ == "__main__":
    main()
