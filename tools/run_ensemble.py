"""Run ensembles of an image experiment from Python alone, and pack what is finished into one file as it goes on.

python tools/run_ensemble.py help-if-available --only help-0.05 --data DATA --pack OUT/run.tar

For a machine with a GPU that lacks what the command line needs (tyro), and that gives few files back. It makes the same
stages as `cautious reproduce`. The run itself lives in --folder and goes on where it was if the same command is given again.
The packed file holds all finished stages without the networks: unpack it and publish it with `tools/publish_results.py`.
"""

from __future__ import annotations

import argparse
import tarfile
import time
from dataclasses import replace
from pathlib import Path

from cautious.io.atomic import atomic_write
from cautious.validation import resolve_device
from cautious_paper.experiments.images.image_experiment import run_images
from cautious_paper.experiments.images.settings import SCALES, SETTINGS, Setting, image_experiment_at
from cautious_paper.experiments.store import MANIFEST, provenance_line

TELL_EVERY = 20.0
"""Seconds between lines about the same piece of work."""


def pack(folder: Path, target: Path) -> int:
    """Pack the manifest and all finished stages of a run, under the run's name; how many stages there were."""
    numbers = sorted(path for path in folder.glob("*.json"))
    arrays = [path.with_suffix(".safetensors") for path in numbers]
    files = [*numbers, *(path for path in arrays if path.exists())]

    def write(path: Path) -> None:
        with tarfile.open(path, "w") as packed:
            for file in files:
                packed.add(file, f"{folder.name}/{file.name}")

    target.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(target, write)
    return sum(path.name != MANIFEST for path in numbers)


class Teller:
    """Prints how work goes, and packs the run after each finished piece of it."""

    def __init__(self, folder: Path, target: Path | None) -> None:
        """Start the clock."""
        self.folder, self.target = folder, target
        self.began = time.monotonic()
        self.title, self.told = "", 0.0

    def __call__(self, title: str, done: int, total: int) -> None:
        """One line for each piece of work, and now and then while it lasts."""
        now = time.monotonic()
        if title != self.title:
            self.pack()
        if title != self.title or now - self.told > TELL_EVERY or done == total:
            self.title, self.told = title, now
            print(f"{now - self.began:7.1f} s  {title}: {done} of {total}", flush=True)

    def pack(self) -> None:
        """Pack what is finished."""
        if self.target is not None:
            pack(self.folder, self.target)


def main() -> None:
    """Run, and pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=list(SETTINGS))
    parser.add_argument("--scale", choices=list(SCALES), default="paper")
    parser.add_argument("--setting", choices=[str(one) for one in Setting], default="main")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="names of the ensembles to run now; all if not given")
    parser.add_argument(
        "--sets", nargs="+", help="sets of images (digits, fashion, letters) to decide on now; all if not given"
    )
    parser.add_argument("--without-studies", action="store_true", help="no dial, no curve over the number of models")
    parser.add_argument("--data", type=Path, help="folder with image data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--folder", type=Path, required=True, help="where the run lives")
    parser.add_argument("--pack", type=Path, help="file to pack the finished stages into")
    options = parser.parse_args()
    experiment = image_experiment_at(options.task, options.scale, options.seed, options.setting)
    if options.without_studies:
        experiment = replace(experiment, num_dial_images=0)
    print(provenance_line(), flush=True)
    teller = Teller(options.folder, options.pack)
    try:
        run_images(
            experiment,
            options.folder,
            data=options.data,
            device=resolve_device(options.device),
            only=options.only,
            sets=options.sets,
            progress=teller,
        )
    finally:
        teller.pack()
    print(f"{time.monotonic() - teller.began:7.1f} s in all", flush=True)


if __name__ == "__main__":
    main()
