"""Pieces of work side by side: a failure is noticed when it happens."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch

from cautious.parallel import parallel_map, single_thread


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


def test_a_thread_that_leaves_before_another_has_its_number_back_after_its_next_call():
    """A enters, B enters, A leaves, B leaves: then nobody takes the 1 that A was left with for the usual number."""
    a_is_in, b_is_in, a_is_out, b_is_out = (threading.Event() for _ in range(4))
    seen = []

    def a() -> None:
        with single_thread() as usual:
            seen.append(usual)
            a_is_in.set()
            b_is_in.wait(10)
        a_is_out.set()
        b_is_out.wait(10)
        with single_thread() as usual:
            seen.append(usual)
            assert torch.get_num_threads() == 1
        seen.append(torch.get_num_threads())

    def b() -> None:
        a_is_in.wait(10)
        with single_thread() as usual:
            seen.append(usual)
            b_is_in.set()
            a_is_out.wait(10)
            seen.append(torch.get_num_threads())
        b_is_out.set()

    threads = [threading.Thread(target=work) for work in (a, b)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [2, 2, 1, 2, 2]
    assert torch.get_num_threads() == 2


def test_a_task_that_cuts_its_own_work_stays_on_its_core():
    def task(number: int) -> list[tuple[int, int]]:
        return parallel_map(lambda inner: (threading.get_ident(), torch.get_num_threads()), 3)

    for found in parallel_map(task, 4):
        assert len({thread for thread, _ in found}) == 1
        assert {count for _, count in found} == {1}


def test_an_error_gives_the_threads_back():
    with pytest.raises(ZeroDivisionError):
        parallel_map(lambda number: 1 // number, 3)
    assert torch.get_num_threads() == 2


IN_THE_MIDDLE = """
import os, signal, threading, torch
from cautious import parallel
inside, done = threading.Event(), threading.Event()
def other():
    with parallel.single_thread():
        with parallel._lock:
            inside.set()
            done.wait()
thread = threading.Thread(target=other)
thread.start()
inside.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    with parallel.single_thread():
        torch.rand(2**20).sqrt()
    os._exit(0)
status = os.waitpid(child, 0)[1]
done.set()
thread.join()
assert status == 0, status
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_forked_while_another_thread_computes_is_not_stuck():
    subprocess.run([sys.executable, "-W", "ignore", "-c", IN_THE_MIDDLE], timeout=60, check=True)
