"""Departures per window: exact limits, false alarms as promised, and drift that is seen."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.stats import binom

from cautious import CautiousPolicy, DepartureMonitor, InvalidInputError, departure_limit, fit_ensemble

MODELS = torch.tensor([[[1.0, 0.3], [1.0, 0.3]], [[0.9, 0.3], [-0.2, 0.3]]])
"""Two models that disagree about state 1, where 1-of-2 departs, and agree about state 0."""


@pytest.fixture(scope="module")
def policy() -> CautiousPolicy:
    return CautiousPolicy(MODELS, "1-of-2")


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.05, 0.2, 0.5, 0.99])
@pytest.mark.parametrize("num_rows", [1, 20, 100, 1000])
@pytest.mark.parametrize("false_alarms", [0.03, 0.001])
def test_the_limit_is_the_smallest_that_keeps_the_promise(rate, num_rows, false_alarms):
    """By another routine: scipy's survival function."""
    limit = departure_limit(rate, num_rows, false_alarms)
    assert binom.sf(limit, num_rows, rate) <= false_alarms
    assert limit == 0 or binom.sf(limit - 1, num_rows, rate) > false_alarms


def test_limits_at_the_ends():
    assert departure_limit(0.0) == 0
    assert departure_limit(1.0) == 100


def test_windows_are_the_same_however_rows_arrive(policy):
    rng = np.random.default_rng(0)
    rows = (rng.random(1037) < 0.1).astype(int)
    whole, pieces = DepartureMonitor(0.05, num_rows=50), DepartureMonitor(0.05, num_rows=50)
    filled = whole.add(policy.decide(rows))
    parts = [window for piece in np.split(rows, [1, 3, 400, 401, 900]) for window in pieces.add(policy.decide(piece))]
    assert filled == parts == list(whole.windows)
    assert [window.departures for window in filled] == rows[:1000].reshape(20, 50).sum(axis=1).tolist()
    assert [window.first for window in filled] == list(range(0, 1000, 50))
    assert whole.to_dict() == json.loads(json.dumps(pieces.to_dict(), allow_nan=False))
    assert whole.to_dict()["rows"] == 1037


def test_false_alarms_are_as_rare_as_promised_and_drift_is_seen(policy):
    """4,000 windows at the familiar rate; then the rate is three times as high, and then it grows slowly."""
    rng = np.random.default_rng(1)
    monitor = DepartureMonitor(0.05, num_rows=100, false_alarms=0.01)
    exact = float(binom.sf(monitor.limit, 100, 0.05))
    familiar = monitor.add(policy.decide((rng.random(400_000) < 0.05).astype(int)))
    share = np.mean([window.alarm for window in familiar])
    assert exact <= 0.01
    assert abs(share - exact) < 4 * (exact * (1 - exact) / 4000) ** 0.5
    drifted = monitor.add(policy.decide((rng.random(5_000) < 0.15).astype(int)))
    power = float(binom.sf(monitor.limit, 100, 0.15))
    assert power > 0.7
    assert abs(np.mean([window.alarm for window in drifted]) - power) < 4 * (power * (1 - power) / 50) ** 0.5
    slow = monitor.add(policy.decide((rng.random(20_000) < np.linspace(0.05, 0.3, 20_000)).astype(int)))
    assert any(window.alarm for window in slow[:120])
    assert all(window.alarm for window in slow[150:])


def test_the_rate_can_come_from_familiar_decisions(policy):
    decision = policy.decide([1] * 2 + [0] * 98)
    monitor = DepartureMonitor.of(decision)
    assert binom.cdf(2, 100, monitor.rate) == pytest.approx(0.05)  # Clopper and Pearson
    assert monitor.limit == departure_limit(monitor.rate)
    assert DepartureMonitor.of(policy.decide([1] * 5)).limit == 100


def test_rows_that_no_model_can_judge_count_as_departures():
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    belief = fit_ensemble({"x": x}, {"go": x, "stop": -x}, num_models=4, num_epochs=5, progress=False)
    monitor = DepartureMonitor(0.05, num_rows=10)
    rows = [{"x": 2.0}] * 4 + [{"x": "broken"}] * 6
    (window,) = monitor.add(CautiousPolicy(belief, "1-of-4").decide(rows, allow_undecided=True))
    assert (window.departures, window.not_judged, window.alarm) == (6, 6, True)
    assert repr(monitor) == f"DepartureMonitor(at most {monitor.limit} of 10 rows, 1 alarms in 1 windows)"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: departure_limit(1.5), "rate=1.5 must be in"),
        (lambda: departure_limit(0.1, 0), "num_rows=0"),
        (lambda: DepartureMonitor(0.1, false_alarms=0), "false_alarms=0 must be between"),
        (lambda: DepartureMonitor.of(0.05), "pass policy.decide"),
        (lambda: DepartureMonitor(0.1).add([1, 0]), "pass what policy.decide returned"),
    ],
)
def test_wrong_values_are_named(call, says):
    with pytest.raises(InvalidInputError, match=says):
        call()
