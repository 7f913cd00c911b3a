"""Which set of letters was read is told by its content, and said in the run, its stages, its report and its claims."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cautious.errors import MissingFileError
from cautious_paper.experiments.images.image_experiment import load_data, run_images
from cautious_paper.experiments.images.settings import image_experiment_at
from cautious_paper.report.report_spec import facts_of, image_ledger
from cautious_paper.worlds.data import Edition, load_images
from cautious_paper.worlds.data import editions as known
from cautious_paper.worlds.data.editions import idx_checksum
from cautious_paper.worlds.data.idx import read_idx, write_idx
from cautious_paper.worlds.data.sources import SOURCES, RemoteFile

FOLDER = os.environ.get("CAUTIOUS_DATA")
REBUILT, SUBSET = "emnist-letters-rebuilt", "emnist-letters-subset"
START = "letters-"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))


def need(folder: str) -> Path:
    if not FOLDER or not (Path(FOLDER) / folder).is_dir():
        pytest.skip(f"CAUTIOUS_DATA names no folder with {folder}")
    return Path(FOLDER) / folder


def test_the_checksum_is_that_of_the_unpacked_file(tmp_path):
    values = torch.arange(3 * 28 * 28).remainder(251).byte().view(3, 28, 28)
    write_idx(tmp_path / "plain", values)
    assert idx_checksum(values) == hashlib.sha256((tmp_path / "plain").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("folder", "edition", "count", "said"),
    [(REBUILT, Edition.REBUILT, 20_800, "14,800 of them official"), (SUBSET, Edition.SUBSET, 3_128, "EMNIST Balanced")],
)
def test_known_letters_are_known_wherever_they_lie(tmp_path, folder, edition, count, said):
    shutil.copytree(need(folder), tmp_path / "data" / folder)
    letters = load_images("letters", data=tmp_path / "data")
    content = gzip.decompress((need(folder) / f"{START}images-idx3-ubyte.gz").read_bytes())
    assert (letters.edition, len(letters)) == (edition, count)
    assert letters.checksum == hashlib.sha256(content).hexdigest()
    assert said in letters.origin
    assert letters.checksum[:16] in letters.origin
    moved = tmp_path / "moved" / "emnist-letters"
    moved.mkdir(parents=True)
    for part in ("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz"):
        shutil.copy(need(folder) / f"{START}{part}", moved / f"emnist-letters-test-{part}")
    assert load_images("letters", data=tmp_path / "moved").edition == edition


def test_one_pixel_or_one_label_makes_it_another_set(tmp_path):
    images = read_idx(need(REBUILT) / f"{START}images-idx3-ubyte.gz", 3)
    labels = read_idx(need(REBUILT) / f"{START}labels-idx1-ubyte.gz", 1)
    images[0, 0, 0] ^= 1
    write_idx(tmp_path / REBUILT / f"{START}images-idx3-ubyte", images)
    write_idx(tmp_path / REBUILT / f"{START}labels-idx1-ubyte", labels)
    letters = load_images("letters", data=tmp_path)
    assert letters.edition == Edition.OTHER
    assert "not the official letters" in letters.origin
    images[0, 0, 0] ^= 1
    labels[[0, 1]] = labels[[1, 0]] + 1
    write_idx(tmp_path / REBUILT / f"{START}images-idx3-ubyte", images)
    write_idx(tmp_path / REBUILT / f"{START}labels-idx1-ubyte", labels)
    assert load_images("letters", data=tmp_path).edition == Edition.OTHER


def test_the_official_set_is_read_first_then_the_rebuilt_one(tmp_path):
    data = tmp_path / "data"
    shutil.copytree(need(SUBSET), data / SUBSET)
    assert load_images("letters", data=data).edition == Edition.SUBSET
    shutil.copytree(need(REBUILT), data / REBUILT)
    assert load_images("letters", data=data).edition == Edition.REBUILT
    for place in ("emnist", "EMNIST/raw"):
        write_idx(data / place / "emnist-letters-test-images-idx3-ubyte", torch.zeros(2, 28, 28).byte())
        write_idx(data / place / "emnist-letters-test-labels-idx1-ubyte", torch.ones(2).byte())
        assert len(load_images("letters", data=data)) == 2


def test_unpacked_letters_that_begin_as_the_official_ones_are_official(tmp_path, monkeypatch):
    """The official images cannot be had here: made-up ones stand for them, with the checksum of their own beginning."""
    images, labels = torch.randint(256, (20, 28, 28)).byte(), torch.arange(20).byte() + 1
    folder = tmp_path / "emnist-letters" / "emnist-letters-test-"
    write_idx(Path(f"{folder}images-idx3-ubyte"), images)
    write_idx(Path(f"{folder}labels-idx1-ubyte"), labels)
    assert load_images("letters", data=tmp_path).edition == Edition.OTHER
    monkeypatch.setattr(known, "LETTER_LABELS", idx_checksum(labels))
    monkeypatch.setattr(known, "OFFICIAL_START", (15, idx_checksum(images[:15])))
    assert load_images("letters", data=tmp_path).edition == Edition.OFFICIAL
    images[3] = 0
    write_idx(Path(f"{folder}images-idx3-ubyte"), images)
    assert load_images("letters", data=tmp_path).edition == Edition.OTHER


def test_packed_letters_are_official_by_the_published_checksums(tmp_path, monkeypatch):
    folder = tmp_path / "emnist-letters"
    files = [folder / file.name for file in SOURCES["letters"].files]
    write_idx(files[0], torch.zeros(2, 28, 28).byte())
    write_idx(files[1], torch.ones(2).byte())
    assert load_images("letters", data=tmp_path).edition == Edition.OTHER
    published = tuple(
        RemoteFile(path.name, f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}") for path in files
    )
    source = replace(SOURCES["letters"], files=published)
    monkeypatch.setattr(known, "SOURCES", {**SOURCES, "letters": source})
    assert load_images("letters", data=tmp_path).edition == Edition.OFFICIAL


def test_digits_and_clothes_are_official_or_cuts(tmp_path):
    assert load_images("digits").edition == (Edition.OFFICIAL if FOLDER else Edition.OTHER)
    need("mnist")
    assert load_images("digits", "train", FOLDER).edition == Edition.OFFICIAL
    need("fashion-mnist")
    assert load_images("fashion", data=FOLDER).edition == Edition.OFFICIAL


def test_a_run_its_stages_report_and_claims_say_which_letters(tmp_path):
    need(REBUILT)
    experiment = image_experiment_at("non-obvious", "smoke")
    store = run_images(experiment, tmp_path, data=FOLDER, sets=["letters"])
    checksum = load_images("letters", data=FOLDER).checksum
    assert {stage for stage in store.stages() if "digits" in stage or "fashion" in stage} == set()
    for stage in ("non-obvious-letters", "non-obvious-letters-dial"):
        assert (store.numbers(stage)["edition"], store.numbers(stage)["sha256"]) == ("rebuilt", checksum)
    assert checksum[:16] in store.manifest["origins"]["letters, test"]
    assert checksum[:16] in facts_of(store)
    run_images(experiment, tmp_path, data=FOLDER)  # the other sets follow, in the same folder
    assert {"non-obvious-digits", "non-obvious-fashion"} <= set(store.stages())
    of_letters = next(verdict for verdict in image_ledger(store) if verdict.claim == "NO3")
    assert "letters, not the paper's 20,800" in of_letters.numbers  # smoke decides on 26 of them


def test_sets_that_are_not_there_are_refused(tmp_path):
    data = load_data(image_experiment_at("non-obvious", "smoke"))
    with pytest.raises(MissingFileError, match="'letter' are not available; there are digits, fashion"):
        data.only(["letter"])
    assert list(data.only(["fashion"]).tests) == ["fashion"]
