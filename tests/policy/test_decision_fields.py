"""`Decision`: an entry per row in every field, JSON that any reader takes, and rows as a service has them."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import numpy as np
import pytest
import torch

from cautious import CautiousPolicy, FallbackRule, InvalidInputError, fit_ensemble

ROWS = [
    {"x": 1.0, "kind": "a"},
    {"kind": "b", "x": None},
    {"x": -1.0, "kind": "b"},
    {"x": "?", "kind": "a"},
    {"kind": "a"},
]
BAD = [1, 3, 4]


@pytest.fixture(scope="module")
def belief():
    rng = np.random.default_rng(0)
    x, kind = rng.normal(size=80), rng.choice(["a", "b"], 80)
    rewards = {"go": x, "stop": -x, "ask": np.full(80, 0.1)}
    return fit_ensemble({"x": x, "kind": kind}, rewards, num_models=6, num_epochs=10, progress=False)


def strict(columns):
    """What a strict reader of JSON makes of it."""
    return json.loads(json.dumps(columns, allow_nan=False))


def ways(belief):
    policy = CautiousPolicy(belief, "1-of-6")
    return {
        "policy": policy.decide(ROWS, allow_undecided=True),
        "bad rows get an action": CautiousPolicy(belief, "1-of-6", bad_rows_action="ask").decide(ROWS),
        "rule": FallbackRule(belief, "ask", threshold=0.5).decide(ROWS),
        "as usual": policy.decide(ROWS, allow_undecided=True).as_usual(),
        "only bad rows": policy.decide([ROWS[row] for row in BAD], allow_undecided=True),
        "only good rows": policy.decide([ROWS[0], ROWS[2]]),
        "array": CautiousPolicy(torch.rand(4, 3, 2), "1-of-2").decide([0, 2]),
        "frame": policy.decide(__import__("pandas").DataFrame(ROWS), allow_undecided=True),
    }


def test_every_field_has_an_entry_per_row(belief):
    for name, decision in ways(belief).items():
        count = len(decision.action)
        for field in fields(decision):
            value = getattr(decision, field.name)
            if isinstance(value, torch.Tensor) or field.name == "reasons":
                assert len(value) == count, (name, field.name)
        for of_rows in (decision.names, decision.departs, decision.judged, decision.undecided):
            assert len(of_rows) == count, name
        columns = strict(decision.to_dict())
        assert {len(column) for column in columns.values()} == {count}, name
        assert len(decision.to_frame()) == count, name


def test_a_row_that_cannot_be_judged_says_so_in_every_column(belief):
    for name in ("policy", "bad rows get an action", "rule", "as usual", "frame"):
        columns = strict(ways(belief)[name].to_dict())
        for row in range(5):
            entries = {column: values[row] for column, values in columns.items()}
            reason, action = entries.pop("reason"), entries.pop("action")
            if row in BAD:
                assert reason.startswith("x is "), name
                assert action == ("ask" if name in ("bad rows get an action", "rule") else None), name
                assert set(entries.values()) == {None}, (name, entries)
            else:
                assert reason == "", name
                assert action in ("go", "stop", "ask"), name
                assert None not in (entries["ordinary"], entries["departs"], entries["caution"]), name


def test_infinite_disagreement_is_none_in_json():
    models = torch.zeros(2, 9, 2)
    models[0, 8, 0] = 1.0  # the models agree in all familiar states: any disagreement is infinitely larger
    decision = CautiousPolicy(models, "1-of-2", familiar_states=range(8)).decide([0, 8])
    assert math.isinf(decision.disagreement[1])
    assert strict(decision.to_dict())["disagreement"] == [0.0, None]


def test_a_list_of_rows_is_decided_as_the_columns_are(belief):
    policy = CautiousPolicy(belief, "1-of-6", bad_rows_action="ask")
    columns = {"kind": ["a", "b", "b", "a", "a"], "x": [1.0, None, -1.0, "?", None]}
    assert policy.decide(ROWS).to_dict() == policy.decide(columns).to_dict()
    assert policy.decide(tuple(ROWS[:1])).names == ["go"]
    assert policy.predict(ROWS)[0].tolist() == [0, 2, 1, 2, 2]
    assert policy.predict(ROWS[:1])[0].shape == (1,)
    assert policy.predict(ROWS[0])[0] == 0


def test_rows_with_columns_of_their_own_are_refused(belief):
    policy = CautiousPolicy(belief, "1-of-6")
    with pytest.raises(InvalidInputError, match="'xx' was not in the training"):
        policy.decide([{"x": 1.0, "kind": "a"}, {"x": 1.0, "kind": "a", "xx": 2.0}])
    with pytest.raises(InvalidInputError, match="column 'kind' is empty in row 0"):
        policy.decide([{"x": 1.0}])  # as if another row named the column
    assert policy.decide([{}], allow_undecided=True).reasons == ("x is empty; kind is empty",)
    with pytest.raises(InvalidInputError, match="column 'x': cannot be read as one value per row"):
        policy.decide([{"x": 1.0, "kind": "a"}, {"x": [1.0], "kind": "a"}])
