"""The image sets as published: what each holds, where its files lie in a folder, and where they are downloaded from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cautious.errors import InvalidInputError
from cautious.validation import look_up


@dataclass(frozen=True)
class Layout:
    """One common layout of a split: two IDX files in `folder` whose names start with `prefix`."""

    folder: str
    prefix: str

    @property
    def images(self) -> str:
        """Path of the images below the data folder, without .gz."""
        return f"{self.folder}/{self.prefix}images-idx3-ubyte"

    @property
    def labels(self) -> str:
        """Path of the labels below the data folder, without .gz."""
        return f"{self.folder}/{self.prefix}labels-idx1-ubyte"


@dataclass(frozen=True)
class Split:
    """The number of images in the published split, and the file layouts to look for, the preferred one first."""

    num_images: int
    layouts: tuple[Layout, ...]


@dataclass(frozen=True)
class KnownSet:
    """What holds for all splits of a set. `transposed`: each image is stored with rows and columns exchanged."""

    title: str
    num_classes: int
    splits: Mapping[str, Split]
    first_label: int = 0
    transposed: bool = False


def complete_size(name: str, split: str) -> int:
    """How many images the published split of a set has."""
    return SETS[name].splits[split].num_images


def _layouts(folders: tuple[str, ...], prefix: str) -> tuple[Layout, ...]:
    return tuple(Layout(folder, prefix) for folder in folders)


LETTERS_REBUILT = Layout("emnist-letters-rebuilt", "letters-")
LETTERS_SUBSET = Layout("emnist-letters-subset", "letters-")
"""Not the published test split but other collections of real letters, used where the test split is not available."""

_DIGITS = ("mnist", "MNIST/raw")
_FASHION = ("fashion-mnist", "FashionMNIST/raw")
_LETTERS = ("emnist-letters", "emnist", "EMNIST/raw")

SETS: Mapping[str, KnownSet] = MappingProxyType(
    {
        "digits": KnownSet(
            title="MNIST",
            num_classes=10,
            splits={
                "train": Split(60_000, _layouts(_DIGITS, "train-")),
                "test": Split(10_000, _layouts(_DIGITS, "t10k-")),
            },
        ),
        "fashion": KnownSet(
            title="Fashion-MNIST", num_classes=10, splits={"test": Split(10_000, _layouts(_FASHION, "t10k-"))}
        ),
        "letters": KnownSet(
            title="EMNIST letters",
            num_classes=26,
            splits={
                "test": Split(20_800, (*_layouts(_LETTERS, "emnist-letters-test-"), LETTERS_REBUILT, LETTERS_SUBSET))
            },
            first_label=1,
            transposed=True,
        ),
    }
)


@dataclass(frozen=True)
class RemoteFile:
    """A file to download; `checksum` as pooch writes it ("md5:..."), `num_bytes` where it is known."""

    name: str
    checksum: str
    num_bytes: int | None = None


@dataclass(frozen=True)
class Source:
    """Where a set is downloaded from.

    Attributes:
        address: what stands before each file's name.
        folder: where the files go, below the cache.
        files: what is kept.
        archive: the zip that `files` are members of, where they are not published one by one.
    """

    address: str
    folder: str
    files: tuple[RemoteFile, ...]
    archive: RemoteFile | None = None


# The same addresses and checksums as torchvision 0.29; fashion's training split and EMNIST's other parts are not used.
SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "digits": Source(
            address="https://ossci-datasets.s3.amazonaws.com/mnist/",
            folder="mnist",
            files=(
                RemoteFile("train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                RemoteFile("train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
                RemoteFile("t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3"),
                RemoteFile("t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
            ),
        ),
        "fashion": Source(
            address="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            folder="fashion-mnist",
            files=(
                RemoteFile("t10k-images-idx3-ubyte.gz", "md5:bef4ecab320f06d8554ea6380940ec79"),
                RemoteFile("t10k-labels-idx1-ubyte.gz", "md5:bb300cfdad3c16e7a12a480ee83cd310"),
            ),
        ),
        "letters": Source(
            address="https://biometrics.nist.gov/cs_links/EMNIST/",
            folder="emnist-letters",
            files=(
                RemoteFile(
                    "emnist-letters-test-images-idx3-ubyte.gz",
                    "sha256:50f0e93d75b99b463e9760b8345866f22587fa2c2fba472730a5ba09c693412d",
                    5_039_157,
                ),
                RemoteFile(
                    "emnist-letters-test-labels-idx1-ubyte.gz",
                    "sha256:924955c31fe7fd809b7303b5c0141282955f4b8390c74cdfd5d80435e0f4b4cb",
                    144,
                ),
            ),
            archive=RemoteFile("gzip.zip", "md5:58c8d27c78d21e728a6bc7b3cc06412e"),
        ),
    }
)


def known_set(name: str) -> KnownSet:
    """The set called `name`, or an error that lists the known ones."""
    return look_up(SETS, name, "name")


def known_split(name: str, split: str) -> Split:
    """One split of a set, or an error that says which it has.

    >>> known_split("fashion", "train")
    Traceback (most recent call last):
    cautious.errors.InvalidInputError: split='train' is not there for 'fashion'; only 'test' is used.
    """
    splits = known_set(name).splits
    if not isinstance(split, str) or split not in splits:
        verb = "is" if len(splits) == 1 else "are"
        raise InvalidInputError(
            f"split={split!r} is not there for {name!r}; only {' and '.join(map(repr, splits))} {verb} used."
        )
    return splits[split]
