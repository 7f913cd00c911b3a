"""Settings by name: what is read, what is refused, and that a changed run is reported to its end."""

from __future__ import annotations

import csv

import pandas
import pytest
import torch

from cautious.cli.main import main
from cautious.errors import InvalidInputError, MissingFileError
from cautious_paper.experiments import load_run
from cautious_paper.experiments.changes import changed, known_settings, parse_changes
from cautious_paper.experiments.driving.driving_experiment import experiment_at, run_driving, stage_name
from cautious_paper.experiments.images.settings import image_experiment_at
from cautious_paper.experiments.run_frames import Row
from cautious_paper.experiments.store import Store
from cautious_paper.report.html import write_report
from cautious_paper.report.report_spec import ledger_of, tables_of


def test_every_kind_of_setting_is_read_by_its_type():
    words = [
        "num_iterations=200",
        "num_test=none",
        "curve_sizes=20,40",
        "learning_rate=1e-3",
        "unit=tenths",
        "noise=0.5",
    ]
    other = changed(image_experiment_at("ask-for-help", "small", seed=3), parse_changes(words))
    assert (other.num_iterations, other.num_test, other.curve_sizes) == (200, None, (20, 40))
    assert {variant.training.learning_rate for variant in other.variants} == {1e-3}
    assert {(variant.unit, variant.noise) for variant in other.variants} == {("tenths", 0.5)}
    assert [variant.training.seed for variant in other.variants] == [3, 3, 3]


def test_nothing_changed_is_the_same_experiment():
    for task in ("ask-for-help", "non-obvious", "help-if-available", "data-extent"):
        assert changed(image_experiment_at(task, "paper"), {}) == image_experiment_at(task, "paper")
    assert changed(experiment_at("paper"), {}) == experiment_at("paper")


def test_what_a_task_varies_makes_ensembles():
    extents = changed(image_experiment_at("data-extent", "small"), {"fraction": "0.05,0.005"})
    assert [(variant.name, variant.fraction) for variant in extents.variants] == [
        ("extent-5", 0.05),
        ("extent-0.5", 0.005),
    ]
    assert {variant.training.num_epochs for variant in extents.variants} == {70}  # as the main one
    chosen = changed(image_experiment_at("ask-for-help", "small"), {"variants": "help-0.5"})
    assert [variant.name for variant in chosen.variants] == ["help-0.5"]


def test_levels_come_most_cautious_first():
    other = changed(image_experiment_at("non-obvious", "small"), {"levels": "10-of-10,1-of-5,1-of-20,5-of-10,1-of-10"})
    assert other.levels == ("1-of-20", "1-of-10", "1-of-5", "5-of-10", "10-of-10")
    driving = changed(experiment_at("small"), {"levels": "12-of-12,1-of-12", "probabilities": "0.3,0.6"})
    assert ([str(level) for level in driving.levels], driving.default_probability) == (["1-of-12", "12-of-12"], 0.3)


@pytest.mark.parametrize(
    ("task", "words", "says"),
    [
        ("ask-for-help", "colour=red", "no setting of ask-for-help; it has levels, num_iterations"),
        ("non-obvious", "help_reward=1", "no setting of non-obvious"),
        ("ask-for-help", "num_iterations=many", "must be a whole number"),
        ("ask-for-help", "levels=1-of-100", "exceeds the 64 models"),
        ("ask-for-help", "levels=1-of-10 num_models=5", "exceeds the 5 models"),
        ("ask-for-help", "help_reward=0.3,0.3", "give each value once"),
        ("data-extent", "fraction=2", "above 0 and at most 1"),
        ("ask-for-help", "variants=help-9", "help-0.25"),
        ("driving", "levels=1-of-10,1-of-20", "the same n"),
        ("driving", "levels=1-of-10 n=20", "the same as ks and n"),
        ("driving", "default_probability=0.7", "must be one of the probabilities"),
        ("driving", "probabilities=1.5", "at most 1"),
    ],
)
def test_what_cannot_work_is_refused_before_the_training(task, words, says):
    experiment = experiment_at("small") if task == "driving" else image_experiment_at(task, "small")
    with pytest.raises(InvalidInputError, match=says):
        changed(experiment, parse_changes(words.split()))


