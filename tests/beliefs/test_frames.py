"""States and rewards by the names of their columns: pandas, polars, pyarrow and dictionaries."""

from __future__ import annotations

import datetime
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from cautious import CautiousPolicy, FallbackRule, InvalidInputError, RewardEnsemble, calibrate, fit_ensemble
from cautious.beliefs.diagnostics import BeliefWarning
from cautious.policy.calibration import CalibrationWarning
from cautious.tables.frames import as_table, is_frame
from cautious.tables.learn import TableWarning

SMALL: dict[str, Any] = {"num_models": 6, "num_epochs": 30, "batch_size": 32, "progress": False}


def cases(count: int, seed: int) -> pd.DataFrame:
    """Two kinds of cases on two sites, with labels of their own."""
    rng, kind = np.random.default_rng(seed), np.arange(count) % 2
    columns = {
        "temperature": 37 + 2 * kind + 0.2 * rng.normal(size=count),
        "pulse": (80 + 40 * kind + 5 * rng.normal(size=count)).round(),
        "site": rng.choice(["north", "south"], count),
    }
    return pd.DataFrame(columns, index=[f"case {number}" for number in range(count)])


def paid(states: pd.DataFrame) -> pd.DataFrame:
    ill = (states["temperature"] > 38).astype(float)
    return pd.DataFrame({"rest": 1 - ill, "pill": ill, "ask": 0.4})


def as_array(states: pd.DataFrame) -> np.ndarray:
    """What the command line makes of these columns, by hand."""
    sites = [states["site"] == site for site in ("north", "south")]
    return np.stack([states["temperature"], states["pulse"], *sites], axis=1).astype(float)


@pytest.fixture(scope="module")
def states() -> pd.DataFrame:
    return cases(120, 0)


@pytest.fixture(scope="module")
def belief(states) -> RewardEnsemble:
    return fit_ensemble(states, paid(states), **SMALL)


FORMS = {
    "pandas, in another order": lambda frame: frame[["site", "pulse", "temperature"]],
    "polars": lambda frame: pl.from_pandas(frame),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "dictionary": lambda frame: frame.to_dict("list"),
    "arrays by name": lambda frame: {name: frame[name].to_numpy() for name in reversed(frame.columns)},
    "categories": lambda frame: frame.astype({"site": "category", "pulse": "Int64"}),
    "array": as_array,
    "tensor": lambda frame: torch.from_numpy(as_array(frame)),
}


@pytest.mark.parametrize("form", FORMS)
def test_states_mean_the_same_in_any_form(states, belief, form):
    few = states.iloc[:9]
    given = FORMS[form](few)
    assert torch.equal(belief.rewards(given), belief.rewards(few))
    policy = CautiousPolicy(belief, "1-of-6")
    assert torch.equal(policy.decide(given).probabilities, policy.decide(few).probabilities)
    assert policy.predict(given)[0].tolist() == policy.decide(few).action.tolist()


@pytest.mark.parametrize("form", ["polars", "dictionary", "pyarrow", "pandas, in another order"])
def test_training_has_the_same_bits_in_any_form(states, belief, form):
    rewards = paid(states)
    same = fit_ensemble(FORMS[form](states), FORMS["polars"](rewards) if form == "polars" else rewards, **SMALL)
    if form == "pandas, in another order":
        assert [feature.name for feature in same.columns.features] == ["site", "pulse", "temperature"]
        return
    assert torch.equal(same.parameters, belief.parameters)
    assert same.columns == belief.columns


def test_a_frame_of_numbers_is_learned_as_its_array(states):
    numbers = states[["temperature", "pulse"]]
    by_name = fit_ensemble(numbers, paid(states), **SMALL)
    by_place = fit_ensemble(numbers.to_numpy(), paid(states).to_numpy(), **SMALL)
    assert torch.equal(by_name.parameters, by_place.parameters)
    assert by_place.columns is None
    assert by_place.actions is None
    assert torch.equal(by_place.rewards(numbers), by_name.rewards(numbers))  # by position, where there are no names


