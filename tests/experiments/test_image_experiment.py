"""The image experiments: settings, pipeline, store, going on after an interruption."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from cautious import RewardEnsemble, solve_bandit
from cautious.beliefs.training.state import TrainingSettings
from cautious.errors import BadFileError, InvalidInputError, MissingFileError
from cautious_paper.evaluation.image_behaviour import behaviour
from cautious_paper.experiments.images import image_experiment
from cautious_paper.experiments.images.image_experiment import load_data, run_images, stages_of, training_problem
from cautious_paper.experiments.images.settings import (
    SCALES,
    SETTINGS,
    EnsembleVariant,
    ImageExperiment,
    Setting,
    image_experiment_at,
)
from cautious_paper.worlds.data import ImageSet, load_images
from cautious_paper.worlds.data.find import EMBEDDED
from cautious_paper.worlds.image_tasks import TASKS, RewardUnit, ask_for_help_rewards

FULL_DATA = os.environ.get("CAUTIOUS_DATA")

TRAINING = TrainingSettings(num_models=20, num_epochs=1, batch_size=20, learning_rate=1e-3)
TINY = ImageExperiment(
    "ask-for-help",
    (EnsembleVariant("help-0.25", TRAINING, help_reward=0.25), EnsembleVariant("help-0.5", TRAINING, help_reward=0.5)),
    num_iterations=4,
    num_runs=2,
    num_train=60,
    num_test=20,
    num_dial_images=10,
    num_parts=2,
    curve_sizes=(20,),
)


@pytest.fixture(autouse=True)
def _embedded_data_only(monkeypatch, tmp_path):
    monkeypatch.delenv("CAUTIOUS_DATA", raising=False)
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))


def test_the_papers_settings_are_the_papers():
    for task in TASKS:
        experiment = image_experiment_at(task, "paper")
        assert experiment.levels == ("1-of-20", "1-of-10", "5-of-10", "10-of-10")
        assert (experiment.num_iterations, experiment.num_runs) == (100, 10)
        assert (experiment.num_train, experiment.num_test) == (None, None)
        for variant in experiment.variants:
            assert (variant.training.num_models, variant.training.learning_rate) == (2000, 0.0016)
            assert variant.training.weight_decay == 0
    table = {  # the paper's table of batch sizes and epochs
        variant.fraction: (variant.training.batch_size, variant.training.num_epochs, variant.noise)
        for variant in image_experiment_at("data-extent", "paper").variants
    }
    assert table == {0.01: (64, 10_000, 0.1), 0.1: (128, 1000, 0.1), 1.0: (512, 100, 0.1)}
    for task, rewards in {"ask-for-help": {0.1, 0.25, 0.5}, "help-if-available": {0.02, 0.05, 0.2}}.items():
        variants = image_experiment_at(task, "paper").variants
        assert {variant.help_reward for variant in variants} == rewards
        assert all((variant.training.batch_size, variant.training.num_epochs) == (512, 100) for variant in variants)


@pytest.mark.parametrize("scale", SCALES)
def test_every_preset_builds_and_has_models_enough(scale: str):
    for task in TASKS:
        experiment = image_experiment_at(task, scale, seed=3)
        most = max(level.n for level in experiment.parsed_levels)
        assert all(variant.training.num_models >= most for variant in experiment.variants)
        assert all(variant.training.seed == 3 for variant in experiment.variants)
        images = load_data(replace(experiment, num_train=60, num_test=20))
        names = [stage.name for variant in experiment.variants for stage in stages_of(experiment, variant, images)]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("scale", SCALES)
def test_rewards_are_in_tenths_unless_asked_for_as_printed(scale: str):
    for task in ("non-obvious", "help-if-available"):
        main, printed = (image_experiment_at(task, scale, setting=setting) for setting in SETTINGS[task])
        assert {one.unit for one in main.variants} == {RewardUnit.TENTHS}
        assert printed == replace(
            main, variants=tuple(replace(one, unit=RewardUnit.AS_PRINTED) for one in main.variants)
        )
        assert all(one["unit"] == "tenths" for one in main.as_settings()["variants"].values())
    assert {one.unit for one in image_experiment_at("ask-for-help", scale).variants} == {RewardUnit.AS_PRINTED}


def test_the_printed_rewards_are_the_settings_of_earlier_runs():
    """Their manifests have no unit: such a run can be gone on with, and published beside."""
    settings = image_experiment_at("help-if-available", "paper", setting="as-printed").as_settings()
    assert list(settings["variants"]) == ["help-0.05", "help-0.02", "help-0.2"]
    assert set(settings["variants"]["help-0.05"]) == {"training", "help_reward", "fraction", "noise"}


@pytest.mark.parametrize("scale", SCALES)
def test_draws_are_of_different_digits_and_have_no_other_study(scale: str):
    experiment = image_experiment_at("data-extent", scale, seed=3, setting="draws")
    assert [one.name for one in experiment.variants] == [f"extent-1-draw-{number}" for number in range(6)]
    assert [one.training.seed for one in experiment.variants] == [3, 4, 5, 6, 7, 8]
    assert {(one.fraction, one.noise, one.help_reward) for one in experiment.variants} == {(0.01, 0.1, 0.25)}
    digits = load_images("digits", "train")
    lessons = [training_problem(experiment, one, digits)._rewards[0] for one in experiment.variants[:2]]
    assert not torch.equal(*lessons)
    images = load_data(replace(experiment, num_train=60, num_test=20))
    assert {stage.study for stage in stages_of(experiment, experiment.main, images)} == {"behaviour"}
    if scale == "paper":
        one = experiment.main.training
        assert (one.num_models, one.num_epochs, one.batch_size) == (250, 10_000, 64)


def test_a_setting_must_be_the_tasks_own():
    with pytest.raises(InvalidInputError, match=r"not a setting of ask-for-help; choose one of 'main'"):
        image_experiment_at("ask-for-help", "smoke", setting=Setting.AS_PRINTED)
    with pytest.raises(InvalidInputError, match="'main', 'as-printed', 'draws'"):
        image_experiment_at("ask-for-help", "smoke", setting="scaled")


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="'smoke', 'small', 'paper'"):
        image_experiment_at("ask-for-help", "large")
    with pytest.raises(InvalidInputError, match="'ask-for-help'"):
        image_experiment_at("driving", "smoke")
    with pytest.raises(InvalidInputError, match=r"help-0.25, help-0.5"):
        run_images(TINY, tmp_path, only=["help-1"])


def test_a_variant_trains_on_what_it_says():
    digits = load_images("digits", "train")
    problem = training_problem(TINY, TINY.variants[1], digits)
    assert torch.equal(problem._rewards[0], ask_for_help_rewards(digits.labels, 0.5).float())
    extent = image_experiment_at("data-extent", "small")
    for variant in extent.variants:
        problem = training_problem(extent, variant, digits)
        assert problem.num_samples == round(6000 * variant.fraction)
        noise = problem._rewards[0][:, 10].double() - 0.25
        assert 0.05 < float(noise.std()) < 0.15
    bits = image_experiment_at("help-if-available", "small")
    problem = training_problem(bits, bits.main, digits)
    assert problem.network.help_bit
    assert problem._rewards[:, 0, 10].tolist() == pytest.approx([-11 / 90, 0.05])
    assert float(problem._rewards[:, :, :10].max()) == pytest.approx(1)
    printed = image_experiment_at("help-if-available", "small", setting="as-printed")
    problem = training_problem(printed, printed.main, digits)
    assert problem._rewards[:, 0, 10].tolist() == pytest.approx([-11 / 9, 0.05])
    assert float(problem._rewards[:, :, :10].max()) == pytest.approx(10)


def test_the_store_holds_what_solving_by_hand_gives(tmp_path):
    store = run_images(TINY, tmp_path)
    numbers, arrays = store.numbers("help-0.25-fashion"), store.arrays("help-0.25-fashion")
    images = load_data(TINY).tests["fashion"]
    rewards = RewardEnsemble.load(tmp_path / "belief-help-0.25").rewards(images.images)
    for regime in ("all-states", "single-state"):
        solution = solve_bandit(rewards, TINY.levels, regime=regime, num_iterations=4, num_runs=2, track_exact=False)
        expected = behaviour(solution.policy, 10)
        for name, values in expected.items():
            assert numbers["behaviour"][regime][name] == values.tolist()
        assert torch.equal(arrays[f"{regime}-actions"], solution.policy.mean(dim=2))
        assert arrays[f"{regime}-sampled_value"].shape == (4, 2, 4)
        assert arrays[f"{regime}-by_label"].shape == (4, 10, 11)
    asks = (rewards.argmax(dim=2) == 10).double().mean(dim=1)  # [M]
    assert numbers["optim"]["help_share"]["mean"] == pytest.approx(float(asks.mean()))
    assert torch.allclose(arrays["optim-help_share"], asks, rtol=0, atol=1e-7)  # means of 20 in float32 and float64
    assert float(arrays["optim-actions"].sum()) == pytest.approx(1)
    dial = store.numbers("help-0.25-fashion-dial")
    assert dial["levels"] == [f"{k}-of-20" for k in range(1, 21)]
    assert all(gap >= 0 for regime in dial["gap"].values() for gap in regime)
    curve = store.numbers("help-0.25-fashion-models")
    assert curve["sizes"] == [20]
    assert not store.has("help-0.5-fashion-dial")
    assert not (tmp_path / "belief-help-0.25-checkpoints").exists()


def test_interrupted_anywhere_it_goes_on_and_ends_with_the_same_numbers(tmp_path):
    trained = tuple(replace(one, training=replace(one.training, num_epochs=3)) for one in TINY.variants)
    experiment = replace(TINY, variants=trained)
    whole = run_images(experiment, tmp_path / "whole")
    calls, stopped = 0, 0

    class Stop(Exception):
        pass

    def stop_at(number: int):
        def tell(what: str, done: int, total: int) -> None:
            nonlocal calls
            calls += 1
            if calls == number:
                raise Stop

        return tell

    for number in (1, 7, 12, 30, 60, 90):
        calls = 0
        try:
            run_images(experiment, tmp_path / "pieces", progress=stop_at(number))
        except Stop:
            stopped += 1
    assert stopped >= 4  # in the middle of training, predicting and solving
    pieces = run_images(experiment, tmp_path / "pieces")
    assert pieces.numbers("belief-help-0.25")["resumed"] is True
    stages = sorted(path.stem for path in (tmp_path / "whole").glob("*.json") if path.stem != "manifest")
    assert stages == sorted(path.stem for path in (tmp_path / "pieces").glob("*.json") if path.stem != "manifest")
    for stage in stages:
        if stage.startswith("belief"):
            assert torch.equal(*(s.arrays(stage)["losses"] for s in (whole, pieces)))
            continue
        assert whole.numbers(stage)["behaviour"] == pieces.numbers(stage)["behaviour"]


def test_variants_can_be_run_one_by_one(tmp_path):
    store = run_images(TINY, tmp_path, only=["help-0.5"])
    assert store.has("help-0.5-digits")
    assert not store.has("help-0.25-digits")


def test_other_settings_or_data_are_another_run(tmp_path):
    run_images(TINY, tmp_path, only=["help-0.5"])
    with pytest.raises(BadFileError, match="num_runs: 2 there, 3 here"):
        run_images(replace(TINY, num_runs=3), tmp_path)
    with pytest.raises(BadFileError, match=r"data.digits, train: .*60 images.*50 images"):
        run_images(replace(TINY, num_train=50), tmp_path)


@pytest.mark.skipif(FULL_DATA is None, reason="CAUTIOUS_DATA names no folder with the full data")
def test_letters_take_part_where_they_are_at_hand(tmp_path):
    folder = FULL_DATA
    data = load_data(image_experiment_at("ask-for-help", "paper"), folder)
    assert len(data.train) == 60_000
    assert {name: len(images) for name, images in data.tests.items()} == {
        "digits": 10_000,
        "fashion": 10_000,
        "letters": len(load_images("letters", data=folder)),
    }
    store = run_images(replace(TINY, variants=TINY.variants[:1]), tmp_path, data=folder)
    assert store.arrays("help-0.25-letters")["single-state-by_label"].shape == (4, 26, 11)


def test_networks_that_only_ever_ask_for_help_have_no_index():
    rewards = torch.zeros(20, 20, 11)
    rewards[..., 10] = 1
    numbers, _ = image_experiment.behaviour_study(TINY, rewards, load_data(TINY).tests["fashion"], None)
    assert numbers["optim"]["index"] == {"mean": None, "half_width": None}
    assert numbers["optim"]["help_share"]["mean"] == 1


def test_the_papers_scale_is_not_run_on_the_embedded_cut(tmp_path):
    with pytest.raises(MissingFileError, match="cautious data fetch"):
        run_images(image_experiment_at("ask-for-help", "paper"), tmp_path)


def test_the_same_data_from_elsewhere_is_the_same_run(tmp_path, monkeypatch):
    run_images(TINY, tmp_path, only=["help-0.5"])
    monkeypatch.setenv("CAUTIOUS_DATA", str(EMBEDDED))
    assert run_images(TINY, tmp_path, only=["help-0.5"]).has("help-0.5-fashion")


def test_levels_solved_one_at_a_time_have_the_same_bits(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    rewards = torch.rand(24, 30, 11, generator=generator)
    pictures = torch.zeros(30, 28, 28, dtype=torch.uint8)
    images = ImageSet("digits", "test", pictures, torch.arange(30) % 10, "made up")
    experiment = image_experiment_at("ask-for-help", "smoke")
    together, arrays = image_experiment.behaviour_study(experiment, rewards, images, None)
    monkeypatch.setattr(image_experiment, "SOLVED_ENTRIES", 0)
    told = []
    apart, others = image_experiment.behaviour_study(
        experiment, rewards, images, lambda done, total: told.append((done, total))
    )
    assert together["behaviour"] == apart["behaviour"]
    assert together["reshuffles"] == apart["reshuffles"]
    assert arrays.keys() == others.keys()
    assert all(torch.equal(arrays[name].nan_to_num(-1), others[name].nan_to_num(-1)) for name in arrays)
    assert told[-1][0] == told[-1][1]
