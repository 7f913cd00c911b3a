from __future__ import annotations

import numpy as np
import pytest
import torch

from cautious.errors import CautiousError, InvalidInputError
from cautious.types import Regime
from cautious.validation import (
    as_float_tensor,
    check_distribution,
    check_finite,
    check_shape,
    parse_choice,
    parse_count,
)


def test_errors_are_one_family_and_also_value_errors():
    assert issubclass(InvalidInputError, CautiousError)
    assert issubclass(InvalidInputError, ValueError)


def test_a_shape_error_shows_both_shapes():
    with pytest.raises(InvalidInputError, match=r"rewards: expected shape \[M, S, A\] with S=3, got \[4, 2, 5\]"):
        check_shape(torch.zeros(4, 2, 5), "M S A", "rewards", S=3)
    with pytest.raises(InvalidInputError, match=r"expected shape \[M, S, A\], got \[4, 2\]"):
        check_shape(torch.zeros(4, 2), "M S A")
    with pytest.raises(InvalidInputError, match="is empty"):
        check_shape(torch.zeros(4, 0, 2), "M S A")


def test_a_batch_may_stand_in_front():
    check_shape(torch.zeros(7, 8, 4, 2), "... S A", S=4, A=2)
    with pytest.raises(InvalidInputError):
        check_shape(torch.zeros(3), "... S A")


def test_the_first_bad_entry_is_named():
    values = torch.zeros(2, 3)
    values[1, 2] = float("nan")
    with pytest.raises(InvalidInputError, match=r"entry \[1, 2\] is nan"):
        check_finite(values, "rewards")
    check_finite(torch.tensor([1e308, 1e308], dtype=torch.float64), "large but finite")


def test_distributions():
    check_distribution(torch.tensor([[0.5, 0.5]]), "policy")
    with pytest.raises(InvalidInputError, match=r"row \[1\] sums to 1.5"):
        check_distribution(torch.tensor([[0.5, 0.5], [1.0, 0.5]]), "policy")
    with pytest.raises(InvalidInputError, match="must be 0 or more"):
        check_distribution(torch.tensor([1.5, -0.5]), "policy")


def test_choices_list_what_is_known():
    assert parse_choice(Regime, "single-state", "regime") is Regime.SINGLE_STATE
    with pytest.raises(
        InvalidInputError, match=r"regime='test' is not known; choose one of 'all-states', 'single-state'"
    ):
        parse_choice(Regime, "test", "regime")


@pytest.mark.parametrize("value", [0, -3, 1.5, "3", True, None])
def test_counts_are_whole_and_positive(value):
    with pytest.raises(InvalidInputError, match="num_iterations"):
        parse_count(value, "num_iterations")


def test_arrays_of_any_number_type_come_in():
    assert as_float_tensor(np.arange(3), "x").dtype == torch.float64
    assert as_float_tensor(np.arange(3, dtype=np.float32), "x").dtype == torch.float32
    assert as_float_tensor([[1, 2], [3, 4]], "x").shape == (2, 2)
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    assert as_float_tensor(frozen, "x").sum() == 0
    for wrong in ("text", [[1], [1, 2]], np.array([1j]), np.ma.array([1.0], mask=[True]), [None]):
        with pytest.raises(InvalidInputError, match="x:"):
            as_float_tensor(wrong, "x")
