"""A result has the same bits in any company, under every instruction set that this machine has, on any number of threads.

Another instruction set may give other bits, and does: what is promised, and what is not, is in docs/reproducibility.md.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bits_cases

SCRIPT = Path(bits_cases.__file__)
INSTRUCTION_SETS = {
    "ONEDNN_MAX_CPU_ISA": ("SSE41", "AVX2", "ALL"),
    "ATEN_CPU_CAPABILITY": ("default", "avx2", "avx512"),
}
NEEDED = {"AVX2": "avx2", "avx2": "avx2", "avx512": "avx512f"}
"""What /proc/cpuinfo must list; what is not here runs on every CPU that torch runs on."""


@functools.cache
def cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split() for line in lines if line.startswith("flags")), ()))


@functools.cache
def digests(num_threads: int, *setting: str) -> dict[str, str]:
    """What the cases give in a process of their own: a digest of each result, or what differs."""
    environment = {name: value for name, value in os.environ.items() if name not in INSTRUCTION_SETS}
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = str(num_threads)
    if setting:
        environment[setting[0]] = setting[1]
    call = [sys.executable, SCRIPT, str(num_threads)]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found.pop("num_threads") == num_threads
    assert found.keys() == bits_cases.CASES.keys()
    return found


@pytest.mark.parametrize("case", bits_cases.CASES)
def test_the_same_bits_in_any_company(case):
    bits_cases.CASES[case]()


@pytest.mark.parametrize("num_threads", [2, 4])
def test_the_same_bits_on_any_number_of_threads(num_threads):
    assert digests(num_threads) == digests(1)
    assert not any(text.startswith("differs") for text in digests(1).values())


@pytest.mark.parametrize(
    "setting", [(name, value) for name, values in INSTRUCTION_SETS.items() for value in values], ids="=".join
)
def test_the_same_bits_in_any_company_under_each_instruction_set(setting):
    needed = NEEDED.get(setting[1])
    if needed is not None and needed not in cpu_flags():
        pytest.skip(f"this CPU has no {needed}")
    found = digests(2, *setting)
    assert {name: text for name, text in found.items() if text.startswith("differs")} == {}
