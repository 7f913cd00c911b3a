"""`import cautious`: quick, lazy, complete."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cautious


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_every_public_name_loads():
    for name in cautious.__all__:
        assert getattr(cautious, name) is not None
        assert name in dir(cautious)


def test_an_unknown_name_is_an_attribute_error_that_lists_the_known():
    with pytest.raises(AttributeError, match="KofN"):
        cautious.Kofn  # noqa: B018


def test_import_alone_loads_nothing_heavy():
    code = "import sys, cautious; print([m for m in ('torch', 'scipy', 'matplotlib', 'tyro') if m in sys.modules])"
    assert run_python(code).strip() == "[]"


def test_the_core_works_without_the_optional_dependencies():
    code = """
import sys
for name in ("gymnasium", "tyro", "pooch", "ray"):
    sys.modules[name] = None
import torch, cautious
for name in cautious.__all__:
    try:
        getattr(cautious, name)
    except ImportError:
        assert name in ("DiscretiseObservation", "KofNPPO"), name  # about Gymnasium's environments
print(cautious.solve_bandit(torch.rand(4, 2, 3), "1-of-2", num_iterations=2).policy.shape)
"""
    assert "torch.Size([2, 3])" in run_python(code)


def test_sparse_tensors_are_built_without_a_warning():
    """Torch warns once a process where nobody said whether to check them, so this needs one of its own."""
    code = """
import warnings
warnings.simplefilter("error")
import torch
from cautious_paper.networks.driving import PairInputs
from cautious_paper.worlds.driving import driving_world
from cautious_paper.worlds.driving_rules import START
from cautious.mdp.from_gymnasium import _joined
print(driving_world(novel=False).mdp.transitions.layout)
pairs = PairInputs([START, START], torch.tensor([[0, 1], [1, 0]]))
print(torch.sparse.mm(pairs.incidence[0], torch.ones(2, 1)).sum().item())
print(_joined([(0, 0, 0, 1.0, 0.0, False)], 1, 1, torch.ones(1)).transitions.layout)
"""
    assert run_python(code).split() == ["torch.sparse_coo", "2.0", "torch.sparse_coo"]