def test_every_known_setting_says_what_it_takes():
    for experiment in (image_experiment_at("help-if-available", "small"), experiment_at("small")):
        for field in known_settings(experiment).values():
            assert field.takes


def test_a_changed_experiment_runs_is_judged_and_exported(tmp_path, monkeypatch, capsys):
    """Other levels and another reward of help: every table, figure and claim shows what applies."""
    monkeypatch.chdir(tmp_path)
    words = "levels=2-of-6,6-of-6 help_reward=0.3 num_models=8 num_train=60 num_test=20 num_runs=2 num_dial_images=0"
    sets = [part for word in words.split() for part in ("--set", word)]
    main(["reproduce", "ask-for-help", "--scale", "smoke", *sets])
    (folder,) = (tmp_path / "runs").iterdir()
    assert "help_reward-0.3" in folder.name
    assert "not judged without help-0.25" in " ".join(line.numbers for line in ledger_of(Store.open(folder)))
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "help pays 0.3" in page
    assert "not the paper&#x27;s experiment" in page
    main(["report", str(folder), "--csv", "--only", "novel-help-0.3"])
    with open(folder / "tables" / "novel-help-0.3.csv", newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header[3:] == ["2-of-6", "6-of-6", "optim"]
    assert rows
    frame = load_run(folder).to_frame()
    assert list(frame.columns) == list(Row._fields)
    (one,) = (
        frame.query("images == 'fashion' and regime == 'single-state' and level == '2-of-6' and run == 1")
        .query("measure == 'help_probability'")
        .value
    )
    stored = Store.open(folder).numbers("help-0.3-fashion")["behaviour"]["single-state"]["help_probability"]
    assert one == stored[0][1]
    written = pandas.read_csv(folder / "numbers.csv")
    pandas.testing.assert_series_equal(written.value, frame.value, check_exact=True)
    assert capsys.readouterr().out


@pytest.fixture(scope="module")
def driving(tmp_path_factory):
    settings = {"levels": "1-of-4", "num_models": "5", "num_epochs": "2", "num_iterations": "3", "num_runs": "2"}
    settings |= {"probabilities": "0.4", "num_optim": "3"}
    return run_driving(changed(experiment_at("smoke"), settings), tmp_path_factory.mktemp("driving"))


def test_a_single_level_of_driving_is_reported(driving, tmp_path):
    verdicts = {verdict.claim: verdict for verdict in ledger_of(driving)}
    assert verdicts["DR1"].reproduced is None
    assert verdicts["DR4"].reproduced is None  # no level with k = n
    assert "1-of-4" in {row[0] for table in tables_of(driving) for row in table.rows}
    assert write_report(driving, tmp_path).exists()


def test_the_frame_of_driving_has_what_the_store_has(driving):
    frame = load_run(driving.folder).to_frame()
    numbers = driving.numbers(stage_name(0.4))
    speeds = frame.query("sampling == 'queue' and measure == 'speed'").sort_values("run").value
    assert speeds.tolist() == numbers["statistics"]["queue"]["speed"][0]
    networks = frame.query("level == 'optim' and measure == 'collisions'").value
    assert torch.equal(torch.tensor(networks.tolist()), torch.tensor(numbers["statistics"]["optim"]["collisions"]))
    assert set(frame.query("study == 'training'").measure) == {"seconds", "loss_median", "loss_largest"}
    assert set(frame.variant) == {"", "p=0.4"}


def test_a_folder_without_a_run_says_so(tmp_path):
    with pytest.raises(MissingFileError, match="there is no run here"):
        load_run(tmp_path / "nope")
