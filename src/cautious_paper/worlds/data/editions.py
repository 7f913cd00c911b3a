"""Which published set the images of a split are, told by their content: the folder's name is not believed.

Letters come in three editions. EMNIST's own test split is "official". It cannot be passed on here, and where it is not at hand
two other collections of real EMNIST letters are read: "rebuilt", 20,800 images in the official order, of which the first 14,800
are the official ones, and "subset", 3,128 images cut from EMNIST Balanced. Any other content is "other".
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor

from cautious_paper.worlds.data.idx import UNSIGNED_BYTE
from cautious_paper.worlds.data.sources import SOURCES


class Edition(StrEnum):
    """Which known content a split has."""

    OFFICIAL = "official"
    """The published split, whole."""
    REBUILT = "rebuilt"
    """Letters: the official first 14,800 images, and 6,000 genuine EMNIST images of the same letters in place of the others."""
    SUBSET = "subset"
    """Letters: a published 4,000-image cut of EMNIST Balanced without its digits, upper and lower case together."""
    OTHER = "other"
    """None of these: the package's own cuts, a user's own files, or damaged ones."""


class Checksums(NamedTuple):
    """SHA-256 of the two files of a split, unpacked."""

    images: str
    labels: str


LETTER_LABELS = "22dbcde0a929a7f166bdac863b9195b2994d840a1e082f8f6daaeac5606376a6"
"""The official labels of the letters, which the rebuilt set has too."""
OFFICIAL_START = 14_800, "1d86b338cbf52388ca7ab46041a33a94e55b221ff9c3c3097a206e52ce3bfb06"
"""How many images the rebuilt letters share with the official ones, and SHA-256 of these as an IDX file of their own."""

KNOWN: Mapping[Checksums, Edition] = MappingProxyType(
    {
        Checksums(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ): Edition.OFFICIAL,  # digits, train
        Checksums(
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ): Edition.OFFICIAL,  # digits, test
        Checksums(
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ): Edition.OFFICIAL,  # fashion, test
        Checksums("2933230dad68147430d495df60c39e8f82fffeb944ac1afd8f8d113cf2ab211e", LETTER_LABELS): Edition.REBUILT,
        Checksums(
            "84a0c1c5aab0890ea29b5e6c4447d7b6e4747e30ebfe88372a0d999e4cf29686",
            "2a7eb245a520f5ac615a3c68d0b4e088245bbf5efba9b7303774e7668cc3bc72",
        ): Edition.SUBSET,
    }
)
"""Contents that are known to the last byte. Of the official letters only the packed files' checksums are published."""


def idx_checksum(values: Tensor) -> str:
    """SHA-256 of uint8 values as an unpacked IDX file, header and all: `gunzip -c FILE | sha256sum` gives the same."""
    header = bytes([0, 0, UNSIGNED_BYTE, values.dim()]) + struct.pack(f">{values.dim()}I", *values.shape)
    digest = hashlib.sha256(header)
    digest.update(values.contiguous().numpy().data)
    return digest.hexdigest()


def edition_of(name: str, images: Tensor, labels: Tensor, paths: tuple[Path, Path]) -> tuple[Edition, str]:
    """Which edition a split is, and the SHA-256 of its images as an unpacked IDX file.

    Letters count as official if both packed files have the published checksums. Unpacked files count as official if the labels
    and the first 14,800 images are the official ones, and the images as a whole are not the rebuilt set: the rest has no
    published checksum.

    Args:
        name: "digits", "fashion" or "letters".
        images: As the file has them, uint8 [S, 28, 28].
        labels: As the file has them, uint8 [S].
        paths: The files of both.
    """
    found = Checksums(idx_checksum(images), idx_checksum(labels))
    edition = KNOWN.get(found, Edition.OTHER)
    if name == "letters" and edition is Edition.OTHER:
        count, start = OFFICIAL_START
        unpacked = found.labels == LETTER_LABELS and idx_checksum(images[:count]) == start
        edition = Edition.OFFICIAL if unpacked or _packed_as_published(paths) else Edition.OTHER
    return edition, found.images


def _packed_as_published(paths: tuple[Path, Path]) -> bool:
    published = [file.checksum.removeprefix("sha256:") for file in SOURCES["letters"].files]
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths] == published
