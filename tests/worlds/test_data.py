"""Image sets from hand-made folders: the order of search, the layouts understood, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from cautious.errors import BadFileError, InvalidInputError, MissingFileError
from cautious_paper.worlds.data import find_images, has_images, load_images
from cautious_paper.worlds.data.idx import write_idx

LAYOUTS = [
    ("digits", "train", "mnist/train-"),
    ("digits", "test", "MNIST/raw/t10k-"),
    ("digits", "train", "MNIST/raw/train-"),
    ("fashion", "test", "fashion-mnist/t10k-"),
    ("fashion", "test", "FashionMNIST/raw/t10k-"),
    ("letters", "test", "emnist/emnist-letters-test-"),
    ("letters", "test", "emnist-letters/emnist-letters-test-"),
    ("letters", "test", "EMNIST/raw/emnist-letters-test-"),
    ("letters", "test", "emnist-letters-subset/letters-"),
]


@pytest.fixture(autouse=True)
def _own_places(tmp_path, monkeypatch):
    """No data of the machine's own: an empty cache, no folder."""
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CAUTIOUS_DATA", raising=False)


def write_set(folder, start: str, labels=(1, 2, 3), suffix=".gz", images=None):
    """Three images, each of its label's shade with one bright corner pixel at row 0, column 27."""
    labels = torch.tensor(labels, dtype=torch.uint8)
    if images is None:
        images = labels.view(-1, 1, 1).repeat(1, 28, 28)
        images[:, 0, 27] = 255
    write_idx(folder / f"{start}images-idx3-ubyte{suffix}", images)
    write_idx(folder / f"{start}labels-idx1-ubyte{suffix}", labels)
    return folder


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(("name", "split", "start"), LAYOUTS)
def test_every_layout_is_understood(tmp_path, name, split, start, suffix):
    folder = write_set(tmp_path / "data", start, suffix=suffix)
    images = load_images(name, split, folder)
    first = 1 if name == "letters" else 0
    assert (images.name, images.split, len(images)) == (name, split, 3)
    assert (images.images.dtype, images.labels.dtype) == (torch.uint8, torch.int64)
    assert images.images.shape == (3, 28, 28)
    assert images.labels.tolist() == [1 - first, 2 - first, 3 - first]
    assert str(tmp_path) not in images.origin
    assert has_images(name, split, folder)


def test_letters_are_transposed_once_and_others_never(tmp_path):
    write_set(tmp_path, "emnist/emnist-letters-test-")
    write_set(tmp_path, "mnist/t10k-")
    letters, digits = load_images("letters", data=tmp_path).images, load_images("digits", data=tmp_path).images
    assert (letters[0, 27, 0], letters[0, 0, 27]) == (255, 1)
    assert (digits[0, 27, 0], digits[0, 0, 27]) == (1, 255)
    assert letters.is_contiguous()


def test_the_published_letters_come_before_the_subset(tmp_path):
    write_set(tmp_path, "emnist-letters-subset/letters-", labels=[26])
    assert load_images("letters", data=tmp_path).labels.tolist() == [25]
    write_set(tmp_path, "EMNIST/raw/emnist-letters-test-", labels=[1])
    assert load_images("letters", data=tmp_path).labels.tolist() == [0]


def test_a_plain_file_comes_before_its_gzipped_twin(tmp_path):
    write_set(tmp_path, "MNIST/raw/t10k-", labels=[7])
    write_set(tmp_path, "MNIST/raw/t10k-", labels=[8], suffix="")
    assert load_images("digits", data=tmp_path).labels.tolist() == [8]


def test_given_folder_then_variable_then_cache_then_embedded(tmp_path, monkeypatch):
    def origin():
        return load_images("digits", "test").origin

    assert origin() == "embedded default: 1,000 of the 10,000"
    write_set(tmp_path / "cache", "mnist/t10k-", labels=[1])
    assert origin() == "cache (mnist): 1 of the 10,000"
    monkeypatch.setenv("CAUTIOUS_DATA", str(write_set(tmp_path / "env", "mnist/t10k-", labels=[1, 2])))
    assert origin() == "CAUTIOUS_DATA folder (mnist): 2 of the 10,000"
    given = write_set(tmp_path / "given", "MNIST/raw/t10k-", labels=[1, 2, 3])
    assert load_images("digits", "test", str(given)).origin == "given folder (MNIST/raw): 3 of the 10,000"


def test_a_folder_without_this_set_is_passed_over(tmp_path):
    folder = write_set(tmp_path / "data", "fashion-mnist/t10k-")
    assert load_images("digits", data=folder).origin.startswith("embedded default")
    assert not has_images("letters", data=folder)


