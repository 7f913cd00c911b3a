"""A save over another: old or new, whatever comes between, and nothing of the old is left in the end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from test_checksums import ensemble, plain_names, policy

from cautious import CautiousPolicy, RewardEnsemble
from cautious.errors import BadFileError, WriteError
from cautious.io import arrays as files
from cautious.io.content_names import name_in

SAVES = {
    "belief": (ensemble, RewardEnsemble.load, lambda found: found.parameters),
    "policy of a belief": (lambda seed: policy("ensemble", seed), CautiousPolicy.load, lambda p: p.belief.parameters),
    "policy in a world": (lambda seed: policy("mdp", seed), CautiousPolicy.load, lambda p: p.belief.table),
}


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("kind", SAVES)
@pytest.mark.parametrize("old_form", [False, True])
def test_a_kill_between_any_two_steps_leaves_the_old_or_the_new(tmp_path, monkeypatch, kind, old_form):
    make, load, content = SAVES[kind]
    folder, taken = tmp_path / "own", []
    make(1).save(folder)
    if old_form:
        plain_names(folder)
        assert not any("-" in name for name in names(folder))

    def watched(call):
        def take_and_call(*arguments, **options):
            taken.append(shutil.copytree(folder, tmp_path / f"at step {len(taken)}"))
            result = call(*arguments, **options)
            taken.append(shutil.copytree(folder, tmp_path / f"at step {len(taken)}"))
            return result

        return take_and_call

    with monkeypatch.context() as patch:
        patch.setattr(files, "atomic_write", watched(files.atomic_write))
        patch.setattr(shutil, "rmtree", watched(shutil.rmtree))
        patch.setattr(Path, "unlink", watched(Path.unlink))
        make(2).save(folder)
    old, new = (content(make(seed)) for seed in (1, 2))
    found = [content(load(place)) for place in taken]
    assert len(found) > 6
    which = [torch.equal(one, new) for one in found]
    assert all(fresh or torch.equal(one, old) for fresh, one in zip(which, found, strict=True))
    assert which == sorted(which)
    make(2).save(tmp_path / "fresh")
    assert names(folder) == names(tmp_path / "fresh")


@pytest.mark.parametrize("old_form", [False, True])
def test_a_policy_of_another_kind_takes_the_place(tmp_path, old_form):
    for kind in ("mdp", "ensemble", "mdp"):
        policy(kind, 1).save(tmp_path / "own")
        policy(kind, 1).save(tmp_path / kind)
        assert names(tmp_path / "own") == names(tmp_path / kind)
        CautiousPolicy.load(tmp_path / "own")
        if old_form:
            plain_names(tmp_path / "own")


def test_a_save_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    ensemble(1).save(tmp_path)
    before = names(tmp_path)

    def refuse(*_, **__):
        raise WriteError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("cautious.io.content_names.save_json", refuse)
        with pytest.raises(WriteError):
            ensemble(2).save(tmp_path)
    assert names(tmp_path) == before
    assert torch.equal(RewardEnsemble.load(tmp_path).parameters, ensemble(1).parameters)


def test_the_old_form_is_read(tmp_path):
    for kind, (make, load, content) in SAVES.items():
        make(1).save(tmp_path / kind)
        plain_names(tmp_path / kind)
        assert torch.equal(content(load(tmp_path / kind)), content(make(1)))


def test_only_files_beside_the_description_are_named():
    for wrong in ("../models.safetensors", "models-0123.safetensors", "models-0123456789abcdef.safetensors/x"):
        assert name_in({"files": {wrong: ""}}, "models.safetensors") == "models.safetensors"
    assert name_in({"files": ["models-0123456789abcdef.safetensors"]}, "models.safetensors") == "models.safetensors"


def test_a_file_that_is_gone_is_named(tmp_path):
    ensemble(1).save(tmp_path)
    (weights,) = tmp_path.glob("models-*")
    weights.write_bytes(b"")
    with pytest.raises(BadFileError, match=weights.name):
        RewardEnsemble.load(tmp_path)
