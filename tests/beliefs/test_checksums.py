"""Damaged and exchanged files are refused; files without checksums are taken."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import save_file

from cautious import CautiousPolicy, RewardEnsemble, TabularMDP
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.errors import BadFileError, CautiousError
from cautious.io.arrays import checksum_of, load_json, load_tensors, save_json, save_tensors
from cautious_paper.beliefs import SHIPPED

TENSORS = {"weights": torch.arange(6.0).reshape(2, 3), "none": torch.zeros(0, 2), "one": torch.tensor(7)}
STAMP = re.compile("-[0-9a-f]{16}")
CONTENT = {"level": "1-of-20", "numbers": [1, 2.5, None, -0.0, 1e-300], "nested": {"ä": True, "3": 3}}


def same(found: dict[str, torch.Tensor]) -> bool:
    return found.keys() == TENSORS.keys() and all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)


def test_no_flipped_bit_changes_what_is_read(tmp_path):
    path = tmp_path / "x"
    for save, load, is_same in (
        (lambda: save_tensors(path, TENSORS), load_tensors, same),
        (lambda: save_json(path, CONTENT), load_json, lambda found: found == CONTENT),
    ):
        save()
        content = path.read_bytes()
        refused = 0
        for place in range(len(content)):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
            try:
                assert is_same(load(path)), place
            except BadFileError:
                refused += 1
        assert refused > 0.9 * len(content)  # the rest is blanks between entries


def test_json_is_the_same_however_it_is_laid_out(tmp_path):
    path = tmp_path / "x.json"
    save_json(path, CONTENT | {"tuple": (1, 2)})
    expected = CONTENT | {"tuple": [1, 2]}
    found = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(found, sort_keys=True).replace(",", ",\r\n"), encoding="utf-8")
    assert load_json(path) == expected
    path.write_text(json.dumps(found | {"level": "2-of-20"}))
    with pytest.raises(BadFileError, match=r"x\.json: damaged, or changed since .* does not fit"):
        load_json(path)
    del found["checksum"]
    path.write_text(json.dumps(found | {"level": "2-of-20"}))
    assert load_json(path) == expected | {"level": "2-of-20"}


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": 1, "a": 2}', "[" * 10**5])
def test_json_that_means_nothing_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(BadFileError, match=r"x\.json: not a complete JSON file"):
        load_json(tmp_path / "x.json")


def test_a_number_too_long_to_read_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"a": ' + "9" * 5000 + "}")
    with pytest.raises(BadFileError, match="not a complete JSON file"):
        load_json(tmp_path / "x.json")


def test_other_peoples_files_are_taken(tmp_path):
    foreign = {"checksum": "mine", "digest": "sha256:" + "0" * 64, "note": "a" * 80}
    for metadata in (None, {"format": "pt"}, foreign):
        save_file(TENSORS, tmp_path / "x.safetensors", metadata)
        assert same(load_tensors(tmp_path / "x.safetensors"))


def ensemble(seed: int) -> RewardEnsemble:
    weights = torch.randn(3, VectorNetwork((2,), 2).num_parameters, generator=torch.Generator().manual_seed(seed))
    return RewardEnsemble(VectorNetwork((2,), 2), weights, torch.ones(3), {"seed": seed})


def policy(kind: str, seed: int) -> CautiousPolicy:
    if kind == "ensemble":
        return CautiousPolicy(ensemble(seed), "1-of-3")
    rewards = torch.rand(3, 2, 2, generator=torch.Generator().manual_seed(seed))
    mdp = TabularMDP(torch.full((2, 2, 2), 0.5), [0.5, 0.5], 0.5 + 0.1 * seed)
    return CautiousPolicy(rewards, "1-of-3", mdp=mdp, num_iterations=3)


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("ensemble", ["belief*/ensemble.json", "belief*/models*.safetensors"]),
        ("mdp", ["belief*.safetensors", "mdp*.safetensors"]),
    ],
)
def test_a_file_from_another_save_is_refused(tmp_path, kind, files):
    for seed in (1, 2):
        policy(kind, seed).save(tmp_path / str(seed))
    for name in files:
        own = tmp_path / "mixed"
        shutil.copytree(tmp_path / "1", own)
        shutil.copyfile(*(next(folder.glob(name)) for folder in (tmp_path / "2", own)))
        with pytest.raises(BadFileError, match=r"not the file that was saved with the others"):
            CautiousPolicy.load(own)
        shutil.rmtree(own)
    CautiousPolicy.load(tmp_path / "1")


def plain_names(folder):
    """As earlier versions named them; and in a JSON file that lists them, under its new checksum."""
    for path in sorted(folder.rglob("*-*"), reverse=True):  # what is in a folder before the folder
        path.rename(path.with_name(STAMP.sub("", path.name)))
    for path in sorted(folder.rglob("*.json")):  # the policy's after the ensemble's
        content = load_json(path)
        if "files" in content:
            files = {STAMP.sub("", name): value for name, value in content.pop("files").items()}
            for name in files:
                if name.endswith(".json"):
                    files[name] = checksum_of(load_json(folder / name))
            save_json(path, content, files)


@pytest.mark.parametrize("kind", ["ensemble", "mdp"])
def test_files_without_checksums_are_refused(tmp_path, kind):
    policy(kind, 1).save(tmp_path)
    for path in tmp_path.rglob("*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({name: content[name] for name in content if name not in ("checksum", "files")}))
    with pytest.raises(BadFileError, match="its checksum is gone"):
        CautiousPolicy.load(tmp_path)


def test_the_shipped_beliefs_are_checked(tmp_path):
    for name in ("ask-for-help", "driving"):
        own = shutil.copytree(SHIPPED / name, tmp_path / name)
        RewardEnsemble.load(own)
        content = bytearray((own / "models.safetensors").read_bytes())
        content[-3] ^= 1
        (own / "models.safetensors").write_bytes(content)
        with pytest.raises(CautiousError, match="not the file that was saved with the others"):
            RewardEnsemble.load(own)
