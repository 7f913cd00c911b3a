"""Beliefs that come with the package: they load, and are what they claim."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cautious import CautiousPolicy, RewardEnsemble, driving_world
from cautious.errors import InvalidInputError, MissingFileError
from cautious_paper.beliefs import SHIPPED
from cautious_paper.experiments.demos.first_decisions import LEVELS, first_decisions
from cautious_paper.worlds.data import load_images
from cautious_paper.worlds.data.find import EMBEDDED


def test_the_image_belief_knows_digits():
    belief = RewardEnsemble.load("ask-for-help")
    assert (belief.num_models, belief.num_actions) == (100, 11)
    digits = load_images("digits", data=EMBEDDED)
    rewards = belief.rewards(digits.images[:100])
    right = (rewards.mean(dim=0).argmax(dim=1) == digits.labels[:100]).double().mean()
    assert float(right) >= 0.97  # the paper's networks together label 99.4 % correctly
    assert float((rewards[..., 10] - 0.25).abs().mean()) < 0.02


def test_it_knows_how_far_it_differs_on_digits():
    policy = CautiousPolicy(RewardEnsemble.load("ask-for-help"), "20-of-20")
    digits, clothes = (load_images(name, data=EMBEDDED).images for name in ("digits", "fashion"))
    above = [
        float((policy.decide(images).disagreement > 1).double().mean()) for images in (digits[200:400], clothes[:200])
    ]
    assert above[0] < 0.12
    assert above[1] > 0.8


def test_caution_at_a_first_look():
    familiar, novel = first_decisions(num_images=60)
    assert familiar.correct[0] > 0.9
    assert familiar.help[0] < 0.1
    assert novel.correct is None
    assert novel.help == sorted(novel.help, reverse=True)
    assert novel.help[0] > 0.7
    assert novel.help[-1] < 0.2
    assert len(novel.help) == len(LEVELS)


def test_the_driving_belief_knows_the_familiar_road():
    belief = RewardEnsemble.load("driving")
    assert (belief.num_models, belief.num_actions) == (128, 5)
    world = driving_world(novel=False)
    errors = belief.rewards(world).mean(dim=0) - world.features["reward"]
    assert float(errors.abs().max()) < 0.1  # half precision on disk: three digits
    few = belief.on(world).rewards_for([5, 2])
    torch.testing.assert_close(few, belief.rewards(world)[[5, 2]], atol=1e-5, rtol=0)
    with pytest.raises(InvalidInputError, match=r"on\(world\)"):
        belief.rewards_for([0])


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ask-for-help").mkdir()
    with pytest.raises(MissingFileError, match=r"contains no belief .* rename the folder"):
        RewardEnsemble.load("ask-for-help")  # another in its place would pass for what was to be there
    assert first_decisions(num_images=2)  # the package itself knows which one it means
    first = RewardEnsemble.load(SHIPPED / "ask-for-help")
    RewardEnsemble(first.network, first.parameters[:2]).save("ask-for-help")
    assert RewardEnsemble.load("ask-for-help").num_models == 2
    with pytest.raises(MissingFileError):
        RewardEnsemble.load("no-such-belief")


def test_they_are_small_enough_to_ship():
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) < 10_000_000
