"""The driving experiment end to end at smoke scale: run, resume, refuse, redraw, watch."""

from __future__ import annotations

import json
import shutil
from functools import partial

import pytest
import torch
from PIL import Image

from cautious import executors as executor
from cautious.beliefs.ensemble import RewardEnsemble
from cautious.cli.main import main
from cautious.errors import BadFileError, InvalidInputError, MissingFileError
from cautious.ops.regret import uniform_policy
from cautious.risk import KofN
from cautious.seeding import make_rng
from cautious_paper.evaluation.driving_safety import safety_statistics
from cautious_paper.experiments.demos import first_decisions
from cautious_paper.experiments.demos.rollouts import drive_both, sample_drive, trained_belief
from cautious_paper.experiments.driving import driving_experiment as driving
from cautious_paper.experiments.driving.driving_experiment import SCALES, experiment_at, run_driving
from cautious_paper.experiments.store import Store
from cautious_paper.report.claims.driving import driving_ledger
from cautious_paper.report.driving import driving_report
from cautious_paper.report.driving.driving_report import FIGURES
from cautious_paper.report.html import write_report
from cautious_paper.worlds.driving import driving_world


@pytest.fixture(scope="module")
def finished(smoke_run):
    """One smoke run, shared; tests that change it work on a copy."""
    return smoke_run("driving")


def copy_of(store: Store, target) -> Store:
    shutil.copytree(store.folder, target)
    return Store.open(target)


def test_every_scale_builds_and_none_trains():
    for scale in SCALES:
        experiment = experiment_at(scale, seed=3)
        assert experiment.training.seed == 3
        assert experiment.levels[-1] == KofN(20, 20)
        assert experiment.default_probability in experiment.probabilities
        json.dumps(experiment.as_settings())
    paper = experiment_at("paper")
    assert (paper.training.num_models, paper.training.num_epochs, paper.ks) == (2000, 51_200, (1, 2, 4, 5, 10, 20))
    with pytest.raises(InvalidInputError, match="'smoke', 'demo', 'small', 'paper'"):
        experiment_at("huge")


def test_a_run_holds_everything_a_figure_needs(finished):
    manifest = finished.manifest
    assert manifest["settings"]["training"]["num_models"] == 24
    assert {"date", "commit", "versions", "hardware"} <= manifest.keys()
    numbers, arrays = finished.numbers("novel-p0.5"), finished.arrays("novel-p0.5")
    assert numbers["levels"] == ["1-of-20", "5-of-20", "20-of-20"]
    assert arrays["queue_policy"].shape == (3, 2, 784, 5)
    assert arrays["queue_sampled_value"].shape == (3, 2, 8)
    world = driving_world(True, 0.5)
    speed = safety_statistics(world, arrays["queue_policy"])["speed"]
    assert torch.allclose(
        torch.tensor(numbers["statistics"]["queue"]["speed"], dtype=torch.float64), speed, rtol=0, atol=1e-12
    )
    for policy in ("last", "average", "best"):
        assert all(gap >= 0 for row in numbers["certificates"]["queue"][policy]["gap"] for gap in row)
    assert len(numbers["statistics"]["optim"]["speed"]) == 8


def test_a_finished_run_is_not_run_again(finished, tmp_path, monkeypatch):
    store = copy_of(finished, tmp_path / "run")
    monkeypatch.setattr(executor, "train", None)
    monkeypatch.setattr(driving, "solve_mdp", None)
    assert run_driving(experiment_at("smoke"), store.folder).numbers("novel-p1") == finished.numbers("novel-p1")


def test_a_lost_stage_is_made_again_the_same(finished, tmp_path):
    store = copy_of(finished, tmp_path / "run")
    (store.folder / "novel-p0.5.json").unlink()
    again = run_driving(experiment_at("smoke"), store.folder)
    assert torch.equal(again.arrays("novel-p0.5")["queue_policy"], finished.arrays("novel-p0.5")["queue_policy"])
    assert again.numbers("novel-p0.5")["statistics"] == finished.numbers("novel-p0.5")["statistics"]


def test_a_run_with_other_settings_is_refused(finished):
    with pytest.raises(BadFileError, match=r"training\.seed: 0 there, 1 here"):
        run_driving(experiment_at("smoke", seed=1), finished.folder)


