"""Pieces of work side by side: a failure is noticed when it happens."""

from __future__ import annotations

import threading

import pytest
import torch

from cautious.parallel import parallel_map


@pytest.fixture(autouse=True)
def _two_cores():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_order():
    assert parallel_map(lambda number: number**2, 7) == [0, 1, 4, 9, 16, 25, 36]


def test_a_piece_that_fails_stops_those_before_it():
    told, stopped = threading.Event(), []

    def work(number: int) -> None:
        if number == 0:
            stopped.append(told.wait(timeout=20))  # as a long training does, which asks now and then whether to stop
        else:
            raise ValueError("piece 1")

    with pytest.raises(ValueError, match="piece 1"):
        parallel_map(work, 2, told.set)
    assert stopped == [True]