def test_names_are_kept_in_files(states, belief, tmp_path):
    CautiousPolicy(belief, "1-of-6", bad_rows_action="ask").save(tmp_path / "policy")
    policy = CautiousPolicy.load(tmp_path / "policy")
    assert policy.belief.columns == belief.columns
    assert policy.belief.actions == ("rest", "pill", "ask")
    assert policy.bad_rows_action == 2
    assert repr(policy) == "CautiousPolicy(1-of-6, 6 models, 3 actions, bad rows get ask)"
    assert repr(belief) == "RewardEnsemble(6 models, 3 actions (rest, pill, ask), temperature, pulse, site)"
    assert FallbackRule(policy.belief, "ask").action == 2


def test_a_decision_speaks_the_frames_language(states, belief):
    few = states.iloc[3:9]
    decision = CautiousPolicy(belief, "1-of-6").decide(few)
    frame = decision.to_frame()
    assert frame.index.equals(few.index)
    assert frame["action"].tolist() == decision.names == ["pill", "rest"] * 3
    assert list(frame) == ["action", "ordinary", "departs", "caution", "disagreement", "gap", "value", "reason", "why"]
    assert pl.DataFrame(decision.to_dict())["action"].to_list() == decision.names
    assert repr(decision) == "Decision(6 states: rest in 3, pill in 3; 0 depart)"
    unnamed = CautiousPolicy(torch.rand(6, 3, 2), "1-of-6").decide([0, 2]).to_frame()
    assert unnamed["action"].isin([0, 1]).all()


def test_one_row_by_name(states, belief):
    policy = CautiousPolicy(belief, "1-of-6")
    row = states.iloc[0]
    assert policy.predict(row)[0] == policy.predict(row.to_dict())[0] == policy.decide(states[:1]).action[0] == 0
    assert policy.predict(row[["site", "pulse", "temperature"]])[0] == 0
    assert FallbackRule(belief, "ask").predict(row)[0] == 0
    assert policy.predict({name: [value] for name, value in row.items()})[0].shape == (1,)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda f: f.rename(columns={"pulse": "Pulse"}),
            r"no column 'pulse'; there are 'Pulse' instead\. A state needs",
        ),
        (lambda f: f[["site"]], "no columns 'temperature', 'pulse'"),
        (lambda f: f.assign(age=3), "'age' was not in the training; give the columns 'temperature', 'pulse', 'site'"),
        (lambda f: f[:0], "there is no row"),
        (lambda f: pd.concat([f, f[["site"]]], axis=1), "two columns are named 'site'"),
        (lambda f: f.assign(site=[["north"]] * len(f)), "column 'site': row 0 is a list"),
        (lambda f: {**f.to_dict("list"), "site": ["north"]}, "columns of different lengths: 'site' has 1 rows"),
        (lambda f: {"site": np.zeros((2, 2))}, "expected one value per row, got an array of shape"),
        (lambda f: {}, "there is no column"),
    ],
)
def test_columns_that_do_not_fit_are_named(states, belief, change, says):
    for ask in (belief.rewards, CautiousPolicy(belief, "1-of-6").decide, FallbackRule(belief, 2).decide):
        with pytest.raises(InvalidInputError, match=says):
            ask(change(states))


def test_names_need_a_belief_that_has_them(states):
    belief = fit_ensemble(as_array(states), paid(states).to_numpy(), **SMALL)
    with pytest.raises(InvalidInputError, match="trained on arrays without names"):
        belief.rewards(states.to_dict("list"))


def test_rewards_may_have_names_alone(states, tmp_path):
    belief = fit_ensemble(as_array(states), paid(states), **SMALL)
    belief.save(tmp_path)
    assert RewardEnsemble.load(tmp_path).actions == ("rest", "pill", "ask")
    assert CautiousPolicy(belief, "1-of-6").decide(as_array(states)[:2]).names == ["rest", "pill"]


def test_rewards_go_with_the_rows_of_their_labels(states, belief):
    assert torch.equal(fit_ensemble(states, paid(states).iloc[::-1], **SMALL).parameters, belief.parameters)
    other = paid(states).set_axis(range(120))
    with pytest.raises(InvalidInputError, match="its rows have other labels than the rows of inputs"):
        fit_ensemble(states, other, **SMALL)
    with pytest.raises(InvalidInputError, match=r"expected shape \[S, A\] with S=120"):
        fit_ensemble(states, paid(states)[:7], **SMALL)
    odd = paid(states).astype({"ask": object})
    odd.loc["case 2", "ask"] = "?"
    with pytest.raises(
        InvalidInputError, match=r"1 of 120 rows .* column 'ask' is not a number in row case 2 \('\?'\)"
    ):
        fit_ensemble(states, odd, **SMALL)


