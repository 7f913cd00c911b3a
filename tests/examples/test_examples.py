"""The examples, smaller: each acts as usual where familiar and carefully where novel."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _embedded_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CAUTIOUS_DATA", raising=False)
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested():
    here = Path(__file__).read_text(encoding="utf-8")
    assert all(f'"{path.stem}"' in here for path in EXAMPLES.glob("*.py"))


LOGGED = ["--models", "12", "--epochs", "10", "--logged", "3000", "--shown", "150"]


def test_logged_feedback_passes_clothes_on_and_keeps_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    familiar, novel = example("logged_feedback").main([*LOGGED, "--out", str(tmp_path)])
    assert familiar.caution.mean() < 0.2
    assert novel.caution.mean() > 2 * familiar.caution.mean()
    assert novel.passed_on > novel.ordinarily + 0.2
    assert familiar.passed_on < familiar.ordinarily + 0.15
    assert (tmp_path / "logged-feedback.png").stat().st_size > 1000
    assert "clothes (novel)" in capsys.readouterr().out


def test_logged_feedback_at_an_ordinary_level_is_ordinary(tmp_path: Path):
    for result in example("logged_feedback").main([*LOGGED, "--out", str(tmp_path), "--level", "10-of-10"]):
        assert result.caution.max() == 0
        assert result.passed_on == result.ordinarily


def test_the_log_holds_one_action_a_case():
    module = example("logged_feedback")
    digits = module.load_images("digits", "train")
    vectors, labels = module.as_vectors(digits.images[:300]), digits.labels[:300]
    logged = module.logged_rewards(vectors, labels, seed=0)
    assert ((~logged.isnan()).sum(dim=1) == 1).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_frozen_lake_goes_round_what_it_does_not_know(tmp_path: Path, seed: int):
    arguments = ["--out", str(tmp_path), "--seed", str(seed)]
    usual, careful, bold, cautious = example("frozen_lake").main(arguments)
    assert usual.reached
    assert careful.reached
    assert len(careful.path) == len(usual.path)  # a shortest way, as ordinarily
    assert bold.on_hot_ice >= 1
    assert cautious.on_hot_ice == 0
    assert cautious.reached
    assert cautious.time_on_hot_ice < 0.5 * bold.time_on_hot_ice
    assert (tmp_path / "frozen-lake.png").exists()


def test_image_triage_hands_clothes_to_a_person(tmp_path: Path):
    arguments = ["--out", str(tmp_path), "--calibrate", "80", "--shown", "40", "--at-most", "0.2"]
    digits, clothes = example("image_triage").main(arguments)
    assert digits.to_person <= 0.2
    assert digits.correct > 0.95
    assert clothes.to_person > clothes.ordinarily + 0.4
    assert clothes.decision.caution.mean() > digits.decision.caution.mean() + 0.4
    assert (tmp_path / "image-triage.png").exists()


def test_candidate_answers_are_not_chosen_for_their_style(tmp_path: Path):
    arguments = ["--out", str(tmp_path), "--models", "24", "--epochs", "8", "--prompts", "60", "--candidates", "32"]
    familiar, novel = example("candidate_answers").main(arguments)
    single, mean, cautious = familiar.quality
    assert cautious == pytest.approx(mean, abs=0.1)  # as usual
    assert single == pytest.approx(mean, abs=0.1)
    single, mean, cautious = novel.quality
    assert cautious > max(single, mean) + 0.1
    assert novel.extreme[2] < min(novel.extreme[:2])
    assert (tmp_path / "candidate-answers.png").exists()


def test_an_agent_of_an_own_environment_goes_round_what_is_wet(tmp_path: Path):
    pytest.importorskip("stable_baselines3")
    ordinary, cautious = example("own_environment").main(["--out", str(tmp_path), "--steps", "16000", "--models", "30"])
    assert ordinary.wet > 0.02  # drives through
    assert cautious.wet < 0.5 * ordinary.wet
    assert cautious.place > 0.6  # and still gets there
    assert (tmp_path / "own-environment.png").exists()


def test_a_shop_in_doubt_about_its_demand_orders_less(tmp_path: Path):
    ordinary, cautious = example("inventory").main(["--out", str(tmp_path)])
    orders = [result.solution.mixture.policies[0].argmax(dim=-1)[:5].sum() for result in (ordinary, cautious)]
    assert orders[1] < orders[0]
    tails = [float(cautious.level.value(result.held_out)) for result in (ordinary, cautious)]
    assert tails[1] > 1.1 * tails[0]
    assert (tmp_path / "inventory.png").exists()


def test_a_newcomers_own_comparison_runs_outside_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    assert "cautious_paper" not in (EXAMPLES / "own_comparison.py").read_text(encoding="utf-8")
    frame = example("own_comparison").main(["--seeds", "2", "--out", "kept"])
    found = frame.set_index(["method", "metric"])["mean"]
    assert {method for method, _ in found.index} == {"median_reward", "k_of_n", "risk_neutral", "mean_minus_std"}
    assert found["k_of_n", "worst_tenth"] > found["median_reward", "worst_tenth"] + 0.1  # goes round what is wet
    assert found["k_of_n", "shortfall"] < 1e-3
    assert len((tmp_path / "kept" / "rows.jsonl").read_text().splitlines()) == 8
