"""Runs on the benchmark: any method, the table, the reference scores, the command."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cautious import InvalidInputError, baselines
from cautious.cli.main import main
from cautious_paper import benchmark
from cautious_paper.benchmark.scores import DOUBTFUL, FOR_DOUBTFUL, METRICS, NUM_SEEDS, write


def test_a_method_of_ones_own_runs_on_it():
    asked = []

    def first_action(world, rewards, features, logged_features, seed):
        asked.append((features.shape, logged_features.shape, seed))
        policy = torch.zeros(world.num_states, world.num_actions)
        policy[:, 0] = 1
        return policy

    frame = benchmark.run(
        {"first": first_action, "k_of_n": baselines.k_of_n}, ids=["cliff-v1"], seeds=[4], progress=False
    )
    assert [seed for *_, seed in asked] == [4, 4]  # the novel world, and the familiar one for the departure
    assert set(frame.metric) == {*METRICS, "seconds"}
    found = frame.set_index(["method", "metric"])["mean"]
    assert found["k_of_n", "tail"] > found["first", "tail"]
    said = benchmark.table(frame, "tail").splitlines()
    assert said[0] == "| method | cliff-v1 |"
    assert said[2].startswith("| first | -0.")


def test_the_reference_is_what_the_command_finds(tmp_path, capsys):
    """Seeds 0 and 1 of one problem: their mean lies within what the reference's interval allows of single seeds."""
    main(["bench", "suite", "--problems", "cliff-v1", "--seeds", "2", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    for title in (
        "return in what is true",
        "worst tenth",
        "certificate",
        "no ordinary policy takes",
        "familiar split",
    ):
        assert title in said
    import pandas

    ours = pandas.read_csv(tmp_path / "scores.csv")
    known = benchmark.reference()
    assert list(ours.columns) == list(known.columns)
    keys = ["split", "problem", "method", "metric"]
    both = ours.merge(known, on=keys, suffixes=("", "_known"))
    assert len(both) == len(ours)
    # A mean of two seeds is nearly always within three times the spread of single seeds, which is at most √n half-intervals.
    spread = (both.high_known - both.low_known) / 2 * both.seeds_known**0.5
    assert ((both["mean"] - both.mean_known).abs() <= 3 * spread + 1e-4).all()


def test_worlds_of_doubtful_dynamics_are_judged_in_other_models():
    frame = benchmark.run({"one": baselines.single_model, "draws": baselines.thompson_sampling}, ids=["shop-v1"], seeds=1,
                          progress=False)  # fmt: skip
    found = frame.set_index(["method", "metric"])["mean"]
    assert set(frame.metric) == {*METRICS, "seconds"} - {"departure"}
    for method in ("one", "draws"):
        assert found[method, "worst_tenth"] < found[method, "return"]
        assert found[method, "shortfall"] > 0


def test_the_reference_has_every_method_on_every_problem():
    known = benchmark.reference()
    assert set(known.seeds) == {NUM_SEEDS}
    assert set(known.problem) == set(benchmark.IDS)
    for (_, problem), part in known.groupby(["split", "problem"]):
        assert set(part.method) == set(FOR_DOUBTFUL if problem in DOUBTFUL else benchmark.methods())
    novel = known[known.split == "novel"].set_index(["problem", "metric", "method"])["mean"].unstack()
    for problem in benchmark.IDS:  # what k-of-N maximises is where it is best, to its tolerance
        tails = novel.loc[problem, "tail"].dropna()
        assert tails["k_of_n"] >= tails.max() - 0.01 * (tails.max() - tails.min())
        assert novel.loc[problem, "shortfall"].dropna().min() >= -1e-6


def test_the_page_shows_the_reference():
    page = (Path(__file__).parents[2] / "docs" / "benchmark.md").read_text(encoding="utf-8")
    known = benchmark.reference()
    for metric in ("return", "worst_tenth", "shortfall", "departure"):
        assert benchmark.table(known[known.split == "novel"], metric) in page
    assert all(f"`{id}`" in page for id in benchmark.IDS)


def test_rules_that_look_at_steps_refuse_doubtful_dynamics():
    problem = benchmark.make("shop-v1")
    for name in set(benchmark.methods()) - set(FOR_DOUBTFUL) - {"novelty_penalty"}:
        with pytest.raises(InvalidInputError, match="dynamics are in doubt"):
            benchmark.methods()[name](problem.world, problem.rewards)


def test_bad_input_is_named(capsys):
    with pytest.raises(InvalidInputError, match="choose one of return"):
        benchmark.table(benchmark.reference(), "beauty")
    with pytest.raises(InvalidInputError, match="at least one problem"):
        benchmark.run(ids=[])
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "suite", "--problems", "chess-v1"])
    assert "there are images-v1" in " ".join(capsys.readouterr().err.split())


def test_written_scores_are_whole(tmp_path):
    frame = benchmark.run({"mean": baselines.risk_neutral}, ids=["lake-v1"], seeds=1, progress=False)
    write({"novel": frame}, tmp_path / "scores.csv")
    assert "seconds" not in (tmp_path / "scores.csv").read_text()
