"""Executors by name, repeats, and their one ledger; no cluster is needed here."""

from __future__ import annotations

import json
import shutil
import socket
import sys

import pytest
import torch

from cautious.cli.main import main
from cautious.errors import BadFileError, CautiousError, ClusterError, InvalidInputError, MissingPackageError
from cautious.executors import LocalExecutor, open_executor
from cautious.io.arrays import load_json
from cautious_paper.cli.reproduce import repeats_table
from cautious_paper.experiments.runs import run_repeats
from cautious_paper.experiments.store import Store
from cautious_paper.networks.driving_training import DrivingTrainingProblem
from cautious_paper.networks.image_training import ImageTrainingProblem
from cautious_paper.report.claims.rules import ClaimResult
from cautious_paper.report.repeats import tallied, write_tallies
from cautious_paper.worlds.driving import driving_world
from cautious_paper.worlds.image_tasks import ask_for_help_rewards


def test_an_unknown_executor_is_refused():
    with pytest.raises(InvalidInputError, match="choose one of 'local', 'ray'"), open_executor("dask"):
        pass
    with pytest.raises(InvalidInputError, match='goes with engine="ray"'), open_executor("local", "127.0.0.1:6379"):
        pass


def test_without_ray_it_says_how_to_get_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "cautious.ray", raising=False)
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "driving", "--scale", "smoke", "--engine", "ray", "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    assert "pip install 'cautious[ray]'" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
    assert issubclass(MissingPackageError, CautiousError)


def test_something_else_at_the_address_is_given_up_in_time(monkeypatch):
    pytest.importorskip("ray")
    from cautious import ray as ray_executor

    monkeypatch.setattr(ray_executor, "CONNECT_SECONDS", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterError, match=rf"{address}.*no answer within 3 s"), ray_executor.connected(address):
            pass


def test_a_local_executor_runs_one_piece_after_another():
    order = []
    executor = LocalExecutor()
    assert executor.run_all([lambda: order.append("a"), lambda: order.append("b")]) == [None, None]
    for piece, result in executor.map(lambda shared, piece, _: shared * piece, 10, [1, 2], device="cpu", title=""):
        order.append((piece, result))
    assert order == ["a", "b", (1, 10), (2, 20)]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("driving", "belief: the models have hardly learned"),
        ("non-obvious", "belief-non-obvious: single models are worse than no model"),
    ],
)
def test_a_run_whose_models_learned_nothing_says_so(task, said, smoke_run, tmp_path, capsys, monkeypatch):
    """Such a run may show the effect upside down."""
    monkeypatch.delenv("CAUTIOUS_DATA", raising=False)
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("cautious_paper.report.html.write_report", lambda store: store.folder)  # drawing takes long
    shutil.copytree(smoke_run(task).folder, tmp_path / "run")
    main(["reproduce", task, "--scale", "smoke", "--out", str(tmp_path / "run")])
    assert f"warning: {said}" in " ".join(capsys.readouterr().out.split())


def test_what_no_model_would_lose_is_the_variance_of_the_rewards():
    """A tenth of the digits is each digit: a label pays 1 with probability .1, so .09; help always pays the same."""
    rewards = ask_for_help_rewards(torch.arange(10))
    images = torch.zeros(10, 28, 28, dtype=torch.uint8)
    assert ImageTrainingProblem(images, rewards).mean_reward_loss == pytest.approx(0.9 / 11, rel=1e-6)
    both = torch.stack([rewards, rewards + 2.0])  # without and with the bit: each is one away from the mean
    assert ImageTrainingProblem(images, both).mean_reward_loss == pytest.approx(0.9 / 11 + 1, rel=1e-6)
    world = driving_world(novel=False)
    assert DrivingTrainingProblem(world).mean_reward_loss == pytest.approx(world.pair_rewards.numpy().var(), rel=1e-6)


def test_repeats_have_a_seed_a_folder_and_a_title_each(tmp_path):
    told = []

    def run(seed, folder, progress):
        progress("training", 1, 2)
        return Store.create(folder, "driving", {"seed": seed})

    runs = run_repeats(run, tmp_path, 5, 2, LocalExecutor(), lambda *now: told.append(now))
    assert {seed: store.folder.name for seed, store in runs.items()} == {5: "seed-5", 6: "seed-6"}
    assert [store.manifest["settings"]["seed"] for store in runs.values()] == [5, 6]
    assert told == [("seed 5: training", 1, 2), ("seed 6: training", 1, 2)]


def test_the_one_ledger_counts_runs(tmp_path):
    def ledger(*shown):
        return [ClaimResult(f"C{number}", f"claim {number}", one, str(one)) for number, one in enumerate(shown)]

    tallies = tallied({0: ledger(True, True, None, False), 1: ledger(True, False, None, None)})
    assert [tally.words for tally in tallies] == ["2 of 2", "1 of 2", "not run", "0 of 1 (1 without a verdict)"]
    assert [tally.missed for tally in tallies] == [[], [1], [], [0]]
    path = write_tallies(tmp_path, "driving", tallies)
    written = load_json(path)
    path.write_text(json.dumps(written))
    with pytest.raises(BadFileError, match="its checksum is gone"):  # its format is one that has them
        load_json(path)
    assert (written["experiment"], written["seeds"]) == ("driving", [0, 1])
    assert [(row["claim"], row["shown"], row["judged"]) for row in written["claims"]] == [
        ("C0", 2, 2),
        ("C1", 1, 2),
        ("C2", 0, 0),
        ("C3", 0, 1),
    ]
    assert written["claims"][1]["runs"]["1"] == {"verdict": "not reproduced", "numbers": "False"}
    table = repeats_table(tallies)
    assert table.row_count == 4
    assert [str(cell) for cell in table.columns[2].cells] == [
        "2 of 2",
        "1 of 2",
        "not run",
        "0 of 1 (1 without a verdict)",
    ]
    assert [str(cell) for cell in table.columns[3].cells] == ["", "1", "", "0"]
