"""RewardEnsemble: predictions, streaming, files."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cautious import RewardEnsemble, solve_bandit
from cautious.beliefs.diagnostics import diagnose
from cautious.beliefs.fixed_shapes import rounds_alike
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.errors import BadFileError, InvalidInputError, MissingFileError
from cautious.io.arrays import load_json, save_json
from cautious_paper.networks import image_prediction
from cautious_paper.networks.image import ImageNetwork


def random_ensemble(num_models: int = 6, help_bit: bool = False) -> RewardEnsemble:
    network = ImageNetwork(11, help_bit)
    weights = np.stack([network.init(np.random.default_rng(i)) for i in range(num_models)])
    return RewardEnsemble(network, torch.from_numpy(weights).float(), torch.ones(num_models), {"seed": 0})


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (70, 28, 28)).astype(np.uint8)


def test_predictions_do_not_depend_on_which_models_are_asked_together(images, monkeypatch):
    belief = random_ensemble()
    whole = belief.rewards(images)
    assert whole.shape == (6, 70, 11)
    assert whole.dtype == torch.float32
    for indices in ([4], [5, 0, 3], [1, 2], [5, 4, 3, 2, 1, 0]):
        assert torch.equal(belief.on(images).rewards_for(indices), whole[indices])
    monkeypatch.setattr(ImageNetwork, "block", {"cpu": (5, 32)})
    torch.testing.assert_close(belief.rewards(torch.from_numpy(images)), whole, atol=2e-6, rtol=0)  # float32 rounding


@pytest.mark.parametrize("num_images", [1, 6, 33])
def test_predictions_do_not_depend_on_which_images_are_asked_together(images, num_images):
    belief = random_ensemble(18)
    whole = belief.rewards(images)
    assert torch.equal(belief.rewards(images[:num_images]), whole[:, :num_images])
    assert torch.equal(belief.rewards(images[-num_images:]), whole[:, -num_images:])


def test_solving_from_the_stream_is_solving_from_the_array(images):
    belief = random_ensemble(20)
    options = {"num_iterations": 5, "seed": 2}
    streamed = solve_bandit(belief.on(images), "1-of-10", **options)
    dense = solve_bandit(belief.rewards(images), "1-of-10", **options)
    torch.testing.assert_close(streamed.policy, dense.policy, atol=1e-12, rtol=0)  # float64 sums, other blocks
    assert belief.on(images).rewards_for([3, 1]).shape == (2, 70, 11)


def test_the_help_bit_is_one_value_or_one_an_image(images):
    belief = random_ensemble(3, help_bit=True)
    with_help, without = belief.rewards((images, True)), belief.rewards((images, False))
    assert not torch.equal(with_help, without)
    bits = np.arange(70) % 2
    mixed = belief.rewards((images, bits))
    assert torch.equal(mixed[:, bits == 1], with_help[:, bits == 1])
    assert torch.equal(mixed[:, bits == 0], without[:, bits == 0])
    with pytest.raises(InvalidInputError, match="help bit"):
        belief.rewards(images)
    with pytest.raises(InvalidInputError, match="S=70"):
        belief.rewards((images, [True, False]))


def test_it_says_what_is_wrong_with_states(images):
    belief = random_ensemble(2)
    with pytest.raises(InvalidInputError, match="uint8"):
        belief.rewards(images.astype(float))
    assert torch.equal(belief.rewards(images / 255), belief.rewards(images))
    with pytest.raises(InvalidInputError, match=r"\[S, 28, 28\]"):
        belief.rewards(images[:, :14])
    with pytest.raises(InvalidInputError, match=r"on\(states\)"):
        belief.rewards_for([0])


def test_what_is_saved_is_what_is_loaded(tmp_path, images):
    for help_bit in (False, True):
        belief = random_ensemble(3, help_bit)
        belief.save(tmp_path / str(help_bit))
        loaded = RewardEnsemble.load(tmp_path / str(help_bit))
        assert loaded.network == belief.network
        assert loaded.settings == {"seed": 0}
        assert torch.equal(loaded.parameters, belief.parameters)


def test_spoilt_files_are_refused(tmp_path):
    belief = random_ensemble(2)
    with pytest.raises(MissingFileError):
        RewardEnsemble.load(tmp_path / "nothing")
    for name, change, says in (
        ("network", {"network": "other"}, "network 'other' is not one"),
        ("format", {"format": 99}, "not an ensemble that this version reads"),
        ("actions", {"num_actions": 10}, "parameters have shape"),
        ("kind", {"num_actions": "11"}, "must be a count"),
        ("bit", {"help_bit": 1}, "a truth value"),
    ):
        belief.save(tmp_path / name)
        path = tmp_path / name / "ensemble.json"
        save_json(path, load_json(path) | change)
        with pytest.raises(BadFileError, match=says):
            RewardEnsemble.load(tmp_path / name)
    belief.save(tmp_path / "cut")
    (weights,) = (tmp_path / "cut").glob("models-*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(BadFileError, match="truncated"):
        RewardEnsemble.load(tmp_path / "cut")
    belief.parameters[0, 0] = torch.nan
    belief.save(tmp_path / "nan")
    with pytest.raises(BadFileError, match="finite"):
        RewardEnsemble.load(tmp_path / "nan")


def test_what_is_known_of_models_goes_with_them(images):
    belief = random_ensemble(3)
    belief.diagnosis = diagnose(torch.rand(3, 5, 2), torch.rand(5, 2), torch.rand(3, 4, 2))
    assert belief.to("cpu").diagnosis is belief.diagnosis
    assert belief.on(images).diagnosis is belief.diagnosis


def test_few_rows_are_predicted_by_short_calls_where_these_round_alike(monkeypatch):
    network = VectorNetwork((5,), 3)
    weights = np.stack([network.init(np.random.default_rng(model)) for model in range(20)])
    belief = RewardEnsemble(network, torch.from_numpy(weights).float())
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(70, 5)))
    whole = belief.rewards(rows)
    assert torch.equal(belief.rewards(rows[:3]), whole[:, :3])
    monkeypatch.setattr(RewardEnsemble, "_has_short_calls", False)
    assert torch.equal(belief.rewards(rows[:3]), whole[:, :3])
    monkeypatch.undo()
    belief.parameters.mul_(2)  # weights that were kept for single predictions are not used when they have changed
    assert torch.equal(belief.rewards(rows[:3]), belief.rewards(rows)[:, :3])
    assert not torch.equal(belief.rewards(rows[:3]), whole[:, :3])


def test_the_compiled_layer_has_the_bits_of_the_matrix_product_where_it_is_used(images, monkeypatch):
    belief = random_ensemble(18, help_bit=True)
    states = (images, np.arange(70) % 2)
    whole, alike = belief.rewards(states), image_prediction._compiled_rounds_alike()
    monkeypatch.setattr(image_prediction, "_compiled_rounds_alike", lambda: not alike)
    other = belief.rewards(states)
    assert torch.equal(whole, other) == alike
    torch.testing.assert_close(whole, other, atol=2e-6, rtol=0)  # float32 rounding


def test_calls_that_round_differently_are_found_out():
    rows = torch.rand(64, 4)
    assert rounds_alike(lambda part: 2 * part[None], rows, 8)
    assert not rounds_alike(lambda part: (part + 1e-7 * len(part))[None], rows, 8)