def test_a_log_is_a_pivot_away(states):
    log = states.assign(done=np.resize(["rest", "pill", "ask"], len(states)))
    log["paid"] = [paid(states).loc[label, done] for label, done in log["done"].items()]
    belief = fit_ensemble(states, log.pivot(columns="done", values="paid"), **SMALL)
    assert belief.actions == ("ask", "pill", "rest")
    assert CautiousPolicy(belief, "6-of-6").decide(states[:2]).names == ["rest", "pill"]


def test_rows_with_holes_are_left_out_with_a_warning(states):
    holes = states.copy()
    holes.loc["case 4", "pulse"], holes.loc["case 7", "site"] = np.nan, None
    rewards = paid(states)
    with pytest.warns(
        TableWarning, match=r"inputs: 2 of 120 rows .* 'pulse' is empty in row case 4; column 'site' is empty"
    ):
        belief = fit_ensemble(holes, rewards, **SMALL)
    whole = states.drop(["case 4", "case 7"])
    assert torch.equal(belief.parameters, fit_ensemble(whole, rewards.loc[whole.index], **SMALL).parameters)
    with pytest.warns(TableWarning, match="empty cells are learned as such"):
        belief = fit_ensemble(holes, rewards, missing="indicator", **SMALL)
    assert belief.state_shape == (6,)  # temperature; pulse and whether it is there; two sites and whether one is there
    assert CautiousPolicy(belief, "6-of-6").decide(holes.loc[["case 4", "case 7"]]).names == ["rest", "pill"]
    with pytest.raises(InvalidInputError, match="missing='guess' is not known; choose one of 'leave-out', 'indicator'"):
        fit_ensemble(holes, rewards, missing="guess")


def test_identifiers_are_named(states):
    with pytest.warns(TableWarning) as caught:
        belief = fit_ensemble(states.assign(name=states.index, number=range(120)), paid(states), **SMALL)
    said = " ".join(str(warning.message) for warning in caught)
    assert "column 'name' has 120 different texts in 120 rows: a name or a note of each row" in said
    assert "column 'number' has another whole number in each of 120 rows" in said
    assert [feature.name for feature in belief.columns.features] == ["temperature", "pulse", "site", "number"]
    named = states[:2].assign(name="new", number=3)
    assert torch.equal(belief.rewards(named), belief.rewards(named.drop(columns="name")))


@pytest.mark.filterwarnings("ignore::cautious.policy.calibration.CalibrationWarning")
def test_calibration_by_name(states, belief):
    fresh, policy = cases(80, 1), CautiousPolicy(belief, "1-of-6")
    found = calibrate(policy, fresh[["site", "pulse", "temperature"]], at_most=0.2, progress=False)
    assert found == calibrate(policy, as_array(fresh), at_most=0.2, progress=False)
    rewards = paid(states)
    swapped = calibrate(policy, states, rewards[["ask", "pill", "rest"]], at_most=0.2, folds=2, progress=False)
    assert swapped == calibrate(policy, as_array(states), rewards.to_numpy(), at_most=0.2, folds=2, progress=False)
    with pytest.raises(InvalidInputError, match="the actions of the training were 'rest', 'pill', 'ask'"):
        calibrate(policy, states, rewards[["rest", "pill"]], progress=False)


def test_familiar_rows_that_cannot_be_judged_are_left_out_of_a_calibration(belief):
    fresh = cases(80, 1)
    holes = fresh.copy()
    holes.loc["case 3", "pulse"] = np.nan
    whole = fresh.drop("case 3")
    policy = CautiousPolicy(belief, "1-of-6")
    with pytest.warns(
        CalibrationWarning, match=r"1 of 80 rows .* column 'pulse' is empty in row case 3; they are left out"
    ):
        found = calibrate(policy, holes, at_most=0.2, progress=False)
    assert found == calibrate(policy, whole, at_most=0.2, progress=False)
    with pytest.raises(InvalidInputError, match="no row is left"), pytest.warns(CalibrationWarning):
        calibrate(policy, holes.loc[["case 3"]], progress=False)