def test_broken_stores_are_named(finished, tmp_path):
    with pytest.raises(MissingFileError, match=r"manifest\.json"):
        Store.open(tmp_path)
    store = copy_of(finished, tmp_path / "run")
    path = store.folder / "novel-p0.5.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BadFileError, match=r"novel-p0\.5\.safetensors"):
        write_report(store)
    (store.folder / "manifest.json").write_text('{"format": 99, "experiment": "driving", "settings": {}}')
    with pytest.raises(BadFileError, match="format 99"):
        Store.open(store.folder)
    (store.folder / "manifest.json").write_text("[]")
    with pytest.raises(BadFileError, match="not the manifest"):
        Store.open(store.folder)


def test_every_figure_redraws_from_a_copied_store_without_training(finished, tmp_path, monkeypatch):
    store = copy_of(finished, tmp_path / "elsewhere")
    shutil.rmtree(store.folder / "belief")
    monkeypatch.setattr(executor, "train", None)
    report = write_report(store)
    text = report.read_text(encoding="utf-8")
    for name in FIGURES:
        assert (store.folder / "figures" / f"{name}.png").stat().st_size > 5000
        assert (store.folder / "figures" / f"{name}.svg").read_text(encoding="utf-8").startswith("<?xml")
        assert f'alt="{name}:' in text
    assert text.count("data:image/png;base64,") == len(FIGURES)
    assert "http://" not in text.split("</style>")[1]
    assert "<script" not in text


def rewritten(store: Store, **statistics) -> Store:
    """The store with other numbers in it, to see the ledger change its mind."""
    numbers = store.numbers("novel-p0.5")
    for name, (queue, optim) in statistics.items():
        numbers["statistics"]["queue"][name] = queue
        numbers["statistics"]["optim"][name] = optim
        numbers["statistics"]["mean"][name] = optim[0]
    store.save("novel-p0.5", numbers)
    return store


def test_the_ledger_judges_by_the_numbers(finished, tmp_path):
    falling = ([[1.0, 1.1], [2.0, 2.1], [2.95, 2.95]], [2.94, 2.93])
    store = rewritten(copy_of(finished, tmp_path / "yes"), speed=falling, collisions=falling, collision_speed=falling)
    verdicts = {verdict.claim: verdict for verdict in driving_ledger(store)}
    claims = ("DR1", "DR2", "DR3", "DR4", "DR4, each network")
    assert [verdicts[claim].word for claim in claims] == ["reproduced"] * 5
    assert verdicts["CV1"].word == "not judged"  # eight iterations
    assert verdicts["TH1"].reproduced
    assert verdicts["TH2"].reproduced
    standing = ([[0.0, 0.0]] * 3, [0.0, 0.0])
    store = rewritten(copy_of(finished, tmp_path / "standing"), speed=standing, collisions=standing)
    assert [verdict.word for verdict in driving_ledger(store)[:2]] == ["not reproduced"] * 2  # and nothing warns
    overlapping = ([[1.0, 2.96], [2.0, 2.1], [2.95, 2.95]], [2.94, 2.6])
    store = rewritten(copy_of(finished, tmp_path / "no"), speed=overlapping)
    verdicts = {verdict.claim: verdict for verdict in driving_ledger(store)}
    assert verdicts["DR1"].word == "not reproduced"
    assert verdicts["DR4"].word == "reproduced"
    assert verdicts["DR4, each network"].word == "not reproduced"


class TestDrives:
    def test_the_same_luck_gives_the_same_drive(self):
        world = driving_world(True, 0.5)
        policy = uniform_policy(784, 5)
        one, two = (sample_drive(world, policy, 30, make_rng(0, "drive")) for _ in range(2))
        assert one == two
        assert one != sample_drive(world, policy, 30, make_rng(1, "drive"))
        assert len(one) == 31
        assert one[0].state == (2, 0, None, None)

    def test_two_levels_side_by_side(self, finished):
        ensemble = RewardEnsemble.load(finished.folder / "belief")
        drives = drive_both(ensemble, [KofN(1, 20), KofN(20, 20)], 0.5, 10, seed=0)
        assert [drive.title for drive in drives] == ["1-of-20", "20-of-20"]

    def test_a_folder_without_a_belief_is_refused(self, tmp_path):
        with pytest.raises(MissingFileError, match="holds no trained belief"):
            trained_belief(tmp_path)