@pytest.mark.parametrize("load", [load_images, has_images, lambda name, split, data: find_images(data)])
def test_a_folder_that_is_no_use_at_all_is_an_error(tmp_path, load):
    with pytest.raises(MissingFileError, match="no such folder"):
        load("digits", "test", tmp_path / "nowhere")
    (tmp_path / "empty" / "mnist").mkdir(parents=True)
    with pytest.raises(MissingFileError, match=r"holds no image set.*MNIST/raw/.*Give the folder above"):
        load("digits", "test", tmp_path / "empty")


def test_a_variable_that_names_nothing_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setenv("CAUTIOUS_DATA", "/nowhere/at/all")
    with pytest.raises(MissingFileError, match="CAUTIOUS_DATA folder /nowhere/at/all: there is no such folder"):
        load_images("digits")
    monkeypatch.setenv("CAUTIOUS_DATA", "")
    assert len(load_images("digits")) == 1000


def test_missing_letters_name_the_places_and_the_way_out(tmp_path):
    folder = write_set(tmp_path / "data", "mnist/t10k-")
    with pytest.raises(MissingFileError) as caught:
        load_images("letters", data=folder)
    for part in (str(folder), str(tmp_path / "cache"), "embedded default", "cautious data fetch letters", "--data"):
        assert part in str(caught.value)


def test_half_a_pair_is_an_error_in_a_folder_and_nothing_in_the_cache(tmp_path):
    for folder in ("data", "cache"):
        write_set(tmp_path / folder, "mnist/t10k-")
        (tmp_path / folder / "mnist/t10k-labels-idx1-ubyte.gz").unlink()
    assert load_images("digits").origin.startswith("embedded default")
    with pytest.raises(MissingFileError, match=r"t10k-labels-idx1-ubyte.*come together"):
        load_images("digits", data=tmp_path / "data")


@pytest.mark.parametrize(
    ("name", "split", "said"),
    [
        ("digit", "test", "'digits', 'fashion', 'letters'"),
        ("digits", "valid", "'train' and 'test' are used"),
        ("fashion", "train", "only 'test' is used"),
        ("letters", "train", "only 'test' is used"),
    ],
)
@pytest.mark.parametrize("load", [load_images, has_images])
def test_unknown_names_and_splits_list_the_known(load, name, split, said):
    with pytest.raises(InvalidInputError, match=said):
        load(name, split)


@pytest.mark.parametrize(
    ("labels", "images", "said"),
    [
        ((1, 10, 3), None, r"t10k-labels.*a label 10; MNIST has 0 to 9"),
        ((1, 2), torch.zeros(3, 28, 28, dtype=torch.uint8), r"t10k-images.*3 images, .*t10k-labels\S* 2\."),
        ((1, 2), torch.zeros(2, 32, 28, dtype=torch.uint8), r"t10k-images.*32 x 28, not 28 x 28"),
        ((1, 2), torch.zeros(2, 784, dtype=torch.uint8), r"t10k-images.*2 dimensions where 3"),
    ],
)
def test_sound_files_that_are_no_image_set_are_refused(tmp_path, labels, images, said):
    write_set(tmp_path, "mnist/t10k-", labels=labels, images=images)
    with pytest.raises(BadFileError, match=said):
        load_images("digits", data=tmp_path)


@pytest.mark.parametrize("label", [0, 27])
def test_letters_are_numbered_from_one_in_the_file(tmp_path, label):
    write_set(tmp_path, "emnist/emnist-letters-test-", labels=[5, label])
    with pytest.raises(BadFileError, match=f"a label {label}; EMNIST letters has 1 to 26"):
        load_images("letters", data=tmp_path)


def test_a_list_of_everything_says_why_something_is_missing(tmp_path):
    write_set(tmp_path / "data", "mnist/t10k-", labels=[11])
    found = {(line.name, line.split): line for line in find_images(tmp_path / "data")}
    assert list(found) == [("digits", "train"), ("digits", "test"), ("fashion", "test"), ("letters", "test")]
    assert found["digits", "train"].count == 6000
    assert found["digits", "train"].place == "embedded default"
    assert found["digits", "test"].count == 0
    assert "a label 11" in found["digits", "test"].origin
    assert found["letters", "test"].count == 0
    assert "cautious data fetch letters" in found["letters", "test"].origin


def test_a_set_prints_in_one_line():
    assert repr(load_images("fashion")) == (
        "ImageSet(fashion test, 1,000 images, embedded default: 1,000 of the 10,000)"
    )


def test_reading_needs_no_pooch():
    code = """
import os, sys
sys.modules["pooch"] = None
os.environ.pop("CAUTIOUS_CACHE"), os.environ.pop("CAUTIOUS_DATA", None)
from cautious.errors import MissingFileError
from cautious_paper.worlds.data import fetch_images, load_images
print(len(load_images("digits")))
try:
    fetch_images(["digits"])
except MissingFileError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["1000", "downloads need the package pooch: pip install pooch."]
