"""The page of an image run, and the verbs that write it."""

from __future__ import annotations

import html
import shutil

import pytest
from fake_runs import FakeRun, bearing_out

from cautious.cli.main import main
from cautious.errors import InvalidInputError
from cautious_paper.experiments.images.settings import Setting
from cautious_paper.experiments.store import Store
from cautious_paper.report.html import write_report
from cautious_paper.report.images.image_run import ImageRun
from cautious_paper.report.plotting import save_figure
from cautious_paper.report.report_spec import REPORTS, chosen_of, facts_of, figures_of, ledger_of, tables_of

TASKS = ("ask-for-help", "non-obvious", "help-if-available", "data-extent")


def test_every_experiment_has_a_report():
    assert set(REPORTS) == {*TASKS, "driving"}


@pytest.mark.parametrize("task", TASKS)
def test_an_empty_run_has_a_page_too(task, tmp_path):
    run = FakeRun(tmp_path, task, letters=False)
    assert "not run" in write_report(run.store).read_text(encoding="utf-8")


def test_an_unknown_experiment_is_refused(tmp_path):
    store = Store.create(tmp_path, "juggling", {})
    with pytest.raises(InvalidInputError, match=r"'juggling', only for 'driving', 'ask-for-help'"):
        write_report(store)


def test_tables_and_figures_by_id(tmp_path):
    store = bearing_out(tmp_path, "help-if-available").store
    tables, figures = chosen_of(store, ["bit_TEST", "dial"])
    assert [table.id for table in tables] == ["bit_TEST"]
    assert list(figures) == ["dial"]
    with pytest.raises(
        InvalidInputError, match=r"'bit_Test' is not a table or figure of this run; it has 'novel-help-0.05'"
    ):
        chosen_of(store, ["bit_Test"])
    names = [table.id for table in tables_of(store)] + list(figures_of(store))
    assert len(set(names)) == len(names)


def check_page(store):
    """One file that holds every figure, table and claim, and needs no network."""
    text = (store.folder / "report.html").read_text(encoding="utf-8")
    names = list(figures_of(store))
    for name in names:
        assert f'alt="{name}:' in text
        assert (store.folder / "figures" / f"{name}.svg").exists()
    assert text.count("data:image/png;base64,") == len(names)
    places = [
        text.index(words)
        for words in ("What happened", f'alt="{names[0]}:', "What the paper claims", "How this was made")
    ]
    assert places == sorted(places)
    for origin in store.manifest["origins"].values():
        assert f"({html.escape(origin)})" in text
    for table in tables_of(store):
        assert f'id="{table.id}"' in text
    for verdict in ledger_of(store):
        assert f"<td>{html.escape(verdict.claim)}</td>" in text
    assert "<script" not in text
    assert "http://" not in text.split("</style>")[1]


class TestCommandLine:
    @pytest.mark.xdist_group("smoke runs")
    def test_reproduce_then_report(self, smoke_run, tmp_path, capsys, monkeypatch):
        store = smoke_run("non-obvious")
        monkeypatch.delenv("CAUTIOUS_DATA", raising=False)
        monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))
        folder = tmp_path / "run"
        shutil.copytree(store.folder, folder)
        main(["reproduce", "non-obvious", "--scale", "smoke", "--device", "cpu", "--out", str(folder)])
        out = capsys.readouterr().out
        assert "Novel images" in out
        assert "NO2" in out
        check_page(Store.open(folder))
        main(["report", str(folder), "--out", str(tmp_path / "drawn"), "--only", "dial", "digits"])
        out = capsys.readouterr().out
        assert "Familiar digits" in out
        assert (tmp_path / "drawn" / "figures" / "dial.png").exists()
        assert not (tmp_path / "drawn" / "report.html").exists()

    def test_a_setting_has_a_folder_of_its_own(self, tmp_path, capsys, monkeypatch):
        monkeypatch.delenv("CAUTIOUS_DATA", raising=False)
        monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)
        main(["reproduce", "data-extent", "--setting", "draws", "--scale", "smoke", "--device", "cpu"])
        assert "Help on fashion, draw by draw" in capsys.readouterr().out
        check_page(Store.open(tmp_path / "runs" / "data-extent-draws-smoke"))
        main(["reproduce", "non-obvious", "--setting", "as-printed", "--scale", "smoke", "--device", "cpu"])
        run = ImageRun(Store.open(tmp_path / "runs" / "non-obvious-as-printed-smoke"))
        assert run.setting is Setting.AS_PRINTED

    def test_bad_requests(self, tmp_path, capsys):
        run = FakeRun(tmp_path / "run", "ask-for-help")
        other = Store.create(tmp_path / "other", "juggling", {})
        for arguments, message in (
            (["report", str(run.store.folder), "--only", "pie-chart"], "'pie-chart' is not a table or figure"),
            (["report", str(other.folder)], "no report is known for experiment 'juggling'"),
            (["reproduce", "driving", "--scale", "smoke", "--data", str(tmp_path)], "driving uses no image data"),
            (["reproduce", "ask-for-help", "--scale", "smoke", "--data", str(tmp_path / "none")], "no such folder"),
        ):
            with pytest.raises(SystemExit) as stop:
                main([*arguments, "--out", str(tmp_path / "x")])
            assert stop.value.code == 2
            assert message in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "x").exists()


def test_networks_that_never_take_a_label_have_no_index(tmp_path):
    run = bearing_out(tmp_path, "help-if-available", runs=1)
    for stage in (name for name in run.store.stages() if name.endswith("available")):
        numbers = run.store.numbers(stage)
        numbers["optim"]["index"] = {"mean": None, "half_width": None}
        run.store.save(stage, numbers, run.store.arrays(stage))
    _, draw = figures_of(run.store)["index"]
    save_figure(draw(run.store), tmp_path / "index.png")
    assert any("optim nan" in verdict.numbers for verdict in ledger_of(run.store))
    assert tables_of(run.store)


def test_what_made_a_stage_is_said(tmp_path):
    run = bearing_out(tmp_path, "non-obvious")
    assert "; with commit" not in facts_of(run.store)
    stage = "non-obvious-fashion"
    provenance = {"commit": "deadbeef0000", "versions.torch": "1.13.0"}
    run.store.save(stage, run.store.numbers(stage), run.store.arrays(stage), provenance=provenance)
    assert facts_of(run.store).endswith(f"; with commit deadbeef0000, versions.torch 1.13.0: {stage}")
