"""The images of an experiment: which sets, how many of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from cautious.errors import MissingFileError
from cautious.experiments.images.settings import ImageExperiment
from cautious.io.arrays import fingerprint_of
from cautious.worlds.data import ImageSet, has_images, load_images
from cautious.worlds.data.sources import complete_size
from cautious.worlds.image_tasks import class_balanced_subset

TEST_SETS = ("digits", "fashion", "letters")


@dataclass(frozen=True, eq=False)
class ImageData:
    """The images of an experiment: familiar digits to learn from, and sets to decide on."""

    train: ImageSet
    tests: dict[str, ImageSet]

    @property
    def sets(self) -> dict[str, ImageSet]:
        """All of them, by name and split."""
        return {"digits, train": self.train, **{f"{name}, test": images for name, images in self.tests.items()}}

    def described(self) -> dict[str, str]:
        """Size and content of each set, for a manifest: other data is another run, wherever the same data came from."""
        return {
            name: f"{len(images)} images, {fingerprint_of(images.images, images.labels)}"
            for name, images in self.sets.items()
        }

    def origins(self) -> dict[str, str]:
        """Where each set came from, in words."""
        return {name: images.origin for name, images in self.sets.items()}


def load_data(experiment: ImageExperiment, folder: Path | str | None = None) -> ImageData:
    """The sets that are at hand, cut to what the experiment asks for; letters are left out where they are missing.

    An experiment that asks for everything (scale "paper") is refused the package's own small cuts.
    """
    train = _whole(load_images("digits", "train", folder), experiment.num_train)
    names = available_sets(folder)
    return ImageData(train, {name: _whole(load_images(name, "test", folder), experiment.num_test) for name in names})


def available_sets(folder: Path | str | None = None) -> list[str]:
    """Sets that a run acts on: digits and clothes always, letters where they are."""
    return [name for name in TEST_SETS if name != "letters" or has_images("letters", "test", folder)]


def _whole(images: ImageSet, count: int | None) -> ImageSet:
    """The set as the experiment wants it: all of it, or a cut."""
    wanted = 0 if images.name == "letters" else complete_size(images.name, images.split)  # any letters will do (D15)
    if count is None and len(images) < wanted:
        raise MissingFileError(
            f"{images.name}, {images.split}: this scale needs all {wanted:,} images, and only {len(images):,} are at hand "
            f"({images.origin}); get the complete sets with 'cautious data fetch', or name their folder with --data."
        )
    return cut(images, count)


def cut(images: ImageSet, count: int | None) -> ImageSet:
    """About `count` images, as many of each label (one at least), the same ones each time; all of them if there are no more."""
    if count is None or len(images) <= count:
        return images
    count = max(count, len(torch.unique(images.labels)))
    chosen = class_balanced_subset(images.labels, count / len(images), seed=0)
    origin = f"{len(chosen):,} chosen from {images.origin}"
    return ImageSet(images.name, images.split, images.images[chosen], images.labels[chosen], origin)
