"""The plain ways find what ours find; measuring and estimating make sense."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cautious import CautiousPolicy
from cautious.cli.main import main
from cautious_paper.cli.bench import brief
from cautious_paper.experiments.driving.driving_experiment import experiment_at
from cautious_paper.experiments.images.settings import image_experiment_at
from cautious_paper.timing import machine, measures
from cautious_paper.timing.machine import Rates, driving_seconds, image_seconds
from cautious_paper.timing.plain import plain_decisions

RATES = Rates(1e-3, {32: 1e-4, 512: 2e-4}, 1e-5)


def test_the_plain_way_decides_as_we_do():
    """An independent implementation: plain modules, numpy, loops."""
    twice = measures.vector_belief(num_models=24, num_actions=4)
    decision = CautiousPolicy(twice.belief, measures.LEVEL).decide(twice.states[:6])
    ours = decision.probabilities
    plain = plain_decisions(twice.networks, twice.inputs[:6], measures.LEVEL, 200)
    rewards = twice.belief.rewards(twice.states[:6]).double()
    values = [measures.LEVEL.value((rewards * policy).sum(dim=-1).T) for policy in (ours, torch.from_numpy(plain))]
    reach = rewards.amax(dim=(0, 2)) - rewards.amin(dim=(0, 2))
    # No policy is better than ours by more than its gap; 1e-6 is what float32 predictions of plain modules may add.
    assert bool((values[1] <= values[0] + decision.gap + 1e-6 * reach).all())
    assert bool((values[1] >= values[0] - 5e-3 * reach).all())  # nor is the loop's far from ours after 200 iterations
    assert bool((decision.gap <= 2e-3 * reach).all())
    assert np.abs(plain - ours.numpy()).max() < 0.05
    images = measures.image_belief()
    said = torch.stack([network(images.inputs[:2]) for network in images.networks]).detach()
    torch.testing.assert_close(said, images.belief.rewards(images.states[:2]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "measure",
    [
        lambda: measures.driving_training(2, 1, 1, "cpu"),
        lambda: measures.image_training(8, 16, 2, "cpu"),
        lambda: measures.driving_solving(24, 2, 1),
        lambda: measures.state_solving(5, 40, 2, 1),
        lambda: measures.deciding(measures.vector_belief(20), 2, 1),
    ],
)
def test_each_measure_times_both_ways(measure):
    found = measure()
    assert found.plain > 0
    assert found.ours > 0
    assert found.ratio == pytest.approx(found.plain / found.ours)


def test_estimates_grow_with_what_is_asked():
    device = torch.device("cpu")
    smoke = image_experiment_at("non-obvious", "smoke")
    training = smoke.main.training
    longer = replace(smoke, variants=(replace(smoke.main, training=replace(training, num_epochs=101)),))
    gained = image_seconds(longer, RATES, device) - image_seconds(smoke, RATES, device)
    assert gained == pytest.approx(100 * 20 * 200 * 1e-4, rel=0.2)  # epochs, models, images, seconds each
    assert RATES.step(64) == 1e-4
    assert RATES.step(500) == 2e-4
    drive = experiment_at("smoke")
    epochs = replace(drive, training=replace(drive.training, num_epochs=10_030))
    assert driving_seconds(epochs, RATES) - driving_seconds(drive, RATES) == pytest.approx(24 * 10_000 * 1e-3, rel=0.1)


def test_the_verb_prints_both_tables(monkeypatch, capsys):
    found = machine.Machine(
        [measures.Comparison("work", "a loop", 2.0, 0.004)], {"driving": {"smoke": 9.0, "small": 700.0, "paper": 2e6}}
    )
    monkeypatch.setattr(machine, "measure_machine", lambda device, progress: found)
    main(["bench", "--device", "cpu"])
    said = " ".join(capsys.readouterr().out.split())
    assert "2 s" in said
    assert "4 ms" in said
    assert "500" in said
    for time in ("9 s", "12 min", "23 days"):
        assert time in said


def test_times_in_the_unit_that_suits():
    expected = {3e-6: "3 µs", 0.0123: "12 ms", 1.0: "1 s", 90: "1.5 min", 5000: "1.4 h", 1e6: "12 days"}
    assert {seconds: brief(seconds) for seconds in expected} == expected
