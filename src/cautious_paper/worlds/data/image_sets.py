"""Image sets as tensors, checked, upright and with labels from zero, from wherever they are found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cautious.errors import BadFileError, MissingFileError
from cautious_paper.worlds.data.editions import Edition, edition_of
from cautious_paper.worlds.data.find import EMBEDDED, ImageFiles, check_data_folder, locate, missing
from cautious_paper.worlds.data.idx import WAY_OUT, read_idx
from cautious_paper.worlds.data.sources import LETTERS_SUBSET, SETS, known_set, known_split

SIDE = 28


@dataclass(frozen=True, eq=False)
class ImageSet:
    """One split of an image set.

    Attributes:
        name: "digits" (MNIST), "fashion" (Fashion-MNIST) or "letters" (EMNIST letters).
        split: "train" or "test".
        images: uint8 [S, 28, 28], 0 = background, upright.
        labels: int64 [S]; 0..9, for letters 0..25 = a..z, upper and lower case together.
        origin: where it comes from and how complete it is, in plain words.
        edition: which known set it is, by its checksums: "official", for letters also "rebuilt" or "subset"; else "other".
        checksum: SHA-256 of the images that were read, as an unpacked IDX file; empty for images that come from no file.
    """

    name: str
    split: str
    images: Tensor
    labels: Tensor
    origin: str
    edition: Edition = Edition.OTHER
    checksum: str = ""

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        """Without the images, which are long."""
        return f"ImageSet({self.name} {self.split}, {len(self):,} images, {self.origin})"


@dataclass(frozen=True)
class FoundImages:
    """A line of `find_images`: which place has how many images; where `count` is 0, `origin` says why."""

    name: str
    split: str
    place: str
    count: int
    origin: str


def load_images(name: str, split: str = "test", data: str | Path | None = None) -> ImageSet:
    """One split of an image set, from the first of: the folder given, the user's cache, the embedded default.

    A folder may be laid out as torchvision does (MNIST/raw/, FashionMNIST/raw/, EMNIST/raw/) or as mnist/, fashion-mnist/,
    emnist-letters/ or emnist/, emnist-letters-rebuilt/, emnist-letters-subset/; files plain or .gz, the plain one first where
    both are there, and the official letters first, then the rebuilt set, then the subset. Which of them was read is told by
    checksum (`ImageSet.edition`). A given folder without this set is passed over; letters are not embedded.

    Args:
        name: "digits" (splits train and test), "fashion" (test) or "letters" (test).
        split: "train" or "test".
        data: the user's data folder; if None, the environment variable CAUTIOUS_DATA.

    Raises:
        InvalidInputError: a name or split that is not known.
        MissingFileError: the set is in none of the folders, or the given folder is not there or holds no known set.
        BadFileError: the files found are damaged or hold something else.

    >>> load_images("digits").images.shape[1:]
    torch.Size([28, 28])
    """
    files = locate(name, split, data)
    if files is None:
        raise missing(name, split, data)
    return _read(name, split, files)


def has_images(name: str, split: str = "test", data: str | Path | None = None) -> bool:
    """Whether `load_images` would find the files; it does not open them."""
    return locate(name, split, data) is not None


def find_images(data: str | Path | None = None) -> list[FoundImages]:
    """Every set and split, read to the end: how many images, from where; or why not."""
    check_data_folder(data)  # an unusable folder is the user's mistake, not four missing sets
    return [_find(name, split, data) for name, known in SETS.items() for split in known.splits]


def _find(name: str, split: str, data: str | Path | None) -> FoundImages:
    place = ""
    try:
        files = locate(name, split, data)
        if files is None:
            return FoundImages(name, split, place, 0, f"nowhere yet; 'cautious data fetch {name}' brings it")
        place = str(files.found_in)
        images = _read(name, split, files)
    except (MissingFileError, BadFileError) as error:
        return FoundImages(name, split, place, 0, str(error))
    return FoundImages(name, split, place, len(images), images.origin)


def _read(name: str, split: str, files: ImageFiles) -> ImageSet:
    known = known_set(name)
    images = read_idx(files.images, num_dims=3)
    labels = read_idx(files.labels, num_dims=1)
    if list(images.shape[1:]) != [SIDE, SIDE]:
        raise BadFileError(
            f"{files.images}: images are {images.shape[1]} x {images.shape[2]}, not {SIDE} x {SIDE}. {WAY_OUT}"
        )
    if len(images) != len(labels):
        raise BadFileError(f"{files.images}: has {len(images):,} images, {files.labels} {len(labels):,}. {WAY_OUT}")
    low, high = known.first_label, known.first_label + known.num_classes - 1
    if int(labels.min()) < low or int(labels.max()) > high:
        wrong = int(labels.min()) if int(labels.min()) < low else int(labels.max())
        raise BadFileError(f"{files.labels}: has a label {wrong}; {known.title} has {low} to {high}. {WAY_OUT}")
    upright = images.transpose(1, 2).contiguous() if known.transposed else images  # [S, 28, 28]
    edition, checksum = edition_of(name, images, labels, (files.images, files.labels))
    origin = _origin(name, split, files, len(labels), edition, checksum)
    return ImageSet(name, split, upright, labels.to(torch.int64) - low, origin, edition, checksum)


LETTERS = {
    Edition.OFFICIAL: "the official letters",
    Edition.REBUILT: "rebuilt letters, 14,800 of them official, the others genuine EMNIST letters too",
    Edition.SUBSET: "a cut of EMNIST Balanced",
    Edition.OTHER: "not the official letters",
}
"""The editions of the letters in words."""


def _origin(name: str, split: str, files: ImageFiles, count: int, edition: Edition, checksum: str) -> str:
    """The origin in words, without paths of this machine, because published results quote it."""
    complete = known_split(name, split).num_images
    if edition is Edition.SUBSET or files.layout == LETTERS_SUBSET:
        extent = f"a subset of EMNIST, {count:,} letters"
    elif count == complete:
        extent = f"all {complete:,}"
    else:
        extent = f"{count:,} of the {complete:,}"
    if name == "letters" and (count == complete or edition is not Edition.OTHER):
        extent += f"; {LETTERS[edition]}, SHA-256 {checksum[:16]}"
    inside = "" if files.found_in.path == EMBEDDED else f" ({files.layout.folder})"
    return f"{files.found_in.kind}{inside}: {extent}"