class TestCommandLine:
    def test_reproduce_then_report(self, finished, tmp_path, capsys):
        store = copy_of(finished, tmp_path / "run")
        main(["reproduce", "driving", "--scale", "smoke", "--out", str(store.folder)])
        out = capsys.readouterr().out
        assert "1-of-20" in out
        assert "DR1" in out
        main(["report", str(store.folder), "--out", str(tmp_path / "drawn")])
        assert (tmp_path / "drawn" / "report.html").exists()

    def test_watch_writes_a_gif_and_shows_a_terminal(self, finished, tmp_path, capsys):
        common = ["watch", "driving", "--belief", str(finished.folder), "--steps", "6"]
        main([*common, "--gif", str(tmp_path / "drive.gif")])
        with Image.open(tmp_path / "drive.gif") as image:
            assert image.n_frames >= 5
            assert image.size[0] > 400
        main(common)
        out = capsys.readouterr().out
        assert "hits per 100" in " ".join(out.split())

    def test_watch_shows_the_belief_of_the_package_and_that_caution_pays(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        main(["watch", "driving", "--steps", "1", "--gif", "drive.gif"])
        assert {path.name for path in tmp_path.iterdir()} == {"drive.gif"}  # nothing is trained
        cautious, ordinary = drive_both(RewardEnsemble.load("driving"), [KofN(1, 20), KofN(20, 20)], 0.5, 1, seed=0)
        assert len(cautious.frames) == 2
        assert cautious.long_run.collisions < 0.85 * ordinary.long_run.collisions
        assert f"{100 * cautious.long_run.collisions / 10_000:.2f}" in capsys.readouterr().out

    def test_the_demo_needs_no_training_and_its_report_has_both_parts(self, tmp_path, monkeypatch):
        monkeypatch.setattr(executor, "train", None)
        monkeypatch.setattr(first_decisions, "first_decisions", partial(first_decisions.first_decisions, 20))
        monkeypatch.setattr(driving_report, "FIGURES", {})  # drawn in other tests
        main(["demo", "--out", str(tmp_path)])
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        places = [
            page.index(words) for words in ("What happened", "On clothes", "first-decisions:", "What the paper claims")
        ]
        assert places == sorted(places)
        assert "Digits and clothes" in page
        verdicts = {verdict.claim: verdict.reproduced for verdict in driving_ledger(Store.open(tmp_path))}
        assert all(verdicts[claim] for claim in ("DR1", "DR2", "DR3", "DR4", "TH1", "TH2"))
        assert verdicts["CO1"] is None  # nothing was trained

    def test_bad_requests(self, tmp_path, capsys):
        for arguments, message in (
            (["watch", "driving", "--belief", str(tmp_path)], "no trained belief"),
            (["watch", "driving", "--level", "3-of-2"], "exceeds n=2"),
            (["watch", "driving", "--steps", "0"], "must be at least 1"),
            (["watch", "driving", "--gif", "drive.png"], "ends in .gif"),
            (["report", str(tmp_path)], "manifest.json"),
            (["reproduce", "driving", "--scale", "smoke", "--seed", "-1", "--out", str(tmp_path / "x")], "--seed -1"),
            (["reproduce", "driving", "--device", "abacus", "--out", str(tmp_path / "x")], "--device 'abacus'"),
        ):
            with pytest.raises(SystemExit) as stop:
                main(arguments)
            assert stop.value.code == 2
            assert message in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "x").exists()

    def test_the_courier_demo(self, tmp_path, capsys):
        main(["demo", "--courier", "--out", str(tmp_path)])
        assert "10-of-10" in capsys.readouterr().out
        record = json.loads((tmp_path / "courier.json").read_text())
        ring_road = record["shares"]["ring road"]
        assert ring_road[0] < 0.01
        assert ring_road[-1] > 0.8  # cautious: the road every model knows
        assert (tmp_path / "courier.png").stat().st_size > 5000
