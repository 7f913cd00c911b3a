"""How long training takes is said beforehand, and what would shorten it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cautious import fit_ensemble
from cautious.beliefs.fit import VectorLearner
from cautious.beliefs.training import estimate
from cautious.beliefs.training.estimate import LongTrainingWarning, advice, is_large, training_seconds
from cautious.beliefs.training.loop import TrainingJob
from cautious.beliefs.training.state import TrainingSettings
from cautious.cli.main import main


def job(num_rows: int, num_epochs: int, batch_size: int = 64) -> TrainingJob:
    rng = np.random.default_rng(0)
    states, rewards = (torch.from_numpy(rng.normal(size=(num_rows, size))) for size in (6, 3))
    problem = VectorLearner().problem(states, rewards, None, each_action=False)
    return TrainingJob(problem, TrainingSettings(32, num_epochs, batch_size, 0.01), torch.device("cpu"))


def test_the_estimate_by_hand(monkeypatch):
    """By a clock on which every step takes a second, and shuffling 20,000 samples another one."""
    clock = itertools.count()
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    one_shard = job(40_000, 6)
    one_shard = one_shard._replace(settings=replace(one_shard.settings, num_models=16))
    assert training_seconds(one_shard) == 6 * (40_000 / 64 + 2)


def test_what_takes_long_is_said_with_ways_to_shorten_it(monkeypatch):
    assert not is_large(job(2000, 6))
    assert is_large(job(100_000, 50))
    assert advice(job(2000, 6)) is None
    monkeypatch.setattr(estimate, "LONG", 0.0)
    sentence = advice(job(100_000, 50))
    assert "100,000 rows x 32 models x 50 epochs, batches of 64" in sentence
    assert "num_epochs=5 (about" in sentence
    assert "sample of the rows" in sentence


def test_larger_batches_are_suggested_where_they_help(monkeypatch):
    for share, suggested in ((0.5, True), (0.9, False)):
        times = {64: 7200.0, 128: 7200.0 * share}
        monkeypatch.setattr(estimate, "training_seconds", lambda job, times=times: times[job.settings.batch_size])
        assert ("batch_size=128 (about 60 min)" in advice(job(100_000, 50))) == suggested


def test_a_user_is_told_before_the_training(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(estimate, "LONG", 0.0)
    monkeypatch.setattr(estimate, "MANY_SAMPLES", 1)
    rng = np.random.default_rng(0)
    states, rewards = rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    with pytest.warns(LongTrainingWarning, match="training will take about"):
        fit_ensemble(states, rewards, num_models=4, num_epochs=2, validation_fraction=0)
    np.savez(tmp_path / "data.npz", inputs=states, rewards=rewards)
    main(
        ["train", str(tmp_path / "data.npz"), "--num-models", "4", "--num-epochs", "2", "--out", str(tmp_path / "out")]
    )
    printed = capsys.readouterr().out
    assert printed.index("warning: training will take about") < printed.index("4 models of 2 actions")