def test_cells_of_any_type():
    cells = [1, 2.5, True, None, pd.NA, pd.NaT, np.nan, " 7 ", "x", Decimal("3.5"), "NA", np.float32(2), float("inf")]
    column = as_table({"x": cells}, "states").read("x")
    assert column.missing.tolist() == [n in (3, 4, 5, 6, 10) for n in range(13)]
    expected = [1, 2.5, 1, 0, 0, 0, 0, 7, 0, 3.5, 0, 2, 0]
    assert np.nan_to_num(column.numbers).tolist() == expected
    assert column.texts()[:3] == ["1", "2.5", "True"]


def test_what_only_speaks_the_interchange_protocol(belief, states):
    class Foreign:
        def __init__(self, frame: pd.DataFrame) -> None:
            self._frame = pa.Table.from_pandas(frame, preserve_index=False)

        def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
            return self._frame.__dataframe__()

    assert is_frame(Foreign(states))
    assert torch.equal(belief.rewards(Foreign(states[:4])), belief.rewards(states[:4]))


def test_truth_values_of_a_frame_are_texts_of_a_file(tmp_path):
    from cautious.tables.files import read_table
    from cautious.tables.learn import Missing, learn_log
    from cautious.tables.schema import OutcomeColumns

    path = tmp_path / "log.csv"
    path.write_text("flag,x,done,paid\n" + "".join(f"{'true' if n % 3 else 'false'},{n % 5},a,1\n" for n in range(30)))
    learned, _ = learn_log(read_table(path), OutcomeColumns("done", "paid"), (), Missing.LEAVE_OUT)
    frame = pd.read_csv(path)
    assert frame["flag"].dtype == bool
    assert torch.equal(learned.schema.states(as_table(frame, "states")), learned.states)


def test_no_package_of_frames_is_imported_unasked():
    code = (
        "import sys, torch, cautious; b = cautious.fit_ensemble({'x': [0.1 * n for n in range(40)]}, {'a': list(range(40)), "
        "'b': [1.0] * 40}, num_models=2, num_epochs=1, validation_fraction=0, progress=False); "
        "cautious.CautiousPolicy(b, '1-of-2').decide({'x': [1.0, 2.0]}).to_dict(); "
        "print([name for name in ('pandas', 'polars', 'pyarrow') if name in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_a_module_of_ones_own_takes_frames(states):
    def network() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))

    with pytest.warns(BeliefWarning):
        belief = fit_ensemble(states, paid(states), network=network, **SMALL)
    assert torch.equal(belief.rewards(states[:3]), belief.rewards(as_array(states[:3])))


def test_a_row_whose_labels_are_numbers_goes_by_them():
    """Not the numbers that every series has: swapped columns would be taken in the wrong order."""
    numbered = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)))
    policy = CautiousPolicy(fit_ensemble(numbered, (numbered > 0).astype(float), **SMALL), "1-of-3")
    state = pd.DataFrame([[2.0, -2.0]])
    swapped = state[[1, 0]]
    assert policy.predict(swapped.iloc[0])[0] == policy.predict(swapped)[0][0] == policy.predict(state.iloc[0])[0]


def test_columns_with_different_labels_are_not_joined_by_position(belief, states):
    columns = {name: states[name] for name in states}
    with pytest.raises(InvalidInputError, match="different labels; pass a DataFrame"):
        belief.rewards(columns | {"pulse": states["pulse"].sort_values()})


def test_a_record_batch_of_arrow_is_a_frame(belief, states):
    batch = pa.RecordBatch.from_pandas(states, preserve_index=False)
    assert torch.equal(belief.rewards(batch), belief.rewards(states))


def test_differences_of_times_are_seconds():
    lengths = [1.5, 3600.0, 3 * 86400.0]
    deltas = [datetime.timedelta(seconds=length) for length in lengths]
    of_numpy = np.array([int(1000 * length) for length in lengths], dtype="timedelta64[ms]")
    for cells in (deltas, of_numpy, pd.Series(deltas), pd.Series([*deltas[:2], None], dtype="timedelta64[ns]")):
        column = as_table({"wait": cells}, "rows").read("wait")
        assert column.numbers[:2].tolist() == lengths[:2]
        assert np.isnan(column.numbers[2]) == column.missing[2] == (list(cells)[2] is pd.NaT)
