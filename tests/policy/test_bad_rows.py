"""Rows that no model can judge: a fallback action or no decision for them, and decisions for all others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cautious import CautiousPolicy, FallbackRule, InvalidInputError, RewardEnsemble, fit_ensemble

NAN = float("nan")


@pytest.fixture(scope="module")
def belief() -> RewardEnsemble:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=80), rng.normal(size=80)
    rewards = {"go": x, "stop": -x, "ask": np.full(80, 0.1)}
    return fit_ensemble({"x": x, "y": y}, rewards, num_models=6, num_epochs=20, progress=False)


ROWS = {"x": [1.0, None, 1.5, "?", -1.0, 1e30, 0.5, NAN], "y": [0.5, 0.5, 1e9, 0.5, 0.5, 0.5, float("inf"), None]}
BAD = [1, 2, 3, 5, 6, 7]
REASONS = (
    "",
    "x is empty",
    r"y is too far outside \(1000000000; -.* to .* in training\)",
    r"x is not a number \('\?'\)",
    "",
    r"x is too large \(1e\+30\)",
    r"y is not finite \('inf'\)",
    "x is empty; y is empty",
)


def test_an_error_names_all_of_them(belief):
    with pytest.raises(InvalidInputError) as caught:
        CautiousPolicy(belief, "1-of-6").decide(ROWS)
    said = str(caught.value)
    assert said.startswith("states: 6 of 8 rows cannot be used: column 'x' is empty in rows 1, 7; ")
    for part in (
        "column 'y' is too far outside in row 2 (1000000000;",
        "column 'x' is not a number in row 3 ('?')",
        "column 'x' is too large in row 5 (1e+30)",
        "column 'y' is not finite in row 6 ('inf')",
        "column 'y' is empty in row 7",
        "bad_rows_action=...",
        "allow_undecided=True",
    ):
        assert part in said


def test_the_others_are_decided_as_if_alone(belief):
    policy = CautiousPolicy(belief, "1-of-6")
    alone = policy.decide({"x": [1.0, -1.0], "y": [0.5, 0.5]})
    decision = policy.decide(ROWS, allow_undecided=True)
    good = [0, 4]
    for part in ("action", "probabilities", "caution", "ordinary", "disagreement", "gap"):
        assert torch.equal(getattr(decision, part)[good], getattr(alone, part))
        if part != "action":
            assert getattr(decision, part)[BAD].isnan().all()
    assert torch.equal(decision.opinions()[:, good], alone.opinions())
    assert decision.action[BAD].tolist() == [-1] * 6
    assert decision.undecided.nonzero().flatten().tolist() == BAD
    assert decision.judged.nonzero().flatten().tolist() == good
    assert not decision.departs[BAD].any()
    assert decision.names == ["go", None, None, None, "stop", None, None, None]
    import re

    for found, expected in zip(decision.reasons, REASONS, strict=True):
        assert re.fullmatch(expected, found)
    assert repr(decision) == "Decision(8 states: go in 1, stop in 1; 0 depart; 6 not judged)"
    assert decision.to_dict()["ordinary"] == decision.names


def test_a_fallback_action_for_them(belief, tmp_path):
    policy = CautiousPolicy(belief, "1-of-6", bad_rows_action="ask")
    decision = policy.decide(ROWS)
    assert decision.names == ["go", *["ask"] * 3, "stop", *["ask"] * 3]
    assert decision.probabilities[BAD].tolist() == [[0, 0, 1]] * 6
    assert not decision.undecided.any()
    assert policy.predict(ROWS)[0].tolist() == decision.action.tolist()
    assert policy.predict({"x": None, "y": 0.5})[0] == 2
    rng_draw, _ = policy.predict(ROWS, deterministic=False)
    assert rng_draw[BAD].tolist() == [2] * 6
    policy.save(tmp_path)
    assert CautiousPolicy.load(tmp_path).decide(ROWS).names == decision.names
    with pytest.raises(InvalidInputError, match="choose one of 'go', 'stop', 'ask'"):
        CautiousPolicy(belief, "1-of-6", bad_rows_action="run")
    with pytest.raises(InvalidInputError, match="bad_rows_action=3: there are 3 actions"):
        CautiousPolicy(belief, "1-of-6", bad_rows_action=3)


def test_a_fallback_rule_takes_its_action_there(belief):
    rule = FallbackRule(CautiousPolicy(belief, "1-of-6"), "ask", threshold=1e6)
    decision = rule.decide(ROWS)
    assert decision.names == ["go", *["ask"] * 3, "stop", *["ask"] * 3]
    assert rule.refers(decision).nonzero().flatten().tolist() == BAD
    assert rule.predict({"x": None, "y": 0.5})[0] == 2
    assert (
        repr(rule) == "FallbackRule(ask where disagreement > 1e+06, else CautiousPolicy(1-of-6, 6 models, 3 actions))"
    )


def test_a_batch_of_bad_rows_alone(belief):
    rows = {name: [cells[row] for row in BAD] for name, cells in ROWS.items()}
    assert CautiousPolicy(belief, "1-of-6", bad_rows_action=2).decide(rows).names == ["ask"] * 6
    assert CautiousPolicy(belief, "1-of-6").decide(rows, allow_undecided=True).undecided.all()
    assert FallbackRule(belief, 2).decide(rows).names == ["ask"] * 6


def test_arrays_too(belief):
    array = np.array([[1.0, 0.5], [NAN, 0.5], [-1.0, 0.5], [0.5, np.inf], [1e36, 0.5]])
    decision = CautiousPolicy(belief, "1-of-6", bad_rows_action=2).decide(array)
    assert decision.names == ["go", "ask", "stop", "ask", "ask"]
    assert decision.reasons == (
        "",
        "0 is not finite (nan)",
        "",
        "1 is not finite (inf)",
        "x is too large (1e+36)",
    )
    with pytest.raises(InvalidInputError, match="every entry must be a finite number"):  # as without names
        CautiousPolicy(belief, "1-of-6").decide(array)
    with pytest.raises(
        InvalidInputError, match=r"1 of 2 rows cannot be used: column 'x' is too large in row 1 \(1e\+36\)"
    ):
        CautiousPolicy(belief, "1-of-6").decide(array[[0, 4]])


def test_a_number_that_overflows_is_named_without_names_too():
    states = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    rewards = torch.cat([states[:, :1], -states[:, :1]], dim=1)
    belief = fit_ensemble(states, rewards, num_models=4, num_epochs=5, progress=False)
    far = states[:5].clone()
    far[3, 1] = 1e37
    with pytest.raises(InvalidInputError, match=r"column '1' is too large in row 3 \(1e\+37\)"):
        CautiousPolicy(belief, "1-of-4").decide(far)
    assert CautiousPolicy(belief, "1-of-4").decide(far, allow_undecided=True).undecided.tolist() == [False] * 3 + [
        True,
        False,
    ]


def test_a_policy_in_a_world_or_of_an_array_has_no_such_rows():
    policy = CautiousPolicy(torch.rand(4, 3, 2), "1-of-2", bad_rows_action=1)
    assert not policy.decide([0, 2], allow_undecided=True).undecided.any()
    with pytest.raises(InvalidInputError, match="allow_undecided='no' must be True or False"):
        policy.decide([0], allow_undecided="no")


def test_the_old_name_of_the_action_still_works_and_warns(belief):
    with pytest.warns(DeprecationWarning, match="bad_rows_action"):
        policy = CautiousPolicy(belief, "1-of-6", fallback="ask")
    assert (policy.bad_rows_action, policy.fallback) == (2, 2)


def test_several_levels_are_decided_in_one_call(belief):
    levels = ["1-of-6", "6-of-6"]
    together = CautiousPolicy(belief, "3-of-6", bad_rows_action="ask").decide_at(levels, ROWS)
    for level, found in zip(levels, together, strict=True):
        alone = CautiousPolicy(belief, level, bad_rows_action="ask").decide(ROWS)
        assert found.names == alone.names
        for part in ("probabilities", "caution", "gap", "value"):
            assert torch.equal(getattr(found, part).nan_to_num(9), getattr(alone, part).nan_to_num(9))
    usual = together[0].as_usual()
    assert usual.names == [None if name == "ask" else name for name in together[1].names]
    assert not usual.caution.nan_to_num().any()
    judged = together[0].judged
    returns = (together[0].opinions()[:, judged].double() * together[0].probabilities[judged]).sum(dim=-1).T
    exact = CautiousPolicy(belief, "1-of-6").level.value(returns)
    torch.testing.assert_close(together[0].value[judged], exact, atol=1e-12, rtol=0)
