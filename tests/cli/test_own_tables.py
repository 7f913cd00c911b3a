"""`cautious train`, `calibrate` and `solve` on CSV files: from a log to decisions, without Python."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cautious import Calibration, CautiousPolicy, FallbackRule, KofN, RewardEnsemble, calibrate, solve_bandit
from cautious.cli.inputs import load_decision_inputs
from cautious.cli.main import main
from cautious.tables.files import read_table

OPTIONS = ["--num-models", "12", "--num-epochs", "40", "--batch-size", "32"]
CARE = {"a": ((37.0, 80.0), "rest"), "b": ((39.0, 120.0), "pill")}


def rows(count: int, rng: np.random.Generator) -> list[list[str]]:
    """Cases of two kinds, each with its own right treatment; referring always pays 0.4."""
    found = []
    for number in range(count):
        (temperature, pulse), right = CARE["ab"[number % 2]]
        treatment = ["rest", "pill", "refer"][rng.integers(3)]
        paid = 0.4 if treatment == "refer" else float(treatment == right)
        numbers = [f"{temperature + 0.2 * rng.normal():.2f}", f"{pulse + 5 * rng.normal():.0f}"]
        found.append([f"case {number}", *numbers, ["north", "south"][rng.integers(2)], treatment, f"{paid}"])
    return found


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    header = ["name", "temperature", "pulse", "site", "treatment", "outcome"]
    for name, count, width in (("log", 240, 6), ("familiar", 80, 4), ("new", 4, 4)):
        with Path(f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header[:width], *(row[:width] for row in rows(count, rng))])
    with Path("new.csv").open("a", newline="") as file:
        csv.writer(file).writerow(["strange", "38.0", "100", "east"])
    return tmp_path


def train(*more: str) -> None:
    main(["train", "log.csv", "--action", "treatment", "--reward", "outcome", "--ignore", "name", *OPTIONS, *more])


def test_from_a_log_to_decisions(files, capsys):
    train("--out", "belief")
    said = capsys.readouterr().out
    assert "12 models of 3 actions, states [4]" in said
    assert "2 texts: north, south" in said
    assert "action, tried in" in said
    main(["calibrate", "--belief", "belief", "--states", "familiar.csv", "--at-most", "0.1", "--n", "6"])
    said = capsys.readouterr().out
    belief = RewardEnsemble.load("belief")
    with Path("familiar.csv").open(newline="") as file:
        _, *cells = csv.reader(file)
    states = torch.tensor([[float(row[1]), float(row[2]), row[3] == "north", row[3] == "south"] for row in cells])
    found = calibrate(CautiousPolicy(belief, "1-of-6"), states, at_most=0.1, progress=False)
    assert f"--level {found.level}" in said
    assert "allowed" in said
    main(
        [
            "solve",
            "--belief",
            "belief",
            "--states",
            "new.csv",
            "--level",
            "1-of-6",
            "6-of-6",
            "--out",
            "solved",
            "--tables",
        ]
    )
    said = capsys.readouterr().out
    assert "warning: site 'east' never seen" in said
    assert "6-of-6: decides as the ordinary policy in all of" in said
    assert "number of states per action" in said
    assert "decisions.csv" in said
    with Path("solved/decisions.csv").open(newline="") as file:
        decided = list(csv.DictReader(file))
    assert [row["name"] for row in decided][-1] == "strange"
    assert decided[-1]["new"] == "site 'east' never seen"
    assert [row["ordinarily"] for row in decided[:4]] == ["rest", "pill", "rest", "pill"]
    assert all(row["caution 6-of-6"] == "0.0000" for row in decided)
    assert all(row["decided 6-of-6"] == row["ordinarily"] for row in decided)
    assert [row["decided 1-of-6"] for row in decided[:4]] == ["rest", "pill", "rest", "pill"]


def test_the_command_that_calibrate_prints_makes_the_decisions_that_it_judged(files, capsys):
    train("--out", "belief")
    main(["calibrate", "--belief", "belief", "--states", "familiar.csv", "--at-most", "0.3", "--n", "6"])
    command = (
        " ".join(capsys.readouterr().out.split()).split("decide with it: cautious ")[-1].replace("FILE", "new.csv")
    )
    main([*command.split(), "--out", "solved"])
    belief, states = RewardEnsemble.load("belief"), load_decision_inputs(Path("belief"), Path("new.csv")).states
    level = command.split("--level ")[1]
    [decision] = CautiousPolicy(belief, "1-of-6").decide_at([KofN.parse(level)], states)
    found = load_file("solved/policy.safetensors")
    assert torch.equal(found["best_policy"], decision.probabilities)
    assert torch.equal(found["ordinary_policy"], decision.ordinary)
    assert torch.equal(found["action"], decision.action)


def test_decisions_come_with_the_certificate_of_each_state(files):
    train("--out", "belief")
    main(["solve", "--belief", "belief", "--states", "new.csv", "--level", "1-of-6", "6-of-6", "--out", "solved"])
    record = json.loads(Path("solved/certificate.json").read_text())
    belief, states = RewardEnsemble.load("belief"), load_decision_inputs(Path("belief"), Path("new.csv")).states
    rewards, best = belief.rewards(states, bounded=False).double(), record["certificates"]["best_policy"]
    exact = solve_bandit(rewards, ["1-of-6", "6-of-6"], regime="single-state", sampling="exact", num_iterations=3000)
    certificate = exact.certificate(exact.best_policy)
    lower, upper, gap = (torch.tensor(best[part], dtype=torch.float64) for part in ("lower", "upper", "gap"))
    assert bool((upper >= certificate.lower - 1e-9).all())  # nothing that another solver finds is better
    assert bool((lower <= certificate.upper + 1e-9).all())
    assert torch.equal(gap[0], CautiousPolicy(belief, "1-of-6").decide(states).gap)
    assert not gap[1].any()  # the ordinary level
    assert record["solution"]["num_iterations"] is None  # as many as it takes


def test_a_column_for_each_action(files):
    Path("full.csv").write_text(
        "x,gamble,help\n" + "".join(f"{n / 40},{n / 20},{0.25 if n % 2 else ''}\n" for n in range(40))
    )
    main(["train", "full.csv", "--rewards", "gamble", "help", "--out", "belief", *OPTIONS])
    main(["solve", "--belief", "belief", "--states", "full.csv", "--level", "1-of-6", "--out", "solved"])
    with Path("solved/decisions.csv").open(newline="") as file:
        decided = list(csv.DictReader(file))
    assert (decided[0]["decided 1-of-6"], decided[-1]["decided 1-of-6"]) == ("help", "gamble")


def test_too_few_familiar_states_are_said_to_be(files, capsys):
    train("--out", "belief")
    main(["calibrate", "--belief", "belief", "--states", "new.csv", "--n", "6"])
    said = capsys.readouterr().out
    assert "warning: familiar_states: 5 are too few" in said
    assert "level: 6-of-6" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("train log.csv", "one reward column per action"),
        ("train log.csv --action treatment --reward cost", "no column 'cost'"),
        ("train log.csv arrays.npz --action treatment --reward outcome", "tables and arrays"),
        ("train arrays.npz --action treatment", "arrays have none"),
        ("train none.csv --action treatment --reward outcome", "no such file"),
        ("calibrate --belief ask-for-help --states new.csv", "not trained on a table"),
        ("calibrate --belief driving --states new.csv", "is about driving"),
        ("calibrate --belief nothing --states new.csv", "nothing"),
    ],
)
def test_mistakes_are_named(files, capsys, arguments, says):
    with pytest.raises(SystemExit) as stop:
        main(arguments.split())
    assert stop.value.code == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_weak_level_is_said_to_be_one(files, capsys, monkeypatch):
    train("--out", "belief")
    weak = Calibration(KofN(3, 6), 0.01, 0.02, 0.02, 0.95, (("6-of-6", 0.0, 0.0),))
    monkeypatch.setattr("cautious.policy.calibration.calibrate", lambda *_, **__: weak)
    main(["calibrate", "--belief", "belief", "--states", "familiar.csv", "--n", "6"])
    said = " ".join(capsys.readouterr().out.split())
    assert "less cautious than 1-of-6" in said
    assert "level: 3-of-6" in said


def test_a_safe_action_beside_the_levels(files, capsys):
    train("--out", "belief")
    belief = RewardEnsemble.load("belief")
    main(["calibrate", "--belief", "belief", "--states", "familiar.csv", "--at-most", "0.1", "--fallback", "refer"])
    said = " ".join(capsys.readouterr().out.split())
    threshold = float(said.split("threshold: ")[1].split()[0])
    assert f"--fallback refer --threshold {threshold!r}" in said
    states = load_decision_inputs(Path("belief"), Path("familiar.csv")).states
    found = calibrate(FallbackRule(belief, "refer"), states, at_most=0.1, progress=False)
    assert threshold == found.threshold  # not rounded: a little below, it would refer more
    solve = ["solve", "--belief", "belief", "--states", "new.csv", "--level", "1-of-6", "--out", "solved"]
    main([*solve, "--fallback", "refer", "--threshold", f"{threshold}", "--tables"])
    said = " ".join(capsys.readouterr().out.split())
    assert "disagreement of the models" in said
    assert "with fallback" in said
    with Path("solved/decisions.csv").open(newline="") as file:
        decided = list(csv.DictReader(file))
    for row in decided:
        expected = "refer" if float(row["disagreement"]) > threshold else row["ordinarily"]
        assert row["decided with fallback"] == expected
    by_rule = FallbackRule(belief, "refer", threshold=threshold).decide(
        belief.columns.read(read_table("new.csv")).states
    )
    levels = CautiousPolicy(belief, "1-of-6").decide(belief.columns.read(read_table("new.csv")).states)
    for row, referred, departs in zip(decided, by_rule.departs.tolist(), levels.departs.tolist(), strict=True):
        action = row["decided with fallback" if referred else "decided 1-of-6"]
        assert row["why"].startswith(f"{action}: ") if referred or departs else row["why"] == ""
    assert "causes" in decided[-1]["why"]
    assert decided[-1]["decided with fallback"] == "refer"  # pulse and temperature of neither kind, and a new site
    main([*solve, "--fallback", "refer", "--at-most", "0.4"])
    loose = belief.familiar.threshold(0.4)
    assert f"the models differ by more than {loose:.4g}" in " ".join(capsys.readouterr().out.split())


def test_the_rows_of_the_training_are_enough_to_calibrate(files, capsys):
    train("--out", "belief")
    main(["calibrate", "--belief", "belief", "--data", "log.csv", "--folds", "2", "--at-most", "0.3", "--n", "6"])
    said = " ".join(capsys.readouterr().out.split())
    assert "on 240 familiar states" in said
    assert "level: " in said


def test_a_log_with_other_actions_is_not_that_of_the_training(files, capsys):
    train("--out", "belief")
    Path("other.csv").write_text(Path("log.csv").read_text().replace("pill", "drip"))
    with pytest.raises(SystemExit):
        main(["calibrate", "--belief", "belief", "--data", "other.csv"])
    assert "Give the training table" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("calibrate --belief belief", "either --states FILE"),
        ("calibrate --belief belief --states new.csv --data log.csv", "either --states FILE"),
        ("calibrate --belief belief --states new.csv --fallback run", "choose one of 'pill', 'refer', 'rest'"),
        ("solve --belief belief --states new.csv --fallback run", "choose one of 'pill', 'refer', 'rest'"),
        ("solve --belief belief --states new.csv --threshold 2", "need --fallback ACTION"),
        ("solve --belief belief --states new.csv --fallback refer --threshold 2 --at-most 0.1", "give one of them"),
        ("solve --belief belief --states new.csv --fallback refer --at-most 2", "between 0 and 1"),
    ],
)
def test_mistakes_about_a_safe_action_are_named(files, capsys, arguments, says):
    train("--out", "belief")
    with pytest.raises(SystemExit) as stop:
        main(arguments.split())
    assert stop.value.code == 2
    assert says in " ".join(capsys.readouterr().err.split())
