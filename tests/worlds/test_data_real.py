"""The embedded default, and the complete sets where CAUTIOUS_DATA names a folder that has them."""

from __future__ import annotations

import gzip
import hashlib
import os
import runpy
from pathlib import Path

import pytest
import torch

from cautious_paper.worlds.data import has_images, load_images
from cautious_paper.worlds.data.find import EMBEDDED, locate
from cautious_paper.worlds.data.idx import read_idx

FOLDER = os.environ.get("CAUTIOUS_DATA")
TOOL = Path(__file__).parents[2] / "tools" / "cut_embedded_data.py"
needs_folder = pytest.mark.skipif(not FOLDER, reason="CAUTIOUS_DATA names no folder with complete sets")
CUTS = [("digits", "train", 600), ("digits", "test", 100), ("fashion", "test", 100)]
MNIST_MD5 = {
    ("train", "images"): "6bbc9ace898e44ae57da46a324031adb",
    ("train", "labels"): "a25bea736e30d166cdddb491f175f624",
    ("test", "images"): "2646ac647ad5339dbf082846283269ea",
    ("test", "labels"): "27ae3e4e09519cfbb04c329615203637",
}


def need(name: str, split: str) -> None:
    files = locate(name, split, FOLDER)
    if files is None or files.found_in.kind != "given folder":
        pytest.skip(f"no {name} {split} in the folder that CAUTIOUS_DATA names")


@pytest.mark.parametrize(("name", "split", "each"), CUTS)
def test_the_embedded_default_has_equally_many_of_each_class(name, split, each):
    images = load_images(name, split, EMBEDDED)
    assert images.labels.bincount().tolist() == [each] * 10
    assert images.images.flatten(1).unique(dim=0).shape[0] == len(images)  # no image twice
    assert images.labels[:100].unique().numel() == 10  # the classes are mixed


def test_the_embedded_default_is_small_and_without_letters(tmp_path, monkeypatch):
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path))
    files = [path for path in EMBEDDED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 3_000_000
    assert len(files) == 7
    assert not has_images("letters", data=EMBEDDED)
    readme = (EMBEDDED / "README.md").read_text(encoding="utf-8")
    assert "Attribution-Share Alike 3.0" in readme
    assert "Copyright © 2017 Zalando SE" in readme


@needs_folder
def test_cutting_again_gives_the_embedded_default(tmp_path):
    for name, split, _ in CUTS:
        need(name, split)
    runpy.run_path(str(TOOL))["cut"](Path(FOLDER), tmp_path)
    again = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.gz"))
    assert again == sorted(path.relative_to(EMBEDDED) for path in EMBEDDED.rglob("*.gz"))
    for path in again:
        num_dims = 3 if "images" in path.name else 1
        # the content, since another zlib may pack the same bytes otherwise
        assert torch.equal(read_idx(tmp_path / path, num_dims), read_idx(EMBEDDED / path, num_dims))


@needs_folder
@pytest.mark.parametrize(("name", "split", "count"), [("digits", "train", 60_000), ("digits", "test", 10_000)])
def test_digits_are_the_published_bytes(name, split, count):
    need(name, split)
    images = load_images(name, split, FOLDER)
    assert len(images) == count
    assert images.origin.endswith(f": all {count:,}")
    files = locate(name, split, FOLDER)
    for part, path in (("images", files.images), ("labels", files.labels)):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert hashlib.md5(content).hexdigest() == MNIST_MD5[split, part]


@needs_folder
def test_fashion_is_complete():
    need("fashion", "test")
    images = load_images("fashion", "test", FOLDER)
    assert images.labels.bincount().tolist() == [1000] * 10


def letter(images, which: str):
    return images.images[images.labels == ord(which) - ord("a")].float()


def extents(pictures):
    """Mean height and width of the ink."""
    ink = pictures > 50
    return float(ink.any(2).sum(1).float().mean()), float(ink.any(1).sum(1).float().mean())


def upper_and_left_share(pictures):
    """Mean share of the ink in the upper and in the left half."""
    total = pictures.sum((1, 2))
    upper, left = pictures[:, :14].sum((1, 2)) / total, pictures[:, :, :14].sum((1, 2)) / total
    return float(upper.mean()), float(left.mean())


@needs_folder
def test_letters_stand_upright():
    """i and l are tall, m and w broad: transposed or turned by a quarter it would be the other way round.

    And neither upside down nor mirrored: t and y have their ink above, u and w below, e and r on the left.
    """
    need("letters", "test")
    letters = load_images("letters", "test", FOLDER)
    assert letters.labels.unique().tolist() == list(range(26))
    for tall in "il":
        height, width = extents(letter(letters, tall))
        assert height > 1.5 * width
    for broad in "mw":
        height, width = extents(letter(letters, broad))
        assert width > 1.15 * height
    for which in "ty":
        assert upper_and_left_share(letter(letters, which))[0] > 0.55
    for which in "uw":
        assert upper_and_left_share(letter(letters, which))[0] < 0.45
    for which in "er":
        assert upper_and_left_share(letter(letters, which))[1] > 0.55
