"""`compare`: what it measures on cases with known answers, and that nothing is lost or computed twice."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
import torch

from cautious import BadFileError, InvalidInputError, TabularMDP, baselines, compare
from cautious.baselines import Problem

ONE_STATE = TabularMDP(torch.ones(1, 2, 1), [1.0], 0.5)


def coin(seed: int) -> Problem:
    """Action 0 pays .4; action 1 pays 1 or 0, by the model; in truth as well."""
    models = torch.tensor([[[0.4, 1.0]], [[0.4, 0.0]]]).repeat(10, 1, 1) + 0.01 * seed
    return Problem(
        ONE_STATE, models, truths=models[:2], familiar=Problem(ONE_STATE, torch.tensor([[[0.4, 1.0]]]).repeat(20, 1, 1))
    )


def always_second(world, rewards):
    policy = torch.zeros(1, 2)
    policy[:, 1] = 1
    return policy


def test_measures_of_a_hand_worked_case():
    frame = compare({"coin": coin}, [always_second, baselines.k_of_n], seeds=[0], progress=False)
    found = frame.set_index(["method", "metric"])["mean"]
    assert found["always_second", "return"] == pytest.approx(0.5, abs=1e-12)
    assert found["always_second", "worst_tenth"] == pytest.approx(0.0, abs=1e-12)
    assert found["always_second", "departure"] == pytest.approx(0.0, abs=1e-12)
    assert found["k_of_n", "worst_tenth"] == pytest.approx(0.4, abs=1e-3)  # the tolerance is 1e-4 of a range of 1
    assert found["always_second", "tail"] <= found["k_of_n", "tail"] + 1e-9
    assert 0 <= found["k_of_n", "shortfall"] <= 2e-4
    assert found["always_second", "shortfall"] == pytest.approx(0.4, abs=0.01)  # 1-of-20 of twenty models: the worst


def test_differences_are_paired_seed_by_seed():
    frame = compare({"coin": coin}, [always_second, baselines.k_of_n], seeds=5, progress=False)
    row = frame.set_index(["method", "metric"]).loc[("k_of_n", "return")]
    assert row.high - row.low > 0.01, "the seeds move the returns of both"
    assert row.difference_high - row.difference_low < 1e-3, "but not their difference"
    assert row.difference == pytest.approx(-0.1, abs=1e-3)
    assert row.seeds == 5


def test_a_method_is_given_what_it_names():
    seen = []

    def curious(world, rewards, seed, novelty, features):
        seen.append((seed, novelty, features))
        return always_second(world, rewards)

    problem = Problem(ONE_STATE, coin(0).rewards, novelty=[0.5], extras={"features": "f"})
    compare({"one": problem}, {"curious": curious}, seeds=[3, 4], progress=False)
    assert seen == [(3, [0.5], "f"), (4, [0.5], "f")]
    fixed = partial(baselines.novelty_penalty, novelty=[0.0], weight=1.0)
    compare({"one": problem}, {"fixed": fixed}, seeds=1, progress=False)  # what was bound by hand is not overruled


def test_it_goes_on_where_it_stopped_and_computes_nothing_twice(tmp_path):
    calls = []

    def counted(world, rewards, seed):
        calls.append(seed)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return always_second(world, rewards)

    ask = partial(
        compare, {"coin": Problem(ONE_STATE, coin(0).rewards)}, {"counted": counted}, 4, out=tmp_path, progress=False
    )
    with pytest.raises(KeyboardInterrupt):
        ask()
    frame = ask()
    assert calls == [0, 1, 2, 2, 3]
    assert ask().equals(frame)
    assert calls == [0, 1, 2, 2, 3]
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 4


def test_a_row_cut_short_is_computed_again_and_a_broken_one_is_named(tmp_path):
    ask = partial(compare, {"coin": coin}, [always_second], 2, out=tmp_path / "new folder", progress=False)
    frame = ask()
    path = tmp_path / "new folder" / "rows.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-20])
    assert np.allclose(
        ask().drop(columns=["method", "metric", "problem"]).iloc[0],
        frame.drop(columns=["method", "metric", "problem"]).iloc[0],
    )
    path.write_text("{}\n" + whole)
    with pytest.raises(BadFileError, match="line 1 is not a row"):
        ask()
    assert json.loads(whole.splitlines()[0])["problem"] == "coin"


def test_worlds_that_are_no_tables_are_judged_by_the_problem():
    problem = Problem("a simulator", "a belief", judge=lambda policy: [policy, policy + 1])
    frame = compare({"sim": problem}, {"mine": lambda world, belief: 2.0}, seeds=2, progress=False)
    found = frame.set_index("metric")["mean"]
    assert found["return"] == 2.5
    assert found["worst_tenth"] == 2.0
    assert "tail" not in found


@pytest.mark.parametrize(
    ("problems", "methods", "more", "said"),
    [
        ({}, [always_second], {}, "problems"),
        ({"coin": coin}, [], {}, "methods"),
        ({"coin": coin}, [lambda world, rewards: 1], {}, "no name of its own"),
        ({"coin": coin}, [always_second], {"seeds": 0}, "seeds"),
        ({"coin": coin}, [always_second], {"reference": "other"}, "reference='other'"),
        ({"coin": coin}, [always_second], {"confidence": 1.0}, "confidence"),
        ({"coin": coin}, [always_second], {"level": "1-in-20"}, "1-in-20"),
    ],
)
def test_bad_input_is_named(problems, methods, more, said):
    with pytest.raises(InvalidInputError, match=said):
        compare(problems, methods, **{"seeds": 1, "progress": False, **more})


def test_equally_good_actions_are_no_departure_and_worse_ones_count_by_their_share_of_steps():
    """Two rooms and a start: both doors lead to rooms that pay 1 for ever; a third action stays at the start for nothing."""
    moves = torch.zeros(3, 3, 3)
    moves[0, 0, 1] = moves[0, 1, 2] = moves[0, 2, 0] = 1
    moves[1, :, 1] = moves[2, :, 2] = 1
    world = TabularMDP(moves, [1.0, 0.0, 0.0], 0.5)
    rewards = torch.tensor([[0.0] * 3, [1.0] * 3, [1.0] * 3]).repeat(20, 1, 1)
    familiar = Problem(world, rewards)

    def always(action):
        return lambda world, rewards: torch.eye(3)[action].expand(3, 3)

    def dawdles(world, rewards):  # half of the time at the start it stays
        return torch.tensor([[0.5, 0.0, 0.5], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])

    methods = {"first door": always(0), "second door": always(1), "stays": always(2), "dawdles": dawdles}
    frame = compare({"rooms": Problem(world, rewards, familiar=familiar)}, methods, seeds=1, progress=False)
    found = frame[frame.metric == "departure"].set_index("method")["mean"]
    assert found["first door"] == found["second door"] == 0
    assert found["stays"] == pytest.approx(1.0)
    # at the start 1/2 Σ (1/4)^t = 2/3 of the discounted steps, half of which stay
    assert found["dawdles"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "truths",
    [torch.full((2, 1, 2), float("nan")), torch.zeros(0, 1, 2), torch.tensor([[[0.4, 1.0]], [[0.4, float("nan")]]])],
)
def test_truths_that_say_nothing_are_refused(truths):
    """Nothing is left out of the frame in silence."""
    models = torch.tensor([[[0.4, 1.0]], [[0.4, 0.0]]]).repeat(10, 1, 1)
    with pytest.raises(InvalidInputError, match="truths"):
        compare({"coin": Problem(ONE_STATE, models, truths=truths)}, [always_second], seeds=[0], progress=False)
    judged = Problem(ONE_STATE, models, judge=lambda policy: [float("nan")])
    with pytest.raises(InvalidInputError, match="judge's returns"):
        compare({"coin": judged}, [always_second], seeds=[0], progress=False)


def test_a_method_that_asks_for_what_the_problem_lacks_is_named():
    def mine(world, rewards, novelty):
        return always_second(world, rewards)

    problem = coin(0)
    with pytest.raises(InvalidInputError, match=r"'mine' cannot be called .*novelty"):
        compare({"coin": problem}, [mine], seeds=[0], progress=False)


def test_another_level_reuses_no_row(tmp_path):
    """The tail is the level's own."""
    here = {"progress": False, "out": tmp_path, "seeds": [0]}
    for level, tail in (("1-of-20", 0.0), ("20-of-20", 0.5), ("1-of-20", 0.0)):
        frame = compare({"coin": coin}, [always_second], level=level, **here).set_index("metric")
        assert frame.loc["tail", "mean"] == pytest.approx(tail, abs=0.05)
