"""Pictures as Gymnasium's environments show them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cautious import CautiousPolicy, InvalidInputError, RewardEnsemble, fit_ensemble
from cautious.beliefs.diagnostics import BeliefWarning
from cautious.tables.arrays import as_grey, picture_shape


def pictures(count: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Bright above or bright below, in colours."""
    rng, kind = np.random.default_rng(0), np.arange(count) % 2
    found = rng.integers(0, 60, (count, 56, 84, 3), dtype=np.uint8)
    found[kind == 0, :28] += 150
    found[kind == 1, 28:] += 150
    return found, np.eye(2)[kind]


def test_grey_by_hand():
    colours = np.zeros((2, 56, 56, 3), dtype=np.uint8)
    colours[0] = (255, 0, 0)
    colours[1, :2, :2] = [[(10, 20, 30), (50, 60, 70)], [(0, 0, 0), (0, 0, 0)]]
    grey = as_grey(colours)
    assert grey.shape == (2, 28, 28)
    assert grey[0].unique().tolist() == [round(0.299 * 255)]
    parts = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b in ((10, 20, 30), (50, 60, 70))]
    assert grey[1, 0, 0] == round(sum(parts) / 4)
    assert grey[1].count_nonzero() == 1
    assert torch.equal(as_grey(np.moveaxis(colours, 3, 1)), grey)
    small = np.arange(28 * 28, dtype=np.uint8).reshape(1, 28, 28, 1)
    assert torch.equal(as_grey(small), torch.from_numpy(small[..., 0]))


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((5, 84, 84, 3), np.uint8, (84, 84, 3)),
        ((5, 3, 84, 96), np.uint8, (84, 96, 3)),
        ((5, 210, 160, 1), np.uint8, (210, 160, 1)),
        ((5, 64, 64), np.uint8, (64, 64, 1)),
        ((5, 7, 7, 3), np.uint8, None),  # MiniGrid's codes
        ((5, 84, 84, 3), np.float32, None),
        ((5, 300), np.uint8, None),
        ((5, 20, 20, 20), np.uint8, None),
    ],
)
def test_what_is_a_picture(shape, dtype, expected):
    assert picture_shape(np.zeros(shape, dtype)) == expected


def test_pictures_are_learned_as_images_and_not_as_vectors(tmp_path):
    found, rewards = pictures()
    with pytest.warns(BeliefWarning, match=r"pictures \[56, 84, 3\] are learned from in grey, 28 x 28"):
        belief = fit_ensemble(
            found, rewards, num_models=4, num_epochs=40, batch_size=8, validation_fraction=0, progress=False
        )
    assert belief.network.name == "image"
    belief.save(tmp_path)
    belief = RewardEnsemble.load(tmp_path)
    assert belief.observation_shape == (56, 84, 3)
    assert torch.equal(belief.rewards(found[:4]), belief.rewards(as_grey(found[:4])))
    policy = CautiousPolicy(belief, "1-of-4")
    decision = policy.decide(found)
    assert decision.action.tolist() == [0, 1] * 12
    assert policy.predict(found[1])[0] == 1
    assert policy.predict(found[:2])[0].tolist() == [0, 1]
    assert policy.predict(np.moveaxis(found[1], 2, 0))[0] == 1
    with pytest.raises(InvalidInputError, match=r"pictures \[50, 84, 3\]; those of the training were \[56, 84, 3\]"):
        policy.decide(found[:, :50])


def test_a_grey_image_may_have_its_one_channel():
    policy = CautiousPolicy(RewardEnsemble.load("ask-for-help"), "1-of-20")
    image = np.zeros((28, 28), dtype=np.uint8)
    assert policy.predict(image[..., None]) == policy.predict(image)
    assert torch.equal(policy.decide(image[None, ..., None]).probabilities, policy.decide(image[None]).probabilities)


def test_channels_that_are_no_colours_are_refused():
    with pytest.raises(InvalidInputError, match="4 channels: transparency, or frames of a film"):
        fit_ensemble(np.zeros((8, 84, 84, 4), np.uint8), np.zeros((8, 2)))
    flat = fit_ensemble(
        np.random.default_rng(0).integers(0, 9, (20, 16, 16, 4), dtype=np.uint8),
        np.random.default_rng(1).random((20, 2)),
        network="vector",
        num_models=2,
        num_epochs=1,
        validation_fraction=0,
        progress=False,
    )
    assert flat.state_shape == (16, 16, 4)
