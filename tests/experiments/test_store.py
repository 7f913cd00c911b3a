"""The folder of a run: whose stages it takes, what two processes can do to it, what it says when it cannot be written."""

from __future__ import annotations

import errno
import os
import shutil
import threading

import pytest
import torch

from cautious.errors import BadFileError, CautiousError, WriteError
from cautious.io.arrays import CHECKSUM, load_json, save_json
from cautious_paper.experiments.store import Store, provenance

ARRAYS = {"policy": torch.rand(3, 2)}


def run_in(folder, seed: int = 0) -> Store:
    store = Store.create(folder, "driving", {"seed": seed, "levels": ["1-of-2"]})
    store.save("stage", {"value": seed + 0.5}, {"policy": ARRAYS["policy"] + seed})
    return store


def test_a_stage_comes_back_as_it_was_saved(tmp_path):
    store = run_in(tmp_path)
    again = Store.create(tmp_path, "driving", {"seed": 0, "levels": ["1-of-2"]})
    assert again.numbers("stage") == {"value": 0.5}
    assert torch.equal(store.arrays("stage")["policy"], ARRAYS["policy"])
    assert again.manifest == store.manifest


def test_stages_of_another_run_are_refused(tmp_path):
    store, other = run_in(tmp_path / "own"), run_in(tmp_path / "other", seed=1)
    shutil.copyfile(other.folder / "stage.safetensors", store.folder / "stage.safetensors")
    with pytest.raises(BadFileError, match="not the file that was saved with the others"):
        store.arrays("stage")
    shutil.copyfile(other.folder / "stage.json", store.folder / "stage.json")
    for read in (store.numbers, store.arrays):
        with pytest.raises(BadFileError, match=r"stage\.json: .* with other settings .* Delete it"):
            read("stage")


def test_a_lost_manifest_does_not_make_old_stages_new(tmp_path):
    run_in(tmp_path)
    (tmp_path / "manifest.json").unlink()
    store = Store.create(tmp_path, "driving", {"seed": 7, "levels": ["1-of-2"]})
    with pytest.raises(BadFileError, match="other settings"):
        store.numbers("stage")


def test_a_stage_outside_the_folder_is_refused(tmp_path):
    store = run_in(tmp_path / "own")
    run_in(tmp_path / "other")
    for use in (store.has, store.numbers, store.arrays, lambda name: store.save(name, {})):
        with pytest.raises(BadFileError, match="must be a plain file name"):
            use("../other/stage")


def test_of_two_that_start_at_once_one_decides(tmp_path):
    """Each of two runs with different settings either has the folder, with its own settings in it, or is refused."""
    for number in range(30):
        folder, together = tmp_path / str(number), threading.Barrier(2)
        outcomes: dict[int, str] = {}

        def start(seed: int, folder=folder, together=together, outcomes=outcomes) -> None:
            together.wait()
            try:
                outcomes[seed] = Store.create(folder, "driving", {"seed": seed}).manifest["settings"]["seed"]
            except CautiousError as error:
                outcomes[seed] = type(error).__name__

        threads = [threading.Thread(target=start, args=(seed,)) for seed in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winner = Store.open(folder).manifest["settings"]["seed"]
        assert outcomes[winner] == winner
        assert outcomes[1 - winner] in ("FolderInUseError", "BadFileError")


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch, number):
    store = run_in(tmp_path / "run")

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(WriteError, match="then run the same again"), store.locked():
        pass
    with pytest.raises(WriteError, match="then run the same again"):
        Store.create(tmp_path / "new", "driving", {})
    monkeypatch.undo()
    assert not (tmp_path / "new" / "manifest.json").exists()
    with store.locked():
        pass


def rewritten(folder, **changes) -> None:
    manifest = load_json(folder / "manifest.json")
    versions = {**manifest["versions"], **changes.pop("versions", {})}
    save_json(
        folder / "manifest.json",
        {**{k: v for k, v in manifest.items() if k != CHECKSUM}, **changes, "versions": versions},
    )


def test_a_run_of_another_version_is_not_gone_on_with(tmp_path, monkeypatch):
    run_in(tmp_path)
    rewritten(tmp_path, versions={"cautious": "0.9.0"})
    monkeypatch.setattr("cautious_paper.experiments.store.package_versions", lambda: {"cautious": "1.0.0"})
    with pytest.raises(BadFileError, match=r"version 0\.9\.0 of cautious began, and this is version 1\.0\.0"):
        run_in(tmp_path)
    assert Store.open(tmp_path).numbers("stage") == {"value": 0.5}  # to read it is no problem


def test_a_stage_says_what_made_it_where_that_is_not_what_began_the_run(tmp_path):
    store = run_in(tmp_path)
    assert store.provenance("stage") == {}
    rewritten(tmp_path, commit="deadbeef0000", versions={"torch": "1.13.0"})
    store = Store.create(tmp_path, "driving", {"seed": 0, "levels": ["1-of-2"]})
    store.save("later", {"value": 2})
    assert store.numbers("later") == {"value": 2}
    assert store.provenance("later") == {"commit": provenance()["commit"], "versions.torch": str(torch.__version__)}
    assert store.stages() == ["later", "stage"]


def test_a_manifest_says_where_data_came_from(tmp_path):
    Store.create(tmp_path, "driving", {}, {"digits, train": "embedded default"})
    again = Store.create(tmp_path, "driving", {}, {"digits, train": "given folder"})  # the same images, so the same run
    assert again.manifest["origins"] == {"digits, train": "embedded default"}


def test_a_stage_knows_what_made_its_pieces(tmp_path):
    store = run_in(tmp_path)
    store.parts("whole").save("piece", {"value": 1}, provenance={"commit": "deadbeef0000"})
    store.save("whole", {"value": 2})
    assert store.provenance("whole") == {"commit": "deadbeef0000"}
    assert store.made_by("whole") == {**store.made_by("stage"), "commit": "deadbeef0000"}


def test_what_else_lies_in_the_folder_is_no_stage(tmp_path):
    store = run_in(tmp_path)
    (tmp_path / "notes.json").write_text('["mine"]')
    (tmp_path / "more.json").write_text('{"format": 2, "mine": 1}')
    run_in(tmp_path / "other", seed=1).save("another", {"value": 1})
    shutil.copyfile(tmp_path / "other" / "another.json", tmp_path / "another.json")
    assert store.stages() == ["stage"]
