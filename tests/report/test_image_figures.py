"""Every figure of every image task draws: from a real smoke run, from a complete made-up one, and from torn ones."""

from __future__ import annotations

import shutil

import pytest
from fake_runs import FakeRun, bearing_out, usual
from matplotlib.backends.backend_agg import FigureCanvasAgg

from cautious_paper.report.images.image_figures import image_figures
from cautious_paper.report.plotting import save_figure

TASKS = ("ask-for-help", "non-obvious", "help-if-available", "data-extent")
EXPECTED = {
    "ask-for-help": {"help", "dial", "models", "sensitivity-help", "actions", "convergence"},
    "non-obvious": {"index", "dial", "models", "actions", "convergence"},
    "help-if-available": {
        *("help", "index", "index-help-as-zero", "dial", "models", "sensitivity-help", "sensitivity-index"),
        *("actions-available", "actions-unavailable", "convergence-available", "convergence-unavailable"),
    },
    "data-extent": {
        *("sensitivity-help", "dial", "models"),
        *(f"{kind}-extent-{percent}" for kind in ("actions", "convergence") for percent in (1, 10, 100)),
    },
}


def expected(task, sets):
    """Ids of a complete run with these sets."""
    bits = ("-available", "-unavailable") if task == "help-if-available" else ("",)
    variants = ("-extent-1", "-extent-10", "-extent-100") if task == "data-extent" else ("",)
    found = {f"by-label-{images}{variant}" for images in sets if images != "digits" for variant in variants}
    return EXPECTED[task] | found | {f"samples-{images}{bit}" for images in sets for bit in bits}


def draw_all(store, render=False):
    """Number of panels of every figure; laying one out and rendering it takes longest, so that not every test does."""
    sizes = {}
    for name, (caption, draw) in image_figures(store).items():
        assert caption.endswith(".")
        figure = draw(store)
        sizes[name] = len(figure.axes)
        if render:
            FigureCanvasAgg(figure).draw()
    return sizes


@pytest.mark.xdist_group("smoke runs")
@pytest.mark.parametrize("task", TASKS)
def test_a_smoke_run_draws_without_training(task, smoke_run, tmp_path, monkeypatch):
    store = smoke_run(task)
    monkeypatch.setattr("cautious.executors.train", None)
    monkeypatch.setattr("cautious_paper.experiments.images.image_experiment.solve_bandit", None)
    assert set(draw_all(store, render=task == "help-if-available")) == expected(task, ("digits", "fashion"))
    name, (_, draw) = next(iter(image_figures(store).items()))
    save_figure(draw(store), tmp_path / f"{name}.png")
    assert (tmp_path / f"{name}.png").stat().st_size > 5000


@pytest.mark.parametrize("task", TASKS)
def test_a_complete_run_draws_with_letters(task, tmp_path):
    sizes = draw_all(bearing_out(tmp_path, task).store)
    assert set(sizes) == expected(task, ("digits", "fashion", "letters"))
    if task == "help-if-available":
        assert sizes["help"] == sizes["index"] == 2  # all-images, single-image
        assert sizes["sensitivity-help"] == 6  # by three rewards
        assert sizes["convergence-available"] == 6  # two regimes x three sets
        assert sizes["actions-available"] == 4  # two regimes x two novel sets
        assert sizes["by-label-letters"] == 6 + 1  # help available or not x three policies, and the colour bar
        assert sizes["samples-fashion-available"] == 3 * 8


@pytest.mark.parametrize("task", TASKS)
def test_torn_runs_draw_what_is_there(task, tmp_path):
    run = FakeRun(tmp_path / "torn", task)
    assert image_figures(run.store) == {}
    run.behaviour(run.variants[0], "fashion", run.bits[0], **usual(run, run.variants[0], "fashion", run.bits[0]))
    partial = set(draw_all(run.store))
    assert partial < expected(task, ("digits", "fashion", "letters"))
    assert not {name for name in partial if name.startswith(("dial", "models")) or "letters" in name}
    assert {name for name in partial if name.startswith("samples-fashion")}
    run.studies("letters", run.bits[-1])
    assert {"dial", "models"} <= set(draw_all(run.store))


def test_runs_that_all_agree_or_have_no_index_draw(tmp_path):
    run = bearing_out(tmp_path, "help-if-available", runs=1)
    numbers = run.store.numbers("help-0.05-fashion-available")
    numbers["behaviour"]["all-states"]["index"] = [[None], [2.0], [3.0], [4.0]]
    run.store.save("help-0.05-fashion-available", numbers)
    figures = image_figures(run.store)
    for name in ("help", "index", "sensitivity-index", "actions-available", "models"):
        save_figure(figures[name][1](run.store), tmp_path / f"{name}.png")


def test_figures_need_neither_models_nor_training_data(tmp_path):
    run = bearing_out(tmp_path / "run", "non-obvious")
    shutil.copytree(tmp_path / "run", tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "run")
    run.store.folder = tmp_path / "elsewhere"
    assert draw_all(run.store)
